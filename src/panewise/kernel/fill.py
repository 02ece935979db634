"""Fill: which rows lie within which segments. Two sorted sequences per key, merged; nothing else is compared.

A segment reaches from `lo` to `hi`, both included: its bounds after widening and shifting. Rows and segments of one key
share a slot; rows are sorted by slot, then by `at`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.kernel import tally
from panewise.kernel.aggregates import Aggregation, Inputs
from panewise.kernel.compiled import compiled
from panewise.kernel.keys import codes, grouped
from panewise.kernel.page import Array, in_one
from panewise.kernel.progress import Progress, check_amounts, progress_of
from panewise.kernel.reducers import reduced
from panewise.spec.aggregates import Calls, input_columns
from panewise.spec.fill import Filling

__all__ = ["FillLayout", "Tallies", "furthest", "located", "pairs", "reach", "sorted_rows", "together"]


@dataclass(frozen=True)
class FillLayout:
    """A filling over columns of known types: what the executors share. `at` is as the segments have it."""

    filling: Filling
    agg: Calls
    key_types: tuple[pa.DataType, ...]
    at_type: pa.DataType
    input_types: tuple[pa.DataType | None, ...]
    parts: bool = False
    """Whether a column `part` says which part of its segment each is."""

    def __post_init__(self) -> None:
        check_amounts(self.filling.amounts, self.progress)

    @property
    def plan(self) -> Filling:
        """What says how far the rows have come."""
        return self.filling

    @property
    def progress(self) -> Progress:
        """How `at` is held."""
        return progress_of(self.filling.time, self.at_type)

    @property
    def aggregation(self) -> Aggregation:
        """The aggregates over the rows of a segment."""
        return Aggregation(self.agg, self.input_types)

    def inputs(self, rows: pa.Table) -> Inputs:
        """What aggregates read of rows a0, ...."""
        return self.aggregation.inputs(input_columns(self.agg), rows)

    def moves(self) -> tuple[float | int, float | int]:
        """How far the bounds of a segment are moved, in the unit of `at`."""
        given = self.filling
        sizes = [0 if a is None else self.progress.amount("widen", a) for a in (given.before, given.after)]
        shift = 0 if given.shift is None else self.progress.amount("shift", given.shift)
        return shift - sizes[0], shift + sizes[1]


@dataclass
class Tallies:
    """The aggregates of some segments, while rows are still added."""

    aggregation: Aggregation
    floats: Array
    ints: Array
    reduced: list[pa.Array]
    """The states of reducers."""

    @classmethod
    def empty(cls, segments: int, aggregation: Aggregation) -> Tallies:
        """Of no rows yet."""
        shape = (segments, len(aggregation), tally.N_CELLS)
        nothing = [pa.nulls(segments, reducer.state) for reducer in aggregation.reducers]
        return cls(aggregation, np.zeros(shape, np.float64), np.zeros(shape, np.int64), nothing)

    def __len__(self) -> int:
        return len(self.ints)

    def add(self, first: Array, last: Array, inputs: Inputs, at: Array) -> None:
        """Add rows first[s] to last[s] to segment s."""
        tally.tally_ranges(self.floats, self.ints, first, last, inputs.cells, tally.ranks(at))
        if self.reduced:
            owner, rows = pairs(first, last)
            self._reduce(owner, rows, inputs)

    def own(self, owner: Array, inputs: Inputs, at: Array) -> None:
        """Add row i to segment owner[i]."""
        tally.tally_owned(self.floats, self.ints, owner, inputs.cells, tally.ranks(at))
        if self.reduced:
            self._reduce(owner, None, inputs)

    def take(self, rows: tuple[Array, Array, Inputs], edges: Array, bounds: tuple[Array, ...], taken: Array) -> None:
        """Add rows (slots, `at`, inputs) that come in any order; see `tally_rows`."""
        slots, at, inputs = rows
        places = (slots, at, inputs.cells, tally.ranks(at))
        tally.tally_rows(self.floats, self.ints, places, edges, bounds, taken)
        if self.reduced:
            owner, taken_rows = tally.row_pairs(slots, at, edges, bounds)
            self._reduce(owner, taken_rows, inputs)

    def _reduce(self, owner: Array, rows: Array | None, inputs: Inputs) -> None:
        """Add rows[j], or row j, to what reducers hold of segment owner[j]."""
        some, mine = np.unique(owner, return_inverse=True)
        for i, (reducer, column) in enumerate(zip(self.aggregation.reducers, inputs.columns, strict=True)):
            values = column if rows is None else column.take(pa.array(rows))
            self._update(i, some, reduced(reducer, mine, values, len(some)), np.arange(len(some)))

    def _update(self, i: int, some: Array, more: pa.Array, mine: Array) -> None:
        """Merge states into those of reducer i: more[j] into that of segment some[mine[j]]."""
        old = self.reduced[i]
        both = pa.concat_arrays([old.take(pa.array(some)), more])
        made = self.aggregation.reducers[i].merge(np.concatenate([np.arange(len(some)), mine]), both, len(some))
        chosen = np.arange(len(old))
        chosen[some] = len(old) + np.arange(len(some))
        self.reduced[i] = pa.concat_arrays([old, made]).take(pa.array(chosen))

    def of(self, some: Array) -> Tallies:
        """Of some of the segments."""
        chosen = pa.array(np.flatnonzero(some) if some.dtype == bool else some)
        states = [states.take(chosen) for states in self.reduced]
        return Tallies(self.aggregation, self.floats[some], self.ints[some], states)

    @staticmethod
    def joined(some: Sequence[Tallies]) -> Tallies:
        """Of some segments, and more segments."""
        floats, ints = (np.concatenate([getattr(each, name) for each in some]) for name in ("floats", "ints"))
        states = [pa.concat_arrays(each) for each in zip(*(tallies.reduced for tallies in some), strict=True)]
        return Tallies(some[0].aggregation, floats, ints, states)

    def between(self, first: int, last: int) -> Tallies:
        """Of the segments from `first` up to, not including, `last`; what is added to their cells is added to these."""
        states = [states.slice(first, last - first) for states in self.reduced]
        return Tallies(self.aggregation, self.floats[first:last], self.ints[first:last], states)

    def grown(self, count: int) -> Tallies:
        """With so many more, of no rows yet."""
        return Tallies.joined([self, Tallies.empty(count, self.aggregation)])

    def columns(self) -> dict[str, pa.Array]:
        """As columns beside the segments."""
        columns = {}
        used = zip(("floats", "ints"), (self.floats, self.ints), tally.used(self.aggregation.kinds), strict=True)
        for name, cells, places in used:
            some = cells.reshape(len(cells), cells.shape[1] * tally.N_CELLS)[:, places]
            none = pa.nulls(len(cells), pa.int8())
            columns[name] = (
                pa.FixedSizeListArray.from_arrays(pa.array(some.reshape(-1)), len(places)) if len(places) else none
            )
        return columns | dict(zip(self.names(self.aggregation)[2:], self.reduced, strict=True))

    @staticmethod
    def names(aggregation: Aggregation) -> tuple[str, ...]:
        """What these columns are called."""
        return "floats", "ints", *(f"reduced{i}_" for i in range(len(aggregation.reducers)))

    @classmethod
    def read(cls, columns: Mapping[str, pa.ChunkedArray], aggregation: Aggregation) -> Tallies:
        """From such columns, to go on with."""
        found = cls.empty(len(columns["floats"]), aggregation)
        used = zip(("floats", "ints"), (found.floats, found.ints), tally.used(aggregation.kinds), strict=True)
        for name, cells, places in used:
            if len(places):
                flat = in_one(columns[name]).flatten().to_numpy(zero_copy_only=False)
                whole = cells.reshape(len(cells), len(aggregation) * tally.N_CELLS)
                whole[:, places] = flat.reshape(len(cells), len(places))
        found.reduced = [in_one(columns[name]) for name in cls.names(aggregation)[2:]]
        return found

    def merge(self, owner: Array, more: Tallies) -> None:
        """Add tally i of `more` to segment owner[i]."""
        tally.merge_runs(self.floats, self.ints, owner, self.aggregation.kinds, more.floats, more.ints)
        if self.reduced:
            some, mine = np.unique(owner, return_inverse=True)
            for i, states in enumerate(more.reduced):
                self._update(i, some, states, mine)

    def folds(self) -> tuple[Array, Array, tuple[pa.Array, ...]]:
        """What results are made of."""
        return *tally.as_folds(self.aggregation.kinds, self.floats, self.ints), tuple(self.reduced)

    def results(self) -> list[pa.Array]:
        """One array per aggregate."""
        return self.aggregation.results(*self.folds())


def reach(layout: FillLayout, segments: pa.Table) -> tuple[Array, Array]:
    """The first and the last instant of each segment that rows are taken from, after widening; none where hi < lo.

    Of a segment that comes in parts, its first part is widened before it.
    """
    progress = layout.progress
    segment = in_one(segments.column("segment"))
    start, end = (_known(progress, pc.struct_field(segment, name)) for name in ("start", "end"))
    bounds = pc.fill_null(pc.struct_field(segment, "bounds"), "()")
    opens = np.asarray(pc.starts_with(bounds, "[").to_numpy(zero_copy_only=False), bool)
    closes = np.asarray(pc.ends_with(bounds, "]").to_numpy(zero_copy_only=False), bool)
    by_start, by_end = layout.moves()
    lo, hi = progress.moved(start, by_start), progress.moved(end, by_end)
    if layout.parts:
        # parts are widened on that side only, so what moves an end is the shift
        lo = np.where(segments.column("part").to_numpy() == 0, lo, progress.moved(start, by_end))
    lo, hi = np.where(opens, lo, progress.above(lo)), np.where(closes, hi, progress.below(hi))
    if segment.null_count:
        nowhere = np.asarray(segment.is_null().to_numpy(zero_copy_only=False))
        lo[nowhere], hi[nowhere] = progress.everything, progress.nothing
    return lo, hi


def _known(progress: Progress, column: pa.Array) -> Array:
    """Bounds as numbers; 0 where there is none."""
    if not column.null_count:
        return progress.numbers(column)
    found = np.zeros(len(column), progress.dtype)
    found[np.asarray(column.is_valid().to_numpy(zero_copy_only=False))] = progress.numbers(column.drop_null())
    return found


def together(a: Sequence[pa.Array], b: Sequence[pa.Array], rows_a: int, rows_b: int) -> tuple[Array, Array, int]:
    """Slots for two lists of keys, the same for equal ones, and how many there are."""
    if not a:
        return np.zeros(rows_a, np.int64), np.zeros(rows_b, np.int64), 1
    both = [pa.concat_arrays([x, y.cast(x.type)]) for x, y in zip(a, b, strict=True)]
    found, firsts = codes(both, rows_a + rows_b)
    return found[:rows_a], found[rows_a:], len(firsts)


def sorted_rows(slots: Array, at: Array, count: int) -> tuple[Array | None, Array]:
    """How to sort rows by slot, then `at` (None where they are), and where each slot begins."""
    if _is_sorted(slots, at):
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(slots, minlength=count), out=offsets[1:])
        return None, offsets
    # rows mostly come in order, so that to group them is to sort them
    order, offsets = grouped(slots, count)
    if not _is_sorted(slots[order], at[order]):
        order = np.lexsort((at, slots))
    return order, offsets


@compiled
def _is_sorted(slots: Any, at: Any) -> bool:
    for i in range(1, len(at)):
        if slots[i] < slots[i - 1] or (slots[i] == slots[i - 1] and at[i] < at[i - 1]):
            return False
    return True


@compiled
def located(slots: Any, lo: Any, hi: Any, offsets: Any, at: Any) -> Any:
    """For each segment the rows within its reach: from, and up to but not including."""
    first = np.zeros(len(slots), np.int64)
    last = np.zeros(len(slots), np.int64)
    for s in range(len(slots)):
        begin, end = offsets[slots[s]], offsets[slots[s] + 1]
        if begin == end or hi[s] < lo[s]:
            continue
        rows = at[begin:end]
        first[s] = begin + np.searchsorted(rows, lo[s], side="left")
        last[s] = begin + np.searchsorted(rows, hi[s], side="right")
    return first, last


@compiled
def furthest(hi: Any, edges: Any) -> Any:
    """The furthest that each segment or one before it reaches, slot by slot."""
    found = hi.copy()
    for k in range(len(edges) - 1):
        for s in range(edges[k] + 1, edges[k + 1]):
            if found[s] < found[s - 1]:
                found[s] = found[s - 1]
    return found


def pairs(first: Array, last: Array) -> tuple[Array, Array]:
    """Segments and rows that belong together, one pair after another."""
    counts = last - first
    owner = np.repeat(np.arange(len(first)), counts)
    offsets = np.cumsum(counts) - counts
    return owner, np.arange(int(counts.sum())) - np.repeat(offsets - first, counts)

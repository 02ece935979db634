"""Sorted rows of many keys, batch by batch, through the segment operator: one key after another.

The batches hold what Apply has made of the source, under fixed names: keys k0, k1, ..., `at`, framing values v0, ...,
conditions c0, ..., and what aggregates read, a0, ... (none for count(*), one for all that read the same).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.errors import DataError, InputError, SpecError
from panewise.kernel.aggregates import Aggregation
from panewise.kernel.emit import Emitter
from panewise.kernel.operator import SegmentOperator
from panewise.kernel.page import NULL, Array, Page, in_one
from panewise.kernel.prod import ARRIVED, answer_schema, check_answers
from panewise.kernel.progress import Progress, check_amounts, progress_of
from panewise.kernel.punctuate import is_per_key
from panewise.kernel.windows import grid_of
from panewise.spec.aggregates import Aggregate, Calls, input_columns
from panewise.spec.aside import SetAside
from panewise.spec.emit import FINAL, Emit
from panewise.spec.frames import RowWindows, Value, Windows, WindowScheme
from panewise.spec.plan import PlanSpec
from panewise.spec.prod import Prods
from panewise.spec.punctuate import per_key

__all__ = ["ORDER", "PAGE_ROWS", "Layout", "Reader", "Sequence", "check_condition", "check_ties", "check_value", "tied"]

PAGE_ROWS = 131_072
"""How many rows a page gathers, at least: fewer cost calls, more cost memory."""
ORDER = "panewise order"
"""The column of the order of segments in a window, by which first and last are found; the only tie_break of windows."""


def check_condition(option: str, text: str, found: str, boolean: bool) -> None:
    """Refuse a condition that is not boolean."""
    if not boolean:
        raise InputError(
            f'`{option}` ({text!r}) has type {found}, not boolean. Write a comparison, such as "speed > 30".'
        )


def check_value(option: str, value: Value, found: str, time: bool, number: bool) -> None:
    """Refuse a framing value that its amount does not fit."""
    if value.timed and not time:
        raise InputError(
            f"`{option}` ({value.text!r}) has type {found}, but its amount is a length of time. "
            "Give a number, or a column of times."
        )
    if time and not value.timed and option in ("amounts", "cells"):
        raise InputError(
            f"`{option}` ({value.text!r}) has type {found}, but its amount is a number. "
            'Give a length of time, such as "5 minutes".'
        )
    if not value.timed and not number:
        raise InputError(
            f"`{option}` ({value.text!r}) has type {found}, not a number. Cast it, or choose another value."
        )


def check_ties(plan: PlanSpec) -> None:
    """Refuse to order rows with one `at` where windows take them all."""
    if plan.ties != "all" or (plan.tie_break and not isinstance(plan.scheme, RowWindows)):
        name, value = ("tie_break", plan.tie_break) if plan.ties == "all" else ("ties", plan.ties)
        raise SpecError(f"`{name}` ({value!r}) is about rows with one `at`, and windows take all. Leave it out.")


@dataclass(frozen=True)
class Layout:
    """A plan over columns of known types: what the executors share."""

    plan: PlanSpec
    agg: Calls
    key_types: tuple[pa.DataType, ...]
    at_type: pa.DataType
    input_types: tuple[pa.DataType | None, ...]
    emit: Emit = FINAL
    prods: Prods | None = None
    """Where prods come from, if early answers are wanted."""
    arrives: bool = False
    """Whether it is known of each segment when the first of its rows arrived."""
    set_aside: SetAside | None = None
    """Which rows of bursts are set aside, if any."""

    def __getstate__(self) -> dict[str, Any]:
        # what is worked out from the rest does not travel
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __post_init__(self) -> None:
        check_amounts(self.plan.scheme.amounts, self.progress)
        if isinstance(self.plan.scheme, WindowScheme):
            self._check_windows(self.plan.scheme)
        if self.plan.punctuation is not None:
            check_amounts(self.plan.punctuation.amounts, self.progress)
        if self.emit.every is not None:
            check_amounts((("fragment_every", self.emit.every),), self.progress)
        named = {name.lower() for name, _ in self.agg}
        own = [name for name in self.schema.names[len(self.plan.keys) :] if name.lower() not in named]
        if self.prods is not None:
            check_answers(named)
        for key in self.plan.keys:
            if key.lower() in own:
                raise SpecError(
                    f"`by` ({key!r}) can't be a key: {', '.join(own)} are the segment's own. Rename the column."
                )
            if key.lower() in named:
                raise SpecError(f"`agg` ({key!r}) can't name a result: it is a key column. Choose another name.")

    def _check_windows(self, windows: WindowScheme) -> None:
        if isinstance(windows, Windows):
            grid_of(windows, self.progress)
        if self.plan.tie_break != (ORDER,):
            check_ties(self.plan)
        if self.plan.one_sequence and (per_key(self.plan) or is_per_key(self.plan)):
            raise SpecError(
                f"`punctuation` ({type(self.plan.punctuation).__name__}) tells of single keys, but rows of all "
                "keys are numbered together. Promise for all keys, or give `partitioned=True`."
            )
        if self.emit != FINAL:
            raise SpecError(
                f"`emit` ({self.emit.mode!r}) is for frames: a window is sent once, complete. Leave it out."
            )

    @cached_property
    def progress(self) -> Progress:
        """How `at` is held."""
        return progress_of(self.plan.ordered_by, self.at_type)

    def ranks(self, rows: pa.Table, at: Array) -> Array:
        """What first and last of windows on a grid go by: `at`; of segments that share a window, their own order."""
        if self.plan.tie_break != (ORDER,):
            return at
        return np.array(in_one(rows.column("b0")).to_numpy(), np.int64)

    @cached_property
    def aggregation(self) -> Aggregation:
        """The folds of the aggregates."""
        if not self.arrives:
            return Aggregation(self.agg, self.input_types)
        return Aggregation((*self.agg, (ARRIVED, Aggregate("min", ARRIVED))), (*self.input_types, pa.int64()))

    @cached_property
    def reads(self) -> tuple[str | None, ...]:
        """The column that each aggregate reads; None for count(*)."""
        return (*input_columns(self.agg), *([ARRIVED] if self.arrives else []))

    @cached_property
    def emitter(self) -> Emitter:
        """What makes the results."""
        keys = [pa.field(name, arrow) for name, arrow in zip(self.plan.keys, self.key_types, strict=True)]
        # windows of rows are bounded by the numbers of rows
        bounds = Progress("whole", pa.int64()) if isinstance(self.plan.scheme, RowWindows) else self.progress
        return Emitter(self.plan.scheme, keys, bounds, self.aggregation, self.emit)

    @cached_property
    def schema(self) -> pa.Schema:
        """Of the results."""
        schema, passes = self.emitter.schema, self.prods is not None and self.prods.passes
        # a plan that follows goes on from when rows first arrived
        schema = schema.remove(len(schema) - 1) if self.arrives and not passes else schema
        return schema if self.prods is None else answer_schema(schema, len(self.agg) + (self.arrives and passes))

    @property
    def operator(self) -> SegmentOperator:
        """What finds the segments."""
        return SegmentOperator(self.plan.scheme, self.progress, self.aggregation, self.emit)


class Reader:
    """Turns batches into pages."""

    def __init__(self, layout: Layout) -> None:
        scheme = layout.plan.scheme
        self._progress, self._aggregation, self._inputs = layout.progress, layout.aggregation, layout.reads
        self._n_values, self._n_conditions = len(scheme.values), len(scheme.conditions)
        named = zip(self._inputs, (*layout.input_types, *([pa.int64()] if layout.arrives else [])), strict=True)
        self._input_types = {name: kind for name, kind in named if name is not None}

    def page(
        self,
        batch: pa.RecordBatch,
        at: Array,
        offsets: Array,
        slots: Array,
        ends: Array,
        promised: tuple[Array, Array, Array] | tuple[()] = (),
    ) -> Page:
        """The rows of a batch, whose `at` is at hand already, and what was promised of each group."""
        rows = len(batch)
        values = np.empty((self._n_values, rows), np.float64)
        for v in range(self._n_values):
            values[v] = batch.column(f"v{v}").to_numpy(zero_copy_only=False)
        conditions = np.empty((self._n_conditions, rows), np.uint8)
        for c in range(self._n_conditions):
            conditions[c] = _bytes(batch.column(f"c{c}")).to_numpy(zero_copy_only=False)
        inputs = [None if name is None else batch.column(name) for name in self._inputs]
        read = self._aggregation.read(inputs, rows)
        told: dict[str, Any] = dict(zip(("told", "until", "soonest"), promised, strict=False))
        _, _, floats, ints, valid = read.cells
        return Page(
            at, conditions, values, floats, ints, valid, offsets, slots, ends, columns=read.columns, **told
        )  # fmt: skip

    def sorted(self, rows: pa.Table, order: Array) -> pa.RecordBatch:
        """What is read of rows, in an order: conditions as bytes, which are moved faster than bits."""
        conditions = {f"c{c}" for c in range(self._n_conditions)}
        read = [name for name in rows.column_names if name != "at"]
        columns = [in_one(rows.column(name)) for name in read]
        columns = [_bytes(each) if name in conditions else each for name, each in zip(read, columns, strict=True)]
        if not columns:
            columns, read = [pa.nulls(len(rows))], ["none"]
        return pa.RecordBatch.from_arrays(columns, names=read).take(pa.array(order))

    def standing(self, rows: pa.Table) -> pa.RecordBatch:
        """What is read of rows, as they stand."""
        columns = [in_one(column) for column in rows.columns]
        return pa.RecordBatch.from_arrays(columns, names=rows.column_names)

    def empty(self) -> pa.RecordBatch:
        """No rows."""
        fields = [pa.field(f"v{v}", pa.float64()) for v in range(self._n_values)]
        fields += [pa.field(f"c{c}", pa.bool_()) for c in range(self._n_conditions)]
        fields += [pa.field(name, kind) for name, kind in self._input_types.items()]
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in fields], schema=pa.schema(fields))

    def nothing(self) -> Page:
        """No rows of no key."""
        none, no_slots = np.empty(0, self._progress.dtype), np.empty(0, np.int64)
        return self.page(self.empty(), none, np.zeros(1, np.int64), no_slots, np.empty(0, bool))

    def last_page(self, slot: int) -> Page:
        """No rows: the key's stream ends."""
        none = np.empty(0, self._progress.dtype)
        return self.page(self.empty(), none, np.zeros(2, np.int64), np.array([slot], np.int64), np.ones(1, bool))


def _bytes(condition: pa.Array) -> pa.Array:
    """A condition as the operator sees it."""
    return pc.fill_null(condition.cast(pa.uint8()), NULL)


def _run_starts(column: pa.Array) -> Array:
    """Where the value of a column differs from the row before."""
    if pa.types.is_floating(column.type):
        bits = np.asarray(pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)).view(np.int64)
        absent = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
        return np.flatnonzero((np.diff(bits) != 0) | (np.diff(absent.astype(np.int8)) != 0)) + 1
    ends = pc.run_end_encode(column, run_end_type=pa.int64()).run_ends
    return np.asarray(ends)[:-1]


class Sequence:
    """The state of one pass: feed it sorted batches, then finish it."""

    def __init__(self, layout: Layout, page_rows: int = PAGE_ROWS) -> None:
        self._layout, self._page_rows = layout, page_rows
        self._progress, self._emitter = layout.progress, layout.emitter
        self._operator = layout.operator
        self._reader = Reader(layout)
        self._ties = layout.plan.ties
        self._key: list[pa.Array] | None = None
        self._slot = 0
        self._last_at: Array = np.empty(0, self._progress.dtype)
        self._held: pa.RecordBatch | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All batches in, all segments out."""
        gathered: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            gathered.append(batch)
            rows += len(batch)
            if rows >= self._page_rows:
                yield from self._feed(_joined(gathered))
                gathered, rows = [], 0
        if rows:
            yield from self._feed(_joined(gathered))
        yield from self._finish()

    def _feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for first in range(0, len(batch), self._page_rows):
            yield from self._page(batch.slice(first, self._page_rows))

    def _page(self, batch: pa.RecordBatch, last: bool = False) -> Iterator[pa.RecordBatch]:
        if self._ties == "last":
            batch = batch if self._held is None else _joined([self._held, batch])
            self._held = None if last else batch.slice(len(batch) - 1)
        keys = [batch.column(f"k{i}") for i in range(len(self._layout.key_types))]
        at = self._progress.numbers(batch.column("at"))
        starts = self._starts(keys, len(batch))
        if self._ties != "all":
            kept = self._without_ties(keys, at, starts, last)
            if kept is not None:
                batch = batch.filter(pa.array(kept))
                if not len(batch):
                    return
                keys = [key.filter(pa.array(kept)) for key in keys]
                at = at[kept]
                starts = self._starts(keys, len(batch))
        yield from self._segment(batch, keys, at, starts)

    def _starts(self, keys: list[pa.Array], rows: int) -> Array:
        """Where keys begin in the page; 0 is among them only if the page starts a new key."""
        changes = [_run_starts(key) for key in keys]
        same = self._key is not None and all(_same(old, key) for old, key in zip(self._key, keys, strict=True))
        starts = np.unique(np.concatenate(changes)) if changes else np.empty(0, np.int64)
        return starts.astype(np.int64) if same else np.concatenate([[0], starts]).astype(np.int64)

    def _without_ties(self, keys: list[pa.Array], at: Array, starts: Array, last: bool) -> Array | None:
        """Which rows stay when rows of one key with equal `at` count once."""
        repeats = np.empty(len(at), bool)
        repeats[1:] = at[1:] == at[:-1]
        repeats[0] = len(self._last_at) > 0 and bool(self._last_at[0] == at[0])
        repeats[starts] = False
        self._last_at = at[-1:]
        if not repeats.any() and (self._ties != "last" or last):
            return None
        if self._ties == "error":
            row = int(np.flatnonzero(repeats)[0])
            plan = self._layout.plan
            where = ", ".join(f"{n}={k[row].as_py()!r}" for n, k in zip(plan.keys, keys, strict=True))
            raise tied(plan, at[row : row + 1], self._progress, where)
        if self._ties == "first":
            return ~repeats
        kept = np.ones(len(at), bool)
        kept[:-1] = ~repeats[1:]
        kept[-1] = last
        return kept

    def _segment(
        self, batch: pa.RecordBatch, keys: list[pa.Array], at: Array, starts: Array
    ) -> Iterator[pa.RecordBatch]:
        rows = len(batch)
        offsets = np.concatenate([starts, [rows]]) if self._key is None else np.concatenate([[0], starts, [rows]])
        groups = len(offsets) - 1
        # all keys but the last end in this page: they take turns in one slot, the open one has the other
        slots = np.full(groups, 1 - self._slot)
        slots[0] = self._slot
        ends = np.ones(groups, bool)
        ends[-1] = False
        group_keys = [key.take(pa.array(starts)) for key in keys]
        if self._key is not None:
            group_keys = [pa.concat_arrays([old, new]) for old, new in zip(self._key, group_keys, strict=True)]
        page = self._reader.page(batch, at, offsets.astype(np.int64), slots.astype(np.int64), ends)
        self._key, self._slot = [key.slice(groups - 1) for key in group_keys], int(slots[-1])
        found = self._operator.on_page(page)
        if len(found):
            yield self._emitter.batch(group_keys, found)

    def _finish(self) -> Iterator[pa.RecordBatch]:
        if self._held is not None:
            held, self._held = self._held, None
            yield from self._page(held, last=True)
        if self._key is None:
            return
        found = self._operator.on_page(self._reader.last_page(self._slot))
        if len(found):
            yield self._emitter.batch(self._key, found)


def tied(plan: PlanSpec, at: Array, progress: Progress, where: str = "") -> DataError:
    """What ties="error" says of two rows with one `at`."""
    return DataError(
        f'`ties` ("error"): two rows{f" of {where}" if where else ""} have the same '
        f"`{plan.ordered_by}` ({progress.bounds(at)[0].as_py()}). "
        'Add tie_break columns, or choose ties="first" or "last".'
    )


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _same(old: pa.Array, new: pa.Array) -> bool:
    first = new.slice(0, 1)
    if pa.types.is_floating(new.type):
        return bool(old.is_null()[0].as_py() == first.is_null()[0].as_py()) and not len(
            _run_starts(pa.concat_arrays([old, first]))
        )
    return bool(old.equals(first))

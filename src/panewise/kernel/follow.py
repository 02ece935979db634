"""Plans over plans: how the segments that one plan finds become the rows of the next.

A segment is a row with `start`, `end` and `duration` beside its keys and aggregates. A plan of windows takes it as the
stretch that it is: it counts in every window that it meets, clipped to it. Every other plan takes it as a row at its
start, or at its end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.errors import SpecError
from panewise.kernel.page import Array, in_one
from panewise.kernel.progress import Progress, progress_of
from panewise.kernel.sequence import ORDER, check_ties
from panewise.kernel.tally import ranks
from panewise.kernel.tuples import number_of
from panewise.kernel.windows import Grid, check_count, grid_of
from panewise.spec.frames import Windows
from panewise.spec.plan import PlanSpec
from panewise.spec.punctuate import Punctuation

__all__ = ["Follow"]

WINDOW = "panewise window"
"""The column of the window that a segment meets."""
_SECOND = 1_000_000
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_OWN = ("start", "end", "id", "bounds", "duration")


@dataclass(frozen=True)
class Follow:
    """A plan over the segments of another, which come with these columns."""

    following: PlanSpec
    schema: pa.Schema
    """Of the segments."""

    def __post_init__(self) -> None:
        taken = [name for name in self.schema.names if name in (*_OWN, WINDOW, ORDER)]
        if taken:
            raise SpecError(
                f"`then`: the plan before it has a column {taken[0]!r}, which is what a segment's own is called there "
                f"({', '.join(_OWN)}). Rename it."
            )
        if self.following.time not in (None, "start", "end"):
            raise SpecError(
                f"`at` ({self.following.time!r}): a plan that follows is over segments, in order of their `start` or "
                '`end`. Leave .at() out, or give .at("end").'
            )
        scheme = self.following.scheme
        if isinstance(scheme, Windows) and scheme.range is None:
            raise SpecError(
                "`then` (landmark_windows): segments are clipped to windows, and these have no end of their own. "
                "Use sliding_windows or tumbling_windows."
            )
        if isinstance(scheme, Windows):
            # here, because the plan over window-ids has a tie_break of its own
            check_ties(self.following)

    @cached_property
    def progress(self) -> Progress:
        """How the bounds of segments are held."""
        return progress_of("start", self.schema.field("segment").type.field("start").type)

    @cached_property
    def grid(self) -> Grid | None:
        """The windows that segments are clipped to."""
        scheme = self.following.scheme
        return grid_of(scheme, self.progress) if isinstance(scheme, Windows) else None

    @property
    def by_end(self) -> bool:
        """Whether segments are in order of their ends."""
        return self.grid is None and self.following.time == "end"

    @property
    def ranked(self) -> bool:
        """Whether the order of segments in a window shows: they share a window-id, so it comes with them."""
        return self.grid is not None and any(call.function in ("first", "last") for _, call in self.following.calls)

    def plan(self, punctuation: Punctuation | None = None) -> PlanSpec:
        """What is run over the rows: where segments meet windows, windows of one window-id each."""
        if self.grid is None:
            return replace(self.following, time=self.following.time or "start", punctuation=punctuation)
        origin = 0 if self.grid.begins else None
        ids = Windows(range=1, slide=1, origin=origin, keep_empty=self.grid.keep_empty)
        order = (ORDER,) if self.ranked else ()
        return replace(self.following, scheme=ids, time=WINDOW, tie_break=order, punctuation=punctuation)

    @cached_property
    def rows_schema(self) -> pa.Schema:
        """Of the rows."""
        kept = [field for field in self.schema if field.name != "segment"]
        own = [(name, self.progress.type) for name in ("start", "end")]
        made = [*own, ("duration", self._measure), ("id", pa.int64()), ("bounds", pa.string())]
        met = [WINDOW] * (self.grid is not None) + [ORDER] * self.ranked
        return pa.schema([*kept, *made, *((name, pa.int64()) for name in met)])

    @property
    def _measure(self) -> pa.DataType:
        return pa.int64() if self.progress.unit in ("days", "whole") else pa.float64()

    def rows(self, segments: pa.Table) -> pa.Table:
        """Segments as rows; where they meet windows, one for each."""
        segment = in_one(segments.column("segment"))
        start, end = (self.progress.numbers(pc.struct_field(segment, name)) for name in ("start", "end"))
        columns = {name: segments.column(name) for name in segments.column_names if name != "segment"}
        columns |= {name: pc.struct_field(segment, name) for name in ("id", "bounds")}
        found = pa.table(columns)
        if self.grid is not None:
            owner, wids = self._met(self.grid, segment, start, end)
            found = found.take(pa.array(owner)).append_column(WINDOW, pa.array(wids))
            if self.ranked:
                by = end if self.following.time == "end" else start
                found = found.append_column(ORDER, pa.array(ranks(by)[owner]))
            first, last = self.grid.bounds(wids)
            start, end = np.maximum(start[owner], first), np.minimum(end[owner], last)
        return self._timed(found, start, end)

    def _timed(self, found: pa.Table, start: Array, end: Array) -> pa.Table:
        length: Array = end - start
        if self.progress.unit == "micros":
            length = length / _SECOND
        made = {"start": self.progress.bounds(start), "end": self.progress.bounds(end), "duration": pa.array(length)}
        for name, column in made.items():
            found = found.append_column(name, column)
        return found.select(self.rows_schema.names).cast(self.rows_schema)

    def _met(self, grid: Grid, segment: pa.Array, start: Array, end: Array) -> tuple[Array, Array]:
        """Segments and windows that meet, one pair after another."""
        bounds = pc.struct_field(segment, "bounds")
        opens, closes = (
            np.asarray(fits(bounds, mark).to_numpy(zero_copy_only=False), bool)
            for fits, mark in ((pc.starts_with, "["), (pc.ends_with, "]"))
        )
        low = np.where(opens, start, self.progress.above(start))
        high = np.where(closes, end, self.progress.below(end))
        each, whole = grid.panes
        first, last = grid.pane_of(low) // each, (grid.pane_of(high) + whole) // each - 1
        if grid.begins:
            first = np.maximum(first, 0)
        counts = np.where(high < low, 0, np.maximum(last - first + 1, 0))
        check_count(grid.slide, float(counts.sum(dtype=float)))
        owner = np.repeat(np.arange(len(counts)), counts)
        offsets = np.cumsum(counts) - counts
        return owner, first[owner] + np.arange(int(counts.sum())) - offsets[owner]

    def promise(self, until: Array) -> Array:
        """What promises about segments, by their starts or ends, promise about rows."""
        if self.grid is None:
            # a segment may start just after what was promised, and then its start is that instant, not included
            return self.progress.below(until)
        return self.grid.complete(until, self.progress)

    def until(self, passed: tuple[Any, Any]) -> Any:
        """The same, of starts and ends, as an `at` of the rows; None where nothing is known.

        A time is an Arrow scalar, because Python has no word for some.
        """
        given = passed[self.by_end]
        if not self.progress.nothing < given < self.progress.everything:
            return None
        promised = self.promise(np.array([given], self.progress.dtype))
        if self.grid is not None:
            return promised[0].item()
        return self.progress.bounds(promised)[0] if promised[0] > self.progress.nothing else None

    def asked(self, until: Any) -> Any:
        """What a prod asks for, as an `at` of the rows; None is all."""
        return self.asked_at(pa.array([until], self.progress.type))[0].as_py()

    def asked_at(self, until: pa.Array) -> pa.Array:
        """The same of some; null is all."""
        if self.grid is None:
            return until
        known = np.asarray(until.is_valid().to_numpy(zero_copy_only=False))
        found = np.zeros(len(until), np.int64)
        # the last window that ends by then; in ids, it ends with the next
        found[known] = self.grid.pane_of(self.progress.numbers(until.drop_null())) // self.grid.panes[0]
        return pa.array(found, mask=~known)

    def asked_on(self, until: pa.Array) -> pa.Array:
        """The same for a plan that tells all that is open, and only passes it on: the instants, as numbers."""
        if self.grid is None:
            return until
        known = np.asarray(until.is_valid().to_numpy(zero_copy_only=False))
        found = np.zeros(len(until), np.int64)
        # an id would be less than what was said, unless it ends just there
        found[known] = ranks(self.progress.numbers(until.drop_null()))
        return pa.array(found, mask=~known)

    def asked_back(self, passed: pa.ChunkedArray) -> pa.Array:
        """The inverse of `asked_on`, where segments meet windows."""
        column = in_one(passed)
        instants = number_of(np.array(pc.fill_null(column, 0).to_numpy(zero_copy_only=False)), self.progress)
        return pc.if_else(column.is_valid(), self.progress.bounds(instants), pa.scalar(None, self.progress.type))

    def passed(self, passed: tuple[Any, Any]) -> tuple[Any, Any]:
        """How far results have come, by their starts and ends: of window-ids, by the bounds of the next window."""
        if self.grid is None:
            return passed
        found = []
        for given, which in zip(passed, (0, 1), strict=True):
            if not _LEAST < given < _MOST:
                found.append(self.progress.nothing if given <= _LEAST else self.progress.everything)
                continue
            bounds = self.grid.bounds(np.array([given + 1], np.int64))[which]
            found.append(self.progress.below(bounds)[0])
        return found[0], found[1]

    def bounded(self, found: pa.Table) -> pa.Table:
        """Results with the bounds of their windows, in place of window-ids."""
        if self.grid is None:
            return found
        segment = in_one(found.column("segment"))
        ids = np.asarray(pc.struct_field(segment, "id").to_numpy())
        start, end = (self.progress.bounds(each) for each in self.grid.bounds(ids))
        made = [pa.array(ids), start, end, pc.struct_field(segment, "bounds")]
        place = found.column_names.index("segment")
        return found.set_column(place, "segment", pa.StructArray.from_arrays(made, fields=list(self.segment)))

    @property
    def segment(self) -> pa.DataType:
        """The type of the results' segments."""
        bound = self.progress.type
        return pa.struct([("id", pa.int64()), ("start", bound), ("end", bound), ("bounds", pa.string())])

"""Shards of streams of windows. Rows are added up as they come, and none waits; but for windows of so many rows.

Those number rows in order, so that a row waits, as for frames, until progress has passed it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel.aside import AsideOperator, Unsent, ranges
from panewise.kernel.keys import slots_of
from panewise.kernel.order import sort_indices
from panewise.kernel.page import Array, in_one
from panewise.kernel.prodding import Fresh, Prodding
from panewise.kernel.sequence import Layout
from panewise.kernel.shard import Shard
from panewise.kernel.tuples import TupleOperator
from panewise.kernel.windowing import WindowOperator
from panewise.kernel.windows import Grid, grid_of, row_grid
from panewise.spec.frames import RowWindows, TupleWindows, Windows
from panewise.spec.punctuate import SlackRows, SlackTime

__all__ = ["WindowShard", "new_shard"]


def new_shard(layout: Layout, shards: int = 1, state: bytes | None = None) -> Shard:
    """The shard of a plan."""
    kinds = {Windows: WindowShard, TupleWindows: _TupleShard, RowWindows: _RowShard}
    return kinds.get(type(layout.plan.scheme), Shard)(layout, shards, state)


class _Counting(Shard):
    """Window-ids do not count from 0, so it is kept which keys have had a window."""

    def _made(self, layout: Layout) -> Any:
        self._had = np.zeros(0, np.uint8)
        return None

    def _certain(self, state: Mapping[str, Array]) -> Callable[[Any], Array]:
        return lambda found: np.ones(len(found), bool)

    def _first_found(self, found: Any, partial: Array) -> int:
        had = np.append(self._had, np.zeros(len(self._table) - len(self._had), np.uint8))
        before = int(had.sum())
        had[found.group] = 1
        self._had = had
        return int(had.sum()) - before

    def _kept(self) -> dict[str, Array]:
        return {"had": self._had}

    def _resume(self, arrays: dict[str, Array]) -> None:
        self._had = arrays.pop("had")


class _AnyOrder(_Counting):
    """Rows are taken as they come."""

    def __init__(self, layout: Layout, shards: int = 1, state: bytes | None = None) -> None:
        super().__init__(layout, shards, state)
        given = layout.plan.punctuation
        if not isinstance(given, (SlackTime, SlackRows)) or given.late == "generous":
            self._arrivals.closed, self._arrivals.missed = self._closed, self._missed

    def _gather(self, pages: list[tuple[pa.Table, pa.Table]]) -> tuple[pa.Table | None, Array]:
        found = super()._gather(pages)
        # a key that is new has missed what is complete by now
        self._operator.close(self._complete(self._arrivals.until))
        return found

    def _advance(self, fresh: pa.Table | None, slots: Array) -> Any:
        """Add rows to what is open, and let go of windows that progress has passed."""
        at = np.empty(0, self._progress.dtype) if fresh is None else self._arrivals.numbers(fresh)
        self._arrivals.advance(slots, at)
        if fresh is not None and len(at):
            self._add(fresh, slots.astype(np.int64), at)
        return self._let_go()

    def _add(self, rows: pa.Table, slots: Array, at: Array) -> None:
        self._take(rows, slots, at, self._layout.aggregation.inputs(self._layout.reads, rows))

    def _let_go(self) -> Any:
        """What progress has passed."""
        found = self._operator.release(self._complete(self._arrivals.until, at_end=True))
        if self.punctuator.final:
            self._operator.clear()
        return found

    def _take(self, rows: pa.Table, slots: Array, at: Array, inputs: Any) -> None:
        raise NotImplementedError

    def _complete(self, until: Array, at_end: bool = False) -> Array:
        """What promises complete, as the operator takes it."""
        raise NotImplementedError

    def _closed(self, until: Array) -> Array:
        """Up to where a row is too late for every window: a late row is missing from those only that are complete."""
        raise NotImplementedError

    def _missed(self, rows: pa.Table, which: Array, slots: Array, at: Array, until: Array) -> Array:
        """Which of these rows belong to a window that is complete."""
        raise NotImplementedError


class WindowShard(_AnyOrder):
    """Windows on a grid; rows of bursts may be set aside."""

    def __init__(self, layout: Layout, shards: int = 1, state: bytes | None = None) -> None:
        super().__init__(layout, shards, state)
        if self._grid.begins:
            self._arrivals.origin = self._grid.origin

    def _made(self, layout: Layout) -> WindowOperator:
        super()._made(layout)
        assert isinstance(layout.plan.scheme, Windows)
        self._grid: Grid = grid_of(layout.plan.scheme, layout.progress)
        if layout.set_aside is not None:
            return AsideOperator(self._grid, layout.aggregation, layout.set_aside)
        return WindowOperator(self._grid, layout.aggregation)

    def _resume(self, arrays: dict[str, Array]) -> None:
        super()._resume(arrays)
        if self.aside is None and AsideOperator.was_used(arrays):
            # nothing more is set aside, and nothing that was is lost
            self._operator = AsideOperator(self._grid, self._layout.aggregation, None)

    def _take(self, rows: pa.Table, slots: Array, at: Array, inputs: Any) -> None:
        self._operator.take(slots, at, inputs, len(self._table), self._layout.ranks(rows, at))

    def _advance(self, fresh: pa.Table | None, slots: Array) -> Any:
        if self.aside is None:
            return super()._advance(fresh, slots)
        at = np.empty(0, self._progress.dtype) if fresh is None else self._arrivals.numbers(fresh)
        came, final = len(at), bool(self.punctuator.final)
        self._arrivals.advance(slots, at)
        if fresh is not None and came:
            slots = slots.astype(np.int64)
            fresh = fresh.drop_columns(["row"]) if "row" in fresh.column_names else fresh
            burst = np.zeros(came, bool) if final else self.aside.bursts(slots, at)
            if burst.any():
                self.aside.put(fresh.filter(pa.array(burst)), slots[burst], at[burst])
                fresh, slots, at = fresh.filter(pa.array(~burst)), slots[~burst], at[~burst]
            self._add(fresh, slots, at)
        due = self.aside.due(len(at), came, final)
        if due is not None and len(due):
            at = self._arrivals.numbers(due)
            inputs = self._layout.aggregation.inputs(self._layout.reads, due)
            self.aside.settle(due, at, inputs, self._layout.ranks(due, at), len(self._table))
        return self._let_go()

    def _answers(
        self, prodding: Prodding, found: Any, asked: pa.Table | None, more: Sequence[Fresh], clock: int
    ) -> tuple[pa.Table | None, Array | None]:
        made = super()._answers(prodding, found, asked, more, clock)
        if self.aside is not None and asked is not None and prodding.answered is not None:
            self.aside.prod(prodding.answered.group, prodding.answered.ids)
        return made

    def _early(self, fresh: pa.Table | None, slots: Array, latest: Any) -> tuple[Any, Array]:
        """The windows of the rows so far; those that are set aside are not processed for it."""
        if self.aside is None:
            return super()._early(fresh, slots, latest)
        rows, self.aside.rows = self.aside.rows, None
        try:
            return super()._early(fresh, slots, latest)
        finally:
            self.aside.rows = rows

    def sets_aside(self, rows: pa.Table) -> Array:
        """Which rows (k0.., at) would be set aside, if they came now."""
        count, found = len(self._table), np.zeros(len(rows), bool)
        keys = [in_one(rows.column(f"k{i}")) for i in range(len(self._table.columns))]
        slots = slots_of(self._table.columns, keys, count, len(rows))
        known = slots < count
        if self.aside is not None:
            found[known] = self.aside.bursts(slots[known], self._arrivals.numbers(rows)[known])
        return found

    def unsent(self) -> Unsent:
        """What is complete, of any key, be it unseen yet, and what holds rows set aside."""
        assert self.aside is not None
        return self.aside.unsent(np.append(self._arrivals.until, self.punctuator.until), self._progress)

    def passed_on(self, number: int) -> pa.Table:
        """With ranges beyond what is owed, where rows are set aside."""
        found = super().passed_on(number)
        if self._layout.set_aside is None:
            return found
        bounds = map(self._progress.bounds, ranges(self._grid, self._progress, [self.unsent()]))
        told = pa.StructArray.from_arrays([*bounds], names=["after", "until"])
        return found.append_column("ranges", pa.ListArray.from_arrays(pa.array([0, len(told)], pa.int32()), told))

    def _complete(self, until: Array, at_end: bool = False) -> Array:
        found = self._grid.complete(until, self._progress)
        latest = self.punctuator.latest
        if at_end and self._grid.goes_on and latest > self._progress.nothing:
            # those that go on forever end where the stream does
            return np.where(until >= self._progress.everything, self._grid.last_of(latest), found)
        return found

    def _closed(self, until: Array) -> Array:
        progress = self._progress
        over = until >= progress.everything
        start, _ = self._grid.bounds(self._complete(np.where(over, progress.nothing, until)) + 1)
        return np.where(over, progress.everything, np.minimum(progress.below(start), until))

    def _missed(self, rows: pa.Table, which: Array, slots: Array, at: Array, until: Array) -> Array:
        # the first window of a row is the first that ends after it
        _, end = self._grid.bounds(self._complete(until))
        return at < end


class _TupleShard(_AnyOrder):
    """Windows that rows end."""

    def _made(self, layout: Layout) -> TupleOperator:
        super()._made(layout)
        assert isinstance(layout.plan.scheme, TupleWindows)
        self._range = layout.progress.amount("range", layout.plan.scheme.range)
        return TupleOperator(layout.plan.scheme, layout.progress, layout.aggregation)

    def _certain(self, state: Mapping[str, Array]) -> Callable[[Any], Array]:
        scheme = self._layout.plan.scheme
        assert isinstance(scheme, TupleWindows)
        if scheme.every == 1 or scheme.numbered is not None:
            return super()._certain(state)
        # by rank, any row before it may make another row end a window
        soonest = self._progress.above(self._arrivals.until)
        return lambda found: found.end <= soonest[found.group]

    def _take(self, rows: pa.Table, slots: Array, at: Array, inputs: Any) -> None:
        self._operator.take(slots, at, inputs, len(self._table), _numbers(rows))

    def _complete(self, until: Array, at_end: bool = False) -> Array:
        return until

    def _closed(self, until: Array) -> Array:
        progress = self._progress
        # the next window ends with the next instant, at the soonest
        return np.minimum(progress.earlier(progress.above(until), self._range), until)

    def _missed(self, rows: pa.Table, which: Array, slots: Array, at: Array, until: Array) -> Array:
        numbers = _numbers(rows)
        return np.asarray(self._operator.missed(slots, at, None if numbers is None else numbers[which]))


def _numbers(rows: pa.Table) -> Array | None:
    """The column of numbers that says which rows end a window, where there is one."""
    if "v0" not in rows.column_names:
        return None
    return np.asarray(in_one(rows.column("v0")).to_numpy(zero_copy_only=False), np.float64)


class _RowShard(_Counting):
    """Windows of so many rows, of each key, or of all and then by key."""

    def _made(self, layout: Layout) -> WindowOperator:
        super()._made(layout)
        assert isinstance(layout.plan.scheme, RowWindows)
        self._grid, self._apart = row_grid(layout.plan.scheme), layout.plan.scheme.partitioned
        self._counted = np.zeros(0, np.int64)
        """How many rows there were, of each key; where all are one sequence, only the first counts."""
        return WindowOperator(self._grid, layout.aggregation)

    def _order(self, rows: pa.Table, slots: Array, at: Array, places: Array) -> Array:
        if self._apart:
            return super()._order(rows, slots, at, places)
        keys = {f"k{i}": key.take(pa.array(slots)) for i, key in enumerate(self._table.columns)}
        others = rows.drop_columns(["at"])
        breaks = [name for name in others.column_names if name.startswith("b")]
        named = {name: others.column(name) for name in others.column_names}
        first = {name: named.pop(name) for name in breaks}
        everyone = np.zeros(len(rows), np.int64)
        return sort_indices(everyone, 1, at, pa.table({**first, **keys, **named}), places)

    def _advance(self, fresh: pa.Table | None, slots: Array) -> Any:
        rows, slots, at = self._released(fresh, slots)
        keys = len(self._table)
        self._counted = np.append(self._counted, np.zeros(keys - len(self._counted), np.int64))
        if rows is not None and len(at):
            owners = slots if self._apart else np.zeros_like(slots)
            inputs = self._layout.aggregation.inputs(self._layout.reads, rows)
            # those of a key come one after another
            places = np.arange(len(slots)) - np.searchsorted(owners, owners)
            self._operator.take(slots, self._counted[owners] + places + 1, inputs, keys)
            self._counted += np.bincount(owners, minlength=keys)
        next_one = (self._counted if self._apart else np.full(keys, self._counted[:1].sum())) + 1
        each = self._grid.panes[0]
        complete = self._grid.pane_of(next_one) // each - 1
        return self._operator.release(np.full(keys, _END) if self.punctuator.final else complete)

    def passed(self, ends: bool = False) -> Any:
        """An instant, here the number of a row, at or before which no window to come starts, or ends."""
        progress = self._emitter.progress
        counted = 0 if self._apart else int(self._counted[:1].sum())
        return self._operator.promise_of_new(progress.everything if self.punctuator.final else counted, progress, ends)

    def _kept(self) -> dict[str, Array]:
        return {**super()._kept(), "counted": self._counted}

    def _resume(self, arrays: dict[str, Array]) -> None:
        super()._resume(arrays)
        self._counted = arrays.pop("counted")


_END = np.iinfo(np.int64).max // 4
"""After the last window."""

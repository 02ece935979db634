"""Bursts set aside: rows that are kept, processed at low priority, and the windows that wait for them.

Once a window has been prodded and has more than so many rows, those that still come for it are set aside, each with the
windows that it counts in: a window that was complete when it came is none of them. A window that progress completes
while such a row waits is owed. It leaves the panes at that moment, because what comes later counts in later windows
only; rows set aside are then added to it, and it is sent with the last of them. All other windows are on time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel.aggregates import Aggregation, Inputs
from panewise.kernel.compiled import compiled
from panewise.kernel.fill import Tallies, pairs
from panewise.kernel.operator import Segments, joined
from panewise.kernel.page import Array
from panewise.kernel.progress import Progress
from panewise.kernel.windowing import Entries, WindowOperator
from panewise.kernel.windows import Grid
from panewise.spec.aside import SetAside

__all__ = ["AsideOperator", "Unsent", "ranges"]

_OWN = ("slot", "low", "high")
"""What is kept with a row: its key, and the first and the last window that it counts in."""
_NONE = np.empty(0, np.int64)


@compiled
def _place(owners: Any, places: Any, owner: Any, place: Any) -> Any:
    """The first of some pairs in order that is not before this one."""
    low, high = 0, len(owners)
    while low < high:
        middle = (low + high) // 2
        if owners[middle] < owner or (owners[middle] == owner and places[middle] < place):
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _rows_between(owners: Any, panes: Any, before: Any, slots: Any, low: Any, high: Any) -> Any:
    """How many rows a slot has in the panes from `low` up to, not including, `high`; `before` counts those before."""
    found = np.empty(len(slots), np.int64)
    for i in range(len(slots)):
        first, last = _place(owners, panes, slots[i], low[i]), _place(owners, panes, slots[i], high[i])
        found[i] = before[last] - before[first]
    return found


@compiled
def _meets(owners: Any, wids: Any, slots: Any, low: Any, high: Any) -> Any:
    """Whether one of these windows of the slot lies between `low` and `high`."""
    found = np.zeros(len(slots), np.bool_)
    for i in range(len(slots)):
        # the next row is likely to lie in the pane of the one before
        if i > 0 and slots[i] == slots[i - 1] and low[i] == low[i - 1] and high[i] == high[i - 1]:
            found[i] = found[i - 1]
            continue
        p = _place(owners, wids, slots[i], low[i])
        found[i] = p < len(owners) and owners[p] == slots[i] and wids[p] <= high[i]
    return found


@compiled
def _furthest(owners: Any, high: Any) -> Any:
    """How far each stretch of an owner, or one before it, goes."""
    found = high.copy()
    for i in range(1, len(found)):
        if owners[i] == owners[i - 1] and found[i] < found[i - 1]:
            found[i] = found[i - 1]
    return found


@compiled
def _within(owners: Any, low: Any, furthest: Any, slots: Any, wids: Any) -> Any:
    """Whether a window of a slot lies in one of its stretches, which are in order."""
    found = np.zeros(len(slots), np.bool_)
    for i in range(len(slots)):
        p = _place(owners, low, slots[i], wids[i] + 1) - 1
        found[i] = p >= 0 and owners[p] == slots[i] and furthest[p] >= wids[i]
    return found


def _alike(*columns: Array) -> tuple[Array, Array]:
    """A number for each row, the same where all columns are; and a row of each."""
    order = np.lexsort(columns[::-1])
    starts = np.ones(len(order), bool)
    starts[1:] = np.any([np.diff(column[order]) != 0 for column in columns], axis=0)
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(starts) - 1
    return found, order[starts]


Unsent = tuple[int, Array, Array]
"""The last window that is complete, of all keys, and stretches of windows that hold rows set aside: from, to."""


def ranges(grid: Grid, progress: Progress, unsent: Sequence[Unsent]) -> tuple[Array, Array]:
    """What shards promise beyond the first window that is owed: nothing more ends after the one and up to the other."""
    complete = min(each[0] for each in unsent)
    low, high = (np.concatenate([each[i] for each in unsent]) for i in (1, 2))
    low, high = low[low <= complete], np.minimum(high[low <= complete], complete)
    order = np.argsort(low, kind="stable")
    low, furthest = np.append(low[order], complete + 1), np.maximum.accumulate(high[order])
    between = low[1:] > furthest + 1
    return grid.edges(furthest[between] + 1), progress.below(grid.edges(low[1:][between] + 1))


class AsideOperator(WindowOperator):
    """The open panes of some keys, the rows that are set aside, and the windows that are owed."""

    def __init__(self, grid: Grid, aggregation: Aggregation, spec: SetAside | None) -> None:
        super().__init__(grid, aggregation)
        self._spec = spec
        """None: nothing more is set aside, and what was is processed."""
        self.rows: pa.Table | None = None
        """What is set aside, oldest first."""
        self.low: int | None = None
        """How many of them are processed in this micro-batch, where it is not for the plan to say."""
        self._prodded = (_NONE, _NONE)
        """Slots and windows that were prodded and are not complete, in order."""
        self._since = 0
        """How many new rows there were since the last one that was set aside was processed."""
        self._owed = Entries(aggregation)
        self._stretches = (_NONE, _NONE, _NONE)

    @property
    def aside(self) -> int:
        """How many rows are set aside."""
        return 0 if self.rows is None else len(self.rows)

    @property
    def open(self) -> int:
        """How many entries are open."""
        return len(self) + len(self._owed)

    # ---- rows come

    def prod(self, slots: Array, wids: Array) -> None:
        """Take note of early answers."""
        owners, known = (np.concatenate(both) for both in zip(self._prodded, (slots, wids), strict=True))
        fresh = known > self._sent[owners]
        owners, known = owners[fresh], known[fresh]
        _, some = _alike(owners, known)
        self._prodded = (owners[some], known[some])

    def bursts(self, slots: Array, at: Array) -> Array:
        """Which rows, if they came now, would be set aside: those of windows that a burst is in."""
        slots_of, wids = self._prodded
        if self._spec is None or not len(wids):
            return np.zeros(len(slots), bool)
        each, whole = self._grid.panes
        owners, panes, rows, _, _ = self.entries
        order = np.lexsort((panes, owners))
        before = np.concatenate([[0], np.cumsum(rows[order])])
        ends = (wids + 1) * each
        many = _rows_between(owners[order], panes[order], before, slots_of, ends - whole, ends) > self._spec.rows
        mine = self._grid.pane_of(at)
        return np.asarray(_meets(slots_of[many], wids[many], slots, mine // each, (mine + whole) // each - 1))

    def put(self, rows: pa.Table, slots: Array, at: Array) -> None:
        """Set rows aside."""
        if not len(slots):
            return
        each, whole = self._grid.panes
        panes = self._grid.pane_of(at)
        low = np.maximum(panes // each, self._sent[slots] + 1)
        for name, column in zip(_OWN, (slots, low, (panes + whole) // each - 1), strict=True):
            rows = rows.append_column(name, pa.array(column))
        # whether a column may be null differs between micro-batches of one query
        both = rows if self.rows is None else pa.concat_tables([self.rows, rows], promote_options="default")
        self.rows = both.combine_chunks()

    # ---- and are processed

    def due(self, taken: int, came: int, final: bool) -> pa.Table | None:
        """The rows set aside whose turn it is, once `taken` of the `came` new rows are processed."""
        if self.rows is None or not len(self.rows):
            self._since = 0
            return None
        count = len(self.rows)
        if self._spec is not None and not final:
            self._since += taken
            turns, self._since = divmod(self._since, self._spec.every)
            turns = count if came <= self._spec.lull else turns
            count = min(count, max(turns if self.low is None else self.low, count - self._spec.at_most))
        found, self.rows = self.rows.slice(0, count), self.rows.slice(count)
        return found

    def settle(self, given: pa.Table, at: Array, inputs: Inputs, ranks: Array, keys: int) -> None:
        """Add rows that were set aside: to the windows that are owed, and to panes for those that are not complete."""
        slots, low, high = (np.array(given.column(name).to_numpy()) for name in _OWN)
        alike, some = _alike(slots, low, high)
        added, counts = Tallies.empty(len(some), self._aggregation), np.bincount(alike)
        added.own(alike, inputs, ranks)
        slots, low, high, panes = slots[some], low[some], high[some], self._grid.pane_of(at[some])
        sent, none = self._sent_of(keys)[slots], np.zeros(len(some), np.int64)
        later = high > sent
        if later.any():
            self.merge(slots[later], panes[later], counts[later], none[later], added.of(later), keys)
        owner, wids = pairs(low, np.maximum(np.minimum(high, sent) + 1, low))
        if len(owner):
            self._owed.merge(slots[owner], wids, counts[owner], none[owner], added.of(owner), keys)

    # ---- and windows are sent

    def release(self, complete: Array) -> Segments:
        """The windows of each key up to `complete` that hold no row set aside, and those that were owed till now."""
        slots, low, high = self._spans()
        order = np.lexsort((low, slots))
        self._stretches = (slots[order], low[order], _furthest(slots[order], high[order]))
        paid = self._paid() if len(self._owed) else None
        found = super().release(complete)
        slots, wids = self._prodded
        if len(wids):
            kept = wids > self._sent[slots]
            self._prodded = (slots[kept], wids[kept])
        return found if paid is None else joined([paid, found])

    def _spans(self) -> tuple[Array, Array, Array]:
        """Slot, first and last window of each row that is set aside."""
        if self.rows is None or not len(self.rows):
            return _NONE, _NONE, _NONE
        slots, low, high = (np.asarray(self.rows.column(name).to_numpy()) for name in _OWN)
        return slots, low, high

    def _segments(self, slots: Array, wids: Array, rows: Array, made: Tallies) -> Segments:
        """Those of windows that hold no row set aside; the others are owed."""
        owed = np.zeros(len(wids), bool) if not self.aside else np.asarray(_within(*self._stretches, slots, wids))
        if not owed.any():
            return super()._segments(slots, wids, rows, made)
        none = np.zeros(int(owed.sum()), np.int64)
        self._owed.merge(slots[owed], wids[owed], rows[owed], none, made.of(owed), len(self._sent))
        return super()._segments(slots[~owed], wids[~owed], rows[~owed], made.of(~owed))

    def _paid(self) -> Segments:
        """Windows that were owed, and whose last row set aside has been processed."""
        slots, wids, rows, marks, tallies = self._owed.in_order()
        owed = np.asarray(_within(*self._stretches, slots, wids))
        if len(owed) and not owed.all():
            self._owed._hold(slots[owed], wids[owed], rows[owed], marks[owed], tallies.of(owed))
        return super()._segments(slots[~owed], wids[~owed], rows[~owed], tallies.of(~owed))

    # ---- what is promised

    def promise(self, until: Array, progress: Progress, ends: bool = False) -> Array:
        """For each slot an instant at or before which nothing to come starts, or ends: before what is owed."""
        found = super().promise(until, progress, ends)
        slots, low, _ = self._spans()
        np.minimum.at(found, slots, progress.below(self._grid.bounds(low)[ends]))
        return found

    def promise_of_new(self, until: Any, progress: Progress, ends: bool = False) -> Any:
        """The same of a key that has had no row: of it, none is set aside."""
        return super().promise(np.array([until], progress.dtype), progress, ends)[0]

    def unsent(self, until: Array, progress: Progress) -> Unsent:
        """What is complete, as promises of each key and of those unseen say, and what holds rows set aside."""
        _, low, high = self._spans()
        return int(self._grid.complete(until, progress).min()), low, high

    # ---- state

    def state(self, slots: int) -> dict[str, Array]:
        """All that is open, of so many keys, but for the rows that are set aside."""
        found = super().state(slots)
        if self._spec is None and not self.aside and not len(self._owed):
            return found
        owed = {f"owed_{name}": array for name, array in self._owed.held().items()}
        told = dict(zip(("prodded_slots", "prodded_wids"), self._prodded, strict=True))
        return {**found, **owed, **told, "since": np.array([self._since])}

    def resume(self, arrays: Mapping[str, Array]) -> None:
        """Go on with what was open."""
        super().resume(arrays)
        if not self.was_used(arrays):
            return
        owed = "owed_"
        self._owed.hold({name.removeprefix(owed): array for name, array in arrays.items() if name.startswith(owed)})
        self._prodded = (arrays["prodded_slots"], arrays["prodded_wids"])
        self._since = int(arrays["since"][0])

    @staticmethod
    def was_used(arrays: Mapping[str, Array]) -> bool:
        """Whether state is of windows some of which may be owed."""
        return "owed_owners" in arrays

"""Windows over rows that come in any order: each row is added to the pane of its key, panes are added to windows.

No row is kept, none is looked at twice, none is sorted. What is open is one tally for each pane of a key that has rows
and that a window still needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel import segmenting as sg
from panewise.kernel.aggregates import Aggregation, Inputs
from panewise.kernel.bundle import dump, load
from panewise.kernel.compiled import compiled
from panewise.kernel.fill import Tallies
from panewise.kernel.operator import Segments, joined
from panewise.kernel.page import Array, in_one
from panewise.kernel.progress import Progress
from panewise.kernel.sliding import slid
from panewise.kernel.windows import Grid, check_count

__all__ = ["Entries", "WindowOperator", "groups"]

_BLOCK = 1 << 16
"""About how many windows are made at a time."""
_NONE = np.int64(np.iinfo(np.int64).min // 4)
"""No window yet."""
_NEVER = np.int64(np.iinfo(np.int64).max // 4)
"""No window at all."""


@compiled
def _home(heads: Any, owners: Any, panes: Any, owner: Any, pane: Any) -> Any:
    """Where an entry is looked up: its own place, or the free one that it would take."""
    mask = len(heads) - 1
    mixed = np.uint64(owner) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(pane) * np.uint64(0xD6E8FEB86659FD93)
    h = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))
    while heads[h] >= 0 and not (owners[heads[h]] == owner and panes[heads[h]] == pane):
        h = (h + 1) & mask
    return h


@compiled
def _headed(owners: Any, panes: Any, count: Any) -> Any:
    """A table in which entries are looked up, twice as large as it need be."""
    size = 64
    while size < 4 * count:
        size *= 2
    heads = np.full(size, -1, np.int64)
    for e in range(count):
        heads[_home(heads, owners, panes, owners[e], panes[e])] = e
    return heads


@compiled
def _found(slots: Any, at_panes: Any, heads: Any, owners: Any, panes: Any, count: Any, keys: Any) -> Any:
    """The entry of each row, by its key and pane; new ones are put at the end. What holds them comes back, grown."""
    # the next row of a key is likely to lie in the pane of the one before
    latest = np.full(keys, -1, np.int64)
    found = np.empty(len(slots), np.int64)
    for i in range(len(slots)):
        k, pane = slots[i], at_panes[i]
        e = latest[k]
        if e < 0 or panes[e] != pane:
            h = _home(heads, owners, panes, k, pane)
            e = heads[h]
            if e < 0:
                e = count
                count += 1
                if e == len(owners):
                    more_owners, more_panes = np.empty(2 * e + 64, np.int64), np.empty(2 * e + 64, np.int64)
                    more_owners[:e], more_panes[:e] = owners, panes
                    owners, panes = more_owners, more_panes
                owners[e], panes[e] = k, pane
                heads[h] = e
                if 2 * count > len(heads):
                    heads = _headed(owners, panes, count)
            latest[k] = e
        found[i] = e
    return found, heads, owners, panes, count


@compiled
def _counted(counts: Any, found: Any) -> None:
    """Add one for each row to the count of its entry."""
    for e in found:
        counts[e] += 1


@compiled
def _next_window(panes: Any, each: Any, whole: Any, keep: Any, w: Any, i: Any, j: Any) -> Any:
    """The first window from w on that has a pane, with the run of panes i to j that it has; none where i is j.

    To keep those without, it is w itself.
    """
    while True:
        low, high = (w + 1) * each - whole, (w + 1) * each
        while i < len(panes) and panes[i] < low:
            i += 1
        while j < len(panes) and panes[j] < high:
            j += 1
        if keep or i < j or i == len(panes):
            return w, i, j
        w = max(w + 1, panes[i] // each)


@compiled
def _count(panes: Any, edges: Any, each: Any, whole: Any, keep: Any, first: Any, last: Any) -> Any:
    """How many windows of each key lie between its first and last, and have rows, or are kept without."""
    found = np.zeros(len(edges) - 1, np.int64)
    for g in range(len(edges) - 1):
        if keep:
            found[g] = max(last[g] - first[g] + 1, 0)
            continue
        mine = panes[edges[g] : edges[g + 1]]
        w, i, j, some = max(first[g], mine[0] // each), 0, 0, True
        while some:
            w, i, j = _next_window(mine, each, whole, keep, w, i, j)
            some = i < j and w <= last[g]
            if some:
                found[g] += 1
                w += 1
    return found


@compiled
def _runs(panes: Any, edges: Any, grid: Any, span: Any, out: Any) -> None:
    """Which panes, of all, each window has; those of each key are sorted."""
    each, whole, keep = grid
    first, last = span
    owner, wid, begin, end = out
    n = 0
    for g in range(len(edges) - 1):
        base = edges[g]
        mine = panes[base : edges[g + 1]]
        w, i, j, some = first[g], 0, 0, True
        if not keep:
            w = max(w, mine[0] // each)
        while some:
            w, i, j = _next_window(mine, each, whole, keep, w, i, j)
            some = (keep or i < j) and w <= last[g]
            if some:
                owner[n], wid[n], begin[n], end[n] = g, w, base + i, base + j
                n += 1
                w += 1


def groups(owners: Array) -> tuple[Array, Array]:
    """The keys of entries in order, and where those of each begin; at the end, how many there are."""
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    return owners[starts], np.append(starts, len(owners))


class Entries:
    """Tallies of rows, by key and place: what is open of windows while rows come in any order."""

    def __init__(self, aggregation: Aggregation) -> None:
        self._aggregation = aggregation
        self.clear()

    def _tally(self, count: int) -> Tallies:
        return Tallies.empty(count, self._aggregation)

    def _hold(self, owners: Array, panes: Array, rows: Array, marks: Array, tallies: Tallies) -> None:
        """Entries; arrays may be longer than their number later, with room for more."""
        self._owners, self._panes, self._rows, self._marks, self._tallies = owners, panes, rows, marks, tallies
        self._count = len(owners)
        self._heads = _headed(owners, panes, len(owners))

    def __len__(self) -> int:
        return self._count

    @property
    def entries(self) -> tuple[Array, Array, Array, Array, Tallies]:
        """Key, place, number of rows, of marked rows, and tally of each."""
        n = self._count
        return self._owners[:n], self._panes[:n], self._rows[:n], self._marks[:n], self._tallies.between(0, n)

    def in_order(self) -> tuple[Array, Array, Array, Array, Tallies]:
        """The same by key, then place."""
        owners, panes, rows, marks, tallies = self.entries
        order = np.lexsort((panes, owners))
        return owners[order], panes[order], rows[order], marks[order], tallies.of(order)

    def add(
        self, slots: Array, places: Array, ranks: Array, inputs: Inputs, keys: int, marked: Array | None = None
    ) -> None:
        """Add rows, each at its place, to their keys, of which there are so many by now; first and last go by ranks."""
        found = self._grown(slots, places, keys)
        self._tallies.own(found, inputs, ranks)
        _counted(self._rows, found)
        if marked is not None:
            _counted(self._marks, found[marked])

    def merge(self, slots: Array, places: Array, rows: Array, marks: Array, tallies: Tallies, keys: int) -> None:
        """Add what others have added up."""
        found = self._grown(slots, places, keys)
        self._tallies.merge(found, tallies)
        np.add.at(self._rows, found, rows)
        np.add.at(self._marks, found, marks)

    def _grown(self, slots: Array, places: Array, keys: int) -> Array:
        held = (self._heads, self._owners, self._panes, self._count)
        found, self._heads, self._owners, self._panes, self._count = _found(slots, places, *held, keys)
        lack = len(self._owners) - len(self._rows)
        if lack:
            self._rows, self._marks = (np.append(a, np.zeros(lack, np.int64)) for a in (self._rows, self._marks))
            self._tallies = self._tallies.grown(lack)
        return np.asarray(found)

    @property
    def open(self) -> int:
        """How many entries are open."""
        return len(self)

    def released(self, complete: Array) -> Iterator[Segments]:
        """What is complete, some of it at a time."""
        yield self.release(complete)

    def release(self, complete: Array) -> Segments:
        """What is complete."""
        raise NotImplementedError

    def clear(self) -> None:
        """Forget all that is open: nothing more comes."""
        none = np.empty(0, np.int64)
        self._hold(none, none, none, none, self._tally(0))

    def held(self) -> dict[str, Array]:
        """All that is open, for the state."""
        owners, panes, rows, marks, tallies = self.entries
        cells = {"floats": tallies.floats, "ints": tallies.ints}
        if tallies.reduced:
            table = pa.table(tallies.reduced, [f"reduced{i}" for i in range(len(tallies.reduced))])
            cells["reduced"] = np.frombuffer(dump({"reduced": table}, {}), np.uint8)
        return {"owners": owners, "panes": panes, "pane_rows": rows, "marks": marks, **cells}

    def hold(self, arrays: Mapping[str, Array]) -> None:
        """Go on with what was open."""
        states = []
        if "reduced" in arrays:
            states = [in_one(column) for column in load(arrays["reduced"].tobytes())[0]["reduced"].columns]
        tallies = Tallies(self._aggregation, arrays["floats"], arrays["ints"], states)
        self._hold(arrays["owners"], arrays["panes"], arrays["pane_rows"], arrays["marks"], tallies)


class WindowOperator(Entries):
    """The open panes of some keys: rows come in, and windows go out once nothing more of them comes."""

    def __init__(self, grid: Grid, aggregation: Aggregation) -> None:
        super().__init__(aggregation)
        self._grid = grid
        self._sent = np.empty(0, np.int64)
        """The last window of each key that can't change any more."""
        self._begun = np.empty(0, np.int64)
        """The first window of each key, where those without rows are kept."""

    def take(self, slots: Array, at: Array, inputs: Inputs, keys: int, ranks: Array | None = None) -> None:
        """Add rows to the panes of their keys; first and last go by ranks, where these are given, else by `at`."""
        self.add(slots, self._grid.pane_of(at), at if ranks is None else ranks, inputs, keys)

    def close(self, complete: Array) -> None:
        """Of each key, no window up to `complete` is sent any more."""
        self._sent = np.maximum(self._sent_of(len(complete)), complete)

    def release(self, complete: Array) -> Segments:
        """The windows of each key up to `complete`; panes that no later window has are forgotten."""
        made = list(self.released(complete))
        return made[0] if len(made) == 1 else joined(made)

    def released(self, complete: Array) -> Iterator[Segments]:
        """The same, some keys at a time; to be taken to the end."""
        owners, panes, rows, marks, tallies = self.in_order()
        slots, edges = groups(owners)
        self._sent = self._sent_of(len(complete))
        first = np.maximum(self._sent + 1, 0) if self._grid.begins else self._sent + 1
        if self._grid.keep_empty:
            self._begun = self._begun_of(len(complete))
            np.minimum.at(self._begun, owners, panes // self._grid.panes[0])
            first = np.maximum(first, self._begun)
            # also those that have no more rows
            slots = np.flatnonzero(self._begun < _NEVER)
            edges = np.append(np.searchsorted(owners, slots), len(owners))
        first, last = first[slots], complete[slots]
        if self._grid.goes_on and len(slots):
            self._check_count(first if self._grid.keep_empty else panes[edges[:-1]], first, last)
        grid = (*self._grid.panes, self._grid.keep_empty)
        counts = _count(panes, edges, *grid, first, last)
        blocks = np.flatnonzero(np.diff(np.cumsum(counts) // _BLOCK, prepend=0))
        for begin, end in pairwise([0, *(blocks[blocks > 0]), len(slots)] if len(slots) else [0, 0]):
            span, base, top = (first[begin:end], last[begin:end]), int(edges[begin]), int(edges[end])
            owner, wids, *runs = (np.empty(int(counts[begin:end].sum()), np.int64) for _ in range(4))
            _runs(panes[base:top], edges[begin : end + 1] - base, grid, span, (owner, wids, *runs))
            # those of these keys only: reducers look at all that they are given
            made = slid(rows[base:top], tallies.between(base, top), *runs)
            yield self._segments(slots[begin:end][owner], wids, *made)
        self.close(complete)
        self._forget(owners, panes, rows, marks, tallies)

    def _segments(self, slots: Array, wids: Array, rows: Array, made: Tallies) -> Segments:
        start, end = self._grid.bounds(wids)
        flags = np.full(len(wids), sg.START_INCLUDED, np.int64)
        return Segments(slots, start, end, flags, rows, wids, np.zeros(len(wids), np.int64), *made.folds())

    def _check_count(self, panes: Array, first: Array, last: Array) -> None:
        total = np.maximum(last.astype(float) - np.maximum(first, panes) + 1, 0).sum()
        check_count(self._grid.slide, float(total))

    def _sent_of(self, slots: int) -> Array:
        return np.concatenate([self._sent, np.full(slots - len(self._sent), _NONE)])

    def _begun_of(self, slots: int) -> Array:
        return np.concatenate([self._begun, np.full(slots - len(self._begun), _NEVER)])

    def promise_of_new(self, until: Any, progress: Progress, ends: bool = False) -> Any:
        """The same of a key that has had no row."""
        return self.promise(np.array([until], progress.dtype), progress, ends)[0]

    def promise(self, until: Array, progress: Progress, ends: bool = False) -> Array:
        """For each slot, whose rows have come up to `until`, an instant at or before which nothing to come starts.

        Or ends.
        """
        start, end = self._grid.bounds(np.maximum(self._grid.complete(until, progress), _NONE) + 1)
        return progress.passed_on(until, progress.below(end if ends else start))

    def _forget(self, owners: Array, panes: Array, rows: Array, marks: Array, tallies: Tallies) -> None:
        """Keep the panes that a later window has; where all later ones have them, those that are full become one."""
        each, whole = self._grid.panes
        sent = self._sent[owners]
        if self._grid.range is not None:
            kept = (panes + whole) // each - 1 > sent
            self._hold(owners[kept], panes[kept], rows[kept], marks[kept], tallies.of(kept))
            return
        full = panes <= sent
        firsts = np.flatnonzero(np.diff(owners, prepend=-1))
        first = np.repeat(panes[firsts], np.diff(np.append(firsts, len(owners))))
        self.clear()
        self.merge(owners, np.where(full, first, panes), rows, marks, tallies, len(self._sent))

    def state(self, slots: int) -> dict[str, Array]:
        """All that is open, of so many keys."""
        begun = {"begun": self._begun_of(slots)} if self._grid.keep_empty else {}
        return {**self.held(), "sent": self._sent_of(slots), **begun}

    def resume(self, arrays: Mapping[str, Array]) -> None:
        """Go on with what was open."""
        self.hold(arrays)
        self._sent = arrays["sent"]
        self._begun = arrays.get("begun", np.empty(0, np.int64))

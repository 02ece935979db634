"""Windows over rows that come in any order: each row is added to the pane of its key, panes are added to windows.

No row is kept, none is looked at twice, none is sorted. What is open is one tally for each pane of a key that has rows
and that a window still needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from panewise.kernel import segmenting as sg
from panewise.kernel import tally
from panewise.kernel.aggregates import Aggregation
from panewise.kernel.compiled import compiled
from panewise.kernel.fill import Tallies
from panewise.kernel.operator import Segments
from panewise.kernel.page import Array
from panewise.kernel.windows import Grid

__all__ = ["Entries", "WindowOperator", "groups"]

_NONE = np.int64(np.iinfo(np.int64).min // 4)
"""No window yet."""


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
def _next_window(panes: Any, each: Any, whole: Any, w: Any, i: Any, j: Any) -> Any:
    """The first window from w on that has a pane, with the run of panes i to j that it has; none where i is j."""
    while True:
        low, high = (w + 1) * each - whole, (w + 1) * each
        while i < len(panes) and panes[i] < low:
            i += 1
        while j < len(panes) and panes[j] < high:
            j += 1
        if i < j or i == len(panes):
            return w, i, j
        w = max(w + 1, panes[i] // each)


@compiled
def _count(panes: Any, edges: Any, each: Any, whole: Any, first: Any, last: Any) -> Any:
    """How many windows of each key lie between its first and last, and have rows."""
    found = np.zeros(len(edges) - 1, np.int64)
    for g in range(len(edges) - 1):
        mine = panes[edges[g] : edges[g + 1]]
        w, i, j, some = max(first[g], mine[0] // each), 0, 0, True
        while some:
            w, i, j = _next_window(mine, each, whole, w, i, j)
            some = i < j and w <= last[g]
            if some:
                found[g] += 1
                w += 1
    return found


@compiled
def _slide(entries: Any, edges: Any, grid: Any, span: Any, kinds: Any, out: Any) -> None:
    """Windows from panes, sorted by key and pane; each pane is added twice at most, however many windows have it.

    Of the panes of a window, those up to `turn` are held as sums of all that follow up to there, the others as one sum.
    """
    panes, rows, tf, ti = entries
    each, whole = grid
    first, last = span
    owner, wid, out_rows, out_f, out_i = out
    size, n = min(whole, len(panes)), 0
    held_f, held_i = np.empty((size, tf.shape[1], tf.shape[2])), np.empty((size, ti.shape[1], ti.shape[2]), np.int64)
    held_rows = np.empty(size, np.int64)
    rest_f, rest_i = np.empty((tf.shape[1], tf.shape[2])), np.empty((ti.shape[1], ti.shape[2]), np.int64)
    for g in range(len(edges) - 1):
        base = edges[g]
        mine = panes[base : edges[g + 1]]
        w, i, j, turn, begun, some = max(first[g], mine[0] // each), 0, 0, 0, 0, True
        rest_rows, added = 0, 0
        while some:
            w, i, j = _next_window(mine, each, whole, w, i, j)
            some = i < j and w <= last[g]
            if not some:
                continue
            if i >= turn:
                turn, begun = j, i
                for p in range(j - 1, i - 1, -1):
                    at = p - begun
                    held_f[at], held_i[at], held_rows[at] = tf[base + p], ti[base + p], rows[base + p]
                    if p < j - 1:
                        tally.merge_into(held_f[at], held_i[at], kinds, held_f[at + 1], held_i[at + 1])
                        held_rows[at] += held_rows[at + 1]
                rest_f[:], rest_i[:], rest_rows, added = 0.0, 0, 0, j
            while added < j:
                tally.merge_into(rest_f, rest_i, kinds, tf[base + added], ti[base + added])
                rest_rows += rows[base + added]
                added += 1
            at = i - begun
            owner[n], wid[n], out_rows[n] = g, w, held_rows[at] + rest_rows
            out_f[n], out_i[n] = held_f[at], held_i[at]
            tally.merge_into(out_f[n], out_i[n], kinds, rest_f, rest_i)
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
        none = np.empty(0, np.int64)
        self._hold(none, none, none, none, self._tally(0))

    def _tally(self, count: int) -> Tallies:
        return Tallies.empty(count, len(self._aggregation))

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
        tallies = Tallies(self._tallies.floats[:n], self._tallies.ints[:n])
        return self._owners[:n], self._panes[:n], self._rows[:n], self._marks[:n], tallies

    def in_order(self) -> tuple[Array, Array, Array, Array, Tallies]:
        """The same by key, then place."""
        owners, panes, rows, marks, tallies = self.entries
        order = np.lexsort((panes, owners))
        return owners[order], panes[order], rows[order], marks[order], tallies.of(order)

    def add(self, slots: Array, places: Array, at: Array, inputs: Any, keys: int, marked: Array | None = None) -> None:
        """Add rows, each at its place, to their keys, of which there are so many by now."""
        found = self._grown(slots, places, keys)
        tally.tally_owned(self._tallies.floats, self._tallies.ints, found, inputs, tally.ranks(at))
        self._rows[: self._count] += np.bincount(found, minlength=self._count)
        if marked is not None:
            self._marks[: self._count] += np.bincount(found[marked], minlength=self._count)

    def merge(self, slots: Array, places: Array, rows: Array, marks: Array, tallies: Tallies, keys: int) -> None:
        """Add what others have added up."""
        found = self._grown(slots, places, keys)
        self._tallies.merge(found, self._aggregation.kinds, tallies)
        np.add.at(self._rows, found, rows)
        np.add.at(self._marks, found, marks)

    def _grown(self, slots: Array, places: Array, keys: int) -> Array:
        held = (self._heads, self._owners, self._panes, self._count)
        found, self._heads, self._owners, self._panes, self._count = _found(slots, places, *held, keys)
        lack = len(self._owners) - len(self._rows)
        if lack:
            none = self._tally(lack)
            self._rows, self._marks = (np.append(a, np.zeros(lack, np.int64)) for a in (self._rows, self._marks))
            self._tallies = Tallies(
                np.concatenate([self._tallies.floats, none.floats]), np.concatenate([self._tallies.ints, none.ints])
            )
        return np.asarray(found)

    @property
    def open(self) -> int:
        """How many entries are open."""
        return len(self)

    def held(self) -> dict[str, Array]:
        """All that is open, for the state."""
        owners, panes, rows, marks, tallies = self.entries
        cells = {"floats": tallies.floats, "ints": tallies.ints}
        return {"owners": owners, "panes": panes, "pane_rows": rows, "marks": marks, **cells}

    def hold(self, arrays: Mapping[str, Array]) -> None:
        """Go on with what was open."""
        tallies = Tallies(arrays["floats"], arrays["ints"])
        self._hold(arrays["owners"], arrays["panes"], arrays["pane_rows"], arrays["marks"], tallies)


class WindowOperator(Entries):
    """The open panes of some keys: rows come in, and windows go out once nothing more of them comes."""

    def __init__(self, grid: Grid, aggregation: Aggregation) -> None:
        super().__init__(aggregation)
        self._grid = grid
        self._sent = np.empty(0, np.int64)
        """The last window of each key that can't change any more."""

    def take(self, slots: Array, at: Array, inputs: Any, keys: int) -> None:
        """Add rows to the panes of their keys."""
        self.add(slots, self._grid.pane_of(at), at, inputs, keys)

    def close(self, complete: Array) -> None:
        """Of each key, no window up to `complete` is sent any more."""
        self._sent = np.maximum(self._sent_of(len(complete)), complete)

    def release(self, complete: Array) -> Segments:
        """The windows of each key up to `complete`; panes that no later window has are forgotten."""
        owners, panes, rows, marks, tallies = self.in_order()
        each, whole = self._grid.panes
        slots, edges = groups(owners)
        self._sent = self._sent_of(len(complete))
        first = np.maximum(self._sent + 1, 0) if self._grid.begins else self._sent + 1
        span = (first[slots], complete[slots])
        total = int(_count(panes, edges, each, whole, *span).sum())
        made = self._tally(total)
        owner, wids, counted = (np.empty(total, np.int64) for _ in range(3))
        entries, out = (panes, rows, tallies.floats, tallies.ints), (owner, wids, counted, made.floats, made.ints)
        _slide(entries, edges, (each, whole), span, self._aggregation.kinds, out)
        self.close(complete)
        self._forget(owners, panes, rows, marks, tallies)
        start, end = self._grid.bounds(wids)
        flags = np.full(total, sg.START_INCLUDED, np.int64)
        folds = tally.as_folds(self._aggregation.kinds, made.floats, made.ints)
        return Segments(slots[owner], start, end, flags, counted, wids, np.zeros(total, np.int64), *folds)

    def _sent_of(self, slots: int) -> Array:
        return np.concatenate([self._sent, np.full(slots - len(self._sent), _NONE)])

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
        none = np.empty(0, np.int64)
        self._hold(none, none, none, none, self._tally(0))
        self.merge(owners, np.where(full, first, panes), rows, marks, tallies, len(self._sent))

    def state(self, slots: int) -> dict[str, Array]:
        """All that is open, of so many keys."""
        return {**self.held(), "sent": self._sent_of(slots)}

    def resume(self, arrays: Mapping[str, Array]) -> None:
        """Go on with what was open."""
        self.hold(arrays)
        self._sent = arrays["sent"]

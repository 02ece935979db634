"""Slide-by-tuple: a row, or every n-th, ends a window that reaches `range` back from it.

No row is kept: rows with one `at` are one entry, and windows are made of entries in order, each added at most twice.
Which rows end a window may only be known once later ones have come, so windows go out as progress passes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from panewise.errors import DataError
from panewise.kernel import segmenting as sg
from panewise.kernel import tally
from panewise.kernel.aggregates import Aggregation
from panewise.kernel.compiled import compiled
from panewise.kernel.operator import Segments
from panewise.kernel.page import Array
from panewise.kernel.progress import Progress
from panewise.kernel.windowing import Entries, groups
from panewise.spec.frames import TupleWindows

__all__ = ["TupleOperator", "number_of"]

_EXACT = 2**53


def number_of(ranks: Array, progress: Progress) -> Array:
    """The inverse of `tally.ranks`.

    >>> from panewise.kernel.progress import Progress
    >>> number_of(tally.ranks(np.array([-1.5, 0.0, 2.0])), Progress("real", None))
    array([-1.5,  0. ,  2. ])
    """
    if progress.unit != "real":
        return ranks
    return np.where(ranks < 0, np.iinfo(np.int64).max ^ ranks, ranks).view(np.float64)


@compiled
def _ending(entries: Any, edges: Any, span: Any, every: Any, passed: Any) -> Any:
    """Which entries end a window, where every n-th row does: of those past `first`, up to `last`."""
    panes, rows = entries
    first, last = span
    found = np.zeros(len(panes), np.bool_)
    for g in range(len(edges) - 1):
        for e in range(edges[g], edges[g + 1]):
            if first[g] < panes[e] <= last[g]:
                before = passed[g]
                passed[g] += rows[e]
                found[e] = passed[g] // every > before // every
    return found


@compiled
def _slide(entries: Any, edges: Any, ends: Any, low: Any, kinds: Any, out: Any) -> None:
    """A window for each entry that ends one: entries with `at` above its `low`, where it has one, and up to it."""
    at, rows, tf, ti = entries
    lowest, unbounded = low
    owner, place, out_rows, out_f, out_i = out
    n = size = 0
    for g in range(len(edges) - 1):
        size = max(size, edges[g + 1] - edges[g])
    held_f, held_i = np.empty((size, tf.shape[1], tf.shape[2])), np.empty((size, ti.shape[1], ti.shape[2]), np.int64)
    held_rows = np.empty(size, np.int64)
    rest_f, rest_i = np.empty((tf.shape[1], tf.shape[2])), np.empty((ti.shape[1], ti.shape[2]), np.int64)
    for g in range(len(edges) - 1):
        i = turn = begun = added = edges[g]
        rest_rows = 0
        for e in range(edges[g], edges[g + 1]):
            if not ends[e]:
                continue
            # a row is in its own window, however short that is for numbers of its size
            while i < e and at[i] <= lowest[e] and not unbounded[e]:
                i += 1
            if i >= turn:
                turn, begun = e + 1, i
                for p in range(e, i - 1, -1):
                    to = p - begun
                    held_f[to], held_i[to], held_rows[to] = tf[p], ti[p], rows[p]
                    if p < e:
                        tally.merge_into(held_f[to], held_i[to], kinds, held_f[to + 1], held_i[to + 1])
                        held_rows[to] += held_rows[to + 1]
                rest_f[:], rest_i[:], rest_rows, added = 0.0, 0, 0, e + 1
            while added <= e:
                tally.merge_into(rest_f, rest_i, kinds, tf[added], ti[added])
                rest_rows += rows[added]
                added += 1
            to = i - begun
            owner[n], place[n], out_rows[n] = g, e, held_rows[to] + rest_rows
            out_f[n], out_i[n] = held_f[to], held_i[to]
            tally.merge_into(out_f[n], out_i[n], kinds, rest_f, rest_i)
            n += 1


class TupleOperator(Entries):
    """The rows of some keys, by `at`, as far back as a window to come reaches."""

    def __init__(self, windows: TupleWindows, progress: Progress, aggregation: Aggregation) -> None:
        super().__init__(aggregation)
        self._windows, self._progress = windows, progress
        self._range = progress.amount("range", windows.range)
        self._sent, self._passed = np.empty(0, np.int64), np.empty(0, np.int64)
        """Up to where windows have been sent, and how many rows there were up to there, of each key."""

    def take(self, slots: Array, at: Array, inputs: Any, keys: int, numbers: Array | None = None) -> None:
        """Add rows; `numbers` says which of them may end a window, where that is not all."""
        marked = None
        if self._windows.numbered is not None:
            assert numbers is not None
            known = np.abs(numbers[np.isfinite(numbers)])
            if len(known) and known.max() > _EXACT:
                text = self._windows.numbered.text
                raise DataError(
                    f"`numbered` ({text!r}) holds {known.max():.0f}: numbers of more than 53 bits are not told apart. "
                    f'Give what is left of them: numbered="{text} % {self._windows.every}".'
                )
            marked = np.isfinite(numbers) & (np.mod(np.nan_to_num(numbers, nan=1.0), self._windows.every) == 0)
        self.add(slots, tally.ranks(at), at, inputs, keys, marked)

    def close(self, until: Array) -> None:
        """Of each key, no window up to here is sent any more."""
        ranks = tally.ranks(until)
        self._sent = np.maximum(self._grown_to(self._sent, len(until), np.iinfo(np.int64).min), ranks)
        self._passed = self._grown_to(self._passed, len(until), 0)

    def _grown_to(self, held: Array, slots: int, value: int) -> Array:
        return np.concatenate([held, np.full(slots - len(held), value, np.int64)])

    def release(self, until: Array) -> Segments:
        """The windows of each key up to `until`; entries that no later window reaches are forgotten."""
        owners, panes, rows, marks, tallies = self.in_order()
        slots, edges = groups(owners)
        before = self._grown_to(self._sent, len(until), np.iinfo(np.int64).min)
        self.close(until)
        span = (before[slots], self._sent[slots])
        passed = self._passed[slots]
        every = 1 if self._windows.numbered is not None else self._windows.every
        ends = _ending((panes, rows), edges, span, every, passed)
        self._passed[slots] = passed
        if self._windows.numbered is not None:
            ends &= marks > 0
        at = number_of(panes, self._progress)
        low, unbounded = self._back(at)
        total = int(ends.sum())
        made = self._tally(total)
        owner, place, counted = (np.empty(total, np.int64) for _ in range(3))
        out = (owner, place, counted, made.floats, made.ints)
        entries = (at, rows, tallies.floats, tallies.ints)
        _slide(entries, edges, ends, (low, unbounded), self._aggregation.kinds, out)
        over = until[owners] >= self._progress.everything
        horizon, everything = self._back(until)
        kept = ((at > horizon[owners]) | everything[owners]) & ~over
        self._hold(owners[kept], panes[kept], rows[kept], marks[kept], tallies.of(kept))
        flags = np.full(total, sg.END_INCLUDED, np.int64)
        folds = tally.as_folds(self._aggregation.kinds, made.floats, made.ints)
        return Segments(
            slots[owner], low[place], at[place], flags, counted, panes[place], np.zeros(total, np.int64), *folds
        )

    def _back(self, numbers: Array) -> tuple[Array, Array]:
        """Each less the range, and whether that is before all numbers."""
        if self._progress.unit == "real":
            return self._progress.earlier(numbers, self._range), np.zeros(len(numbers), bool)
        return self._progress.earlier(numbers, self._range), numbers < self._progress.nothing + self._range

    @property
    def open(self) -> int:
        """How many instants may still end a window."""
        owners, panes, *_ = self.entries
        return int((panes > self._sent[owners]).sum())

    def state(self, slots: int) -> dict[str, Array]:
        """All that is open, of so many keys."""
        sent = self._grown_to(self._sent, slots, np.iinfo(np.int64).min)
        return {**self.held(), "sent": sent, "passed": self._grown_to(self._passed, slots, 0)}

    def resume(self, arrays: Mapping[str, Array]) -> None:
        """Go on with what was open."""
        self.hold(arrays)
        self._sent, self._passed = arrays["sent"], arrays["passed"]

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
from panewise.kernel.aggregates import Aggregation, Inputs
from panewise.kernel.compiled import compiled
from panewise.kernel.operator import Segments
from panewise.kernel.page import Array
from panewise.kernel.progress import Progress
from panewise.kernel.sliding import slid
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
def _runs(at: Any, edges: Any, ends: Any, low: Any, out: Any) -> None:
    """A window for each entry that ends one: entries with `at` above its `low`, where it has one, and up to it."""
    lowest, unbounded = low
    owner, begin, end = out
    n = 0
    for g in range(len(edges) - 1):
        i = edges[g]
        for e in range(edges[g], edges[g + 1]):
            if not ends[e]:
                continue
            # a row is in its own window, however short that is for numbers of its size
            while i < e and at[i] <= lowest[e] and not unbounded[e]:
                i += 1
            owner[n], begin[n], end[n] = g, i, e + 1
            n += 1


class TupleOperator(Entries):
    """The rows of some keys, by `at`, as far back as a window to come reaches."""

    def __init__(self, windows: TupleWindows, progress: Progress, aggregation: Aggregation) -> None:
        super().__init__(aggregation)
        self._windows, self._progress = windows, progress
        self._range = progress.amount("range", windows.range)
        self._sent, self._passed = np.empty(0, np.int64), np.empty(0, np.int64)
        """Up to where windows have been sent, and how many rows there were up to there, of each key."""

    def take(self, slots: Array, at: Array, inputs: Inputs, keys: int, numbers: Array | None = None) -> None:
        """Add rows; `numbers` says which of them may end a window, where that is not all."""
        ranks, marked = tally.ranks(at), self._marked(numbers)
        if marked is not None:
            # a late row ends no window
            marked &= ranks > self._grown_to(self._sent, keys, np.iinfo(np.int64).min)[slots]
        self.add(slots, ranks, at, inputs, keys, marked)

    def _marked(self, numbers: Array | None) -> Array | None:
        """Which rows may end a window; None, where all may, or those of a rank that is not known yet."""
        if self._windows.numbered is None:
            return None
        assert numbers is not None
        known = np.abs(numbers[np.isfinite(numbers)])
        if len(known) and known.max() > _EXACT:
            text = self._windows.numbered.text
            raise DataError(
                f"`numbered` ({text!r}) holds {known.max():.0f}: numbers of more than 53 bits are not told apart. "
                f'Give what is left of them: numbered="{text} % {self._windows.every}".'
            )
        return np.asarray(np.isfinite(numbers) & (np.mod(np.nan_to_num(numbers, nan=1.0), self._windows.every) == 0))

    def missed(self, slots: Array, at: Array, numbers: Array | None) -> Array:
        """Which of these rows, late as they are, belong to a window that is complete: one sent, or one they had ended.

        By rank any of them might have ended one; each would have moved the ranks of those after it.
        """
        marked = self._marked(numbers)
        if marked is None:
            return np.ones(len(at), bool)
        owners, panes, _, marks, _ = self.entries
        sent = (marks > 0) & (panes <= self._sent[owners])
        last = np.full(len(self._sent), np.iinfo(np.int64).min)
        np.maximum.at(last, owners[sent], panes[sent])
        return marked | (tally.ranks(at) <= last[slots])

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
        owner, begin, end = (np.empty(total, np.int64) for _ in range(3))
        _runs(at, edges, ends, (low, unbounded), (owner, begin, end))
        counted, made = slid(rows, tallies, begin, end)
        over = until[owners] >= self._progress.everything
        horizon, everything = self._back(until)
        kept = ((at > horizon[owners]) | everything[owners]) & ~over
        self._hold(owners[kept], panes[kept], rows[kept], marks[kept], tallies.of(kept))
        flags = np.full(total, sg.END_INCLUDED, np.int64)
        place = end - 1
        return Segments(
            slots[owner], low[place], at[place], flags, counted, panes[place], np.zeros(total, np.int64), *made.folds()
        )

    def _back(self, numbers: Array) -> tuple[Array, Array]:
        """Each less the range, and whether that is before all numbers."""
        if self._progress.unit == "real":
            return self._progress.earlier(numbers, self._range), np.zeros(len(numbers), bool)
        return self._progress.earlier(numbers, self._range), numbers < self._progress.nothing + self._range

    def promise_of_new(self, until: Any, progress: Progress, ends: bool = False) -> Any:
        """The same of a key that has had no row."""
        return self.promise(np.array([until], progress.dtype), progress, ends)[0]

    def promise(self, until: Array, progress: Progress, ends: bool = False) -> Array:
        """For each slot, whose rows have come up to `until`, an instant at or before which nothing to come starts.

        Or ends.
        """
        if ends:
            return until
        # the next window ends with the next instant, at the soonest
        start = progress.earlier(progress.above(until), self._range)
        return progress.passed_on(until, np.minimum(progress.below(start), until))

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

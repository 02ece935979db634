"""The frames that may be open, whatever came before the first row that is known: rivals.

Of moves: a frame from before goes on while no value has moved too far from what it may have had, and ends at the latest
when the values seen lie too far apart for any. It can end only with a row that is above or below all before it; those
rows, and the first one, begin rivals. Of sums that nothing makes smaller: a frame from before has at least the sum that
one from the first row has, and is complete no later; until that one is, the row after each begins a rival. From then on
each is followed: those that end with the same row go on as one. When there is only one, and it does not begin with the
first row, nothing before that row matters any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from panewise.kernel.compiled import compiled
from panewise.kernel.page import Array
from panewise.spec.frames import AggregateFrames, DeltaFrames, Scheme
from panewise.spec.options import Chained

__all__ = ["Rivals", "rivals_of"]

_LEAST, _MOST, _ALL = 8, 256, 1 << 22
"""How many there may be of a key, and of all; where there are more, it stays unknown which is right."""
_MARGIN = 1 + 1e-9
"""Values that are farther apart than this times what is allowed are so after rounding, too."""


@compiled
def _follow(
    values: Any, offsets: Any, slots: Any, chosen: Any, ranged: Any, limit: Any, strict: Any,
    count: Any, first: Any, older: Any, seen: Any, low: Any, high: Any,
) -> None:  # fmt: skip
    room = low.shape[1]
    apart = limit * (1.0 if ranged else 2.0) * _MARGIN
    for g in range(len(slots)):
        if not chosen[g]:
            continue
        k = slots[g]
        n, least, most = count[k], seen[k, 0], seen[k, 1]
        for i in range(offsets[g], offsets[g + 1]):
            x = values[i]
            if np.isnan(x) or n > room:
                continue
            if n == 0:
                first[k], older[k], least, most = True, True, x, x
                low[k, 0], high[k, 0] = x, x
                n = 1
                continue
            kept = 0
            for c in range(n):
                lower, higher = low[k, c], high[k, c]
                if ranged:
                    lower, higher = min(lower, x), max(higher, x)
                    moved = higher - lower
                else:
                    moved = abs(x - lower)
                if moved > limit or (moved == limit and not strict):
                    if c == 0:
                        first[k] = False
                else:
                    low[k, kept], high[k, kept] = lower, higher
                    kept += 1
            ends = kept < n
            n = kept
            if older[k] and (x < least or x > most):
                ends = True
                least, most = min(least, x), max(most, x)
                older[k] = not most - least > apart
            if ends:
                if n < room:
                    low[k, n], high[k, n] = x, x
                n += 1
        count[k], seen[k, 0], seen[k, 1] = n, least, most


@compiled
def _follow_sums(
    values: Any, offsets: Any, slots: Any, chosen: Any, ranged: Any, limit: Any, strict: Any,
    count: Any, first: Any, older: Any, seen: Any, low: Any, high: Any,
) -> None:  # fmt: skip
    """As `_follow`; a rival's sum is in `low`, and below 0 where it begins with the next row."""
    room = low.shape[1]
    for g in range(len(slots)):
        if not chosen[g]:
            continue
        k = slots[g]
        n = count[k]
        for i in range(offsets[g], offsets[g + 1]):
            x = values[i]
            if np.isnan(x) or n > room:
                continue
            if x < 0.0:
                n = room + 1
                continue
            if n == 0:
                first[k], older[k], low[k, 0] = True, True, -1.0
                n = 1
            kept, ends = 0, older[k]
            for c in range(n):
                total = x if low[k, c] < 0.0 else low[k, c] + x
                if total > limit or (total == limit and not strict):
                    ends = True
                    if c == 0 and first[k]:
                        first[k], older[k] = False, False
                else:
                    low[k, kept] = total
                    kept += 1
            n = kept
            if ends:
                if n < room:
                    low[k, n] = -1.0
                n += 1
        count[k] = n


def rivals_of(scheme: Scheme) -> Rivals | None:
    """Where the move of one value, or a sum, alone ends a frame, and another follows: nobody's rivals yet."""
    if not isinstance(scheme, (DeltaFrames, AggregateFrames)) or not isinstance(scheme.placement, Chained):
        return None
    limits, schedule = scheme.limits, scheme.schedule
    ends_else = scheme.nulls != "invisible" or (schedule is not None and schedule.missing != "ignored")
    if ends_else or limits.has_maximum:
        return None
    if isinstance(scheme, AggregateFrames):
        # counts that begin with different rows never come together
        plain = scheme.closing == "include" and not limits.has_minimum and scheme.aggregate.function == "sum"
        return Rivals(_follow_sums, False, scheme.bound, scheme.strict) if plain else None
    amount = scheme.moves[0][1]
    plain = scheme.closing == "exclude" and len(scheme.moves) == 1 and amount > 0
    return Rivals(_follow, scheme.against == "range", amount, scheme.strict) if plain else None


class Rivals:
    """Rivals of any number of keys."""

    def __init__(self, follow: Callable[..., None], ranged: bool, limit: float, strict: bool) -> None:
        """Of moves against the range of all values, or against the first; or of sums."""
        self._follow, self._form = follow, (ranged, limit, strict)
        self.sums = follow is _follow_sums
        """Whether they are right only if no value is negative, of these rows or of any before."""
        self._count = np.zeros(0, np.int64)
        # whether the first of them began with the first row; and whether one from before may be open
        self._first, self._older = np.zeros(0, bool), np.zeros(0, bool)
        self._seen = np.zeros((0, 2))
        self._low, self._high = np.zeros((0, _MOST)), np.zeros((0, _MOST))

    def follow(self, values: Array, offsets: Array, slots: Array, chosen: Array) -> None:
        """Take the rows of the slots that are chosen; NaN hides one."""
        self._reserve(int(slots.max(initial=-1)) + 1)
        self._follow(
            values, offsets, slots, chosen, *self._form,
            self._count, self._first, self._older, self._seen, self._low, self._high,
        )  # fmt: skip

    def forgotten(self, slots: Array) -> Array:
        """For which of these slots nothing matters that came before their rows."""
        begun = self._low[slots, 0] >= 0 if self.sums else True
        return np.asarray((self._count[slots] == 1) & ~self._first[slots] & ~self._older[slots] & begun)

    def lost(self, slots: Array) -> Array:
        """Of which of these there are too many, or none that can be followed: it will never be known."""
        return np.asarray(self._count[slots] > self._low.shape[1])

    def _reserve(self, slots: int) -> None:
        have = len(self._count)
        if slots <= have:
            return
        more = max(slots - have, have)
        room = min(max(_ALL // (have + more), _LEAST), self._low.shape[1])
        # those that have no room any more have too many for good
        self._count = np.minimum(self._count, room + 1)
        self._low, self._high = self._low[:, :room], self._high[:, :room]
        for name in ("_count", "_first", "_older", "_seen", "_low", "_high"):
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.zeros((more, *array.shape[1:]), array.dtype)]))

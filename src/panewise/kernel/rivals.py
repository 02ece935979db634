"""The frames of moves that may be open, whatever came before the first row that is known: rivals.

A frame from before goes on while no value has moved too far from what it may have had, and ends at the latest when the
values seen lie too far apart for any. It can end only with a row that is above or below all before it; those rows, and
the first one, begin rivals. From then on each is followed: those that end with the same row go on as one. When there
is only one, and it does not begin with the first row, nothing before that row matters any more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from panewise.kernel.compiled import compiled
from panewise.kernel.page import Array
from panewise.spec.frames import DeltaFrames, Scheme
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


def rivals_of(scheme: Scheme) -> Rivals | None:
    """Where the move of one value alone ends a frame, and begins the next: nobody's rivals yet."""
    if not isinstance(scheme, DeltaFrames) or not isinstance(scheme.placement, Chained) or len(scheme.moves) > 1:
        return None
    limits, schedule, amount = scheme.limits, scheme.schedule, scheme.moves[0][1]
    ends_else = limits.max_duration is not None or limits.max_rows is not None or scheme.closing != "exclude"
    ends_else |= scheme.nulls != "invisible" or (schedule is not None and schedule.missing != "ignored")
    return None if ends_else or not amount > 0 else Rivals(amount, scheme.strict, scheme.against == "range")


class Rivals:
    """Rivals of any number of keys, for one value that may move by less than a limit; by as much, if `strict`."""

    def __init__(self, limit: float, strict: bool, ranged: bool) -> None:
        """Against the range of all values of a frame, or against its first."""
        self._form = (ranged, limit, strict)
        self._count = np.zeros(0, np.int64)
        # whether the first of them began with the first row; and whether one from before may be open
        self._first, self._older = np.zeros(0, bool), np.zeros(0, bool)
        self._seen = np.zeros((0, 2))
        self._low, self._high = np.zeros((0, _MOST)), np.zeros((0, _MOST))

    def follow(self, values: Array, offsets: Array, slots: Array, chosen: Array) -> None:
        """Take the rows of the slots that are chosen; NaN hides one."""
        self._reserve(int(slots.max(initial=-1)) + 1)
        _follow(
            values, offsets, slots, chosen, *self._form,
            self._count, self._first, self._older, self._seen, self._low, self._high,
        )  # fmt: skip

    def forgotten(self, slots: Array) -> Array:
        """For which of these slots nothing matters that came before their rows."""
        return np.asarray((self._count[slots] == 1) & ~self._first[slots] & ~self._older[slots])

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

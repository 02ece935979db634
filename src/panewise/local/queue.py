"""The queue of a slow operator on a simulated clock: rows in order of arrival, and rows set aside behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from panewise.kernel.compiled import compiled
from panewise.kernel.page import Array
from panewise.spec.aside import SetAside

__all__ = ["Queue", "Served"]

_PIECES = 500
"""Into how many pieces all rows are cut, at least, where results are timed."""


@compiled
def _served(arrival: Any, burst: Any, free: Any, aside: Any, since: Any, until: Any, limits: Any) -> Any:
    """Process rows until all of these are, or the clock is `until`, or what is set aside is, or a piece of it.

    Which rows of a burst are set aside is known, and takes no time; `free` is when the last row was processed.
    """
    cost, every, at_most, piece = limits
    taken = low = 0
    while True:
        waits = taken < len(arrival) and arrival[taken] <= free
        if aside > 0 and (aside > at_most or since >= every or not waits):
            if free + cost > until:
                return taken, low, free, aside, since, True
            free, aside, low, since = free + cost, aside - 1, low + 1, 0
            if aside == 0 or low >= piece:
                break
        elif waits and burst[taken]:
            taken, aside = taken + 1, aside + 1
        elif waits:
            if free + cost > until:
                return taken, low, free, aside, since, True
            free, taken, since = free + cost, taken + 1, since + 1
        elif taken < len(arrival) and arrival[taken] <= until:
            free = arrival[taken]
        else:
            return taken, low, free, aside, since, taken < len(arrival)
        if taken == len(arrival) and len(arrival) > 0:
            break
    return taken, low, free, aside, since, False


@dataclass(frozen=True)
class Served:
    """What became of a queue: how many new rows were taken, how many of those set aside were processed, and when."""

    taken: int
    low: int
    clock: float


class Queue:
    """Rows of known arrival that are processed one after another, each for `cost` seconds."""

    def __init__(self, arrival: Array, cost: float, spec: SetAside) -> None:
        self._arrival = arrival
        piece = float(max(1, len(arrival) // _PIECES))
        self._limits = (cost, float(spec.every), float(spec.at_most), piece)
        self._free, self._since = -np.inf, 0
        self.place = self.aside = 0
        """The first row that waits; and how many are set aside."""

    @property
    def first(self) -> float:
        """When the first row arrives."""
        return float(self._arrival[0]) if len(self._arrival) else 0.0

    def __bool__(self) -> bool:
        return self.place < len(self._arrival) or self.aside > 0

    def serve(self, burst: Array, until: float) -> Served:
        """Process rows from the first that waits on, which are set aside or not: all of them, or what time allows."""
        arrival = self._arrival[self.place : self.place + len(burst)]
        told = _served(arrival, burst, self._free, self.aside, self._since, float(until), self._limits)
        taken, low, self._free, self.aside, self._since, waits = told
        self.place += taken
        return Served(int(taken), int(low), until if waits else float(self._free))

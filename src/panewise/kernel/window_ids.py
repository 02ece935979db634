"""Which windows there are, what belongs to one, and which a row belongs to: for every type of window.

Windows on a grid (tumbling, sliding, landmark; of rows, on their numbers) are numbered by whole numbers, and a row
belongs to those with start <= t < end. A window that a row ends is named by that instant, and has start < t <= end.
`extent` and `wids` are inverses: t lies in extent(w) where w is one of wids(t).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from panewise.kernel.windows import Grid

__all__ = ["Ends", "extent", "wids", "windows"]


@dataclass(frozen=True)
class Ends:
    """Windows that rows end, at these instants; each reaches `range` back."""

    range: int | float
    ends: tuple[int | float, ...]


def windows(of: Grid | Ends, first: float, last: float) -> Sequence[int | float]:
    """The windows that there are between two instants, these included: those that hold one of the instants there.

    Landmark windows go on without end: those up to the first that holds the last instant.

    >>> windows(Grid(range=60, slide=20), 211, 245)
    range(10, 15)
    >>> windows(Ends(60, (100, 170, 240, 250)), 101, 190)
    [170, 240]
    """
    if isinstance(of, Ends):
        return [w for w in sorted(set(of.ends)) if w >= first and (w <= last or w - of.range < last)]
    if of.begins and last < of.origin:
        return range(0)
    return range(of.wids(first)[0], of.last_of(last) + 1)


def extent(of: Grid | Ends, w: float) -> tuple[int | float, int | float]:
    """Where window w begins, and where it ends.

    >>> extent(Grid(range=60, slide=20), 11), extent(Ends(60, (240,)), 240)
    ((180, 240), (180, 240))
    """
    return (w - of.range, w) if isinstance(of, Ends) else of.extent(int(w))


def wids(of: Grid | Ends, t: float) -> Sequence[int | float]:
    """The windows that an instant belongs to; the row that ends a window always does.

    >>> list(wids(Grid(range=60, slide=20), 211)), wids(Ends(60, (150, 211, 270, 271)), 211)
    ([10, 11, 12], [211, 270])
    """
    if isinstance(of, Ends):
        return [w for w in sorted(set(of.ends)) if w == t or w - of.range < t <= w]
    first, last = of.wids(t)
    return range(first, last + 1)

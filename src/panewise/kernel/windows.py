"""Windows by window-id: which windows there are, what belongs to one, and which a row belongs to.

Window w ends at end(w) = origin + (w + 1) * slide, and takes rows with start(w) <= at < end(w). Nothing in it depends
on rows. The line is cut into panes wherever a window begins or ends: one pane for each slide, or two where the range is
no multiple of it. A row lies in one pane, and a window is a run of panes; so rows are added up once, however many
windows they belong to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np

from panewise.errors import DataError, InputError
from panewise.kernel.compiled import compiled
from panewise.kernel.page import Array
from panewise.kernel.progress import Progress
from panewise.spec.duration import multiple
from panewise.spec.frames import RowWindows, Windows

__all__ = ["Grid", "check_count", "grid_of", "instant", "row_grid"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FAR = 2.0**51
"""How many slides from zero real numbers still tell one from the next."""
_MANY = 1 << 60
"""How many windows are counted from the origin, either way."""
_SLIDES = 1_000_000
"""How many windows a row is in, at most."""
_ALL = 1 << 60
"""More panes than there are."""
_NEAR = 1 << 61
"""Numbers that can be added without running over."""
_WITHOUT_END = 100_000_000
"""More windows than are made at once."""
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True)
class Grid:
    """Windows on the numbers that stand for `at`: whole ones, or real ones.

    >>> grid = Grid(range=60, slide=20)
    >>> grid.wids(211), grid.extent(11)
    ((10, 12), (180, 240))
    """

    range: int | float | None
    """None: from the origin on, without end."""
    slide: int | float
    origin: int | float = 0
    begins: bool = False
    """Whether there is nothing before the origin."""
    keep_empty: bool = False
    """Whether windows without rows are reported too, from the first of a key on."""

    @property
    def goes_on(self) -> bool:
        """Whether the windows of a key go on when no more rows of it come."""
        return self.range is None or self.keep_empty

    def last_of(self, latest: float) -> int:
        """The last window of a stream that ends with this row, where they go on."""
        return self.wids(latest)[0 if self.range is None else 1]

    @property
    def real(self) -> bool:
        """Whether `at` is held as a real number."""
        return isinstance(self.slide, float)

    @property
    def slides(self) -> int:
        """How many slides a window touches."""
        if self.range is None:
            return 1
        if not self.real:
            return int(-(-self.range // self.slide))
        return multiple(self.range, self.slide) or math.floor(self.range / self.slide) + 1

    @property
    def pairs(self) -> bool:
        """Whether windows begin between two ends, so that there are two panes in a slide."""
        if self.range is None:
            return False
        return not multiple(self.range, self.slide) if self.real else self.range % self.slide != 0

    @property
    def panes(self) -> tuple[int, int]:
        """How many panes there are in a slide, and in a window."""
        if self.range is None:
            return 1, _ALL
        return (2, 2 * self.slides - 1) if self.pairs else (1, self.slides)

    def edge(self, j: int) -> int | float:
        """Where slide j begins, and window j - 1 ends."""
        return self.origin + j * self.slide

    def split(self, j: int) -> int | float:
        """Where a window begins within slide j."""
        assert self.range is not None
        start = self.edge(j + self.slides) - self.range
        return min(max(start, self.edge(j)), self.edge(j + 1))

    def extent(self, w: int) -> tuple[int | float, int | float]:
        """Where window w begins, and where it ends; its end does not belong to it."""
        end = self.edge(w + 1)
        if self.range is None:
            return self.origin, end
        start = self.split(w + 1 - self.slides) if self.pairs else self.edge(w + 1 - self.slides)
        return (max(start, self.origin) if self.begins else start), end

    def wids(self, t: float) -> tuple[int, int]:
        """The first and the last window that an instant belongs to; none where the last is before the first."""
        if self.begins and t < self.origin:
            return 0, -1
        pane = int(self.pane_of(np.array([t], np.float64 if self.real else np.int64))[0])
        each, whole = self.panes
        return pane // each, (pane + whole) // each - 1

    def pane_of(self, at: Array) -> Array:
        """The pane of each instant."""
        self._check(at)
        if not self.real:
            rest = 0
            if self.pairs:
                assert self.range is not None
                rest = int(self.slides * self.slide - self.range)
            slides, phase = divmod(int(self.origin), int(self.slide))
            return np.asarray(_whole_panes(at, int(self.slide), slides, phase, rest))
        found = np.asarray(_real_panes(at, self.slide, self.origin))
        if not self.pairs:
            return found
        return 2 * found + (at >= self._splits(found))

    def _reach(self) -> tuple[float | int, float | int]:
        """The instants between which windows are told apart."""
        if self.real:
            return -_FAR * self.slide, _FAR * self.slide
        origin, slide = int(self.origin), int(self.slide)
        return max(origin - _MANY * slide, _LEAST), min(origin + _MANY * slide, _MOST)

    def _check(self, at: Array) -> None:
        if not len(at):
            return
        low, high = self._reach()
        for found in (at.min(), at.max()):
            if not low <= found.item() <= high:
                raise DataError(
                    f"`at` holds {found}, which is too far from the origin for windows every {self.slide}: there are "
                    f"windows from {low} to {high}. Choose a larger slide, or leave such rows out."
                )

    def _splits(self, j: Array) -> Array:
        assert self.range is not None
        start = (self.origin + (j + self.slides) * self.slide) - self.range
        return np.minimum(np.maximum(start, self.edges(j)), self.edges(j + 1))

    def edges(self, j: Array) -> Array:
        """Where slides begin, as far as numbers go."""
        if self.real:
            return np.asarray(self.origin + j * self.slide)
        low, high = -((self.origin - _LEAST) // self.slide), (_MOST - self.origin) // self.slide
        found = self.origin + np.clip(j, low, high) * self.slide
        return np.where(j < low, _LEAST, np.where(j > high, _MOST, found)).astype(np.int64)

    def bounds(self, w: Array) -> tuple[Array, Array]:
        """Where windows begin and end."""
        end = self.edges(w + 1)
        if self.range is None:
            return np.full(len(w), self.origin, end.dtype), end
        j = w + 1 - self.slides
        start = self.edges(j)
        if self.pairs and self.real:
            start = self._splits(j)
        elif self.pairs:
            rest = int(self.slides * self.slide - self.range)
            # what is before all numbers stays there
            moved = np.where(start > _MOST - rest, _MOST, start + rest)
            start = np.where(start == _LEAST, _LEAST, moved)
        if self.begins:
            start = np.maximum(start, self.origin)
        return start, end

    def complete(self, until: Array, progress: Progress) -> Array:
        """The last window of which nothing more comes, where no more rows come up to these instants."""
        # the first instant that may still come lies in the first slide that has not ended
        low, high = self._reach()
        nothing, everything = (until <= progress.nothing) | (until < low), until >= min(high, progress.everything)
        known = np.where(nothing | everything, progress.dtype(self.origin), until)
        next_one = progress.above(known)
        slide = self.pane_of(next_one) // self.panes[0]
        found = slide - 1
        return np.where(nothing, _LEAST // 4, np.where(everything, _MOST // 4, found)).astype(np.int64)


def check_count(slide: float, total: float) -> None:
    """Refuse to make windows without end: a clock that is far ahead would have them all made."""
    if total > _WITHOUT_END:
        raise DataError(
            f"`slide` ({slide}): {total:,.0f} windows would be sent at once, because a row or a promise is so far "
            "ahead of the others. Correct its clock, or choose a larger slide."
        )


@compiled
def _whole_panes(at: Any, slide: Any, slides: Any, phase: Any, rest: Any) -> Any:
    """The slide of each instant, counted from the origin; twice that, and one more past `rest`, if there is one."""
    found = np.empty(len(at), np.int64)
    # the next row is likely to lie in the slide of the one before, and to divide takes long
    j = low = high = np.int64(0)
    for i in range(len(at)):
        within = at[i] - low
        if at[i] < low or at[i] >= high:
            j = at[i] // slide
            within = at[i] - j * slide - phase
            if within < 0:
                within += slide
                j -= 1
            j -= slides
            low = high = np.int64(0)
            if -_NEAR < at[i] < _NEAR and slide < _NEAR:
                low, high = at[i] - within, at[i] - within + slide
        found[i] = 2 * j + (1 if within >= rest else 0) if rest else j
    return found


@compiled
def _real_panes(at: Any, slide: Any, origin: Any) -> Any:
    """The slide of each instant, by the edges themselves: a quotient may round to the next one."""
    found = np.empty(len(at), np.int64)
    j, low, high = np.int64(0), origin, origin
    for i in range(len(at)):
        if not low <= at[i] < high:
            j = np.int64(np.floor((at[i] - origin) / slide))
            while at[i] < origin + j * slide:
                j -= 1
            while at[i] >= origin + (j + 1) * slide:
                j += 1
            low, high = origin + j * slide, origin + (j + 1) * slide
        found[i] = j
    return found


def row_grid(windows: RowWindows) -> Grid:
    """The windows of a plan on the numbers of rows, which count from 1."""
    return Grid(windows.range, windows.slide, 1, True)


def grid_of(windows: Windows, progress: Progress) -> Grid:
    """The windows of a plan in the unit of its `at`."""
    size = None if windows.range is None else progress.amount("range", windows.range)
    slide = progress.amount("slide", windows.slide)
    given = windows.origin is not None
    origin = instant(windows.origin, progress) if windows.origin is not None else 0
    if size is not None and size / slide > _SLIDES:
        raise InputError(
            f"`slide` ({windows.slide}) is less than a millionth of `range` ({windows.range}): each row would be in "
            "more than a million windows. Choose a larger slide."
        )
    if progress.unit == "real":
        origin = float(origin)
        if abs(origin) > _FAR * slide:
            raise InputError(
                f"`origin` ({windows.origin}) is more than 2**51 times the slide ({windows.slide}) away from 0: real "
                "numbers of that size do not tell windows apart. Choose another, or a larger slide."
            )
    return Grid(size, slide, origin, given or size is None, windows.keep_empty)


def instant(value: str | int | float, progress: Progress) -> int | float:
    """An origin as a number."""
    if progress.unit not in ("micros", "days"):
        if isinstance(value, str):
            raise InputError(f"`origin` ({value!r}) is text, but `at` is a number. Give a number.")
        if progress.unit == "real":
            return value
        if value != int(value) or not _LEAST <= value <= _MOST:
            raise InputError(
                f"`origin` ({value}) must be a whole number of 64 bits, because `at` is an integer. Give another one."
            )
        return int(value)
    if not isinstance(value, str):
        raise InputError(f'`origin` ({value}) is a number, but `at` is a time. Give one, such as "2024-01-01 06:00".')
    if progress.unit == "days":
        when = datetime.fromisoformat(value)
        if when.time() != datetime.min.time():
            raise InputError(f"`origin` ({value!r}) must be a day, because `at` is a date. Leave the time out.")
        return (when.date() - date(1970, 1, 1)).days
    when = datetime.fromisoformat(value)
    if when.tzinfo is not None and progress.type.tz is None:
        raise InputError(f"`origin` ({value!r}) has a time zone, but `at` has none. Leave it out.")
    zoned = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return (zoned - _EPOCH) // timedelta(microseconds=1)

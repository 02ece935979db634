"""The progressing attribute inside the kernels: which number stands for `at`, and amounts in its unit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.errors import InputError
from panewise.kernel.page import Array
from panewise.spec.check import MAX_WHOLE
from panewise.spec.duration import Amount, Duration

__all__ = [
    "Progress", "aligned", "check_amounts", "check_at", "check_same_kind", "day_over", "progress_of", "promised",
]  # fmt: skip

_DAY = 86_400_000_000
_INSTANT = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Progress:
    """How `at` is held: microseconds, days, whole numbers (int64) or real numbers (float64)."""

    unit: str
    type: pa.DataType
    """The Arrow type of segment bounds."""

    @property
    def dtype(self) -> type:
        """The numpy type of `at` in a page."""
        return np.float64 if self.unit == "real" else np.int64

    def numbers(self, column: pa.Array) -> Array:
        """A column of `at`, without nulls, as numbers."""
        # a copy: what Arrow lends cannot be written to, and numba would compile everything a second time for that
        return np.array(_as_storage(column, self.unit).to_numpy(zero_copy_only=False), dtype=self.dtype)

    def bounds(self, numbers: Array) -> pa.Array:
        """Numbers as bounds of segments."""
        if self.unit == "days":
            return pa.array(numbers.astype(np.int32), pa.int32()).cast(self.type)
        return pa.array(numbers).cast(self.type)

    def written(self, number: Any) -> str:
        """A number as text; a time that Python has no word for stays a number."""
        try:
            return str(self.bounds(np.asarray([number], self.dtype))[0].as_py())
        except (OverflowError, ValueError):
            return str(number)

    @property
    def nothing(self) -> Any:
        """Progress that promises nothing: the least number, at which no row is late."""
        return self.dtype(-np.inf) if self.unit == "real" else np.iinfo(np.int64).min

    @property
    def everything(self) -> Any:
        """Progress of a stream that is over."""
        return self.dtype(np.inf) if self.unit == "real" else np.iinfo(np.int64).max

    def passed_on(self, until: Array, found: Array) -> Array:
        """What follows from promises, but from nothing nothing follows, and from everything everything."""
        return np.where(until >= self.everything, self.everything, np.where(until <= self.nothing, self.nothing, found))

    def below(self, numbers: Array) -> Array:
        """The last instant before each."""
        if self.unit == "real":
            with np.errstate(over="ignore"):
                return np.nextafter(numbers, -np.inf)
        return np.where(numbers == self.nothing, self.nothing, numbers - 1)

    def above(self, numbers: Array) -> Array:
        """The first instant after each."""
        if self.unit == "real":
            with np.errstate(over="ignore"):
                return np.nextafter(numbers, np.inf)
        return np.where(numbers == self.everything, self.everything, numbers + 1)

    def earlier(self, numbers: Array, amount: float | int) -> Array:
        """Each less an amount, as far as numbers go."""
        if self.unit == "real":
            return np.asarray(numbers - amount)
        return np.where(numbers < self.nothing + amount, self.nothing, numbers - amount)

    def later(self, numbers: Array, amount: float | int) -> Array:
        """Each and an amount, as far as numbers go."""
        if self.unit == "real":
            return np.asarray(numbers + amount)
        return np.where(numbers > self.everything - amount, self.everything, numbers + amount)

    def moved(self, numbers: Array, amount: float | int) -> Array:
        """Each and an amount, which may be less than zero, as far as numbers go."""
        return self.later(numbers, amount) if amount >= 0 else self.earlier(numbers, -amount)

    def amount(self, name: str, value: Amount) -> float | int:
        """An amount in the unit of `at`."""
        if self.unit in ("micros", "days"):
            if not isinstance(value, Duration):
                raise InputError(
                    f"`{name}` ({value}) is a number, but `at` is a {self._word}. "
                    'Give a length of time, such as "2 minutes".'
                )
            if self.unit == "micros":
                return value.micros
            if value.micros % _DAY:
                raise InputError(
                    f"`{name}` ({value}) must be whole days, because `at` is a date. Give days, or use a timestamp."
                )
            return value.micros // _DAY
        if isinstance(value, Duration):
            raise InputError(
                f"`{name}` ({value}) is a length of time, but `at` is a number. Give a number in the unit of `at`."
            )
        if self.unit == "whole" and value != int(value):
            raise InputError(
                f"`{name}` ({value}) must be a whole number, because `at` is an integer. Round it, or cast `at`."
            )
        if self.unit == "whole" and abs(value) > MAX_WHOLE:
            raise InputError(
                f"`{name}` ({value}) is more than a 64-bit integer, which `at` is. Give less, or cast `at` to double."
            )
        return float(value) if self.unit == "real" else int(value)

    @property
    def _word(self) -> str:
        return "date" if self.unit == "days" else "timestamp"


def _as_storage(column: pa.Array, unit: str) -> pa.Array:
    if unit == "micros":
        return pc.cast(pc.cast(column, pa.timestamp("us", column.type.tz)), pa.int64())
    if unit == "days":
        return pc.cast(pc.cast(column, pa.date32()), pa.int32())
    return pc.cast(column, pa.float64() if unit == "real" else pa.int64())


def check_at(name: str, found: str, usable: bool) -> None:
    """Refuse a column that cannot order rows."""
    if not usable:
        raise InputError(
            f"`at` ({name!r}) has type {found}; rows are ordered by a timestamp, a date, an integer or a floating "
            "number. Cast it, or choose another column."
        )


def progress_of(name: str, arrow: pa.DataType) -> Progress:
    """How a column of this type is held, or why it cannot be `at`."""
    if pa.types.is_timestamp(arrow):
        return Progress("micros", pa.timestamp("us", arrow.tz))
    if pa.types.is_date(arrow):
        return Progress("days", pa.date32())
    if pa.types.is_integer(arrow):
        return Progress("whole", pa.int64())
    check_at(name, str(arrow), pa.types.is_floating(arrow))
    return Progress("real", pa.float64())


_KINDS = {"micros": "a time", "days": "a date", "whole": "an integer", "real": "a number"}
_READS = {("micros", "days"), ("days", "micros"), ("real", "whole")}


def check_same_kind(name: str, found: pa.DataType, segments: pa.DataType) -> None:
    """Refuse to measure rows and segments by things that can't be compared."""
    here, there = progress_of(name, found), progress_of(name, segments)
    if here.unit != there.unit and (there.unit, here.unit) not in _READS:
        raise InputError(
            f"`at` ({name!r}) is {_KINDS[here.unit]} ({found}), and the segments are bounded by {_KINDS[there.unit]} "
            f"({segments}): no row could be told to lie in one. Cast one of them, so that both are alike."
        )
    zones = [kind.tz is not None for kind in (found, segments) if pa.types.is_timestamp(kind)]
    if len(set(zones)) > 1:
        raise InputError(
            f"`at` ({name!r}) has type {found}, and the segments are bounded by {segments}: one has a time zone and "
            "the other none. Cast one of them, so that both are alike."
        )


def aligned(at: pa.Array, segments: pa.DataType) -> pa.Array:
    """The `at` of rows as segments have it: a time on the day that it is on, a day at its beginning."""
    if pa.types.is_timestamp(at.type) and pa.types.is_date(segments):
        return at.cast(pa.timestamp("us")).cast(pa.date32(), safe=False)
    if pa.types.is_date(at.type) and pa.types.is_timestamp(segments):
        return at.cast(pa.timestamp("us")).cast(pa.timestamp("us", segments.tz))
    kind = progress_of("at", segments).type
    # an integer of more than 53 bits becomes the nearest number, as on Spark
    return at.cast(kind, safe=not pa.types.is_floating(kind))


def promised(at: pa.Array, segments: pa.DataType) -> pa.Array:
    """Promises about rows as segments have them: up to a time, of days those that are over just after it."""
    if pa.types.is_timestamp(at.type) and pa.types.is_date(segments):
        today = aligned(pc.add(at.cast(pa.timestamp("us", at.type.tz)), pa.scalar(_INSTANT)), segments)
        return pc.subtract(today.cast(pa.int32()), pa.scalar(1, pa.int32())).cast(pa.date32())
    return aligned(at, segments)


def day_over(micros: int, zone: tzinfo) -> int:
    """The last day that is over just after an instant, by the clocks of a zone.

    >>> [day_over(86_400_000_000 - left, UTC) for left in (2, 1, 0)]
    [-1, 0, 0]
    """
    today = (_EPOCH + timedelta(microseconds=micros) + _INSTANT).astimezone(zone).date()
    return (today - _EPOCH.date()).days - 1


def check_amounts(amounts: Iterable[tuple[str, Amount]], progress: Progress) -> None:
    """Refuse amounts that do not fit the type of `at`."""
    for name, value in amounts:
        progress.amount(name, value)

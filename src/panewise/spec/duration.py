"""Amounts of `at`: lengths of time, or plain numbers where `at` is a number."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from numbers import Integral, Real
from typing import Union

from panewise.errors import SpecError
from panewise.spec.check import MAX_WHOLE, shown

__all__ = ["Amount", "AmountLike", "Duration", "amount", "multiple", "same_kind", "size", "written"]

_MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_SHORT = {"us": "microsecond", "ms": "millisecond", "s": "second", "sec": "second", "min": "minute"}
_SHORT |= {"h": "hour", "d": "day", "w": "week"}
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]+)\s*")
_DIGITS = 100
_LONGEST = MAX_WHOLE // 86_400_000_000
_NO_LENGTH = ("month", "quarter", "year")


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time in whole microseconds; its text is in the largest unit that gives a whole number.

    >>> Duration.parse("1 hour 30 minutes")
    Duration(micros=5400000000)
    >>> str(Duration.parse("90 s")), str(Duration.parse("1.5 hours")), str(Duration.parse("3600 s"))
    ('90 seconds', '90 minutes', '1 hour')
    """

    micros: int

    @staticmethod
    def parse(text: str, name: str = "duration") -> Duration:
        """Read `"2 minutes"`, `"1 hour 30 minutes"`, `"250 ms"`; a leading minus counts for the whole."""
        rule = 'a duration reads like "2 minutes", "1 hour 30 minutes" or "250 ms"'
        sign, unsigned = (-1, text.lstrip()[1:]) if text.lstrip().startswith("-") else (1, text)
        total, position = Fraction(0), 0
        while position < len(unsigned):
            part = _PART.match(unsigned, position)
            unit = part.group(2).lower() if part else ""
            unit = _SHORT.get(unit, unit.removesuffix("s"))
            if unit in _NO_LENGTH:
                raise SpecError(f"`{name}` ({text!r}): a {unit} has no fixed length. Give it in days, hours or less.")
            if part is None or unit not in _MICROS:
                raise SpecError(f"`{name}` ({text!r}) can't be read: {rule}. Units: {', '.join(_MICROS)}.")
            if len(part.group(1)) > _DIGITS:
                short = f"{text[:20]}..."
                raise SpecError(f"`{name}` ({short!r}) has a number of more than {_DIGITS} digits. Give fewer.")
            total += Fraction(part.group(1)) * _MICROS[unit]
            position = part.end()
        if not unsigned.strip():
            raise SpecError(f"`{name}` ({text!r}) can't be read: {rule}.")
        return Duration(sign * round(total))

    def __str__(self) -> str:
        size, unit = max((size, unit) for unit, size in _MICROS.items() if self.micros % size == 0)
        if self.micros == 0:
            size, unit = _MICROS["second"], "second"
        count = self.micros // size
        return f"{count} {unit}" if abs(count) == 1 else f"{count} {unit}s"


Amount = Union[Duration, int, float]
"""How far `at` (or a framing value) moves: a Duration for times, a number for numbers."""

AmountLike = Union[str, int, float, timedelta, Duration]
"""What users write for one."""


def amount(name: str, value: object, *, zero: bool = False, signed: bool = False) -> Amount:
    """Check and convert one positive amount; one that may be `zero` too, or less, where that means something.

    >>> amount("min_duration", "2 minutes")
    Duration(micros=120000000)
    >>> amount("gap", 5)
    5
    >>> amount("slack", "0 seconds", zero=True)
    Duration(micros=0)
    """
    result: Amount
    if isinstance(value, Duration):
        result = value
    elif isinstance(value, timedelta):
        result = Duration(value // timedelta(microseconds=1))
    elif isinstance(value, str):
        result = Duration.parse(value, name)
    elif isinstance(value, Real) and not isinstance(value, bool):
        result = _number(name, value)
    else:
        raise SpecError(
            f"`{name}` ({value!r}) must be a length of time or a number. "
            'Give text like "2 minutes", a timedelta, or a number where `at` is a number.'
        )
    size = result.micros if isinstance(result, Duration) else result
    if signed:
        if not math.isfinite(size):
            raise SpecError(f"`{name}` ({value}) is no number. Give an amount, or leave `{name}` out.")
    elif zero and not size >= 0:
        raise SpecError(f"`{name}` ({value}) can't be less than zero. Give zero or more, or leave `{name}` out.")
    elif not zero and not size > 0:
        raise SpecError(f"`{name}` ({value}) must be more than zero. Give a positive amount, or leave `{name}` out.")
    if isinstance(result, Duration) and abs(size) > MAX_WHOLE:
        raise SpecError(
            f"`{name}` ({value}) is longer than a time can be: {_LONGEST} days, in microseconds of 64 bits. "
            f"Give less, or leave `{name}` out."
        )
    return result


def _number(name: str, value: Real) -> int | float:
    """A finite number, as Python's own: numpy's are neither written to a job file nor compared as such."""
    try:
        real = float(value)
    except OverflowError:
        real = math.inf
    # NaN passes: it is not more than zero either
    if math.isinf(real) and real > 0:
        raise SpecError(f"`{name}` ({shown(value)}) must be finite, at most 1.8e308. Give less, or leave `{name}` out.")
    return int(value) if isinstance(value, Integral) else real


def same_kind(a: Amount, b: Amount) -> bool:
    """Whether both are lengths of time, or both numbers.

    >>> same_kind(Duration(5), Duration(7)), same_kind(5, 0.5), same_kind(Duration(5), 5)
    (True, True, False)
    """
    return isinstance(a, Duration) == isinstance(b, Duration)


def size(amount: Amount | None) -> int | float:
    """An amount as a number, of microseconds if it is a length of time; none is 0.

    >>> size(Duration(5)), size(-0.5), size(None)
    (5, -0.5, 0)
    """
    if amount is None:
        return 0
    return amount.micros if isinstance(amount, Duration) else amount


def multiple(range: float, slide: float) -> int:
    """How many times the slide a range of real numbers is, but for rounding; 0 where it is no multiple.

    >>> multiple(0.7, 0.1), multiple(0.75, 0.1)
    (7, 0)
    """
    times = round(range / slide)
    return times if abs(times * slide - range) <= 4 * math.ulp(range) else 0


def written(amount: Amount | None) -> str | int | float | None:
    """An amount as a job file has it.

    >>> written(Duration(90_000_000)), written(5)
    ('90 seconds', 5)
    """
    return str(amount) if isinstance(amount, Duration) else amount

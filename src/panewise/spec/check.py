"""Checks that every description shares: one place for the wording of errors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral

from panewise.errors import SpecError

__all__ = ["MAX_WHOLE", "choice", "column", "columns", "flag", "shown", "sql"]

MAX_WHOLE = 2**63 - 1
"""The largest whole number that a column can hold."""


def choice(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    if value not in allowed:
        words = ", ".join(f'"{a}"' for a in allowed)
        raise SpecError(f"`{name}` ({value!r}) must be one of {words}. Choose one of these, or leave `{name}` out.")
    return str(value)


def flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise SpecError(f"`{name}` ({value!r}) must be True or False. Give one of these, or leave `{name}` out.")
    return value


def shown(value: object) -> str:
    """A value in an error message; a number of very many digits in short.

    >>> shown(-(10**400)), shown(2**64)
    ('about -1e400', '18446744073709551616')
    """
    if isinstance(value, Integral) and abs(int(value)) > 10**40:
        return f"about {'-' if int(value) < 0 else ''}1e{math.log10(abs(int(value))):.0f}"
    return str(value)


def sql(name: str, value: object, example: str = "speed > 30") -> str:
    """SQL text; a Spark Column cannot be hashed, compared or sent to a job file."""
    if not isinstance(value, str) or not value.strip():
        raise SpecError(
            f"`{name}` ({value!r}) must be SQL text: a plan holds no Spark Column. "
            f'Write it as a string, such as "{example}".'
        )
    return value.strip()


def column(name: str, value: object) -> str:
    """The name of a column."""
    if not isinstance(value, str) or not value:
        raise SpecError(f"`{name}` ({value!r}) must be the name of a column. Give it as a string.")
    return value


def columns(name: str, values: object) -> tuple[str, ...]:
    """Names of columns, each once."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        return (column(name, values),)
    names = tuple(column(name, v) for v in values)
    for n in names:
        if names.count(n) > 1:
            raise SpecError(f"`{name}` ({n!r}) is given twice. Name each column once.")
    return names

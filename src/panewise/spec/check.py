"""Checks that every description shares: one place for the wording of errors."""

from __future__ import annotations

from collections.abc import Iterable

from panewise.errors import SpecError

__all__ = ["choice", "column", "columns", "flag", "sql"]


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


def sql(name: str, value: object) -> str:
    """SQL text; a Spark Column cannot be hashed, compared or sent to a job file."""
    if not isinstance(value, str) or not value.strip():
        raise SpecError(
            f"`{name}` ({value!r}) must be SQL text: a plan holds no Spark Column. "
            'Write it as a string, such as "speed > 30".'
        )
    return value.strip()


def column(name: str, value: object) -> str:
    """The name of a column."""
    if not isinstance(value, str) or not value:
        raise SpecError(f"`{name}` ({value!r}) must be the name of a column. Give it as a string.")
    return value


def columns(name: str, values: Iterable[object]) -> tuple[str, ...]:
    """Names of columns, each once."""
    if isinstance(values, str):
        return (column(name, values),)
    names = tuple(column(name, v) for v in values)
    for n in names:
        if names.count(n) > 1:
            raise SpecError(f"`{name}` ({n!r}) is given twice. Name each column once.")
    return names

"""Setting bursts aside: what counts as one, and how the rows that are set aside are made up for."""

from __future__ import annotations

from dataclasses import dataclass

from panewise.errors import SpecError
from panewise.spec.check import shown
from panewise.spec.frames import RowWindows, Scheme, TupleWindows, Windows
from panewise.spec.prod import Prods

__all__ = ["SetAside", "checked_set_aside", "set_aside"]


@dataclass(frozen=True, slots=True)
class SetAside:
    """Once a window has been prodded and has more than `rows` rows, those that still come for it are set aside.

    They are processed at low priority: one after every `every` new ones, all of them in a lull, which is a micro-batch
    that brings a shard no more than `lull` rows; and at once, oldest first, what is beyond `at_most` in a shard.
    """

    rows: int = 1_000
    every: int = 10
    at_most: int = 10_000
    lull: int = 0


def set_aside(rows: int = 1_000, *, every: int = 10, at_most: int = 10_000, lull: int = 0) -> SetAside:
    """Set aside what comes for a window that has been prodded and has more than `rows` rows; none is dropped.

    One row that is set aside is processed after every `every` new ones, all of them in a micro-batch with at most
    `lull` rows, and those beyond `at_most`, in each shard, at once.

    >>> set_aside(500)
    SetAside(rows=500, every=10, at_most=10000, lull=0)
    """
    return SetAside(
        _whole("rows", rows, 1, "a window with more rows is a burst", 1_000),
        _whole("every", every, 1, "one row that is set aside is processed after so many new ones", 10),
        _whole("at_most", at_most, 1, "so many rows are set aside, and what is more is processed at once", 10_000),
        _whole("lull", lull, 0, "a micro-batch that brings no more rows is a lull", 100),
    )


def _whole(name: str, value: object, least: int, means: str, example: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        told = shown(value) if isinstance(value, int) else repr(value)
        raise SpecError(
            f"`{name}` ({told}) must be a whole number, at least {least}: {means}. Give one, such as {example}."
        )
    return value


def checked_set_aside(given: object, scheme: Scheme, prods: Prods | None) -> SetAside | None:
    """What is set aside of a plan's windows; True is as `set_aside()` has it."""
    if given is None or given is False:
        return None
    if given is not True and not isinstance(given, SetAside):
        raise SpecError(
            f"`set_aside` ({given!r}) does not say which rows are set aside. Give pw.set_aside(rows=1000), or True."
        )
    if not isinstance(scheme, Windows) or scheme.range is None:
        raise SpecError(
            "`set_aside` is for windows on a grid (tumbling_windows, sliding_windows), of which those without a row "
            f"that is set aside are on time: {_why(scheme)}. Leave it out."
        )
    if prods is None:
        raise SpecError(
            "`set_aside`: the rest of a window is set aside after its prod, and there are no prods. "
            "Give `prods` too, such as prods=True, or leave it out."
        )
    return given if isinstance(given, SetAside) else SetAside()


def _why(scheme: Scheme) -> str:
    match scheme:
        case Windows():
            return "a landmark window has the rows of all before it, so that none would be"
        case RowWindows():
            return "windows of rows number all rows in order, so that none would be"
        case TupleWindows():
            return "here every window ends with a row, which might itself be set aside"
    return "frames are drawn by rows in order, so that all that follow would wait"

"""Prods: requests for an answer now, about what is still open. They promise nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Union

from panewise.errors import SpecError
from panewise.spec.check import column, columns, flag, sql
from panewise.spec.duration import Duration
from panewise.spec.frames import Scheme, Windows
from panewise.spec.punctuate import on_the_clock

__all__ = [
    "BOUNDS",
    "InBandProds",
    "ProdSource",
    "ProdStream",
    "Prodder",
    "Prods",
    "first_of",
    "later_of",
    "on_grid",
    "prodder",
    "prods",
    "prods_from",
    "prods_in",
]

BOUNDS = (0.01, 0.9)
"""Between which shares of the slide an autopilot moves, if nothing else is said."""


@dataclass(frozen=True, slots=True)
class InBandProds:
    """Rows of the stream itself for which `condition` holds: they ask, and are never data."""

    condition: str
    per_key: bool = False


@dataclass(frozen=True, slots=True)
class ProdStream:
    """Another stream, each of whose rows asks for what ends up to its column `time`, of the keys that it names.

    `source` is a DataFrame: it takes no part in comparisons, and stays behind when a plan is pickled.
    """

    time: str | None
    keys: tuple[str, ...]
    source: Any = field(compare=False, repr=False)

    def __reduce__(self) -> tuple[type[ProdStream], tuple[str | None, tuple[str, ...], None]]:
        return ProdStream, (self.time, self.keys, None)


@dataclass(frozen=True, slots=True)
class Prodder:
    """Asks by the clock, once in every slide: `aggressiveness` of it before its end, and for what ends with it."""

    every: Duration
    aggressiveness: float | None = None
    """None: at the end of each slide, for all that is open."""
    hold_accuracy: float | None = None
    """The mean accuracy to hold, by moving `aggressiveness` within `bounds`."""
    bounds: tuple[float, float] = BOUNDS
    zone: str | None = None
    """Where the clock hangs on whose wall `at` is read, if `at` is a time without a zone."""
    origin: str | None = None
    """An instant at which one of the slides begins, if they do not lie as those from the epoch on."""


ProdSource = Union[InBandProds, ProdStream, Prodder]


@dataclass(frozen=True, slots=True)
class Prods:
    """Where prods come from, besides the control folder."""

    in_band: InBandProds | None = None
    stream: ProdStream | None = None
    prodder: Prodder | None = None
    passes: bool = False
    """Whether answers are for a plan that follows: then all that is open is told, and compared with nothing."""
    accuracy: Any = None
    """How near an early value is to its final one: a function, or one for each of some aggregates."""


def prods_in(condition: str, *, per_key: bool = False) -> InBandProds:
    """Rows for which `condition` holds are prods: for what ends up to their `at`, of any key or of theirs.

    >>> prods_in("kind = 'prod'")
    InBandProds(condition="kind = 'prod'", per_key=False)
    """
    return InBandProds(sql("condition", condition, "kind = 'prod'"), flag("per_key", per_key))


def prods_from(source: Any, until: str | None = None, *, by: str | Iterable[str] = ()) -> ProdStream:
    """Another stream: each of its rows asks for what ends up to its column `until`, or else for all that is open.

    `by` names key columns of the plan that it has too: it asks for these keys only; a null asks for any.
    """
    if source is None or isinstance(source, str):
        raise SpecError(f"`source` ({source!r}) must be another stream. Give a DataFrame.")
    named = () if by == () else columns("by", by)
    return ProdStream(None if until is None else column("until", until), named, source)


def prodder(
    every: str | Duration,
    aggressiveness: float | None = None,
    *,
    hold_accuracy: float | None = None,
    bounds: tuple[float, float] = BOUNDS,
) -> Prodder:
    """Ask by the clock, once in every slide of this length, so much of it before its end (0.25: a quarter).

    What ends with the slide, or before, is asked for; without `aggressiveness`, all that is open, at its end. Where
    `at` is no time, it is all that is open in any case.

    With `hold_accuracy` the `aggressiveness` is where it begins (if none is given, at half of the upper bound): it is
    moved, within `bounds`, so that the mean accuracy of the aggregate that does worst stays there.

    >>> prodder("10 seconds", 0.25).aggressiveness
    0.25
    >>> prodder("10 seconds", hold_accuracy=0.98).aggressiveness
    0.45
    """
    slide = on_the_clock("every", every)
    if aggressiveness is not None:
        aggressiveness = _share("aggressiveness", aggressiveness)
    if hold_accuracy is None:
        if bounds != BOUNDS:
            raise SpecError(
                f"`bounds` ({bounds!r}) are those of an autopilot. Leave them out, or say what to hold: "
                "hold_accuracy=0.98."
            )
        return Prodder(slide, aggressiveness)
    if not _is_number(hold_accuracy) or not 0 < hold_accuracy < 1:
        raise SpecError(
            f"`hold_accuracy` ({hold_accuracy!r}) must be a number between 0 and 1: the mean accuracy to hold. "
            "Give one, such as 0.98."
        )
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise SpecError(f"`bounds` ({bounds!r}) must be two shares of the slide. Give them, such as {BOUNDS}.")
    low, high = (_share("bounds", each) for each in bounds)
    if not 0 < low < high:
        raise SpecError(
            f"`bounds` ({bounds!r}) must be two shares of the slide, above 0, the lower one first: after the end of a "
            f"slide there is nothing to gain. Give them, such as {BOUNDS}."
        )
    begin = high / 2 if aggressiveness is None else min(max(aggressiveness, low), high)
    return Prodder(slide, begin, float(hold_accuracy), (low, high))


def _is_number(given: object) -> bool:
    return not isinstance(given, bool) and isinstance(given, Real) and math.isfinite(given)


def _share(option: str, given: Any) -> float:
    """A share of a slide."""
    if not _is_number(given):
        raise SpecError(
            f"`{option}` ({given!r}) must be a number: a share of the slide, before its end. "
            "Give one, such as 0.25; less than 0 is after its end."
        )
    if not -1 < given < 1:
        raise SpecError(
            f"`{option}` ({given}) must lie between -1 and 1: a share of the slide, before its end, or "
            "after it. Give one, such as 0.25."
        )
    return float(given)


def prods(given: object, accuracy: object = None) -> Prods | None:
    """Where prods come from; True is from the control folder alone. `accuracy` replaces the measure of answers.

    >>> prods(True) == Prods(), prods(None)
    (True, None)
    """
    if given is None or given is False:
        if accuracy is not None:
            raise SpecError("`accuracy` is of early answers, and there are none. Give `prods` too, or leave it out.")
        return None
    if isinstance(given, Prods):
        return given
    measure = _measure(accuracy)
    found: dict[str, ProdSource] = {}
    names = {InBandProds: "in_band", ProdStream: "stream", Prodder: "prodder"}
    for each in () if given is True else given if isinstance(given, (list, tuple)) else (given,):
        if type(each) not in names:
            raise SpecError(
                f"`prods` ({each!r}) does not say where prods come from. Give prodder, prods_in or prods_from, or a "
                "list of them; or True, for those of the control folder alone."
            )
        if names[type(each)] in found:
            raise SpecError(f"`prods` ({each!r}) is the second of its kind. Give one of each.")
        found[names[type(each)]] = each
    return Prods(**found, accuracy=measure)  # type: ignore[arg-type]  # each under the name of its type


def first_of(given: Prods | None) -> Prods | None:
    """What of it the first of several plans is told."""
    if given is not None and given.prodder is not None and given.prodder.hold_accuracy is not None:
        raise SpecError(
            f"`hold_accuracy` ({given.prodder.hold_accuracy}): accuracy is known of the last of several plans, and the "
            "first is prodded. Leave it out, and choose an `aggressiveness`."
        )
    return None if given is None else replace(given, passes=True, accuracy=None)


def later_of(given: Prods, last: bool) -> Prods:
    """And what those are told that follow."""
    return Prods(passes=not last, accuracy=given.accuracy if last else None)


def on_grid(given: Prods | None, scheme: Scheme) -> Prods | None:
    """A prodder whose slides lie as those of the windows that it asks for, if these begin at a time."""
    origin = scheme.origin if isinstance(scheme, Windows) else None
    if given is None or given.prodder is None or not isinstance(origin, str):
        return given
    return replace(given, prodder=replace(given.prodder, origin=origin))


def _measure(given: object) -> Callable[..., Any] | dict[str, Callable[..., Any]] | None:
    """A measure for all aggregates, or for some by name."""
    for name, each in given.items() if isinstance(given, Mapping) else (("", given),):
        if each is not None and not callable(each):
            raise SpecError(
                f"`accuracy` ({f'{name}: ' if name else ''}{each!r}) must be a function of early values, final values "
                "and the seconds between them, as arrays, that gives accuracies. Give one, or one for each of some "
                "aggregates, or leave it out."
            )
    return dict(given) if isinstance(given, Mapping) else given  # type: ignore[return-value]  # callable, as seen above

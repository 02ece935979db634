"""Prods: requests for an answer now, about what is still open. They promise nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Union

from panewise.errors import SpecError
from panewise.spec.check import column, columns, flag, sql
from panewise.spec.duration import Duration
from panewise.spec.punctuate import on_the_clock

__all__ = ["InBandProds", "ProdSource", "ProdStream", "Prodder", "Prods", "prodder", "prods", "prods_from", "prods_in"]


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


ProdSource = Union[InBandProds, ProdStream, Prodder]


@dataclass(frozen=True, slots=True)
class Prods:
    """Where prods come from, besides the control folder."""

    in_band: InBandProds | None = None
    stream: ProdStream | None = None
    prodder: Prodder | None = None
    passes: bool = False
    """Whether answers are for a plan that follows: then all that is open is told, and compared with nothing."""


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


def prodder(every: str | Duration, aggressiveness: float | None = None) -> Prodder:
    """Ask by the clock, once in every slide of this length, so much of it before its end (0.25: a quarter).

    What ends with the slide, or before, is asked for; without `aggressiveness`, all that is open, at its end. Where
    `at` is no time, it is all that is open in any case.

    >>> prodder("10 seconds", 0.25)
    Prodder(every=Duration(micros=10000000), aggressiveness=0.25)
    """
    slide = on_the_clock("every", every)
    if aggressiveness is None:
        return Prodder(slide)
    if isinstance(aggressiveness, bool) or not isinstance(aggressiveness, Real) or not math.isfinite(aggressiveness):
        raise SpecError(
            f"`aggressiveness` ({aggressiveness!r}) must be a number: a share of the slide, before its end. "
            "Give one, such as 0.25; less than 0 is after its end."
        )
    if not -1 < aggressiveness < 1:
        raise SpecError(
            f"`aggressiveness` ({aggressiveness}) must lie between -1 and 1: a share of the slide, before its end, or "
            "after it. Give one, such as 0.25."
        )
    return Prodder(slide, float(aggressiveness))


def prods(given: object) -> Prods | None:
    """Where prods come from; True is from the control folder alone.

    >>> prods(True) == Prods(), prods(None)
    (True, None)
    """
    if given is None or given is False:
        return None
    if isinstance(given, Prods):
        return given
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
    return Prods(**found)  # type: ignore[arg-type]

"""Options that mean the same in every scheme: limits, schedules, placement."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Union

from panewise.errors import SpecError
from panewise.spec.check import MAX_WHOLE, choice, shown, sql
from panewise.spec.duration import Amount, Duration, amount, same_kind

__all__ = [
    "CHAINED",
    "NO_LIMITS",
    "Chained",
    "Limits",
    "Placement",
    "Saturated",
    "Schedule",
    "Starts",
    "limits",
    "placement",
    "schedule",
]


@dataclass(frozen=True, slots=True)
class Limits:
    """How short and how long a segment may be, in `at` and in rows."""

    min_duration: Amount | None = None
    min_rows: int | None = None
    max_duration: Amount | None = None
    max_rows: int | None = None

    @property
    def has_minimum(self) -> bool:
        """Whether a segment can be too short."""
        return self.min_duration is not None or self.min_rows is not None

    @property
    def has_maximum(self) -> bool:
        """Whether a segment can be too long."""
        return self.max_duration is not None or self.max_rows is not None


NO_LIMITS = Limits()


def _count(name: str, value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 1:
        raise SpecError(
            f"`{name}` ({value!r}) must be a whole number of rows, at least 1. Give 1 or more, or leave it out."
        )
    if int(value) > MAX_WHOLE:
        raise SpecError(
            f"`{name}` ({shown(value)}) is more rows than 64 bits count: at most 2^63 - 1. Give less, or leave it out."
        )
    return int(value)


def limits(
    min_duration: object = None, min_rows: object = None, max_duration: object = None, max_rows: object = None
) -> Limits:
    """Check the four limits against each other."""
    shortest = None if min_duration is None else amount("min_duration", min_duration)
    longest = None if max_duration is None else amount("max_duration", max_duration)
    if shortest is not None and longest is not None:
        if not same_kind(shortest, longest):
            raise SpecError(
                f"`min_duration` ({shortest}) and `max_duration` ({longest}) must be of one kind: "
                "both lengths of time or both numbers. Write both as `at` is measured."
            )
        if shortest > longest:  # type: ignore[operator]  # same_kind has made them comparable
            raise SpecError(
                f"`min_duration` ({shortest}) can't be more than `max_duration` ({longest}); "
                "no segment could be both. Lower the one or raise the other."
            )
    fewest, most = _count("min_rows", min_rows), _count("max_rows", max_rows)
    if fewest is not None and most is not None and fewest > most:
        raise SpecError(
            f"`min_rows` ({fewest}) can't be more than `max_rows` ({most}); "
            "no segment could be both. Lower the one or raise the other."
        )
    return Limits(shortest, fewest, longest, most)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A reading is expected every so often; `missing` says what one that did not come means."""

    every: Amount
    jitter: Amount | None
    missing: str


def schedule(every: object, jitter: object, missing: object, allowed: tuple[str, ...]) -> Schedule | None:
    """Check a reporting schedule; the first of `allowed` is the default of `missing`."""
    if every is None:
        for name, value in (("jitter", jitter), ("missing", missing)):
            if value is not None:
                raise SpecError(
                    f"`{name}` ({value!r}) needs a schedule: without `expect_every` no reading is missing. "
                    "Add `expect_every`."
                )
        return None
    step = amount("expect_every", every)
    slop = None if jitter is None else amount("jitter", jitter)
    if slop is not None:
        if not same_kind(step, slop):
            raise SpecError(
                f"`jitter` ({slop}) and `expect_every` ({step}) must be of one kind. Write both as `at` is measured."
            )
        half = (step.micros if isinstance(step, Duration) else step) / 2
        if (slop.micros if isinstance(slop, Duration) else slop) >= half:
            raise SpecError(
                f"`jitter` ({slop}) must be less than half of `expect_every` ({step}); "
                "otherwise a late reading could pass for the next one. Lower `jitter`."
            )
    word = choice("missing", allowed[0] if missing is None else missing, allowed)
    return Schedule(step, slop, word)


@dataclass(frozen=True, slots=True)
class Chained:
    """Each frame starts at the row after the one before it."""


CHAINED = Chained()


@dataclass(frozen=True, slots=True)
class Saturated:
    """The frame of every start, less those inside another (maximal) or containing another (minimal)."""


@dataclass(frozen=True, slots=True)
class Starts:
    """Frames start only where `condition` holds; `on_overlap` says what a start inside an open frame does."""

    condition: str
    on_overlap: str


Placement = Union[Chained, Saturated, Starts]


def placement(overlap: object, starts: object, on_overlap: object) -> Placement:
    """Check where frames may start."""
    if starts is None:
        if on_overlap is not None:
            raise SpecError(
                f"`on_overlap` ({on_overlap!r}) says what an explicit start does inside an open frame. Add `starts`."
            )
        if overlap is None:
            return CHAINED
        choice("overlap", overlap, ("saturated",))
        return Saturated()
    if overlap is not None:
        raise SpecError(
            f"`overlap` ({overlap!r}) takes every row as a start, `starts` ({starts!r}) only some. "
            'Leave one out; `on_overlap="continue"` lets explicit starts overlap.'
        )
    word = choice("on_overlap", "close" if on_overlap is None else on_overlap, ("close", "drop", "continue"))
    return Starts(sql("starts", starts), word)

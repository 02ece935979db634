"""The schemes: one kind, one class. Frames are drawn by the data, windows by a grid on `at`.

Builders with the public names and keyword options are in `panewise.builders`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Union

from panewise.spec.aggregates import Aggregate
from panewise.spec.duration import Amount
from panewise.spec.options import CHAINED, NO_LIMITS, Limits, Placement, Saturated, Schedule, Starts

__all__ = [
    "AggregateFrames",
    "BoundaryFrames",
    "ChainFrames",
    "CustomFrames",
    "DeltaFrames",
    "HysteresisFrames",
    "RowWindows",
    "RunFrames",
    "Scheme",
    "SessionFrames",
    "ThresholdFrames",
    "TrendFrames",
    "TupleWindows",
    "Value",
    "WindowScheme",
    "Windows",
]


@dataclass(frozen=True, slots=True)
class Value:
    """A framing value: SQL text that gives a number, or a time where `timed` (then in microseconds)."""

    text: str
    timed: bool = False


@dataclass(frozen=True, kw_only=True)
class _Scheme:
    limits: Limits = NO_LIMITS
    extent: str = "observed"
    nulls: str = "breaks"
    schedule: Schedule | None = None
    longest: bool = False

    condition_options: ClassVar[tuple[str, ...]] = ()
    """The options that the conditions come from, for error messages."""
    value_option: ClassVar[str] = ""
    """The option that the framing values come from."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """SQL conditions, evaluated per row before the operator."""
        return ()

    @property
    def values(self) -> tuple[Value, ...]:
        """SQL framing values, evaluated per row before the operator."""
        return ()

    @property
    def amounts(self) -> tuple[tuple[str, Amount], ...]:
        """Every amount of `at` in the scheme, with its option's name."""
        named = [("min_duration", self.limits.min_duration), ("max_duration", self.limits.max_duration)]
        if self.schedule is not None:
            named += [("expect_every", self.schedule.every), ("jitter", self.schedule.jitter)]
        return tuple((name, value) for name, value in named if value is not None)


@dataclass(frozen=True, kw_only=True)
class RunFrames(_Scheme):
    """Schemes whose frames are maximal runs: neighbours alone decide where one ends."""


@dataclass(frozen=True, kw_only=True)
class ChainFrames(_Scheme):
    """Schemes whose frames follow one another: where one ends depends on where it began."""

    condition_options: ClassVar[tuple[str, ...]] = ("starts",)

    closing: str = "exclude"
    placement: Placement = CHAINED
    remainder: bool = False

    @property
    def overlapping(self) -> bool:
        """Whether two segments of one key may share rows."""
        match self.placement:
            case Saturated() | Starts(on_overlap="continue"):
                return True
            case _:
                return False

    @property
    def starts(self) -> str | None:
        """The explicit start condition, where there is one."""
        return self.placement.condition if isinstance(self.placement, Starts) else None


@dataclass(frozen=True, kw_only=True)
class ThresholdFrames(RunFrames):
    """Maximal runs of rows for which a condition holds."""

    condition_options: ClassVar[tuple[str, ...]] = ("condition",)

    condition: str
    gaps: bool = False

    @property
    def conditions(self) -> tuple[str, ...]:
        return (self.condition,)


@dataclass(frozen=True, kw_only=True)
class HysteresisFrames(RunFrames):
    """Runs that open on one condition and go on until another holds."""

    condition_options: ClassVar[tuple[str, ...]] = ("open", "close")

    open: str
    close: str
    gaps: bool = False

    @property
    def conditions(self) -> tuple[str, ...]:
        return (self.open, self.close)


@dataclass(frozen=True, kw_only=True)
class BoundaryFrames(RunFrames):
    """Runs of rows in one cell; a cell is a width (n = ceil(v / width)) or ascending breakpoints per dimension."""

    value_option: ClassVar[str] = "cells"

    dimensions: tuple[tuple[Value, float | tuple[float, ...]], ...]

    @property
    def values(self) -> tuple[Value, ...]:
        return tuple(value for value, _ in self.dimensions)


@dataclass(frozen=True, kw_only=True)
class TrendFrames(RunFrames):
    """Maximal runs of strictly rising, strictly falling or equal values; at least two rows."""

    value_option: ClassVar[str] = "value"

    value: Value
    direction: str

    @property
    def values(self) -> tuple[Value, ...]:
        return (self.value,)


@dataclass(frozen=True, kw_only=True)
class SessionFrames(RunFrames):
    """Rows less than a gap apart."""

    gap: Amount

    @property
    def amounts(self) -> tuple[tuple[str, Amount], ...]:
        return (*super().amounts, ("gap", self.gap))


@dataclass(frozen=True, kw_only=True)
class DeltaFrames(ChainFrames):
    """Rows until any value has moved by its own amount."""

    value_option: ClassVar[str] = "amounts"

    moves: tuple[tuple[Value, float], ...]
    against: str = "range"
    strict: bool = False

    @property
    def values(self) -> tuple[Value, ...]:
        return tuple(value for value, _ in self.moves)

    @property
    def conditions(self) -> tuple[str, ...]:
        return () if self.starts is None else (self.starts,)


@dataclass(frozen=True, kw_only=True)
class AggregateFrames(ChainFrames):
    """Rows until an aggregate over the frame passes a bound."""

    value_option: ClassVar[str] = "aggregate"

    aggregate: Aggregate
    bound: float
    strict: bool = False

    @property
    def values(self) -> tuple[Value, ...]:
        return () if self.aggregate.argument is None else (Value(self.aggregate.argument),)

    @property
    def conditions(self) -> tuple[str, ...]:
        return () if self.starts is None else (self.starts,)


@dataclass(frozen=True, kw_only=True)
class CustomFrames(ChainFrames):
    """A user's own open / update / close; `scheme` is a class that follows `panewise.CustomScheme`."""

    value_option: ClassVar[str] = "scheme"

    scheme: type

    @property
    def values(self) -> tuple[Value, ...]:
        return tuple(Value(text) for text in self.scheme.values)  # type: ignore[attr-defined]  # checked by the builder


@dataclass(frozen=True, kw_only=True)
class WindowScheme(_Scheme):
    """Schemes whose segments do not depend on what rows say."""


@dataclass(frozen=True, kw_only=True)
class Windows(WindowScheme):
    """Windows whose ends lie on a grid: window w ends at origin + (w + 1) * slide, and `range` before that it begins.

    Without `range` each begins at the origin. Where `origin` is given, there is nothing before it.
    """

    range: Amount | None
    slide: Amount
    origin: str | int | float | None = None
    """An instant; text where `at` is a time or a date."""
    keep_empty: bool = False
    """Whether those without rows are reported too, from the first of a key on."""

    @property
    def amounts(self) -> tuple[tuple[str, Amount], ...]:
        given = (("range", self.range), ("slide", self.slide))
        return tuple((name, value) for name, value in given if value is not None)


@dataclass(frozen=True, kw_only=True)
class RowWindows(WindowScheme):
    """Windows of so many rows, one every `slide` rows, numbered from 1 in order.

    `partitioned`: the rows of each key by themselves; else all rows, and what each window has of a key is its result.
    """

    range: int
    slide: int
    partitioned: bool


@dataclass(frozen=True, kw_only=True)
class TupleWindows(WindowScheme):
    """A window for every row, or every `every`-th: what lies in the `range` up to it, itself included.

    Counted in order of `at`; or by a column of numbers, those that `every` divides.
    """

    value_option: ClassVar[str] = "numbered"

    range: Amount
    every: int = 1
    numbered: Value | None = None

    @property
    def values(self) -> tuple[Value, ...]:
        return () if self.numbered is None else (self.numbered,)

    @property
    def amounts(self) -> tuple[tuple[str, Amount], ...]:
        return (("range", self.range),)


Scheme = Union[
    ThresholdFrames,
    HysteresisFrames,
    BoundaryFrames,
    TrendFrames,
    SessionFrames,
    DeltaFrames,
    AggregateFrames,
    CustomFrames,
    Windows,
    RowWindows,
    TupleWindows,
]

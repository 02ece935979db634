"""The public constructors: one per scheme, with the same option names in all of them."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from numbers import Integral, Real
from typing import Any, Protocol, runtime_checkable

from panewise.errors import SpecError
from panewise.plan import Plan
from panewise.spec.aggregates import FRAMING_FUNCTIONS, Aggregate
from panewise.spec.check import choice, flag, shown, sql
from panewise.spec.duration import AmountLike, Duration, amount
from panewise.spec.extent import extent as checked_extent
from panewise.spec.frames import (
    AggregateFrames,
    BoundaryFrames,
    CustomFrames,
    DeltaFrames,
    HysteresisFrames,
    SessionFrames,
    ThresholdFrames,
    TrendFrames,
    Value,
)
from panewise.spec.options import Limits, limits, placement, schedule

__all__ = [
    "CustomScheme",
    "aggregate_frames",
    "boundary_frames",
    "custom_frames",
    "delta_frames",
    "session_frames",
    "threshold_frames",
    "trend_frames",
]

_NULLS = ("breaks", "invisible")
_PARTITIONING_MISSING = ("ignored", "breaks")


@runtime_checkable
class CustomScheme(Protocol):
    """What `custom_frames` takes: a class with these members, all static.

    `values` are SQL texts, one number each; `cells` is how many float64 cells of state a frame needs.
    `open` fills the state from a frame's first row and says whether the row may start one; `update` adds a
    row; `close` says whether the row breaks the frame (`closing="exclude"`, asked before the row is added) or
    completes it (`"include"`, asked after). Give functions decorated with `numba.njit` and they run compiled.
    """

    values: tuple[str, ...]
    cells: int

    @staticmethod
    def open(state: Any, row: Any) -> bool:
        """Whether `row` may start a frame; fills `state` from it."""
        ...

    @staticmethod
    def update(state: Any, row: Any) -> None:
        """Add `row` to `state`."""
        ...

    @staticmethod
    def close(state: Any, row: Any) -> bool:
        """Whether `row` ends the frame."""
        ...


def _number(name: str, value: object) -> float:
    if isinstance(value, Real) and not isinstance(value, bool):
        with suppress(OverflowError):
            number = float(value)
            if math.isfinite(number):
                return number
        raise SpecError(f"`{name}` ({shown(value)}) must be a finite number. Give a number.")
    raise SpecError(f"`{name}` ({value!r}) must be a finite number. Give a number.")


def _move(option: str, text: object, size: object) -> tuple[Value, float]:
    step = amount(f"{option}[{text}]", size)
    if isinstance(step, Duration):
        return Value(sql(option, text), timed=True), float(step.micros)
    return Value(sql(option, text)), _number(f"{option}[{text}]", step)


def _mapping(option: str, given: object) -> Mapping[str, object]:
    if not isinstance(given, Mapping) or not given:
        raise SpecError(
            f'`{option}` ({given!r}) must map at least one SQL expression to an amount. Write {{"speed": 5}}.'
        )
    texts = [str(text).strip() for text in given]
    for text in texts:
        if texts.count(text) > 1:
            raise SpecError(f"`{option}` ({text!r}) is given twice. Name each expression once.")
    return given


def _longest(longest: object, other: str, value: bool) -> bool:
    if flag("longest", longest) and value:
        raise SpecError(
            f"`longest` (True) reports one frame a key and can't be combined with `{other}`. Leave one out."
        )
    return bool(longest)


def threshold_frames(
    condition: str | None = None,
    *,
    open: str | None = None,
    close: str | None = None,
    min_duration: AmountLike | None = None,
    min_rows: int | None = None,
    max_duration: AmountLike | None = None,
    max_rows: int | None = None,
    gaps: bool = False,
    extent: str | None = None,
    nulls: str = "breaks",
    expect_every: AmountLike | None = None,
    jitter: AmountLike | None = None,
    missing: str | None = None,
    longest: bool = False,
) -> Plan:
    """The stretches in which a condition holds, or between an `open` and a `close` condition.

    >>> print(threshold_frames("drop_pct > 0.3", min_duration="2 minutes").scheme.condition)
    drop_pct > 0.3
    """
    timing = schedule(expect_every, jitter, missing, ("breaks", "satisfies", "bridged"))
    null = choice("nulls", nulls, _NULLS)
    if timing is not None and timing.missing == "satisfies" and null == "invisible":
        raise SpecError(
            '`missing` ("satisfies") can\'t be combined with `nulls` ("invisible"): a null reading would be both '
            'there and missing. Use nulls="breaks", or missing="bridged".'
        )
    gap = flag("gaps", gaps)
    limit = limits(min_duration, min_rows, max_duration, max_rows)
    reach = checked_extent(extent, "held" if gap else "observed")
    one = _longest(longest, "gaps", gap)
    if condition is not None:
        if open is not None or close is not None:
            raise SpecError(
                f"`condition` ({condition!r}) can't be combined with `open` and `close`: a frame has one or the other. "
                "Give a condition, or both open and close."
            )
        return Plan(
            ThresholdFrames(
                condition=sql("condition", condition),
                gaps=gap,
                limits=limit,
                extent=reach,
                nulls=null,
                schedule=timing,
                longest=one,
            )
        )
    if open is None or close is None:
        raise SpecError(
            f"`open` ({open!r}) and `close` ({close!r}) come together: a frame opens on the one and ends on the other. "
            "Give both, or a single condition."
        )
    return Plan(
        HysteresisFrames(
            open=sql("open", open),
            close=sql("close", close),
            gaps=gap,
            limits=limit,
            extent=reach,
            nulls=null,
            schedule=timing,
            longest=one,
        )
    )


def _remainder(remainder: object, closing: str, overlap: object = None) -> bool:
    if remainder is True and overlap is not None:
        raise SpecError(
            f"`remainder` (True) can't be combined with `overlap` ({overlap!r}): every row starts a frame, and the "
            "last ones never complete. Leave one out."
        )
    if flag("remainder", remainder) and closing == "exclude":
        raise SpecError(
            '`remainder` (True) reports a minimal frame that never completed; with closing="exclude" every frame is '
            'complete as it is. Use closing="include", or leave `remainder` out.'
        )
    return bool(remainder)


def delta_frames(
    amounts: Mapping[str, AmountLike],
    *,
    against: str = "range",
    closing: str = "exclude",
    strict: bool = False,
    min_duration: AmountLike | None = None,
    min_rows: int | None = None,
    max_duration: AmountLike | None = None,
    max_rows: int | None = None,
    overlap: str | None = None,
    starts: str | None = None,
    on_overlap: str | None = None,
    extent: str | None = None,
    nulls: str = "invisible",
    expect_every: AmountLike | None = None,
    jitter: AmountLike | None = None,
    missing: str | None = None,
    longest: bool = False,
    remainder: bool = False,
) -> Plan:
    """A new segment whenever any value has moved by its amount, against the frame's range or its first value.

    >>> delta_frames({"speed": 5}).scheme.moves
    ((Value(text='speed', timed=False), 5.0),)
    """
    end = choice("closing", closing, ("exclude", "include"))
    rest = _remainder(remainder, end, overlap)
    return Plan(
        DeltaFrames(
            moves=tuple(_move("amounts", text, size) for text, size in _mapping("amounts", amounts).items()),
            against=choice("against", against, ("range", "first")),
            closing=end,
            strict=flag("strict", strict),
            placement=placement(overlap, starts, on_overlap),
            remainder=rest,
            limits=limits(min_duration, min_rows, max_duration, max_rows),
            extent=checked_extent(extent, "held"),
            nulls=choice("nulls", nulls, _NULLS),
            schedule=schedule(expect_every, jitter, missing, _PARTITIONING_MISSING),
            longest=_longest(longest, "remainder", rest),
        )
    )


def _cells(text: str, given: object) -> tuple[Value, float | tuple[float, ...]]:
    if isinstance(given, Sequence) and not isinstance(given, str):
        points = tuple(_number(f"cells[{text}]", p) for p in given)
        if not points or any(b <= a for a, b in itertools.pairwise(points)):
            raise SpecError(
                f"`cells[{text}]` ({list(given)}) must be ascending breakpoints, at least one. "
                "Sort them and drop repeats."
            )
        return Value(sql("cells", text)), points
    return _move("cells", text, given)


def boundary_frames(
    cells: Mapping[str, AmountLike | Sequence[float]],
    *,
    min_duration: AmountLike | None = None,
    min_rows: int | None = None,
    max_duration: AmountLike | None = None,
    max_rows: int | None = None,
    extent: str | None = None,
    nulls: str = "invisible",
    expect_every: AmountLike | None = None,
    jitter: AmountLike | None = None,
    missing: str | None = None,
    longest: bool = False,
) -> Plan:
    """One segment for every visit to a cell: a width per dimension, or ascending breakpoints.

    Cells are closed on the right: n = ceil(v / width); a value equal to a breakpoint lies below it.

    >>> boundary_frames({"x": 4.25, "y": [0, 10]}).scheme.dimensions[1]
    (Value(text='y', timed=False), (0.0, 10.0))
    """
    return Plan(
        BoundaryFrames(
            dimensions=tuple(_cells(text, given) for text, given in _mapping("cells", cells).items()),
            limits=limits(min_duration, min_rows, max_duration, max_rows),
            extent=checked_extent(extent, "held"),
            nulls=choice("nulls", nulls, _NULLS),
            schedule=schedule(expect_every, jitter, missing, _PARTITIONING_MISSING),
            longest=flag("longest", longest),
        )
    )


def aggregate_frames(
    aggregate: str,
    *,
    reaches: float | None = None,
    stays_below: float | None = None,
    closing: str | None = None,
    strict: bool = False,
    min_duration: AmountLike | None = None,
    min_rows: int | None = None,
    max_duration: AmountLike | None = None,
    max_rows: int | None = None,
    overlap: str | None = None,
    starts: str | None = None,
    on_overlap: str | None = None,
    extent: str | None = None,
    nulls: str = "invisible",
    expect_every: AmountLike | None = None,
    jitter: AmountLike | None = None,
    missing: str | None = None,
    longest: bool = False,
    remainder: bool = False,
) -> Plan:
    """Rows until an aggregate over the segment passes a bound: sum, count, avg, min, max, range or stddev.

    `reaches=` closes with the row that completes (minimal), `stays_below=` before the row that would (maximal).

    >>> aggregate_frames("sum(volume)", reaches=25).scheme.closing
    'include'
    """
    if (reaches is None) == (stays_below is None):
        raise SpecError(
            f"`reaches` ({reaches!r}) and `stays_below` ({stays_below!r}): a frame has exactly one bound. "
            "Give one of them."
        )
    end = choice("closing", closing, ("exclude", "include")) if closing is not None else None
    if stays_below is not None and end == "include":
        raise SpecError(
            f'`stays_below` ({stays_below!r}) leaves the breaking row out and can\'t have closing="include". '
            "Use `reaches`."
        )
    end = end or ("include" if reaches is not None else "exclude")
    rest = _remainder(remainder, end, overlap)
    bound = _number("reaches", reaches) if reaches is not None else _number("stays_below", stays_below)
    return Plan(
        AggregateFrames(
            aggregate=Aggregate.parse(aggregate, "aggregate", FRAMING_FUNCTIONS),
            bound=bound,
            closing=end,
            strict=flag("strict", strict),
            placement=placement(overlap, starts, on_overlap),
            remainder=rest,
            limits=limits(min_duration, min_rows, max_duration, max_rows),
            extent=checked_extent(extent, "held"),
            nulls=choice("nulls", nulls, _NULLS),
            schedule=schedule(expect_every, jitter, missing, _PARTITIONING_MISSING),
            longest=_longest(longest, "remainder", rest),
        )
    )


def trend_frames(
    value: str,
    direction: str,
    *,
    min_duration: AmountLike | None = None,
    min_rows: int | None = None,
    max_duration: AmountLike | None = None,
    max_rows: int | None = None,
    extent: str | None = None,
    nulls: str = "invisible",
    expect_every: AmountLike | None = None,
    jitter: AmountLike | None = None,
    missing: str | None = None,
    longest: bool = False,
) -> Plan:
    """The stretches of at least two rows in which a value is strictly rising, strictly falling, or steady.

    >>> trend_frames("temp", "rising", min_rows=3).scheme.direction
    'rising'
    """
    return Plan(
        TrendFrames(
            value=Value(sql("value", value)),
            direction=choice("direction", direction, ("rising", "falling", "steady")),
            limits=limits(min_duration, min_rows, max_duration, max_rows),
            extent=checked_extent(extent, "observed"),
            nulls=choice("nulls", nulls, _NULLS),
            schedule=schedule(expect_every, jitter, missing, ("breaks", "bridged")),
            longest=flag("longest", longest),
        )
    )


def session_frames(
    gap: AmountLike,
    *,
    min_duration: AmountLike | None = None,
    min_rows: int | None = None,
    max_duration: AmountLike | None = None,
    max_rows: int | None = None,
    extent: str | None = None,
    longest: bool = False,
) -> Plan:
    """Rows less than a gap apart; a gap of exactly that length splits, as in Spark's session_window.

    >>> session_frames(gap="30 minutes").scheme.gap
    Duration(micros=1800000000)
    """
    return Plan(
        SessionFrames(
            gap=amount("gap", gap),
            limits=limits(min_duration, min_rows, max_duration, max_rows),
            extent=checked_extent(extent, "observed"),
            longest=flag("longest", longest),
        )
    )


def _custom_class(scheme: object) -> type:
    problem = None
    if not inspect.isclass(scheme):
        problem = "it is not a class"
    else:
        for member in ("values", "cells", "open", "update", "close"):
            if not hasattr(scheme, member):
                problem = f"it has no `{member}`"
        if problem is None:
            values, cells = scheme.values, scheme.cells  # type: ignore[attr-defined]  # just checked
            if not isinstance(values, tuple) or not values or not all(isinstance(v, str) for v in values):
                problem = "`values` must be a tuple of SQL texts"
            elif not isinstance(cells, Integral) or isinstance(cells, bool) or cells < 0:
                problem = "`cells` must be a whole number"
    if problem is not None or not inspect.isclass(scheme):
        raise SpecError(
            f"`scheme` ({scheme!r}) can't frame: {problem}. Give a class with values, cells, open, update and close "
            "(see CustomScheme)."
        )
    return scheme


def custom_frames(
    scheme: type,
    *,
    closing: str = "exclude",
    min_duration: AmountLike | None = None,
    min_rows: int | None = None,
    max_duration: AmountLike | None = None,
    max_rows: int | None = None,
    extent: str | None = None,
    nulls: str = "invisible",
    expect_every: AmountLike | None = None,
    jitter: AmountLike | None = None,
    missing: str | None = None,
    longest: bool = False,
    remainder: bool = False,
) -> Plan:
    """Segments by your own open / update / close; see `CustomScheme`."""
    end = choice("closing", closing, ("exclude", "include"))
    rest = _remainder(remainder, end)
    limit: Limits = limits(min_duration, min_rows, max_duration, max_rows)
    return Plan(
        CustomFrames(
            scheme=_custom_class(scheme),
            closing=end,
            remainder=rest,
            limits=limit,
            extent=checked_extent(extent, "observed"),
            nulls=choice("nulls", nulls, _NULLS),
            schedule=schedule(expect_every, jitter, missing, _PARTITIONING_MISSING),
            longest=_longest(longest, "remainder", rest),
        )
    )

"""How the segments of one key lie to each other and to its rows."""

from __future__ import annotations

from panewise.spec.duration import size
from panewise.spec.frames import (
    AggregateFrames,
    BoundaryFrames,
    ChainFrames,
    DeltaFrames,
    HysteresisFrames,
    RowWindows,
    Scheme,
    ThresholdFrames,
    TupleWindows,
    Windows,
)
from panewise.spec.options import Starts

__all__ = ["SHAPES", "shape"]

SHAPES = {
    "separated": "at least one row lies between two segments",
    "partitions": "every visible row is in exactly one segment",
    "disjoint": "no row is in two segments; they may touch, and rows may be in none",
    "overlapping": "a row may be in several segments",
}


def shape(scheme: Scheme) -> str:
    """The shape of a scheme's segments, a key of `SHAPES`.

    >>> from panewise.spec.options import Limits
    >>> shape(ThresholdFrames(condition="speed < 30"))
    'separated'
    >>> shape(ThresholdFrames(condition="speed < 30", limits=Limits(max_rows=9)))
    'disjoint'
    """
    if isinstance(scheme, (Windows, RowWindows, TupleWindows)):
        if isinstance(scheme, TupleWindows) or scheme.range is None:
            return "overlapping"
        long, step = size(scheme.range), size(scheme.slide)
        return "partitions" if long == step else "disjoint" if long < step else "overlapping"
    breaking = scheme.schedule is not None and scheme.schedule.missing == "breaks"
    if isinstance(scheme, (ThresholdFrames, HysteresisFrames)):
        if scheme.gaps:
            return "partitions"
        # a cut piece and one after a missing reading touch the one before: no row lies between
        return "disjoint" if breaking or scheme.limits.has_maximum else "separated"
    if isinstance(scheme, ChainFrames) and scheme.overlapping:
        return "overlapping"
    if isinstance(scheme, (DeltaFrames, AggregateFrames, BoundaryFrames)):
        leaves_out = breaking or scheme.nulls == "breaks" or scheme.longest
        return "disjoint" if leaves_out or _filters(scheme) or _has_starts(scheme) else "partitions"
    return "disjoint"


def _filters(scheme: Scheme) -> bool:
    """Whether a segment can be too short to report; in minimal frames a minimum only makes them longer."""
    minimal = isinstance(scheme, ChainFrames) and scheme.closing == "include"
    return scheme.limits.has_minimum and not minimal


def _has_starts(scheme: Scheme) -> bool:
    return isinstance(scheme, ChainFrames) and isinstance(scheme.placement, Starts)

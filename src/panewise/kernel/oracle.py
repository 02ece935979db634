"""The definitions, executed literally: slow and obvious.

Possible frames are the non-empty runs of consecutive visible rows; candidates those for which the local condition
holds; global conditions choose the final ones. Everything is worked out anew from the rows of each frame. The rules
are numbered as in docs/explanation/semantics.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from panewise.errors import DataError
from panewise.kernel.aggregate_oracle import Number, aggregated, measured
from panewise.spec.aggregates import Calls
from panewise.spec.duration import Amount, Duration
from panewise.spec.frames import (
    AggregateFrames,
    BoundaryFrames,
    ChainFrames,
    CustomFrames,
    DeltaFrames,
    HysteresisFrames,
    Scheme,
    SessionFrames,
    ThresholdFrames,
    TrendFrames,
)
from panewise.spec.options import Saturated, Starts
from panewise.spec.plan import PlanSpec

__all__ = ["Row", "Segment", "covers", "fill", "is_drained", "is_maximal", "is_minimal", "is_saturated", "oracle"]

Span = tuple[int, int]
"""The positions of a frame's first and last row among the visible rows, both included."""
Chain = DeltaFrames | AggregateFrames | CustomFrames


@dataclass(frozen=True)
class Row:
    """One row of a key, as the operator sees it."""

    at: int | float
    conditions: tuple[bool | None, ...]
    values: tuple[float | None, ...]
    inputs: tuple[int | float | None, ...] = ()
    tie: tuple[object, ...] = ()


@dataclass(frozen=True)
class Segment:
    """One reported segment."""

    id: int
    start: int | float
    end: int | float
    bounds: str
    rows: int
    status: str
    gap: bool
    aggregates: tuple[int | float | None, ...]


class _Found(NamedTuple):
    span: Span
    status: str = "final"
    gap: bool = False


def contains(outer: Span, inner: Span) -> bool:
    """Whether one frame strictly contains another."""
    return outer != inner and outer[0] <= inner[0] and inner[1] <= outer[1]


def is_maximal(frame: Span, candidates: Sequence[Span]) -> bool:
    """Whether no candidate strictly contains the frame."""
    return not any(contains(other, frame) for other in candidates)


def is_minimal(frame: Span, candidates: Sequence[Span]) -> bool:
    """Whether the frame strictly contains no candidate."""
    return not any(contains(frame, other) for other in candidates)


def _taken(framing: Sequence[Span]) -> set[int]:
    return {position for first, last in framing for position in range(first, last + 1)}


def covers(framing: Sequence[Span], candidates: Sequence[Span]) -> bool:
    """Whether every row of every candidate is in a frame."""
    return _taken(candidates) <= _taken(framing)


def is_drained(framing: Sequence[Span], candidates: Sequence[Span]) -> bool:
    """Whether no frame can be removed: without it the rest would no longer cover the candidates."""
    return not any(covers([other for other in framing if other != frame], candidates) for frame in framing)


def is_saturated(
    framing: Sequence[Span], candidates: Sequence[Span], fits: Callable[[Span, Sequence[Span]], bool]
) -> bool:
    """Whether no candidate can be added: every one that fits (`is_maximal`, `is_minimal`) is there already."""
    return all(frame in framing for frame in candidates if fits(frame, candidates))


def possible(rows: Sequence[Row]) -> list[Span]:
    """All non-empty runs of consecutive rows."""
    return [(first, last) for first in range(len(rows)) for last in range(first, len(rows))]


def _size(amount: Amount) -> Number:
    return amount.micros if isinstance(amount, Duration) else amount


# Rows and their order: rules 1 to 6


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _without_nan(row: Row) -> Row:
    parts: Any = (row.conditions, row.values, row.inputs, row.tie)
    return Row(row.at, *(tuple(None if _is_nan(v) else v for v in part) for part in parts))


def _rank(row: Row) -> tuple[Any, ...]:
    # only chains have values and a condition too, and that is the start condition, which comes after them
    parts = (*row.tie, *row.values, *row.conditions, *row.inputs)
    return (row.at, *((part is not None, part) for part in parts))


def _in_order(plan: PlanSpec, rows: Sequence[Row]) -> list[Row]:
    known = [_without_nan(row) for row in rows if row.at is not None and math.isfinite(row.at)]
    ordered = sorted(known, key=_rank)
    tied = [a.at for a, b in pairwise(ordered) if a.at == b.at]
    if tied and plan.ties == "error":
        raise DataError(
            f'`ties` ("error"): two rows of one key have `at` {tied[0]}. '
            'Drop one of them, or choose ties="first", "last" or "all".'
        )
    if plan.ties == "first":
        return ordered[:1] + [b for a, b in pairwise(ordered) if a.at != b.at]
    if plan.ties == "last":
        return [a for a, b in pairwise(ordered) if a.at != b.at] + ordered[-1:]
    return ordered


def _is_null(scheme: Scheme, row: Row) -> bool:
    match scheme:
        case ThresholdFrames():
            return row.conditions[0] is None
        case HysteresisFrames():
            return row.conditions[1] is None
    return None in row.values


# Schedules: rule 20


def _every(scheme: Scheme) -> Number:
    return 0 if scheme.schedule is None else _size(scheme.schedule.every)


def _meaning(scheme: Scheme) -> str:
    """What a missing reading means."""
    return "ignored" if scheme.schedule is None else scheme.schedule.missing


def _missing(scheme: Scheme, a: Row, b: Row) -> int:
    """How many readings are missing between two neighbours."""
    gap, every = b.at - a.at, _every(scheme)
    if every == 0:
        return 0
    whole = isinstance(gap, int) and isinstance(every, int)
    expected = (2 * gap + every) // (2 * every) if whole else math.floor(gap / every + 0.5)
    return max(0, int(expected) - 1)


def _is_broken(scheme: Scheme, a: Row, b: Row) -> bool:
    return _meaning(scheme) == "breaks" and _missing(scheme, a, b) > 0


# Extent and minimums: rules 17 and 18


def _interval(scheme: Scheme, rows: Sequence[Row], span: Span, gap: bool = False) -> tuple[Number, Number, str]:
    f, u = rows[span[0]], rows[span[1]]
    b = rows[span[0] - 1] if span[0] > 0 else None
    n = rows[span[1] + 1] if span[1] + 1 < len(rows) else None
    meaning = "ignored" if gap else _meaning(scheme)
    if scheme.extent == "possible":
        start, opening = (f.at, "[") if b is None else (b.at, "(")
        end, closing = (u.at, "]") if n is None else (n.at, ")")
        return start, end, opening + closing
    if scheme.extent == "held":
        if meaning == "breaks" and (n is None or _is_broken(scheme, u, n)):
            return f.at, u.at + _every(scheme), "[)"
        return (f.at, u.at, "[]") if n is None else (f.at, n.at, "[)")
    if meaning == "satisfies" and n is not None:
        return f.at, u.at + _missing(scheme, u, n) * _every(scheme), "[]"
    return f.at, u.at, "[]"


def _passes_minimums(scheme: Scheme, rows: Sequence[Row], span: Span) -> bool:
    first, last = span
    start, end, _ = _interval(scheme, rows, span)
    beyond = {"satisfies": last + 2, "bridged": last + 1}.get(_meaning(scheme), first)
    counted = last - first + 1 + sum(_missing(scheme, a, b) for a, b in pairwise(rows[first:beyond]))
    limits = scheme.limits
    long_enough = limits.min_duration is None or end - start >= _size(limits.min_duration)
    return long_enough and (limits.min_rows is None or counted >= limits.min_rows)


def _exceeds_maximum(scheme: Scheme, run: Sequence[Row], row: Row) -> bool:
    limits = scheme.limits
    too_long = limits.max_duration is not None and row.at - run[0].at > _size(limits.max_duration)
    return too_long or (limits.max_rows is not None and len(run) + 1 > limits.max_rows)


# Runs: rules 7 to 9 and 21


def _cell(scheme: BoundaryFrames, row: Row) -> tuple[float, ...]:
    cells = []
    for value, (_, given) in zip(row.values, scheme.dimensions, strict=True):
        assert value is not None
        cells.append(bisect_left(given, value) if isinstance(given, tuple) else float(np.ceil(value / given)))
    return tuple(cells)


def _follows(direction: str, a: Row, b: Row) -> bool:
    before, after = a.values[0], b.values[0]
    assert before is not None
    assert after is not None
    return {"rising": before < after, "falling": before > after, "steady": before == after}[direction]


def is_candidate(scheme: Scheme, run: Sequence[Row]) -> bool:
    """Whether the local condition of a scheme with union closure holds for a run of rows."""
    neighbours = list(pairwise(run))
    if any(_is_null(scheme, row) for row in run) or any(_is_broken(scheme, a, b) for a, b in neighbours):
        return False
    match scheme:
        case ThresholdFrames():
            return all(row.conditions[0] for row in run)
        case HysteresisFrames():
            return bool(run[0].conditions[0]) and not any(row.conditions[1] for row in run)
        case BoundaryFrames():
            return len({_cell(scheme, row) for row in run}) == 1
        case TrendFrames():
            return len(run) >= 2 and all(_follows(scheme.direction, a, b) for a, b in neighbours)
        case SessionFrames():
            return all(b.at - a.at < _size(scheme.gap) for a, b in neighbours)
    raise AssertionError("a chain has no candidates of its own")


def _pieces(scheme: Scheme, rows: Sequence[Row], span: Span) -> list[Span]:
    first, last = span
    for k in range(first + 1, last + 1):
        if _exceeds_maximum(scheme, rows[first:k], rows[k]):
            return [(first, k - 1), *_pieces(scheme, rows, (k, last))]
    return [span]


def _runs(scheme: Scheme, rows: Sequence[Row]) -> list[_Found]:
    candidates = [(i, j) for i, j in possible(rows) if is_candidate(scheme, rows[i : j + 1])]
    final = [frame for frame in candidates if is_maximal(frame, candidates)]
    assert covers(final, candidates)
    passed = [frame for frame in final if _passes_minimums(scheme, rows, frame)]
    return [_Found(piece) for frame in passed for piece in _pieces(scheme, rows, frame)]


def _gaps(rows: Sequence[Row], reported: Sequence[Span]) -> list[_Found]:
    taken = _taken(reported)
    free = [(i, j) for i, j in possible(rows) if not taken & set(range(i, j + 1))]
    return [_Found(span, gap=True) for span in free if is_maximal(span, free)]


# Chains: rules 10 to 16


def _passes(scheme: DeltaFrames | AggregateFrames, run: Sequence[Row]) -> bool:
    """Whether a frame of these rows breaks (exclude) or meets (include) the condition."""
    measures: list[tuple[Number | None, float]] = []
    by_column = zip(*(row.values for row in run), strict=True)
    columns = [[float(value) for value in column if value is not None] for column in by_column]
    if isinstance(scheme, DeltaFrames):
        for values, (_, amount) in zip(columns, scheme.moves, strict=True):
            moved = max(values) - min(values) if scheme.against == "range" else abs(values[-1] - values[0])
            measures.append((moved, amount))
    elif scheme.aggregate.function == "count":
        measures.append((len(run), scheme.bound))
    else:
        measures.append((measured(scheme.aggregate.function, columns[0]), scheme.bound))
    return any(m is not None and (m > bound if scheme.strict else m >= bound) for m, bound in measures)


def _numbers(row: Row) -> Any:
    return np.array(row.values, dtype=np.float64)


def _custom_closes(user: Any, run: Sequence[Row], row: Row) -> bool:
    """What the user's `close` says of a row, given the state of a run."""
    state = np.zeros(user.cells)
    user.open(state, _numbers(run[0]))
    for other in run[1:]:
        user.update(state, _numbers(other))
    return bool(user.close(state, _numbers(row)))


def _breaks(scheme: Chain, run: Sequence[Row], row: Row) -> bool:
    if isinstance(scheme, CustomFrames):
        return _custom_closes(scheme.scheme, run, row)
    return _passes(scheme, [*run, row]) or (len(run) == 1 and _passes(scheme, run))


def _is_complete(scheme: Chain, rows: Sequence[Row], span: Span) -> bool:
    run = rows[span[0] : span[1] + 1]
    met = _custom_closes(scheme.scheme, run, run[-1]) if isinstance(scheme, CustomFrames) else _passes(scheme, run)
    return met and _passes_minimums(scheme, rows, span)


def _may_start(scheme: Chain, row: Row) -> bool:
    if _is_null(scheme, row):
        return False
    if isinstance(scheme, CustomFrames):
        user: Any = scheme.scheme
        return bool(user.open(np.zeros(user.cells), _numbers(row)))
    return scheme.starts is None or bool(row.conditions[0])


def _closed_by(scheme: Chain, rows: Sequence[Row], span: Span) -> str | None:
    """What closes a frame before the next row, asked in the order of rule 10; None if the row joins it."""
    first, last = span
    if last + 1 == len(rows):
        return "end"
    run, row = rows[first : last + 1], rows[last + 1]
    if _is_broken(scheme, run[-1], row):
        return "missing"
    if _is_null(scheme, row):
        return "null"
    if _is_complete(scheme, rows, span) if scheme.closing == "include" else _breaks(scheme, run, row):
        return "condition"
    if _exceeds_maximum(scheme, run, row):
        return "maximum"
    if isinstance(scheme.placement, Starts) and not scheme.overlapping and _may_start(scheme, row):
        return scheme.placement.on_overlap
    return None


def _frame_from(scheme: Chain, rows: Sequence[Row], first: int) -> tuple[Span, str]:
    """The one frame that starts at a row, and what closed it."""
    last = first
    while (closed_by := _closed_by(scheme, rows, (first, last))) is None:
        last += 1
    return (first, last), closed_by


def _status(scheme: Chain, rows: Sequence[Row], span: Span, closed_by: str) -> str | None:
    """How a closed frame is reported; None if it is not."""
    if closed_by == "drop":
        return None
    if scheme.closing == "exclude":
        return "final" if _passes_minimums(scheme, rows, span) else None
    if closed_by in ("maximum", "close") or _is_complete(scheme, rows, span):
        return "final"
    return "remainder" if scheme.remainder and not isinstance(scheme.placement, Saturated) else None


def _chain(scheme: Chain, rows: Sequence[Row]) -> list[_Found]:
    found, free = [], 0
    while free < len(rows):
        last = free
        if _may_start(scheme, rows[free]):
            span, closed_by = _frame_from(scheme, rows, free)
            last = span[1]
            if (status := _status(scheme, rows, span, closed_by)) is not None:
                found.append(_Found(span, status))
        # frames that overlap are each by themselves: the next may start at the very next row
        free = free + 1 if scheme.overlapping else last + 1
    if isinstance(scheme.placement, Saturated):
        spans = [frame.span for frame in found]
        fits = is_maximal if scheme.closing == "exclude" else is_minimal
        return [frame for frame in found if fits(frame.span, spans)]
    return found


# Aggregates: rules 25 and 26


def _filling(
    everything: Sequence[Row], visible: Sequence[int], span: Span, interval: tuple[Number, Number, str]
) -> list[Row]:
    """The rows that a segment aggregates; `visible` are the positions of the visible rows in `everything`."""
    start, end, bounds = interval
    own = range(span[0], span[1] + 1)
    rows, before = [], -1
    for position, row in enumerate(everything):
        if position in visible:
            before += 1
            belongs = before in own
        elif before in own and before + 1 in own:
            belongs = True
        elif before in own:
            belongs = row.at <= end if bounds[1] == "]" else row.at < end
        else:
            belongs = before + 1 in own and (row.at >= start if bounds[0] == "[" else row.at > start)
        if belongs:
            rows.append(row)
    return rows


def oracle(plan: PlanSpec, rows: Sequence[Row], agg: Calls = ()) -> list[Segment]:
    """The segments of one key, whatever the order of its rows."""
    scheme = plan.scheme
    everything = _in_order(plan, rows)
    positions = [p for p, row in enumerate(everything) if scheme.nulls == "breaks" or not _is_null(scheme, row)]
    visible = [everything[p] for p in positions]
    found = _chain(scheme, visible) if isinstance(scheme, ChainFrames) else _runs(scheme, visible)
    if isinstance(scheme, (ThresholdFrames, HysteresisFrames)) and scheme.gaps:
        found += _gaps(visible, [frame.span for frame in found])
    segments = []
    for number, (span, status, gap) in enumerate(sorted(found)):
        interval = _interval(scheme, visible, span, gap)
        filling = _filling(everything, positions, span, interval)
        aggregates = tuple(aggregated(a, [row.inputs[k] for row in filling]) for k, (_, a) in enumerate(agg))
        segments.append(Segment(number, *interval, span[1] - span[0] + 1, status, gap, aggregates))
    if scheme.longest and segments:
        return [replace(max(segments, key=lambda s: (s.end - s.start, s.rows)), id=0)]
    return segments


# Rows from elsewhere


def fill(
    interval: tuple[Number, Number, str],
    rows: Sequence[Row],
    agg: Calls = (),
    widen: tuple[Number, Number] = (0, 0),
    shift: Number = 0,
) -> tuple[list[Row], tuple[Number | None, ...]]:
    """The rows of one key that lie within the bounds of a segment, and aggregates over them, whatever their order.

    Of rows with one `at` the least value is the first and the largest the last, null before all others.
    """
    bounds = interval[2]
    start, end = interval[0] + (shift - widen[0]), interval[1] + (shift + widen[1])
    inside = [
        _without_nan(row)
        for row in rows
        if row.at is not None
        and math.isfinite(row.at)
        and (row.at >= start if bounds[0] == "[" else row.at > start)
        and (row.at <= end if bounds[1] == "]" else row.at < end)
    ]
    found = []
    for k, (_, call) in enumerate(agg):
        ordered = sorted((row.at, row.inputs[k] is not None, row.inputs[k]) for row in inside)
        found.append(aggregated(call, [value for _, _, value in ordered]))
    return inside, tuple(found)

"""A plan in words: what will be found, stage by stage, and what a key costs to remember."""

from __future__ import annotations

from dataclasses import replace

from panewise.spec.aggregates import Aggregate, Aggregates, Calls
from panewise.spec.duration import Duration
from panewise.spec.explain_prods import explain_prods
from panewise.spec.explain_progress import lined, progress
from panewise.spec.explain_windows import explain_windows
from panewise.spec.frames import (
    AggregateFrames,
    BoundaryFrames,
    ChainFrames,
    CustomFrames,
    DeltaFrames,
    HysteresisFrames,
    RunFrames,
    Scheme,
    SessionFrames,
    ThresholdFrames,
    TrendFrames,
    Value,
    Windows,
    WindowScheme,
)
from panewise.spec.options import CHAINED, Saturated, Schedule, Starts
from panewise.spec.plan import PlanSpec
from panewise.spec.prod import Prods
from panewise.spec.shape import SHAPES, shape

__all__ = ["explain"]

_EXTENTS = {
    "observed": "[first row, last row], both included",
    "held": "[first row, next row): it lasts until the key's next row; the last one ends at its last row",
    "possible": "(row before, row after), both excluded: all that may belong",
}
_MISSING = {
    "breaks": "ends a segment",
    "satisfies": "counts as satisfying",
    "bridged": "is bridged where the rows on both sides belong",
    "ignored": "is ignored",
}
_TIES = {
    "all": "",
    "first": "; of rows with one {at} only the first counts",
    "last": "; of rows with one {at} only the last counts",
    "error": "; two rows with one {at} are an error",
}
_EXACT = 2**53
_CELLS = {
    "approx_count_distinct": "a sketch (4 kB at most)",
    "approx_percentile": "counts by size, 2 % apart,",
    "avg": "sum and count",
    "count_distinct": "each value once",
    "percentile": "every value",
    "range": "min and max",
    "stddev": "count, mean and squares",
    "variance": "count, mean and squares",
}


def explain(plan: PlanSpec, agg: Aggregates | None = None, prods: Prods | None = None, path: str = "") -> str:
    """The text of `plan.explain()`; `path` is which way rows go, where they are known."""
    first, *rest = plan.chain()
    blocks = [_explained(first, first.asked(agg), path)]
    for following in rest:
        over = isinstance(following.scheme, Windows)
        how = "each counts in every window that it meets, clipped to it" if over else "each is a row"
        ordered = following if following.time else replace(following, time="start")
        blocks.append(f"Then, over these segments: {how}\n\n{_explained(ordered, ordered.calls)}")
    blocks += [] if prods is None else [explain_prods(plan, prods)]
    return "\n\n".join(blocks)


def _explained(plan: PlanSpec, calls: Calls, path: str = "") -> str:
    scheme = plan.scheme
    if isinstance(scheme, WindowScheme):
        return explain_windows(plan, calls)
    lines = [
        ("Finds", _finds(scheme)),
        ("Within", f"each {', '.join(plan.keys)}, by itself" if plan.keys else "all rows together: there is no key"),
        ("Order", _order(plan, calls)),
        ("Progress", "" if plan.punctuation is None else progress(plan, plan.punctuation)),
        ("Shape", _shape(scheme)),
        ("Interval", f"{scheme.extent}: {_extent(scheme)}"),
        ("Limits", _limits(scheme)),
        ("Schedule", "" if scheme.schedule is None else _schedule(scheme.schedule)),
        ("Nulls", _nulls(scheme)),
        ("Reports", _reports(scheme)),
        ("Aggregates", ", ".join(f"{name} = {call}" for name, call in calls)),
        ("Stages", _stages(plan, calls)),
        ("Path", path),
        ("State per key", _state(scheme, calls)),
    ]
    return lined(lines)


def _several(words: list[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _size(value: Value, size: float) -> str:
    return str(Duration(int(size))) if value.timed else _number(size)


def _number(number: float) -> str:
    """All of its digits, without a point where it is whole."""
    return str(int(number)) if number.is_integer() and abs(number) < _EXACT else repr(number)


def _gaps(scheme: Scheme) -> bool:
    return isinstance(scheme, (ThresholdFrames, HysteresisFrames)) and scheme.gaps


def _follows(scheme: Scheme) -> bool:
    """Whether a segment begins with the row that ended the one before."""
    if not isinstance(scheme, ChainFrames):
        return True
    return scheme.placement == CHAINED and not isinstance(scheme, CustomFrames)


def _shape(scheme: Scheme) -> str:
    word = shape(scheme)
    text = f"{word}: {SHAPES[word]}"
    if word == "partitions" and isinstance(scheme, ChainFrames) and scheme.closing == "include":
        return text if scheme.remainder else f"{text}, but those after the last complete one, which are in none"
    return text


def _extent(scheme: Scheme) -> str:
    schedule = scheme.schedule
    if scheme.extent != "held" or schedule is None or schedule.missing != "breaks":
        return _EXTENTS[scheme.extent]
    text = (
        "[first row, next row): it lasts until the key's next row; before a missing reading, and at the end, "
        f"until {schedule.every} after its last row"
    )
    return f"{text}; a gap lasts until the next row, and the last one to its last row" if _gaps(scheme) else text


def _finds(scheme: Scheme) -> str:
    match scheme:
        case ThresholdFrames():
            text = f"the stretches of rows in which {scheme.condition} holds"
        case HysteresisFrames():
            text = f"the stretches that open where {scheme.open} and go on until {scheme.close}"
        case BoundaryFrames():
            text = f"one segment for every visit to a cell: {_several([_cell(*d) for d in scheme.dimensions], 'and')}"
        case TrendFrames(direction="steady"):
            text = f"the stretches of at least two rows in which {scheme.value.text} stays equal"
        case TrendFrames():
            text = f"the stretches of at least two rows in which {scheme.value.text} is strictly {scheme.direction}"
        case SessionFrames():
            text = f"the stretches of rows that are less than {scheme.gap} apart"
        case DeltaFrames():
            text = _moves(scheme)
        case AggregateFrames():
            verb = "exceeds" if scheme.strict else "reaches"
            before = "until" if scheme.closing == "include" else "before"
            text = f"rows {before} {scheme.aggregate} {verb} {_number(scheme.bound)}"
        case CustomFrames():
            text = f"segments by the rules of {scheme.scheme.__name__}"
    if isinstance(scheme, ChainFrames):
        breaking = "starts the next" if _follows(scheme) else "does not belong"
        text += "; the completing row belongs" if scheme.closing == "include" else f"; the breaking row {breaking}"
    return f"per key the longest of: {text}" if scheme.longest else text


def _moves(scheme: DeltaFrames) -> str:
    against = "max - min" if scheme.against == "range" else "from the first row"
    if scheme.closing == "include":
        by = "by more than" if scheme.strict else "by"
        moved = [f"{value.text} has moved {by} {_size(value, size)}" for value, size in scheme.moves]
        return f"rows until {_several(moved, 'or')} ({against})"
    by = "by at most" if scheme.strict else "by less than"
    moved = [f"{value.text} moves {by} {_size(value, size)}" for value, size in scheme.moves]
    return f"the stretches of rows in which {_several(moved, 'and')} ({against})"


def _cell(value: Value, cells: float | tuple[float, ...]) -> str:
    if isinstance(cells, tuple):
        return f"{value.text} split at {_several([_number(p) for p in cells], 'and')}"
    return f"{value.text} in steps of {_size(value, cells)}"


def _order(plan: PlanSpec, calls: Calls) -> str:
    if plan.time is None:
        return 'not set yet: add .at("column")'
    scheme = plan.scheme
    starts = [scheme.starts] if isinstance(scheme, ChainFrames) and scheme.starts is not None else []
    framing = [c for c in scheme.conditions if c not in starts] + [v.text for v in scheme.values] + starts
    aggregated = [call.argument for _, call in calls if call.argument is not None]
    columns = list(dict.fromkeys([plan.time, *plan.tie_break, *framing, *aggregated]))
    return ", then ".join(columns) + _TIES[plan.ties].format(at=plan.time)


def _limits(scheme: Scheme) -> str:
    limits = scheme.limits
    if not limits.has_minimum and not limits.has_maximum:
        return ""
    parts = [("at least", limits.min_duration, limits.min_rows), ("at most", limits.max_duration, limits.max_rows)]
    texts = []
    for word, duration, rows in parts:
        given = [str(duration)] if duration is not None else []
        given += [f"{rows} row{'s' if rows != 1 else ''}"] if rows is not None else []
        if given:
            texts.append(f"{word} {' and '.join(given)}")
    text = ", ".join(texts)
    if limits.has_minimum and isinstance(scheme, ChainFrames) and scheme.closing == "include":
        text += "; a segment goes on until it is long enough"
    elif limits.has_minimum:
        text += f"; a stretch that is too short {'belongs to the gap' if _gaps(scheme) else 'is not reported'}"
    if limits.has_maximum:
        text += f"; the row that would be too much {'starts the next' if _follows(scheme) else 'is not in the'} segment"
    return text


def _schedule(schedule: Schedule) -> str:
    jitter = "" if schedule.jitter is None else f", give or take {schedule.jitter}"
    return f"a reading every {schedule.every}{jitter}; a missing one {_MISSING[schedule.missing]}"


def _nulls(scheme: Scheme) -> str:
    if isinstance(scheme, SessionFrames):
        return ""
    if isinstance(scheme, HysteresisFrames):
        what = "a row whose closing condition is null"
    elif isinstance(scheme, RunFrames) and scheme.conditions:
        what = "a row with a null condition"
    elif scheme.values:
        what = "a row with a null value"
    else:
        return ""
    if scheme.nulls == "invisible":
        return f"{what} is as if it were not there"
    return f"{what} is in {'a gap' if _gaps(scheme) else 'no segment'} and ends an open segment"


def _reports(scheme: Scheme) -> str:
    parts = []
    if _gaps(scheme):
        parts.append("the gaps between segments too, marked")
    if isinstance(scheme, ChainFrames):
        match scheme.placement:
            case Saturated():
                inside = "inside another" if scheme.closing == "exclude" else "that contain another"
                parts.append(f"a segment from every row, less those {inside}")
            case Starts(condition, on_overlap):
                then = {
                    "close": "ends the open one",
                    "drop": "discards the open one",
                    "continue": "leaves the open one as it is",
                }
                parts.append(f"only segments that start where {condition}; a new start {then[on_overlap]}")
        if scheme.remainder:
            early = scheme.nulls == "breaks" or (scheme.schedule is not None and scheme.schedule.missing == "breaks")
            parts.append(f"{'incomplete segments' if early else 'an incomplete last segment'} too, as remainder")
    return "; ".join(parts)


def _stages(plan: PlanSpec, calls: Calls) -> str:
    fill = "segment and aggregate" if calls else "segment"
    by = f"by {', '.join(plan.keys)}" if plan.keys else "all rows together"
    return f"source -> apply (Spark SQL per row) -> {fill} {by} -> emit"


def _state(scheme: Scheme, calls: Calls) -> str:
    cells = ["start", "last", "rows"]
    match scheme:
        case BoundaryFrames():
            cells.append("cell" if len(scheme.dimensions) == 1 else f"{len(scheme.dimensions)} cells")
        case TrendFrames():
            cells.append("last value")
        case DeltaFrames():
            each = "min and max" if scheme.against == "range" else "first value"
            cells += [f"{each} of {value.text}" for value in scheme.values]
        case AggregateFrames(aggregate=Aggregate(function="count", argument=None)):
            pass  # `rows` counts already
        case AggregateFrames():
            cells.append(_running(scheme.aggregate))
        case CustomFrames():
            cells.append(f"{scheme.scheme.cells} cells of {scheme.scheme.__name__}")  # type: ignore[attr-defined]  # checked by the builder
    if scheme.extent == "possible":
        cells.append("row before")
    cells += [_running(call) for _, call in calls]
    text = ", ".join(dict.fromkeys(cells))
    if isinstance(scheme, ChainFrames) and scheme.overlapping:
        text += "; once for each open segment"
    else:
        text += "; one open segment at most"
    if isinstance(scheme, RunFrames) and scheme.limits.has_minimum and scheme.limits.has_maximum:
        text += "; pieces that were cut wait until the whole stretch has met its minimum"
    if _gaps(scheme):
        text += "; start, last and rows of the open gap"
    if scheme.longest:
        text += "; the longest so far"
    return text


def _running(call: Aggregate) -> str:
    if call.argument is None:
        return "count"
    return f"{_CELLS.get(call.function, call.function)} of {call.argument}"

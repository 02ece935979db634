"""A plan of windows in words: what they are, what class they are of, and what that means for state and delay."""

from __future__ import annotations

import math

from panewise.spec.aggregates import Calls
from panewise.spec.duration import Duration, multiple, size
from panewise.spec.explain_progress import lined, progress
from panewise.spec.frames import RowWindows, TupleWindows, Windows
from panewise.spec.plan import PlanSpec

__all__ = ["explain_windows"]

_ON_A_GRID = "context-free: a window is known before any row comes, and complete once progress passes its end"
_OF_ROWS = (
    "backward context: which rows a window has follows from how many came before, so rows wait until progress has "
    "passed them, and are counted in order; a window is complete with its last row"
)
_BY_NUMBER = (
    "forward context, bounded: a row may still belong to windows that later rows end, within {range}; a window is "
    "complete once progress passes the row that ends it"
)
_BY_RANK = (
    "forward context, unbounded: which row is the n-th is known only once progress has passed it; a window is complete "
    "with that"
)


def explain_windows(plan: PlanSpec, calls: Calls) -> str:
    """The text of `plan.explain()`."""
    keys = ", ".join(plan.keys)
    found, kind, interval, panes, state = _about(plan)
    panes_meet = f"shuffle of panes by {keys}" if keys else "gather panes in one partition"
    stages = f"source -> apply (Spark SQL per row) -> bucket -> {panes_meet} -> emit"
    within = f"each {keys}, by itself" if plan.keys else "all rows together: there is no key"
    if isinstance(plan.scheme, RowWindows):
        counted = f"shuffle by {keys}" if plan.scheme.partitioned and keys else "gather in one partition"
        stages = stages.replace("-> bucket", f"-> {counted} -> sort -> number -> bucket")
        within = f"each {keys}; rows of all are numbered together" if keys and not plan.scheme.partitioned else within
    return lined(
        [
            ("Finds", found),
            ("Within", within),
            ("Order", _order(plan)),
            ("Class", kind),
            ("Progress", "" if plan.punctuation is None else progress(plan, plan.punctuation)),
            ("Interval", interval),
            ("Panes", panes),
            ("Aggregates", ", ".join(f"{name} = {call}" for name, call in calls)),
            ("Stages", stages),
            ("State per key", state),
        ]
    )


def _order(plan: PlanSpec) -> str:
    if plan.time is None:
        return 'not set yet: add .at("column")'
    if isinstance(plan.scheme, RowWindows):
        return ", then ".join([plan.time, *plan.tie_break])
    if isinstance(plan.scheme, TupleWindows) and plan.scheme.every > 1 and plan.scheme.numbered is None:
        return f"{plan.time} says which rows end a window; in which order they come is of no matter"
    return f"of no matter: {plan.time} alone says where a row belongs"


def _about(plan: PlanSpec) -> tuple[str, str, str, str, str]:
    """What is found, its class, its interval, its panes, and its state."""
    match plan.scheme:
        case Windows():
            state = "one pane for each that has rows and that an open window needs; no row is kept"
            return (
                _grid(plan.scheme),
                _ON_A_GRID,
                "[start, end): a row at the end is in the next one",
                _panes(plan.scheme.range, plan.scheme.slide),
                state,
            )
        case RowWindows() as rows:
            found = f"windows of {rows.range} rows, one every {rows.slide}; rows count from 1"
            state = "rows that progress has not passed; a count; one pane for each that an open window needs"
            return found, _OF_ROWS, "[start, end), the numbers of rows", _panes(rows.range, rows.slide), state
        case TupleWindows() as scheme:
            which = "every row" if scheme.every == 1 else f"one row in {scheme.every}, in order of {plan.time or 'at'}"
            kind = _BY_NUMBER if scheme.every == 1 else _BY_RANK
            if scheme.numbered is not None:
                which, kind = f"every row whose {scheme.numbered.text} {scheme.every} divides", _BY_NUMBER
            found = f"what lies in the {scheme.range} up to {which}, that row included"
            state = f"one entry for each {plan.time or 'at'} within {scheme.range} of progress; no row is kept"
            interval = "(start, end]: the row that ends a window is in it"
            return found, kind.format(range=scheme.range), interval, "", state
    raise AssertionError(plan.scheme)


def _grid(scheme: Windows) -> str:
    origin = ("the epoch" if isinstance(scheme.slide, Duration) else "0") if scheme.origin is None else scheme.origin
    first = f"; there is nothing before {origin}" if scheme.origin is not None or scheme.range is None else ""
    if scheme.range is None:
        found = f"what there was since {origin}, every {scheme.slide}"
    elif scheme.range == scheme.slide:
        found = f"windows of {scheme.range}, one after another"
    else:
        found = f"windows of {scheme.range}, one every {scheme.slide}"
    empty = ", those without rows too, from the first row of a key on" if scheme.keep_empty else ""
    return f"{found}{empty}; their ends lie on a grid from {origin} on{first}"


def _panes(long: object, slide: object) -> str:
    if long is None:
        return f"of {slide}, each added to all before"
    if long == slide:
        return "none: each row is in one window"
    whole, step = size(long), size(slide)  # type: ignore[arg-type]  # both are amounts
    if isinstance(whole, float) or isinstance(step, float):
        times = multiple(whole, step)
        slides = times or math.floor(whole / step) + 1
    else:
        times = 0 if whole % step else whole // step
        slides = -(-whole // step)
    count, each = (slides, 1) if times else (2 * slides - 1, 2)
    pieces = f"{count} pane{'s' if count != 1 else ''} in a window, {each} in each slide"
    return f"rows are added up between neighbouring starts and ends, and windows from that: {pieces}"

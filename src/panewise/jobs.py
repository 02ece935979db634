"""A plan and its job file are the same thing in two notations."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from panewise import builders, window_builders
from panewise.errors import JobError, SpecError, did_you_mean
from panewise.plan import Plan
from panewise.spec.aggregates import Calls, aggregates
from panewise.spec.aside import checked_set_aside
from panewise.spec.classes import class_at, class_path
from panewise.spec.codec import Table, dumps, loads
from panewise.spec.duration import Duration, written
from panewise.spec.fill_tables import check_fill, fill_from_table, fill_to_mapping
from panewise.spec.frames import (
    AggregateFrames,
    BoundaryFrames,
    ChainFrames,
    CustomFrames,
    DeltaFrames,
    HysteresisFrames,
    RowWindows,
    Scheme,
    SessionFrames,
    ThresholdFrames,
    TrendFrames,
    TupleWindows,
    Value,
    Windows,
    WindowScheme,
)
from panewise.spec.job import SCREEN, FillTables, Plot, Sink, Source, StreamOptions
from panewise.spec.options import Saturated, Starts
from panewise.spec.plan import PlanSpec
from panewise.spec.punctuate import check_punctuation
from panewise.spec.tables import (
    plot_from_table,
    plot_to_mapping,
    punctuation_from_table,
    punctuation_to_mapping,
    sink_from_table,
    sink_to_mapping,
    source_from_table,
    source_to_mapping,
    stream_from_table,
    stream_to_mapping,
)

__all__ = ["Job", "job_from_toml", "job_to_toml", "plan_from_mapping", "plan_to_mapping", "read_job"]

_SCHEMES = {name: getattr(builders, name) for name in builders.__all__ if name.endswith("_frames")}
_SCHEMES |= {name: getattr(window_builders, name) for name in window_builders.__all__ if name.endswith("_windows")}
_TABLES = ("source", "plan", "agg", "fill", "stream", "sink", "plot")
_NEEDS_STREAM = '[stream] is missing: a stream needs a checkpoint. Add [stream] with checkpoint = "out/checkpoint".'
_NO_STREAM = "[stream] says how a stream is run, and [source] is none. Add stream = true to it, or leave [stream] out."
_NO_STREAMS = (
    "[stream] says how a stream is run, and neither [source] nor [fill] is one. "
    "Add stream = true to one of them, or leave [stream] out."
)
_EXACT = 2**53


@dataclass(frozen=True)
class Job:
    """A plan with its source, aggregates (name and SQL call), sink and plot: all that `panewise run` needs.

    `fill` has the rows that its segments are filled with. Where a source is a stream, `stream` says how it is run.
    """

    source: Source
    plan: Plan
    agg: tuple[tuple[str, str], ...] = ()
    sink: Sink = SCREEN
    plot: Plot | None = None
    stream: StreamOptions | None = None
    fill: FillTables | None = None

    @property
    def sources(self) -> dict[str, Source]:
        """Where rows come from, by the name of the table that says so."""
        more = {} if self.fill is None else self.fill.tables
        return {"source": self.source} | {name: table.source or self.source for name, table in more.items()}

    def check(self) -> None:
        """Refuse tables that contradict each other."""
        if self.fill is not None:
            check_fill(self.fill, self.agg, self.plot)
        elif self.plot is not None and self.plot.fill:
            raise JobError("`fill` in [plot] draws rows that fill segments, and there is no [fill]. Leave it out.")
        streams = any(source.stream for source in self.sources.values())
        if streams and self.stream is None:
            raise JobError(_NEEDS_STREAM)
        if self.stream is not None and not streams:
            raise JobError(_NO_STREAM if self.fill is None else _NO_STREAMS)
        if self.fill is not None and self.stream is not None and self.stream.prods is not None:
            raise JobError(
                "`prods` in [stream] ask for segments that are open, and [fill] takes them when they are complete. "
                "Leave one of them out."
            )
        if self.stream is not None:
            checked_set_aside(self.stream.set_aside, self.plan.scheme, self.stream.prods)
        if self.fill is not None and self.stream is not None and self.stream.emit == "updates":
            raise JobError(
                '`emit` in [stream] ("updates") sends all of a segment again and again, and a row fills it once. '
                'Use "fragments", or "final".'
            )


def plan_from_mapping(mapping: Mapping[str, Any]) -> Plan:
    """A plan from a job's [plan] table: `scheme` names the builder, the rest are its options and the order of rows.

    >>> plan_from_mapping({"scheme": "delta_frames", "amounts": {"speed": 5}, "at": "ts"}).ordered_by
    'ts'
    """
    table = Table("plan", dict(mapping))
    name = table.required("scheme", str, 'scheme = "threshold_frames"')
    if name not in _SCHEMES:
        raise JobError(f"`scheme` in [plan] ({name!r}) is not a scheme. {did_you_mean(name, _SCHEMES)}")
    # `scheme` is taken by the builder's name, so a custom scheme's class is called `custom`
    parameters = {"custom" if p == "scheme" else p: v for p, v in inspect.signature(_SCHEMES[name]).parameters.items()}
    table.only(name, [*parameters, "scheme", "by", "at", "punctuation", "tie_break", "ties", "then"])
    options = {option: table.content[option] for option in parameters if option in table.content}
    for option, parameter in parameters.items():
        if parameter.default is parameter.empty and option not in options:
            raise JobError(f"`{option}` is missing in [plan]: {name} can't do without it. Add `{option}`.")
    if "custom" in options:
        options["scheme"] = class_at("`custom` in [plan]", options.pop("custom"), JobError)
    plan: Plan = _SCHEMES[name](**options).by(*table.list("by", str))
    for following in table.list("then", dict):
        rest = {option: value for option, value in following.items() if option != "agg"}
        plan = plan.then(plan_from_mapping(rest).agg(Table("plan.then.agg", following.get("agg", {})).content))
    at = table.optional("at", str)
    if at is None:
        for option in ("tie_break", "ties"):
            if option in table.content:
                raise JobError(f"`{option}` in [plan] says how rows with one `at` are ordered. Add `at`.")
        if "punctuation" in table.content:
            raise JobError("`punctuation` in [plan] says how far `at` has come. Add `at`.")
        return plan
    told = table.optional("punctuation", dict)
    punctuation = None if told is None else punctuation_from_table(Table("plan.punctuation", told))
    return plan.at(at, punctuation, tie_break=table.list("tie_break", str), ties=table.optional("ties", str, "all"))


def plan_to_mapping(plan: PlanSpec) -> dict[str, Any]:
    """The [plan] table of a plan, without what is default anyway; `plan_from_mapping` is its inverse.

    >>> plan_to_mapping(builders.delta_frames({"speed": 5}, strict=True).at("ts"))
    {'scheme': 'delta_frames', 'amounts': {'speed': 5}, 'strict': True, 'at': 'ts'}
    """
    name, own = _own_options(plan.scheme)
    shared = _shared_options(plan.scheme)
    table: dict[str, Any] = {"scheme": name, **own, **shared}
    table = {option: value for option, value in table.items() if value is not None and value is not False}
    bare = Plan(plan.scheme)
    # an option is left out where the builder gives the same plan without it
    for option in [*own, *shared]:
        with suppress(SpecError, JobError):
            without = {key: value for key, value in table.items() if key != option}
            if plan_from_mapping(without) == bare:
                table = without
    if plan.keys:
        table["by"] = list(plan.keys)
    if plan.time is not None:
        table["at"] = plan.time
    if plan.tie_break:
        table["tie_break"] = list(plan.tie_break)
    if plan.ties != "all":
        table["ties"] = plan.ties
    if plan.punctuation is not None:
        table["punctuation"] = punctuation_to_mapping(plan.punctuation)
    if plan.following is not None:
        rest = plan.chain()[1:]
        table["then"] = [{**plan_to_mapping(each), "agg": _written_calls(each.calls)} for each in rest]
    return table


def _written_calls(calls: Calls) -> dict[str, str]:
    for name, call in calls:
        if call.custom is not None:
            _class_path(f"agg[{name}]", call.custom)
    return {name: str(call) for name, call in calls}


def _own_options(scheme: Scheme) -> tuple[str, dict[str, Any]]:
    """The builder's name, and the options that only it has."""
    match scheme:
        case ThresholdFrames():
            return "threshold_frames", {"condition": scheme.condition, "gaps": scheme.gaps}
        case HysteresisFrames():
            return "threshold_frames", {"open": scheme.open, "close": scheme.close, "gaps": scheme.gaps}
        case DeltaFrames():
            amounts = {value.text: _size(value, size) for value, size in scheme.moves}
            return "delta_frames", {"amounts": amounts, "against": scheme.against, "strict": scheme.strict}
        case BoundaryFrames():
            cells = {value.text: _cells(value, given) for value, given in scheme.dimensions}
            return "boundary_frames", {"cells": cells}
        case AggregateFrames():
            bound = "reaches" if scheme.closing == "include" else "stays_below"
            own = {"aggregate": str(scheme.aggregate), bound: _number(scheme.bound), "strict": scheme.strict}
            return "aggregate_frames", own
        case TrendFrames():
            return "trend_frames", {"value": scheme.value.text, "direction": scheme.direction}
        case SessionFrames():
            return "session_frames", {"gap": written(scheme.gap)}
        case CustomFrames():
            return "custom_frames", {"custom": _class_path("custom", scheme.scheme)}
        case Windows(range=None):
            return "landmark_windows", {"slide": written(scheme.slide), "origin": scheme.origin}
        case Windows() if scheme.range == scheme.slide:
            size = written(scheme.slide)
            return "tumbling_windows", {"size": size, "origin": scheme.origin, "keep_empty": scheme.keep_empty}
        case Windows():
            sizes = {"range": written(scheme.range), "slide": written(scheme.slide)}
            return "sliding_windows", {**sizes, "origin": scheme.origin, "keep_empty": scheme.keep_empty}
        case RowWindows():
            rows = {"range": scheme.range, "slide": scheme.slide, "partitioned": scheme.partitioned}
            return "row_windows", rows
        case TupleWindows():
            numbered = None if scheme.numbered is None else scheme.numbered.text
            ends = {"range": written(scheme.range), "every": scheme.every, "numbered": numbered}
            return "slide_by_tuple_windows", ends


def _shared_options(scheme: Scheme) -> dict[str, Any]:
    """The options that several schemes have."""
    options: dict[str, Any] = {}
    if isinstance(scheme, WindowScheme):
        return options
    if isinstance(scheme, ChainFrames):
        if not isinstance(scheme, AggregateFrames):
            options["closing"] = scheme.closing
        match scheme.placement:
            case Saturated():
                options["overlap"] = "saturated"
            case Starts(condition, on_overlap):
                options |= {"starts": condition, "on_overlap": on_overlap}
        options["remainder"] = scheme.remainder
    limits, schedule = scheme.limits, scheme.schedule
    options |= {
        "min_duration": written(limits.min_duration),
        "min_rows": limits.min_rows,
        "max_duration": written(limits.max_duration),
        "max_rows": limits.max_rows,
        "extent": scheme.extent,
        "longest": scheme.longest,
    }
    if not isinstance(scheme, SessionFrames):
        options["nulls"] = scheme.nulls
    if schedule is not None:
        every, jitter = written(schedule.every), written(schedule.jitter)
        options |= {"expect_every": every, "jitter": jitter, "missing": schedule.missing}
    return options


def _number(number: float) -> int | float:
    return int(number) if number.is_integer() and abs(number) < _EXACT else number


def _size(value: Value, size: float) -> str | int | float:
    return str(Duration(int(size))) if value.timed else _number(size)


def _cells(value: Value, cells: float | tuple[float, ...]) -> str | int | float | list[int | float]:
    return [_number(point) for point in cells] if isinstance(cells, tuple) else _size(value, cells)


def _class_path(option: str, kind: type) -> str:
    if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
        raise JobError(
            f"`{option}` ({kind.__qualname__}) can't be written to a job file: nobody else could import it. "
            "Move the class to the top of a module of its own."
        )
    return class_path(kind)


def job_from_toml(text: str) -> Job:
    """A job from the text of a job file."""
    content = loads(text)
    for name in content:
        if name not in _TABLES:
            raise JobError(f"[{name}] is not a table of a job. {did_you_mean(name, _TABLES)}")
    for name in ("source", "plan"):
        if name not in content:
            raise JobError(f"[{name}] is missing: a job needs [source] and [plan]. Add [{name}].")
    tables = {name: Table(name, table) for name, table in content.items()}
    plan = plan_from_mapping(tables["plan"].content)
    tables["plan"].required("at", str, 'at = "time"')
    check_punctuation(plan)
    agg = aggregates(tables["agg"].content) if "agg" in tables else ()
    job = Job(
        source=source_from_table(tables["source"]),
        plan=plan,
        agg=tuple((name, str(call)) for name, call in agg),
        sink=sink_from_table(tables["sink"]) if "sink" in tables else SCREEN,
        plot=plot_from_table(tables["plot"]) if "plot" in tables else None,
        stream=stream_from_table(tables["stream"]) if "stream" in tables else None,
        fill=fill_from_table(tables["fill"], plan) if "fill" in tables else None,
    )
    job.check()
    return job


def read_job(path: str | PathLike[str]) -> Job:
    """A job from a file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise JobError(f"There is no job file {str(path)!r}. Check the path.") from None
    except (OSError, UnicodeDecodeError) as e:
        raise JobError(f"The job file {str(path)!r} can't be read: {e}. Give a UTF-8 text file.") from None
    return job_from_toml(text)


def job_to_toml(job: Job) -> str:
    """The text of a job file; `job_from_toml` is its inverse.

    >>> loss = builders.threshold_frames("drop_pct > 0.3").by("router").at("rpt_time")
    >>> from panewise.spec.job import TableSource
    >>> print(job_to_toml(Job(TableSource("reports"), loss)), end="")
    [source]
    format = "table"
    table = "reports"
    <BLANKLINE>
    [plan]
    scheme = "threshold_frames"
    condition = "drop_pct > 0.3"
    by = ["router"]
    at = "rpt_time"
    <BLANKLINE>
    [sink]
    format = "console"
    """
    if job.plan.time is None:
        raise JobError('`at` is missing in the plan of the job. Add .at("column").')
    job.check()
    tables = {"source": source_to_mapping(job.source), "plan": plan_to_mapping(job.plan)}
    if job.agg or job.plan.calls:
        tables["agg"] = dict(job.agg) or _written_calls(job.plan.calls)
    if job.fill is not None:
        tables["fill"] = fill_to_mapping(job.fill, job.plan)
    if job.stream is not None:
        tables["stream"] = stream_to_mapping(job.stream)
    tables["sink"] = sink_to_mapping(job.sink)
    if job.plot is not None:
        tables["plot"] = plot_to_mapping(job.plot)
    return dumps(tables)

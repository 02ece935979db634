from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from panewise import builders
from panewise.errors import JobError, PanewiseError, SpecError
from panewise.jobs import Job, job_from_toml, job_to_toml, plan_from_mapping, plan_to_mapping, read_job
from panewise.plan import Plan
from panewise.spec.codec import dumps
from panewise.spec.job import ConsoleSink, FileSink, FileSource, Plot, TableSource

JOB = """\
[source]
format = "csv"
path = "out/router"
schema = "router string, rpt_time timestamp, drop_pct double"

[source.options]
header = "true"

[plan]
scheme = "threshold_frames"
condition = "drop_pct > 0.3"
min_duration = "2 minutes"
by = ["router"]
at = "rpt_time"
tie_break = ["seq"]
ties = "first"

[agg]
avg_pkts = "avg(total_pkts)"

[sink]
format = "console"
limit = 10
order = "rows desc"

[plot]
keys = ["r0001"]
value = "drop_pct"
path = "out/loss.png"
threshold = 0.3
"""


class Mine:
    """A custom scheme that a job can name."""

    values = ("speed",)
    cells = 1

    @staticmethod
    def open(state: Any, row: Any) -> bool:
        return True

    @staticmethod
    def update(state: Any, row: Any) -> None: ...

    @staticmethod
    def close(state: Any, row: Any) -> bool:
        return False


def test_the_whole_job_and_back() -> None:
    job = job_from_toml(JOB)
    schema = "router string, rpt_time timestamp, drop_pct double"
    loss = builders.threshold_frames("drop_pct > 0.3", min_duration="2 minutes").by("router")
    assert job == Job(
        source=FileSource("csv", "out/router", schema, (("header", "true"),)),
        plan=loss.at("rpt_time", tie_break="seq", ties="first"),
        agg=(("avg_pkts", "avg(total_pkts)"),),
        sink=ConsoleSink(10, "rows desc"),
        plot=Plot("drop_pct", "out/loss.png", ("r0001",), 0.3),
    )
    assert job_to_toml(job) == JOB
    assert hash(job) == hash(job_from_toml(JOB))


@pytest.mark.parametrize("sink", [FileSink("parquet", "o"), FileSink("csv", "o", "overwrite"), ConsoleSink()])
@pytest.mark.parametrize("plot", [None, Plot("x", "p.png"), Plot("x", "p.png", (3, 4), -1e-7)])
def test_other_jobs_and_back(sink: FileSink | ConsoleSink, plot: Plot | None) -> None:
    job = Job(TableSource("db.name", (("a.b", "c"),)), builders.session_frames(5).at("ts"), (), sink, plot)
    assert job_from_toml(job_to_toml(job)) == job


def test_a_sink_and_a_plot_may_be_left_out() -> None:
    job = job_from_toml('[source]\nformat="table"\ntable="t"\n[plan]\nscheme="session_frames"\ngap=5\nat="ts"')
    assert (job.agg, job.sink, job.plot) == ((), ConsoleSink(), None)


def test_options_of_the_reader_are_text() -> None:
    job = job_from_toml(
        '[source]\nformat = "csv"\npath = "p"\n[source.options]\nheader = true\nmultiLine = false\n'
        'maxColumns = 12\nsamplingRatio = 0.5\nsep = ";"\n[plan]\nscheme = "session_frames"\ngap = 5\nat = "ts"\n'
    )
    given = ("header", "true"), ("multiLine", "false"), ("maxColumns", "12"), ("samplingRatio", "0.5"), ("sep", ";")
    assert job.source.options == given
    assert job_from_toml(job_to_toml(job)) == job


@pytest.mark.parametrize(
    ("sink", "expected"),
    [("limit = 3", ConsoleSink(3)), ('order = "rows"', ConsoleSink(20, "rows")), ("", ConsoleSink())],
)
def test_a_sink_without_a_format_is_the_screen(sink: str, expected: ConsoleSink) -> None:
    plan = '[plan]\nscheme = "session_frames"\ngap = 5\nat = "ts"\n'
    text = f'[source]\nformat = "table"\ntable = "t"\n{plan}[sink]\n{sink}'
    assert job_from_toml(text).sink == expected


texts = st.sampled_from(["x", "x_m + 52.5", 'y = "a"', "a.b", "größe > 1"])
durations = st.one_of(
    st.integers(1, 10**15).map(lambda n: f"{n} microseconds"), st.sampled_from(["90 s", "2 minutes", "1 week"])
)
amounts = st.one_of(durations, st.integers(1, 10**18), st.floats(1e-9, 1e300))
numbers = st.floats(allow_nan=False, allow_infinity=False)
points = st.lists(numbers, min_size=1, max_size=4, unique=True).map(sorted)
words = {
    "against": ["range", "first"],
    "closing": ["exclude", "include"],
    "extent": ["observed", "held", "possible"],
    "nulls": ["breaks", "invisible"],
    "missing": ["breaks", "satisfies", "bridged", "ignored"],
    "overlap": ["saturated"],
    "on_overlap": ["close", "drop", "continue"],
    "direction": ["rising", "falling", "steady"],
}
aggregates = ["sum(volume)", "count(*)", "count(x)", "range(a + (b))", "stddev(x)"]
options: dict[str, st.SearchStrategy[Any]] = {
    "amounts": st.dictionaries(texts, amounts, min_size=1, max_size=3),
    "cells": st.dictionaries(texts, st.one_of(amounts, points), min_size=1, max_size=3),
    "aggregate": st.sampled_from(aggregates),
    "gap": amounts,
    "scheme": st.just(Mine),
    **{name: st.sampled_from(choices) for name, choices in words.items()},
    **dict.fromkeys(("condition", "open", "close", "value", "starts"), texts),
    **dict.fromkeys(("min_duration", "max_duration", "expect_every", "jitter"), amounts),
    **dict.fromkeys(("min_rows", "max_rows"), st.integers(1, 9)),
    **dict.fromkeys(("reaches", "stays_below"), numbers),
    **dict.fromkeys(("gaps", "strict", "longest", "remainder"), st.booleans()),
}
given_by_scheme = {
    "threshold_frames": [["condition"], ["open", "close"]],
    "delta_frames": [["amounts"], ["amounts", "starts"]],
    "boundary_frames": [["cells"]],
    "aggregate_frames": [["aggregate", "reaches"], ["aggregate", "stays_below"], ["aggregate", "reaches", "starts"]],
    "trend_frames": [["value", "direction"]],
    "session_frames": [["gap"]],
    "custom_frames": [["scheme"]],
}
shared = ["min_duration", "min_rows", "max_duration", "max_rows", "extent", "longest"]
scheduled = [*shared, "nulls", "expect_every", "jitter", "missing"]
chained = [*scheduled, "closing", "remainder"]
more_by_scheme = {
    "threshold_frames": [*scheduled, "gaps"],
    "delta_frames": [*chained, "against", "strict", "overlap", "on_overlap"],
    "boundary_frames": scheduled,
    "aggregate_frames": [*chained, "strict", "overlap", "on_overlap"],
    "trend_frames": scheduled,
    "session_frames": shared,
    "custom_frames": chained,
}


@st.composite
def plans(draw: st.DrawFn, scheme: str) -> Plan:
    needed = draw(st.sampled_from(given_by_scheme[scheme]))
    wanted = draw(st.sets(st.sampled_from(more_by_scheme[scheme]), max_size=4))
    if wanted & {"jitter", "missing"}:
        wanted.add("expect_every")
    chosen = {name: draw(options[name]) for name in [*needed, *sorted(wanted)]}
    try:
        plan: Plan = getattr(builders, scheme)(**chosen)
    except SpecError:
        assume(False)
        raise
    keys = draw(st.lists(st.sampled_from(["a", "b c", 'd"']), unique=True))
    if keys:
        plan = plan.by(*keys)
    if draw(st.booleans()):
        tie_break = tuple(draw(st.lists(st.sampled_from(["seq", "n"]), unique=True)))
        plan = plan.at("ts", tie_break=tie_break, ties=draw(st.sampled_from(["all", "first", "last", "error"])))
    return plan


@pytest.mark.parametrize("scheme", given_by_scheme)
@given(data=st.data())
def test_every_plan_and_back(scheme: str, data: st.DataObject) -> None:
    plan = data.draw(plans(scheme))
    mapping = plan_to_mapping(plan)
    assert plan_from_mapping(mapping) == plan
    if plan.time is not None:
        job = Job(TableSource("t"), plan)
        assert job_from_toml(job_to_toml(job)) == job


@pytest.mark.parametrize("scheme", given_by_scheme)
@given(data=st.data())
def test_defaults_are_left_out(scheme: str, data: st.DataObject) -> None:
    plan = data.draw(plans(scheme))
    mapping = plan_to_mapping(plan)
    for name in mapping:
        try:
            without = plan_from_mapping({key: value for key, value in mapping.items() if key != name})
        except PanewiseError:
            continue
        assert without != plan, name


def test_options_are_written_by_their_names() -> None:
    plan = builders.boundary_frames({"x_m + 52.5": 4.2, "y": [0, 10.5]}, min_duration="90 s", nulls="breaks")
    assert dumps({"plan": plan_to_mapping(plan.by("player").at("ts"))}) == (
        '[plan]\nscheme = "boundary_frames"\nmin_duration = "90 seconds"\nnulls = "breaks"\n'
        'by = ["player"]\nat = "ts"\n\n[plan.cells]\n"x_m + 52.5" = 4.2\ny = [0, 10.5]\n'
    )


def test_a_custom_scheme_is_named_by_its_module() -> None:
    mapping = {"scheme": "custom_frames", "custom": f"{__name__}:Mine", "at": "ts"}
    assert plan_from_mapping(mapping) == builders.custom_frames(Mine).at("ts")
    assert plan_to_mapping(builders.custom_frames(Mine).at("ts")) == mapping


def test_a_local_class_cannot_be_written() -> None:
    class Local(Mine):
        pass

    with pytest.raises(JobError) as error:
        plan_to_mapping(builders.custom_frames(Local))
    assert str(error.value) == (
        "`custom` (test_a_local_class_cannot_be_written.<locals>.Local) can't be written to a job file: "
        "nobody else could import it. Move the class to the top of a module of its own."
    )


def test_a_job_needs_an_order() -> None:
    with pytest.raises(JobError) as error:
        job_to_toml(Job(TableSource("t"), builders.session_frames(5)))
    assert str(error.value) == '`at` is missing in the plan of the job. Add .at("column").'


SOURCE = '[source]\nformat = "parquet"\npath = "p"\n'
PLAN = '[plan]\nscheme = "session_frames"\ngap = 5\nat = "ts"\n'


def threshold(line: str) -> str:
    return f'{SOURCE}[plan]\nscheme = "threshold_frames"\ncondition = "x > 1"\nat = "ts"\n{line}\n'


def plan(*lines: str) -> str:
    return f"{SOURCE}[plan]\n" + "\n".join(lines)


ERRORS = [
    (
        threshold('min_duratoin = "1 s"'),
        "`min_duratoin` in [plan] is not an option of threshold_frames. Did you mean `min_duration`?",
    ),
    (
        threshold('min_rows = "3"'),
        "`min_rows` ('3') must be a whole number of rows, at least 1. Give 1 or more, or leave it out.",
    ),
    (threshold("by = 5"), "`by` in [plan] (5) must be text. Write it as text."),
    (threshold("tie_break = [1]"), "`tie_break` in [plan] (1) must be text. Write it as text."),
    (
        threshold('ties = "some"'),
        '`ties` (\'some\') must be one of "all", "first", "last", "error". Choose one of these, or leave `ties` out.',
    ),
    (PLAN, "[source] is missing: a job needs [source] and [plan]. Add [source]."),
    (SOURCE, "[plan] is missing: a job needs [source] and [plan]. Add [plan]."),
    (SOURCE + PLAN + "[snk]\n", "[snk] is not a table of a job. Did you mean `sink`?"),
    ("plan = 5\n" + SOURCE, "`plan` (5) must be a table. Write [plan] and its options below it."),
    (plan('at = "ts"'), '`scheme` is missing in [plan]. Add it, such as scheme = "threshold_frames".'),
    (plan("scheme = 5"), "`scheme` in [plan] (5) must be text. Write it as text."),
    (
        plan('scheme = "treshold_frames"'),
        "`scheme` in [plan] ('treshold_frames') is not a scheme. Did you mean `threshold_frames`?",
    ),
    (plan('scheme = "session_frames"', "gap = 5"), '`at` is missing in [plan]. Add it, such as at = "time".'),
    (
        plan('scheme = "session_frames"', "gap = 5", 'ties = "all"'),
        "`ties` in [plan] says how rows with one `at` are ordered. Add `at`.",
    ),
    (
        plan('scheme = "delta_frames"', 'at = "ts"'),
        "`amounts` is missing in [plan]: delta_frames can't do without it. Add `amounts`.",
    ),
    (
        plan('scheme = "trend_frames"', 'value = "x"'),
        "`direction` is missing in [plan]: trend_frames can't do without it. Add `direction`.",
    ),
    (
        plan('scheme = "custom_frames"'),
        "`custom` is missing in [plan]: custom_frames can't do without it. Add `custom`.",
    ),
    (
        plan('scheme = "custom_frames"', 'custom = "Mine"'),
        "`custom` in [plan] ('Mine') must name a class. Write \"module:Class\".",
    ),
    (
        plan('scheme = "custom_frames"', 'custom = "no_such:Mine"'),
        "`custom` in [plan] ('no_such:Mine') can't be imported: No module named 'no_such'. Put the module on the path.",
    ),
    (
        plan('scheme = "custom_frames"', 'custom = "math:Mine"'),
        "`custom` in [plan] ('math:Mine'): math has no Mine. Define it there, or name another.",
    ),
    (
        plan('scheme = "custom_frames"', 'custom = "math:pi"'),
        "`scheme` (3.141592653589793) can't frame: it is not a class. "
        "Give a class with values, cells, open, update and close (see CustomScheme).",
    ),
    (
        '[source]\nformat = "orc"\n' + PLAN,
        '`format` in [source] (\'orc\') must be one of "parquet", "csv", "json", "table", "kafka". '
        "Choose one of these.",
    ),
    ('[source]\npath = "p"\n' + PLAN, '`format` is missing in [source]. Add it, such as format = "parquet".'),
    (
        SOURCE + PLAN + '[sink]\nformat = "csv"\npath = "p"\nmode = "append"\n',
        '`mode` in [sink] (\'append\') must be one of "error", "overwrite". Choose one of these.',
    ),
    (
        '[source]\nformat = "csv"\npth = "p"\n' + PLAN,
        "`pth` in [source] is not an option of a csv source. Did you mean `path`?",
    ),
    ('[source]\nformat = "csv"\n' + PLAN, '`path` is missing in [source]. Add it, such as path = "data/router".'),
    ('[source]\nformat = "table"\n' + PLAN, '`table` is missing in [source]. Add it, such as table = "db.name".'),
    (
        SOURCE + "[source.options]\nheader = [true]\n" + PLAN,
        "`header` in [source.options] ([True]) must be text. Write it as text.",
    ),
    (SOURCE + PLAN + '[sink]\npath = "p"\n', '`format` is missing in [sink]. Add it, such as format = "console".'),
    (
        plan('scheme = "custom_frames"', 'custom = ".mine:Mine"'),
        "`custom` in [plan] ('.mine:Mine') starts with a dot, but is in no package. "
        'Write the module in full, "package.module:Class".',
    ),
    (
        SOURCE + '[source.options]\nschema = "a int"\n' + PLAN,
        "`schema` in [source.options] is not an option of Spark's reader. Put it above, into [source].",
    ),
    (
        SOURCE + PLAN + '[agg]\nn = "mode(x)"\n',
        "`agg[n]` ('mode(x)'): mode is not an aggregate here. "
        "Functions: approx_count_distinct, approx_percentile, avg, count, first, last, max, median, min, percentile, "
        "stddev, sum, variance.",
    ),
    (
        SOURCE + PLAN + "[agg]\nn = 5\n",
        '`agg[n]` (5) must be SQL text: a plan holds no Spark Column. Write it as a string, such as "sum(volume)".',
    ),
    (
        SOURCE + PLAN + '[sink]\nformat = "parquet"\npath = "p"\nlimit = 5\n',
        "`limit` in [sink] is not an option of a parquet sink. Known: `format`, `mode`, `path`.",
    ),
    (
        SOURCE + PLAN + '[sink]\nformat = "console"\nlimit = 0\n',
        "`limit` in [sink] (0) must be at least 1. Give the number of segments to show.",
    ),
    (
        SOURCE + PLAN + '[sink]\nformat = "console"\nlimit = true\n',
        "`limit` in [sink] (True) must be a whole number. Write it as a whole number.",
    ),
    (
        SOURCE + PLAN + '[plot]\nvalue = "x"\npath = "p"\nthreshold = "3"\n',
        "`threshold` in [plot] ('3') must be a number. Write it as a number.",
    ),
    (SOURCE + PLAN + '[plot]\npath = "p"\n', '`value` is missing in [plot]. Add it, such as value = "speed".'),
    (
        SOURCE + PLAN + "oops\n",
        "The job is not valid TOML: Expected '=' after a key in a key/value pair (at line 8, column 5). "
        "Strings need quotes; keys with spaces do too.",
    ),
]


@pytest.mark.parametrize(("text", "message"), ERRORS, ids=[message[:50] for _, message in ERRORS])
def test_errors(text: str, message: str) -> None:
    with pytest.raises((JobError, SpecError)) as error:
        job_from_toml(text)
    assert str(error.value) == message


def test_reading_a_file(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    with pytest.raises(JobError) as error:
        read_job(path)
    assert str(error.value) == f"There is no job file '{path}'. Check the path."
    path.write_text(JOB, encoding="utf-8")
    assert read_job(str(path)) == job_from_toml(JOB)
    path.write_bytes(b"\xff")
    with pytest.raises(JobError, match=r"can't be read: .* Give a UTF-8 text file\."):
        read_job(path)

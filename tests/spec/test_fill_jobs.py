"""Jobs whose segments are filled: [fill] and [fill.NAME], there and back, and refused in words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panewise import builders
from panewise.errors import JobError
from panewise.jobs import Job, job_from_toml, job_to_toml
from panewise.spec.duration import Duration
from panewise.spec.fill import Filling
from panewise.spec.job import (
    FileSource,
    FillTable,
    FillTables,
    KafkaSource,
    Plot,
    Source,
    StreamOptions,
    TableSource,
)
from panewise.spec.punctuate import Punctuation, in_band, ordered_per, slack

JOB = """\
[source]
format = "parquet"
path = "out/reports"
stream = true

[plan]
scheme = "threshold_frames"
condition = "drop_pct > 0.3"
by = ["router"]
at = "rpt_time"

[plan.punctuation]
kind = "slack"
amount = "10 seconds"

[agg]
top = "max(drop_pct)"

[fill]
keep_empty = true
format = "csv"
path = "out/messages"
schema = "host string, ts timestamp, kind string, prefixes int"
stream = true
at = "ts"
by = ["host"]
where = "kind = 'withdraw'"
shift = "-1 day"

[fill.options]
header = "true"

[fill.widen]
before = "30 seconds"

[fill.punctuation]
kind = "slack"
amount = "1 minute"

[fill.agg]
n = "count(*)"
withdrawn = "sum(prefixes)"

[stream]
checkpoint = "out/checkpoint"

[sink]
format = "console"
"""

LOSS = builders.threshold_frames("drop_pct > 0.3").by("router").at("rpt_time", slack("10 seconds"))
MESSAGES = FileSource(
    "csv", "out/messages", "host string, ts timestamp, kind string, prefixes int", (("header", "true"),), True
)


def test_the_whole_job_and_back() -> None:
    job = job_from_toml(JOB)
    filling = Filling(
        "ts",
        ("host",),
        "kind = 'withdraw'",
        before=Duration(30_000_000),
        shift=Duration(-86_400_000_000),
        punctuation=slack("1 minute"),
    )
    agg = (("n", "count(*)"), ("withdrawn", "sum(prefixes)"))
    assert job == Job(
        source=FileSource("parquet", "out/reports", stream=True),
        plan=LOSS,
        agg=(("top", "max(drop_pct)"),),
        stream=StreamOptions("out/checkpoint"),
        fill=FillTables((("", FillTable(filling, MESSAGES, agg)),), keep_empty=True),
    )
    assert job_to_toml(job) == JOB
    assert hash(job) == hash(job_from_toml(JOB))
    assert job.sources == {"source": job.source, "fill": MESSAGES}


SOURCE = '[source]\nformat = "parquet"\npath = "p"\n'
PLAN = '[plan]\nscheme = "session_frames"\ngap = 5\nby = ["a", "b"]\nat = "ts"\n'
TABLE = 'format = "table"\ntable = "t"\n'
CHECKPOINT = '[stream]\ncheckpoint = "c"\n'
FILL = SOURCE + PLAN + "[fill]\n" + TABLE


def filled(text: str) -> FillTables:
    fill = job_from_toml(SOURCE + PLAN + text).fill
    assert fill is not None
    return fill


def test_what_is_left_out_is_as_in_the_plan() -> None:
    fill = filled("[fill]\n")
    assert fill == FillTables(
        (
            (
                "",
                FillTable(Filling("ts", ("a", "b"))),
            ),
        )
    )
    assert fill.gives_rows


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ('["x", "y"]', ("x", "y")),
        ('{a = "x"}', ("x", "b")),
        ('{b = "x"}', ("a", "x")),
        ('{b = "y", a = "x"}', ("x", "y")),
    ],
)
def test_keys_are_named_in_order_or_by_name(by: str, keys: tuple[str, ...]) -> None:
    ((_, table),) = filled(f"[fill]\nby = {by}\n").named
    assert table.filling.keys == keys


def test_one_key_is_a_list_of_one() -> None:
    text = SOURCE + PLAN.replace('["a", "b"]', '"a"') + '[fill]\nby = "x"\n'
    fill = job_from_toml(text).fill
    assert fill is not None
    assert fill.named[0][1].filling.keys == ("x",)


@pytest.mark.parametrize(
    ("widen", "before", "after"),
    [
        ('{before = "30 s"}', Duration(30_000_000), None),
        ("{after = 5}", None, 5),
        ("{before = -1, after = 2.5}", -1, 2.5),
    ],
)
def test_either_side_may_be_left_as_it_is(widen: str, before: object, after: object) -> None:
    ((_, table),) = filled(f"[fill]\nwiden = {widen}\n").named
    assert (table.filling.before, table.filling.after) == (before, after)


def test_several_sources_have_a_table_each() -> None:
    text = """\
[fill]
keep_empty = true

[fill.control]
format = "table"
table = "messages"
at = "sent"

[fill.control.agg]
n = "count(*)"

[fill.own]
where = "x > 1"

[fill.own.agg]
top = "max(x)"
"""
    fill = filled(text)
    calls = (("n", "count(*)"),), (("top", "max(x)"),)
    assert fill == FillTables(
        (
            ("control", FillTable(Filling("sent", ("a", "b")), TableSource("messages"), calls[0])),
            ("own", FillTable(Filling("ts", ("a", "b"), "x > 1"), None, calls[1])),
        ),
        keep_empty=True,
    )
    assert list(fill.tables) == ["fill.control", "fill.own"]
    assert not fill.gives_rows
    job = job_from_toml(SOURCE + PLAN + text)
    assert job.sources == {"source": job.source, "fill.control": TableSource("messages"), "fill.own": job.source}
    assert text in job_to_toml(job)


def test_one_source_may_have_a_name() -> None:
    fill = filled("[fill.only]\n" + TABLE)
    assert [name for name, _ in fill.named] == ["only"]
    assert fill.gives_rows


# ---- there and back

names = st.sampled_from(["t", "größe", "a.b", 'd"'])
lengths = st.integers(-(10**15), 10**15).map(Duration)
numbers = st.integers(-(10**18), 10**18) | st.floats(-1e300, 1e300)


def amounts(kind: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={"before": kind, "after": kind, "shift": kind})


promises: st.SearchStrategy[Punctuation] = st.sampled_from(
    [slack("1 min"), slack(rows=5), in_band("done"), ordered_per("host", idle_after="1 s")]
)
sources: st.SearchStrategy[Source | None] = st.sampled_from(
    [
        None,
        TableSource("m"),
        TableSource("m", stream=True),
        FileSource("json", "p", "a int", (("multiLine", "true"),)),
        KafkaSource("h:1", "t", "json", "a int"),
    ]
)


@st.composite
def tables(draw: st.DrawFn, number: int, with_agg: bool) -> FillTable:
    keys = draw(st.tuples(names, names).filter(lambda pair: pair[0] != pair[1]) | st.just(("a", "b")))
    filling = Filling(
        draw(names),
        keys,
        draw(st.none() | st.just("x > 1")),
        **draw(amounts(lengths) | amounts(numbers)),
        punctuation=draw(st.none() | promises),
    )
    calls = {f"n{number}": "count(*)", f"a.{number}": "max(x + 1)"}
    return FillTable(filling, draw(sources), tuple(calls.items()) if with_agg else ())


@given(data=st.data())
def test_every_fill_and_back(data: st.DataObject) -> None:
    called = data.draw(st.sampled_from([[""], ["bgp"], ["bgp", "a b"], ["x", "y", "z"]]))
    with_agg = len(called) > 1 or data.draw(st.booleans())
    fill = FillTables(
        tuple((name, data.draw(tables(i, with_agg))) for i, name in enumerate(called)),
        with_agg and data.draw(st.booleans()),
    )
    own: Source = data.draw(st.sampled_from([TableSource("r"), TableSource("r", stream=True)]))
    plan = builders.session_frames(5).by("a", "b").at("ts", slack(5))
    streams = own.stream or any(table.source is not None and table.source.stream for _, table in fill.named)
    plot = data.draw(st.none() | st.just(Plot("x", "p.png", fill=tuple((name, "y") for name in called))))
    job = Job(own, plan, plot=plot, stream=StreamOptions("c") if streams else None, fill=fill)
    assert job_from_toml(job_to_toml(job)) == job


def test_what_is_drawn_of_one_source_is_text() -> None:
    text = FILL + '[plot]\nvalue = "x"\npath = "p.png"\nfill = "prefixes"\n'
    job = job_from_toml(text)
    assert job.plot == Plot("x", "p.png", fill=(("", "prefixes"),))
    assert 'fill = "prefixes"\n' in job_to_toml(job)


# ---- what is refused

AGG = '[fill.agg]\nn = "count(*)"\n'
STREAMED = SOURCE + "stream = true\n" + PLAN + 'punctuation = {kind = "slack", amount = 1}\n'
READS = 'a duration reads like "2 minutes", "1 hour 30 minutes" or "250 ms"'
PLOT = '[plot]\nvalue = "x"\npath = "p.png"\n'

ERRORS = [
    ("fill = 5\n" + SOURCE + PLAN, "`fill` (5) must be a table. Write [fill] and its options below it."),
    (FILL + 'wheer = "x"\n', "`wheer` in [fill] is not an option of a fill. Did you mean `where`?"),
    (FILL + 'wher = ["x"]\n', "`wher` in [fill] is not an option of a fill. Did you mean `where`?"),
    (
        SOURCE + PLAN + '[fill]\npath = "p"\n',
        '`format` is missing in [fill]. Add it, such as format = "parquet".',
    ),
    (
        SOURCE + PLAN + '[fill]\nformat = "orc"\n',
        '`format` in [fill] (\'orc\') must be one of "parquet", "csv", "json", "table", "kafka". Choose one of these.',
    ),
    (
        FILL + 'topic = "t"\n',
        "`topic` in [fill] is not an option of a table source. Known: `format`, `options`, `stream`, `table`.",
    ),
    (
        FILL + "[fill.options]\nheader = [1]\n",
        "`header` in [fill.options] ([1]) must be text. Write it as text.",
    ),
    (
        FILL + '[fill.options]\nschema = "a int"\n',
        "`schema` in [fill.options] is not an option of Spark's reader. Put it above, into [fill].",
    ),
    (
        SOURCE + PLAN + '[fill.bgp]\nformat = "json"\npath = "p"\nstream = true\n',
        "`schema` is missing in [fill.bgp]: Spark reads a stream of json files only by a schema that is given. "
        'Add it, such as schema = "router string, rpt_time timestamp".',
    ),
    (FILL + "at = 5\n", "`at` in [fill] (5) must be text. Write it as text."),
    (FILL + "by = 5\n", "`by` in [fill] (5) must be text. Write it as text."),
    (
        FILL + 'by = "x"\n',
        "`by` in [fill] (x) names 1 columns, and the plan has 2 keys: a row fills the segments of its own key. "
        "Name one column for each, in the plan's order.",
    ),
    (
        FILL + 'by = {c = "x"}\n',
        "`by` in [fill] ('c') is no key of the plan: `a`, `b`. Map the plan's keys to columns.",
    ),
    (FILL + "by = {a = 5}\n", "`by` in [fill] (5) must be the name of a column. Give it as a string."),
    (
        FILL + 'where = ""\n',
        "`where` in [fill] ('') must be SQL text: a plan holds no Spark Column. "
        'Write it as a string, such as "speed > 30".',
    ),
    *(
        (
            FILL + f"widen = {given}\n",
            f"`widen` in [fill] ({shown}) must say how far before and after a segment rows may lie. "
            'Write widen = {before = "30 seconds", after = "10 seconds"}, or one of the two.',
        )
        for given, shown in (('["30 seconds", ""]', "['30 seconds', '']"), ('"30 s"', "'30 s'"), ("{}", "{}"))
    ),
    (
        FILL + "widen = {befor = 5}\n",
        "`befor` in [fill.widen] is not an option of widen. Did you mean `before`?",
    ),
    (
        FILL + 'widen = {before = "5"}\n',
        f"`widen` in [fill] ('5') can't be read: {READS}. "
        "Units: microsecond, millisecond, second, minute, hour, day, week.",
    ),
    (
        FILL + 'widen = {before = "5 s", after = 5}\n',
        "`widen` in [fill] (5 seconds) and (5) are a length of time and a number. Give both alike.",
    ),
    (
        FILL + "shift = true\n",
        "`shift` in [fill] (True) must be a length of time or a number. "
        'Give text like "2 minutes", a timedelta, or a number where `at` is a number.',
    ),
    (
        FILL + 'punctuation = "slack"\n',
        "`punctuation` in [fill] ('slack') must be a table. Write it as a table.",
    ),
    (
        FILL + 'punctuation = {kind = "slak"}\n',
        "`kind` in [fill.punctuation] ('slak') is no punctuation. Did you mean `slack`?",
    ),
    (
        SOURCE + PLAN + '[fill.bgp]\npunctuation = {kind = "schedule", give_up_after = 5}\n',
        "`punctuation` in [fill.bgp] (schedule, give_up_after=5) gives up expected readings, and rows that fill are "
        "not expected. Use slack.",
    ),
    (FILL + "keep_empty = 1\n", "`keep_empty` in [fill] (1) must be true or false. Write it without quotes."),
    (
        FILL + "agg = 5\n",
        "`fill.agg` (5) must be a table. Write [fill.agg] and its options below it.",
    ),
    (
        FILL + '[fill.agg]\nn = "mode(x)"\n',
        "`agg[n]` in [fill] ('mode(x)'): mode is not an aggregate here. "
        "Functions: approx_count_distinct, approx_percentile, avg, count, first, last, max, median, min, percentile, "
        "stddev, sum, variance.",
    ),
    (FILL + "[fill.agg]\n", '[fill.agg] names no result. Add one, such as n = "count(*)", or leave it out.'),
    # ---- several sources
    (
        FILL + "[fill.bgp]\n",
        "`bgp` in [fill] is no option of a fill, and no source of its own beside `format`: of several sources each has "
        "a table such as [fill.bgp]. Put `format` into one of them.",
    ),
    (
        FILL + '[fill.aggs]\nn = "count(*)"\n',
        "`aggs` in [fill] is no option of a fill, and no source of its own beside `format`: of several sources each "
        "has a table such as [fill.aggs]. Did you mean `agg`?",
    ),
    (
        SOURCE + PLAN + "[fill]\nkept = 1\n[fill.bgp]\n",
        "`kept` in [fill] is not an option of a fill of several sources. Known: `bgp`, `keep_empty`.",
    ),
    (
        SOURCE + PLAN + "[fill.bgp]\nkeep_empty = true\n",
        "`keep_empty` in [fill.bgp] is about the segments of all sources. Put it into [fill].",
    ),
    (
        SOURCE + PLAN + '[fill.bgp]\nagg = {n = "count(*)"}\n[fill.cpu]\n',
        "[fill.cpu.agg] is missing: a job gives the rows of one source, or aggregates over those of several. "
        'Add it, such as n = "count(*)".',
    ),
    # ---- what does not go together
    (
        FILL + "keep_empty = true\n",
        "`keep_empty` in [fill] keeps segments without rows, and without [fill.agg] rows are what is given. "
        'Add that, such as n = "count(*)", or leave `keep_empty` out.',
    ),
    (
        FILL + '[agg]\nn = "count(*)"\n',
        "[agg] says something of each segment, and without [fill.agg] rows are what is given. "
        "Add that, or leave [agg] out.",
    ),
    (
        FILL + AGG + '[agg]\nN = "count(*)"\n',
        "`n` in [fill.agg] is in [agg] too, and results have one column of a name. Choose another.",
    ),
    (
        SOURCE + PLAN + '[fill.x]\nagg = {n = "count(*)"}\n[fill.y]\nagg = {n = "max(v)"}\n',
        "`n` in [fill.y.agg] is in [fill.x.agg] too, and results have one column of a name. Choose another.",
    ),
    # ---- streams
    (
        FILL + "stream = true\n",
        '[stream] is missing: a stream needs a checkpoint. Add [stream] with checkpoint = "out/checkpoint".',
    ),
    (
        FILL + CHECKPOINT,
        "[stream] says how a stream is run, and neither [source] nor [fill] is one. "
        "Add stream = true to one of them, or leave [stream] out.",
    ),
    (
        STREAMED + "[fill]\n" + CHECKPOINT + 'emit = "updates"\n',
        '`emit` in [stream] ("updates") sends all of a segment again and again, and a row fills it once. '
        'Use "fragments", or "final".',
    ),
    # ---- pictures
    (
        SOURCE + PLAN + PLOT + 'fill = "x"\n',
        "`fill` in [plot] draws rows that fill segments, and there is no [fill]. Leave it out.",
    ),
    (
        FILL + PLOT + 'fill = {bgp = "x"}\n',
        "`fill` in [plot] names 'bgp', and [fill] has no name. Write it as text.",
    ),
    (
        SOURCE + PLAN + "[fill.bgp]\n" + PLOT + 'fill = {bpg = "x"}\n',
        "`fill` in [plot] ('bpg') is no source of [fill]. Name one of bgp, as fill = {bgp = \"x\"}.",
    ),
    (
        SOURCE + PLAN + "[fill.bgp]\n" + PLOT + 'fill = "x"\n',
        '`fill` in [plot] does not say of which source. Name one of bgp, as fill = {bgp = "x"}.',
    ),
    (FILL + PLOT + "fill = 5\n", "`fill` in [plot] (5) must be text. Write it as text."),
]


@pytest.mark.parametrize(("text", "message"), ERRORS, ids=[message[:70] for _, message in ERRORS])
def test_errors(text: str, message: str) -> None:
    with pytest.raises(JobError) as error:
        job_from_toml(text)
    assert str(error.value) == message


def test_a_job_that_contradicts_itself_is_not_written() -> None:
    plan = builders.session_frames(5).at("ts", slack(5))
    fill = FillTables((("", FillTable(Filling("ts"), TableSource("m", stream=True))),))
    with pytest.raises(JobError, match=r"^\[stream\] is missing"):
        job_to_toml(Job(TableSource("r"), plan, fill=fill))


@pytest.mark.parametrize(("own", "other"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_job_streams_if_one_of_its_sources_does(own: bool, other: bool) -> None:
    flag = {True: "stream = true\n", False: ""}
    text = SOURCE + flag[own] + PLAN + "[fill]\n" + TABLE + flag[other]
    job = job_from_toml(text + (CHECKPOINT if own or other else ""))
    assert (job.stream is not None) == (own or other)
    assert [source.stream for source in job.sources.values()] == [own, other]

"""Fills in words: of a job, and of DataFrames, which are only asked whether they stream."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from panewise.builders import aggregate_frames, threshold_frames
from panewise.cli.explain import explain
from panewise.errors import SpecError
from panewise.fill import filling
from panewise.jobs import job_from_toml
from panewise.plan import Plan
from panewise.spec.explain_fill import Explained, explain_fill
from panewise.spec.fill import Filling
from panewise.spec.fill import filling as checked
from panewise.spec.punctuate import slack

LOSS = threshold_frames("drop_pct > 0.3").by("router").at("rpt_time", slack("10 s"))

JOINED = (
    "rows become pages, segments chunks, both in order; where they overlap in time they are joined by shard of the "
    "key, and merged: no range join, and neither side is held in memory"
)
FUSED = "fused: what draws the segments aggregates their rows on its way; no join, and no row waits"
WITHIN = "within the bounds of the segment, each included or not as it is there"


def frame(stream: bool = False, segments: bool = False) -> Any:
    """As much of a DataFrame as an explanation looks at."""
    kind = SimpleNamespace(names=["id", "start", "end", "bounds"])
    fields = [SimpleNamespace(name="segment", dataType=kind)] if segments else []
    return SimpleNamespace(isStreaming=stream, schema=SimpleNamespace(fields=fields), columns=["router", "segment"])


def lines(text: str, name: str) -> list[str]:
    return [line.removeprefix(name).strip() for line in text.splitlines() if line.startswith(name)]


# a job

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
punctuation = {kind = "slack", amount = "10 seconds"}

[agg]
top = "max(drop_pct)"

[fill.control]
format = "kafka"
servers = "h:1"
topic = "messages"
value = "json"
schema = "host string, ts timestamp, kind string"
at = "ts"
by = {router = "host"}
where = "kind = 'withdraw'"
widen = {before = "30 seconds", after = "10 seconds"}
punctuation = {kind = "slack", amount = "1 minute"}
agg = {n = "count(*)"}

[fill.own]
where = "total_pkts > 0"
agg = {packets = "sum(total_pkts)"}

[fill.routers]
format = "table"
table = "changes"
shift = "-1 day"
agg = {changes = "count(*)"}

[stream]
checkpoint = "c"
"""

TOLD = f"""\
Finds          the stretches of rows in which drop_pct > 0.3 holds
Within         each router, by itself
Order          rpt_time, then drop_pct > 0.3, then drop_pct, then case when total_pkts > 0 then total_pkts end
Progress       rows may come 10 seconds late; one that comes later is in no segment
Shape          separated: at least one row lies between two segments
Interval       observed: [first row, last row], both included
Nulls          a row with a null condition is in no segment and ends an open segment
Aggregates     top = max(drop_pct), packets = sum(case when total_pkts > 0 then total_pkts end)
Stages         source -> apply (Spark SQL per row) -> segment and aggregate by router -> emit
State per key  start, last, rows, max of drop_pct, sum of case when total_pkts > 0 then total_pkts end; \
one open segment at most

Filled with    control: the topic messages of Kafka, a stream
Rows           of the segment's own host = router, where kind = 'withdraw'
Match          ts from 30 seconds before the start of the segment to 10 seconds after its end; \
each bound is included or not as it is there
Aggregates     n = count(*)
Progress       rows may come 1 minute late; one that comes later is in no segment
How            both streams meet in one stateful stage, by shard of the key
Rows wait      until no segment to come can reach them: progress of rpt_time, at most to just before the start of \
what is open, less 30 seconds
Segments wait  until ts has come to 10 seconds after their end
State          rows since the start of the oldest segment of their key that is open, and 30 seconds before; \
segments that rows may still enter, with their aggregates so far; both in chunks by time; \
emit="fragments" lets rows go before a segment is over

Filled with    own: the rows of [source], a stream
Rows           of the segment's own router, where total_pkts > 0
Match          rpt_time {WITHIN}
Aggregates     packets = sum(total_pkts)
How            {FUSED}

Filled with    routers: the table changes, a stored table
Rows           of the segment's own router
Match          rpt_time from 1 day before the start of the segment to 1 day before its end; \
each bound is included or not as it is there
Aggregates     changes = count(*)
How            {JOINED}; in every micro-batch, for the segments that it closed, and the table is read anew

Results        one row for each segment that has rows of one source at least; the others are left out"""


def test_a_job_with_every_kind_of_source() -> None:
    assert explain(job_from_toml(JOB)) == TOLD


BATCH = """\
[source]
format = "parquet"
path = "out/reports"

[plan]
scheme = "threshold_frames"
condition = "drop_pct > 0.3"
by = ["router"]
at = "rpt_time"

[fill]
"""
KNOWN = "Where [source] holds segments that were found before, these are filled, and none are drawn."


def test_rows_of_a_stored_table() -> None:
    text = explain(job_from_toml(BATCH + 'format = "csv"\npath = "out/messages"\n'))
    assert lines(text, "Filled with") == ["csv files in out/messages, a stored table"]
    assert lines(text, "How") == [JOINED]
    assert lines(text, "Aggregates") == lines(text, "Rows wait") == []
    assert text.endswith(f"each matching row with its segment, once for each that it lies in\n\n{KNOWN}")


def test_a_job_filled_from_its_own_rows() -> None:
    text = explain(job_from_toml(BATCH + 'agg = {n = "count(*)"}\n'))
    assert lines(text, "How") == [FUSED]
    assert lines(text, "Results") == ["one row for every segment"]
    # what lies before a segment is not in it
    text = explain(job_from_toml(BATCH + 'widen = {before = "1 minute"}\nagg = {n = "count(*)"}\n'))
    assert lines(text, "How") == [JOINED]
    assert lines(text, "Results") == ["one row for each segment that has rows; the others are left out"]
    text = explain(job_from_toml(BATCH + 'agg = {n = "count(*)"}\n' + "keep_empty = true\n"))
    assert lines(text, "Results") == ["one row for every segment"]


def test_a_batch_of_segments_and_a_stream_of_rows() -> None:
    stream = 'format = "table"\ntable = "t"\nstream = true\npunctuation = {kind = "slack", amount = "1 s"}\n'
    text = explain(job_from_toml(BATCH + stream + '[stream]\ncheckpoint = "c"\n'))
    assert lines(text, "How") == [
        "segments are found first, in a batch; a stateful stage, by shard of the key, begins with the segments, and "
        "rows come to them"
    ]
    assert lines(text, "Rows wait") == ["never: every segment is there when they come"]
    assert lines(text, "Segments wait") == ["until rpt_time has come to their end"]
    assert lines(text, "State ")[1] == (
        "segments that rows may still enter; in chunks, of which those are read that rows fall into"
    )


# DataFrames


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_a_fill_explains_what_agg_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    reports = frame(stream=True)
    several = LOSS.fill(
        reports,
        {"bgp": filling(frame(), "ts", by="host"), "own": filling(reports), "logs": filling(frame(stream=True), "ts")},
    )
    several.explain(bgp={"n": "count(*)"}, own={"top": "max(drop_pct)"})
    text = told(capsys)
    assert lines(text, "Filled with") == ["bgp: a stored table", "own: the rows that draw the segments, a stream"]
    assert lines(text, "How")[1] == FUSED
    assert lines(text, "Aggregates") == ["top = max(drop_pct)", "n = count(*)", "top = max(drop_pct)"]
    # a segment has rows of its own, always
    assert lines(text, "Results") == ["one row for every segment"]
    several.explain({"logs": {"n": "count(*)"}})
    text = told(capsys)
    assert lines(text, "Filled with") == ["logs: a stream"]
    assert lines(text, "Aggregates") == ["n = count(*)"]
    assert lines(text, "Results") == ["one row for each segment that has rows; the others are left out"]
    with pytest.raises(SpecError, match=r"`agg` \('bpg'\) is no source of this fill"):
        several.explain(bpg={"n": "count(*)"})


def test_a_fill_without_aggregates_explains_its_rows(capsys: pytest.CaptureFixture[str]) -> None:
    reports = frame()
    LOSS.fill(reports, reports).explain()
    text = told(capsys)
    assert lines(text, "Filled with") == ["the rows that draw the segments, a stored table"]
    assert lines(text, "How") == [JOINED]
    assert lines(text, "Results") == ["each matching row with its segment, once for each that it lies in"]
    LOSS.fill(reports, reports).explain(n="count(*)")
    assert lines(told(capsys), "How") == [FUSED]


def test_known_segments_are_not_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    LOSS.fill(frame(segments=True), frame(stream=True), at="ts", punctuation=slack("1 s")).explain(n="count(*)")
    text = told(capsys)
    assert text.startswith(
        "Segments       found before: they are taken as they are, each once\n\nFilled with    a stream"
    )
    assert lines(text, "How")[0].startswith("a stateful stage, by shard of the key, begins with the segments")


# one by one


def about(plan: Plan, given: Filling, name: str, *, stream: bool = True, parts: bool = False) -> str:
    source = Explained(given, stream=stream)
    return lines(explain_fill(plan, {"": source}, stream=stream, parts=parts).split("\n\n")[1], name)[0]


def test_rows_that_are_not_where_the_segment_is() -> None:
    keys = ("router",)
    assert about(LOSS, checked(keys, "ts"), "Match") == f"ts {WITHIN}"
    narrowed = checked(keys, "ts", widen=("-5 s", "10 s"))
    assert about(LOSS, narrowed, "Match") == (
        "ts from 5 seconds after the start of the segment to 10 seconds after its end; each bound is included or not "
        "as it is there; a segment that is emptied takes no row"
    )
    moved = checked(keys, "ts", widen=(5, 2.5), shift=-3)
    assert about(LOSS, moved, "Match").startswith("ts from 8 before the start of the segment to 0.5 before its end;")
    widened = checked(keys, "ts", widen=("1 min", None))
    assert about(LOSS, widened, "Match", parts=True).endswith("; of its parts the first is widened")


@pytest.mark.parametrize(
    ("given", "ending"),
    [
        ({}, "just before the start of what is open"),
        ({"widen": ("30 s", None)}, "just before the start of what is open, less 30 seconds"),
        ({"shift": "1 h"}, "just before the start of what is open, and 1 hour more"),
    ],
)
def test_what_lets_go_of_rows(given: dict[str, Any], ending: str) -> None:
    assert about(LOSS, checked(("router",), "ts", **given), "Rows wait").endswith(
        f"progress of rpt_time, at most to {ending}"
    )


def test_possible_segments_may_reach_back_to_the_last_row() -> None:
    plan = threshold_frames("a", extent="possible").at("ts")
    assert about(plan, checked((), "ts"), "Rows wait").endswith("at most to the last row")
    assert about(plan, checked((), "ts"), "Rows ") == "all: there is no key"


def test_parts_let_rows_go_where_there_are_any() -> None:
    rows = checked((), "ts")
    plan = threshold_frames("a").at("ts")
    assert about(plan, rows, "State").endswith('; emit="fragments" lets rows go before a segment is over')
    assert about(plan, rows, "State", parts=True).endswith("; parts let rows go before a segment is over")
    # a frame that is none before it is complete sends none
    minimal = aggregate_frames("sum(x)", reaches=5).at("ts")
    assert about(minimal, rows, "State").endswith("both in chunks by time")


@pytest.mark.parametrize(
    ("given", "reach"),
    [
        ({}, (0, 0)),
        ({"before": 3}, (-3, 0)),
        ({"after": 3, "shift": 1}, (1, 4)),
        ({"before": 3, "after": -1, "shift": -5}, (-8, -6)),
    ],
)
def test_reach(given: dict[str, Any], reach: tuple[int, int]) -> None:
    assert Filling("t", **given).reach == reach

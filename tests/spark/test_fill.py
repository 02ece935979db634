"""Fill on Spark: how it is planned, what it does not depend on, and what it refuses."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest

import panewise as pw
from panewise.data import router
from spark.tables import rows, settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOSS = pw.threshold_frames("drop_pct > 0.3", min_duration="2 minutes").by("router").at("rpt_time")
AROUND: dict[str, Any] = {"at": "ts", "by": "host", "widen": ("30 seconds", None)}
AGG = {"n": "count(*)", "prefixes": "sum(prefixes)", "mean": "avg(prefixes)", "kind": "max(ts)"}
ROWS, ROUTERS = 20_000, 20


@pytest.fixture(scope="module")
def reports(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(router.table(ROWS, routers=ROUTERS)).repartition(3).cache()


@pytest.fixture(scope="module")
def messages(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(router.messages(ROWS, routers=ROUTERS)).repartition(3).cache()


def planned(df: DataFrame) -> str:
    said = StringIO()
    with redirect_stdout(said):
        df.explain()
    return said.getvalue()


def test_rows_are_never_compared_with_segments_one_by_one(reports: DataFrame, messages: DataFrame) -> None:
    fill = LOSS.fill(reports, messages, **AROUND)
    for df in (fill.agg(AGG), fill.rows(), LOSS.fill(reports, messages, **AROUND, keep_empty=True).agg(AGG)):
        plan = planned(df)
        assert "NestedLoop" not in plan
        assert "Cartesian" not in plan
        # what is joined is pieces, by shard, not rows
        joins = [line for line in plan.splitlines() if "Join" in line]
        assert joins
        assert all("shard" in line and "page" in line and "rpt_time" not in line for line in joins)


def test_what_a_stream_computes_of_itself_is_not_joined(reports: DataFrame) -> None:
    fused = LOSS.fill(reports, reports).agg(top="max(drop_pct)", n="count(*)")
    assert "Join" not in planned(fused)
    assert rows(fused.toArrow()) == rows(LOSS.segments(reports, {"top": "max(drop_pct)", "n": "count(*)"}).toArrow())
    some = LOSS.fill(reports, reports, where="total_pkts > 100000").agg(n="count(*)")
    assert "Join" not in planned(some)
    apart = LOSS.fill(reports, reports.select("*"), where="total_pkts > 100000").agg(n="count(*)")
    assert "Join" in planned(apart)
    assert rows(some.toArrow()) == rows(apart.toArrow())


def test_nothing_depends_on_shards_or_partitions(spark: SparkSession, reports: DataFrame, messages: DataFrame) -> None:
    expected = pw.fill_local(
        LOSS, router.table(ROWS, routers=ROUTERS), router.messages(ROWS, routers=ROUTERS), AGG, **AROUND
    )
    wanted = rows(LOSS.fill(reports, messages, **AROUND).agg(AGG).toArrow())
    assert len(wanted) == len(expected) > 5
    for partitions, shards in ((1, 1), (3, 2), (5, 64)):
        with settings(spark, shuffle_partitions=partitions):
            shuffled = messages.repartition(partitions, "prefixes")
            found = LOSS.fill(reports.coalesce(partitions), shuffled, **AROUND, shards=shards).agg(AGG)
            assert rows(found.toArrow()) == wanted


@pytest.mark.slow
def test_several_sources_in_one_plan(reports: DataFrame, messages: DataFrame) -> None:
    withdrawn = pw.filling(messages, "ts", by={"router": "host"}, where="kind = 'withdraw'", widen=("30 seconds", None))
    sources = {"control": withdrawn, "own": pw.filling(reports), "after": pw.filling(reports, shift="10 minutes")}
    found = LOSS.fill(reports, sources).agg(
        control={"n": "count(*)"}, own={"top": "max(drop_pct)"}, after={"later": "avg(drop_pct)"}
    )
    assert found.columns == ["router", "segment", "rows", "status", "n", "top", "later"]
    # every segment has rows of its own, so that none is left out
    assert found.count() == LOSS.segments(reports).count()
    alone = LOSS.fill(reports, messages, **AROUND, where="kind = 'withdraw'").agg(n="count(*)")
    assert rows(found.where("n > 0").select(*alone.columns).toArrow()) == rows(alone.toArrow())
    without = {name: source for name, source in sources.items() if name != "own"}
    both = LOSS.fill(reports, without).agg(control={"n": "count(*)"}, after={"later": "count(*)"})
    assert both.where("n = 0 and later = 0").isEmpty()


def test_keys_may_be_called_otherwise_and_be_wider(spark: SparkSession) -> None:
    plan = pw.threshold_frames("ok").by("k").at("t")
    framing = spark.createDataFrame([(1, 1, True), (1, 2, False)], "k int, t long, ok boolean")
    filling = spark.createDataFrame([(1, 1), (2**40 + 1, 1), (None, 1)], "id long, t long")
    assert [row.n for row in plan.fill(framing, filling, by="id").agg(n="count(*)").collect()] == [1]


def refused(call: Any) -> str:
    with pytest.raises(pw.PanewiseError) as raised:
        call()
    return str(raised.value)


def test_what_is_refused(spark: SparkSession, reports: DataFrame, messages: DataFrame) -> None:
    said = refused(lambda: LOSS.fill(reports, messages, at="tz", by="host").agg(n="count(*)"))
    assert said.startswith("`at` ('tz'): no such column.")
    said = refused(lambda: LOSS.fill(reports, messages, at="ts").agg(n="count(*)"))
    assert said.startswith("`by` ('router'): no such column.")
    said = refused(lambda: LOSS.fill(reports, messages, at="prefixes", by="host").rows())
    assert "and the segments are bounded by a time" in said
    assert "Cast one of them" in said
    said = refused(lambda: LOSS.fill(reports, messages, at="ts", by="prefixes").rows())
    assert said.startswith("`by` ('prefixes') has type bigint, and the key 'router' of the segments string")
    said = refused(lambda: LOSS.fill(reports, messages, at="ts", by="host", where="prefixes").rows())
    assert said.startswith("`where` ('prefixes') has type bigint, not boolean.")
    said = refused(lambda: LOSS.fill(reports, messages, **AROUND).agg(rows="count(*)"))
    assert said.startswith("`agg` ('rows') can't name a result")
    said = refused(lambda: LOSS.fill(reports, messages, **AROUND, keep_empty=True).rows())
    assert said.startswith("`keep_empty` (True) keeps segments without rows")
    said = refused(lambda: LOSS.fill(reports, messages, **AROUND).agg())
    assert said.startswith("`agg` (nothing) needs an aggregate.")
    said = refused(lambda: LOSS.fill(reports, messages, at="ts", by="host", widen="30 seconds"))
    assert said.startswith("`widen` ('30 seconds') must be two amounts")
    said = refused(lambda: LOSS.fill(reports, messages, at="ts", by="host", emit="updates"))
    assert said.startswith('`emit` ("updates")')
    after = {**AROUND, "widen": (None, "1 minute")}
    said = refused(lambda: LOSS.fill(reports, messages, **after, emit="fragments"))
    assert said.startswith("`widen` (after: 1 minute): segments come in parts")
    narrowed = {**AROUND, "widen": ("-1 minute", None)}
    said = refused(lambda: LOSS.fill(reports, messages, **narrowed, emit="fragments"))
    assert said.startswith("`widen` (before: -1 minute): segments come in parts")
    said = refused(lambda: LOSS.fill(reports, router.messages(10)))
    assert said.startswith("`filling_source` (Table) must be a DataFrame of Spark.")
    said = refused(lambda: LOSS.fill(reports, {"a": messages}))
    assert said.startswith("`filling_source` ('a': DataFrame): of several sources each says how it fills.")
    said = refused(lambda: LOSS.fill(reports, messages, **AROUND, late=True))
    assert said == "`late` is for a stream, and neither side is one. Leave it out."
    live = spark.readStream.format("rate").load()
    said = refused(lambda: LOSS.fill(reports, live, at="timestamp", by="value").agg(n="count(*)"))
    assert said.startswith("`punctuation` (None) of `filling_source`")


def test_what_would_mean_nothing_is_refused(spark: SparkSession, reports: DataFrame, messages: DataFrame) -> None:
    known, soon = LOSS.segments(reports), pw.slack("10 seconds")
    said = refused(lambda: LOSS.fill(known, messages, **AROUND, emit="nonsense"))
    assert said.startswith("`emit` ('nonsense')")
    said = refused(lambda: LOSS.fill(known, messages, **AROUND, emit="fragments", fragment_every="1 minute"))
    assert said.startswith('`emit` ("fragments") says what is sent of segments while they are drawn')
    said = refused(lambda: LOSS.fill(known, messages, **AROUND, fragment_every="1 minute"))
    assert said.startswith("`fragment_every` (1 minute) says how often parts are sent")
    said = refused(lambda: LOSS.fill(reports, messages, **AROUND, punctuation=soon))
    assert said.startswith(f"`punctuation` ({soon}) says how far a stream has come, and the rows that fill are a table")
    sources = {"bgp": pw.filling(messages, "ts", by="host", punctuation=soon)}
    said = refused(lambda: LOSS.fill(reports, sources))
    assert said.startswith(f"`punctuation` ({soon}) of the source 'bgp' says how far")
    live = spark.readStream.format("rate").load()
    plan = pw.threshold_frames("value > 1").at("timestamp", pw.slack("1 minute"))
    said = refused(lambda: plan.fill(live, live, punctuation=soon).agg(n="count(*)"))
    assert said.startswith(f"`punctuation` ({soon}): these rows draw the segments and are added up on the way")
    # what is said twice is not ignored, and which rows are no data can be said of a table too
    assert plan.fill(live, live, punctuation=plan.punctuation).agg(n="count(*)").isStreaming
    heartbeats = {**AROUND, "punctuation": pw.in_band("kind = 'withdraw'")}
    counted = LOSS.fill(reports, messages, **heartbeats).agg(n="count(*)")
    wanted = LOSS.fill(reports, messages, **AROUND, where="kind <> 'withdraw'").agg(n="count(*)")
    assert rows(counted.toArrow()) == rows(wanted.toArrow())


def test_rows_of_its_own_are_enough(reports: DataFrame) -> None:
    sources = {"own": pw.filling(reports), "busy": pw.filling(reports, where="total_pkts > 10000000")}
    found = LOSS.fill(reports, sources).agg(own={"top": "max(drop_pct)"}, busy={"n": "count(*)"})
    assert found.count() == LOSS.segments(reports).count()
    assert found.where("n > 0").isEmpty()

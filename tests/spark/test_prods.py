"""Prods on Spark: answers to a person in another process, figures of how good they were, and pictures of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from threading import Condition
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import panewise as pw
from panewise.kernel.pack import Packer
from panewise.kernel.windowshard import new_shard
from panewise.local.stream import LocalStream, with_control
from panewise.plots.accuracy import draw_accuracy
from panewise.spark.processor import Processor
from panewise.spark.shard import ShardRunner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENDS_WITHIN = 120
SUM = {"total": "sum(v)", "n": "count(*)"}
ROWS = [
    [("a", 1, 4, False), ("b", 2, 10, False), ("a", 10, 0, True)],
    [("a", 3, 4, False), ("b", 3, 30, False), ("b", 10, 0, True)],
    [("a", 4, 2, False), ("a", 40, 1, False), ("b", 40, 1, False)],
]


def stream_of(spark: SparkSession, folder: Path) -> DataFrame:
    """A file for each micro-batch: k, t, v, and whether it asks."""
    folder.mkdir()
    for number, given in enumerate(ROWS):
        columns = dict(zip("ktva", zip(*given, strict=True), strict=True))
        table = pa.table({name: pa.array(values) for name, values in columns.items()})
        pq.write_table(table.rename_columns(["k", "t", "v", "ask"]), folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (1_700_000_000 + number,) * 2)
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_answers_are_counted_and_compared(spark: SparkSession, tmp_path: Path, shards: int) -> None:
    stream = stream_of(spark, tmp_path / "rows")
    plan = pw.tumbling_windows(10).by("k").at("t", pw.slack(20))
    found = plan.segments(stream, SUM, prods=pw.prods_in("ask"), shards=shards)
    writer = found.writeStream.format("parquet").option("path", f"{tmp_path}/out").trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{tmp_path}/checkpoint").start()
    assert query.awaitTermination(ENDS_WITHIN)
    told = pw.progress(query).prods
    assert told is not None
    assert (told.prods, told.early, told.matched) == (2, 4, 4)
    # a: 4 and 8 of 10, b: 10 and 40 of 40
    assert told.accuracy["total"].mean == pytest.approx((0.4 + 0.8 + 0.25 + 1) / 4)
    assert told.accuracy["total"].worst == pytest.approx(0.25)
    assert told.accuracy["n"].worst == pytest.approx(1 / 3)
    assert told.gain is not None
    assert 0 < told.gain < 1
    stored = spark.read.parquet(f"{tmp_path}/out")
    near = pw.accuracies(stored)
    assert near.columns == ["k", "segment", "number", "seconds", "latency", "gain", "total", "n"]
    by_key = near.groupBy("k").agg({"total": "avg", "gain": "min"}).collect()
    means = {row["k"]: row["avg(total)"] for row in by_key}
    assert means == {"a": pytest.approx(0.6), "b": pytest.approx(0.625)}
    assert all(0 < row["min(gain)"] < 1 for row in by_key)
    draw_accuracy(near.toArrow(), tmp_path / "accuracy.png", title="early answers")
    assert (tmp_path / "accuracy.png").stat().st_size > 5_000


@pytest.mark.slow
def test_accuracies_are_a_stream_too(spark: SparkSession, tmp_path: Path) -> None:
    """One row when the final answer comes, to any sink."""
    plan = pw.tumbling_windows(10).by("k").at("t", pw.slack(20))
    stream = stream_of(spark, tmp_path / "rows")
    near = pw.accuracies(plan.segments(stream, SUM, prods=pw.prods_in("ask"), shards=2))
    writer = near.writeStream.format("parquet").option("path", f"{tmp_path}/out").trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{tmp_path}/checkpoint").start()
    assert query.awaitTermination(ENDS_WITHIN)
    found = spark.read.parquet(f"{tmp_path}/out").select("k", "number", "total").collect()
    assert sorted((row["k"], row["number"], round(row["total"], 3)) for row in found) == [
        ("a", 0, 0.4), ("a", 1, 0.8), ("b", 0, 0.25), ("b", 1, 1.0),
    ]  # fmt: skip


def test_results_that_tell_of_no_answers(spark: SparkSession) -> None:
    with pytest.raises(pw.InputError, match=r"`df` has no column 'segment'.*prods=True"):
        pw.accuracies(spark.range(3))


@pytest.mark.parametrize("name", ["seconds", "Gain"])
def test_names_that_accuracies_have_themselves(spark: SparkSession, tmp_path: Path, name: str) -> None:
    stream = stream_of(spark, tmp_path / "rows").withColumnRenamed("k", name)
    plan = pw.tumbling_windows(10).at("t", pw.slack(20))
    for found in (
        plan.segments(stream, {name: "sum(v)"}, prods=True),
        plan.by(name).segments(stream, SUM, prods=True),
    ):
        with pytest.raises(pw.InputError) as caught:
            pw.accuracies(found)
        assert str(caught.value) == (
            f"`df` has a key or an aggregate called {name!r}: segment, number, seconds, latency, gain tell of each "
            "early answer. Rename it in the plan."
        )


class Kept:
    """A handle to a shard's state, and the value in it."""

    state: bytes | None = None

    def getValueState(self, name: str, schema: str) -> Kept:  # noqa: N802  # Spark's name
        return self

    def get(self) -> tuple[bytes] | None:
        return None if self.state is None else (self.state,)

    def update(self, value: tuple[bytes]) -> None:
        (self.state,) = value


@pytest.mark.parametrize("clocked", [True, False])
def test_a_clock_that_is_given_is_the_only_one(clocked: bool) -> None:
    """Before it ticks nothing is known; what the time is may be years from what it says."""
    stream = LocalStream(pw.tumbling_windows(10).at("t", pw.slack(20)), SUM, prods=True)
    elements, kept = stream.read(pa.table({"t": [1, 2], "v": [1, 1]})), Kept()
    assert stream._layout is not None
    packer = Packer(stream._layout, 1)
    processor = Processor(ShardRunner(stream._layout, 1, watermark=False, clocked=clocked))
    processor.init(kept)  # type: ignore[arg-type]  # all that it uses
    processor._run((0,), [page for _, page in packer.run(elements.to_batches())], None)
    asked = with_control(elements.slice(0, 0), None, 10, False, stream._asked({}))
    pages = [page for _, page in Packer(stream._layout, 1).run(asked.to_batches())]
    found = new_shard(stream._layout, 1, kept.state).batch(pages).segments
    assert found is not None
    (latency,) = found.column("latency").to_pylist()
    assert (latency is None) == clocked


def test_a_person_in_another_process_is_answered_within_two_micro_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Rows flow on and on; each micro-batch is told with its number."""
    pw.Control(spark, f"{tmp_path}/control")
    rate = spark.readStream.format("rate").option("rowsPerSecond", 200).load()
    rows = rate.selectExpr("value % 3 as sensor", "timestamp as t", "value as v")
    plan = pw.tumbling_windows("1 day").by("sensor").at("t", pw.slack("1 day"))
    found = plan.segments(rows, SUM, prods=True, control=f"{tmp_path}/control", shards=2)
    seen: dict[int, list[Any]] = {}
    changed = Condition()

    def told(df: DataFrame, batch: int) -> None:
        got = df.collect()
        with changed:
            seen[batch] = got
            changed.notify_all()

    writer = found.writeStream.foreachBatch(told).trigger(processingTime="200 milliseconds")
    query = writer.option("checkpointLocation", f"{tmp_path}/checkpoint").start()
    try:
        with changed:
            assert changed.wait_for(lambda: len(seen) > 3, ENDS_WITHIN)
        command = [str(Path(sys.executable).parent / "panewise"), "prod", f"{tmp_path}/control", "--key", "sensor=1"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=ENDS_WITHIN)
        with changed:
            asked = max(seen)
            assert changed.wait_for(lambda: any(seen.values()), ENDS_WITHIN)
            answered = next(batch for batch, got in sorted(seen.items()) if got)
        pw.prod(query, sensor=2)
        with changed:
            assert changed.wait_for(lambda: sum(map(bool, seen.values())) > 1, ENDS_WITHIN)
    finally:
        query.stop()
    assert "asked, through" in done.stdout
    # the one that was running when the command ended, and the next
    assert answered <= asked + 2
    (answer,) = seen[answered]
    assert (answer["sensor"], answer["timing"], answer["certain"]) == (1, "early", True)
    assert answer["latency"] > 0
    assert [row["sensor"] for got in seen.values() for row in got] == [1, 2]


def test_another_stream_asks(spark: SparkSession, tmp_path: Path) -> None:
    """For all that is open, for what ends by then, for one key; one a micro-batch. Others ask for nothing."""
    stream = stream_of(spark, tmp_path / "rows").filter("not ask")
    (tmp_path / "asks").mkdir()
    for number, given in enumerate([(None, None), ("a", "10"), ("b", "9"), (None, "1x")]):
        asks = pa.table({name: pa.array([said], pa.string()) for name, said in zip(("who", "u"), given, strict=True)})
        pq.write_table(asks, tmp_path / "asks" / f"{number}.parquet")
        os.utime(tmp_path / "asks" / f"{number}.parquet", (1_700_000_000 + number,) * 2)
    schema = spark.read.parquet(f"{tmp_path}/asks").schema
    asks = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{tmp_path}/asks")
    plan = pw.tumbling_windows(10).by("k").at("t", pw.slack(20))
    requests = pw.prods_from(asks.withColumnRenamed("who", "k"), "u", by="k")
    found = plan.segments(stream, SUM, prods=requests, shards=2)
    writer = found.writeStream.format("parquet").option("path", f"{tmp_path}/out").trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{tmp_path}/checkpoint").start()
    assert query.awaitTermination(ENDS_WITHIN)
    early = spark.read.parquet(f"{tmp_path}/out").filter("timing = 'early'").select("k", "number", "total").collect()
    assert sorted(map(tuple, early)) == [("a", 0, 4), ("a", 1, 8), ("b", 0, 10)]
    told = pw.progress(query).prods
    assert told is not None
    # the third asks for what ends by 9, and nothing does
    assert (told.prods, told.unanswered, told.early) == (3, 1, 3)


@pytest.mark.parametrize(
    ("by", "named", "said"),
    [("u", ["s"], "`by` ('s'): the stream of prods has no such column"), ("w", [], "`until` ('w')")],
)
def test_a_stream_of_prods_that_lacks_a_column(
    spark: SparkSession, tmp_path: Path, by: str, named: list[str], said: str
) -> None:
    plan = pw.tumbling_windows(10).by("k").at("t", pw.slack(20))
    asks = spark.readStream.format("rate").load().selectExpr("value as u")
    with pytest.raises(pw.InputError) as caught:
        plan.segments(stream_of(spark, tmp_path / "rows"), SUM, prods=pw.prods_from(asks, by, by=named))
    assert said in str(caught.value)


def test_what_is_not_understood_asks_for_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Whoever writes it is told so; and what another program has written is left alone."""
    control = pw.Control(spark, f"{tmp_path}/control")
    plan = pw.tumbling_windows(10).by("k").at("t", pw.slack(20))
    stream = stream_of(spark, tmp_path / "rows")
    found = plan.segments(stream, SUM, prods=True, control=control.folder, shards=1)
    with pytest.raises(pw.InputError, match=r"`key` \('a'\) is no key of the plan"):
        control.prod(key="a")
    with pytest.raises(pw.InputError, match=r"`until` \('2024-01-01'\) must be an instant as `at` is, of type bigint"):
        control.prod(until=date(2024, 1, 1))
    for number, command in enumerate(
        [{"until": "soon"}, {"key": {"who": "a"}}, {"key": "k"}, {"until": 10, "key": {"k": "b"}}],
    ):
        text = json.dumps({"kind": "prod", **command})
        (tmp_path / "control" / f"{number}.json").write_text(text, encoding="utf-8")
    writer = found.writeStream.format("parquet").option("path", f"{tmp_path}/out").trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{tmp_path}/checkpoint").start()
    assert query.awaitTermination(ENDS_WITHIN)
    early = spark.read.parquet(f"{tmp_path}/out").filter("timing = 'early'").collect()
    assert {row["k"] for row in early} == {"b"}
    told = pw.progress(query).prods
    assert told is not None
    assert told.prods == 1
    silent = pw.Control(spark, f"{tmp_path}/silent")
    plan.segments(stream_of(spark, tmp_path / "others"), SUM, control=silent.folder)
    with pytest.raises(pw.InputError, match="answers no prods"):
        silent.prod()


def test_a_query_that_nobody_can_ask(spark: SparkSession, tmp_path: Path) -> None:
    plan = pw.tumbling_windows(10).by("k").at("t", pw.slack(20))
    found = plan.segments(stream_of(spark, tmp_path / "rows"), SUM, prods=True, shards=1)
    query = found.writeStream.format("noop").option("checkpointLocation", f"{tmp_path}/checkpoint").start()
    try:
        query.processAllAvailable()
        with pytest.raises(pw.InputError, match=r"`query` has no control folder that is known here"):
            pw.prod(query)
    finally:
        query.stop()

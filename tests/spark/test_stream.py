"""Streams on Spark: they find what a batch finds, whoever says how far they have come."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import panewise as pw
from panewise.spark.lanes import lanes
from spark.replay import Replay
from spark.tables import rows, settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY = 86_400
COUNT, LATE = 400, 8
AGG = {"n": "count(*)", "total": "sum(w)", "mean": "avg(v)", "first": "first(v)", "last": "last(w)"}
AT: dict[str, tuple[pa.DataType, float, Any]] = {
    # type, how far apart rows are, slack
    "timestamp": (pa.timestamp("us", "UTC"), 1_000_003, f"{LATE * 1_000_003} microseconds"),
    "timestamp_ntz": (pa.timestamp("us"), 250_000, "2 seconds"),
    "date": (pa.date32(), 1, f"{LATE} days"),
    "bigint": (pa.int64(), 3, LATE * 3),
    "double": (pa.float64(), 0.37, LATE * 0.37 + 0.01),
}


def reports(kind: str) -> pa.Table:
    """Rows of many keys, some of them null, in an order of arrival that slack allows for."""
    generator = np.random.default_rng(7)
    type_, step, _ = AT[kind]
    place = np.arange(COUNT)
    arrival = np.argsort(place + generator.uniform(0, LATE, COUNT), kind="stable")
    at = (place - 100) * step
    at = pa.array(at if kind == "double" else at.astype(np.int32 if kind == "date" else np.int64)).cast(type_)

    def choice(values: list[Any], type_: pa.DataType) -> pa.Array:
        return pa.array([values[i] for i in generator.integers(0, len(values), COUNT)], type_)

    table = pa.table(
        {
            "at": at,
            "name": choice(["a", "b", "", None], pa.string()),
            "number": choice([1, -2, None], pa.int16()),
            # 0.0 is -0.0, NaN is null
            "real": choice([0.0, -0.0, float("nan"), None], pa.float64()),
            "v": pa.array(generator.normal(0, 1, COUNT), mask=generator.random(COUNT) < 0.1),
            "w": pa.array(generator.integers(0, 1000, COUNT)),
        }
    )
    return table.take(pa.array(arrival))


@pytest.mark.parametrize(
    ("kind", "shards", "partitions"),
    [
        ("timestamp", 16, 3),
        pytest.param("double", 1, 1, marks=pytest.mark.slow),
        pytest.param("timestamp_ntz", 4, 1, marks=pytest.mark.slow),
        pytest.param("date", 16, 3, marks=pytest.mark.slow),
        pytest.param("bigint", 4, 3, marks=pytest.mark.slow),
    ],
)
def test_streams_find_what_batches_find(
    spark: SparkSession, tmp_path: Path, kind: str, shards: int, partitions: int
) -> None:
    table, replay = reports(kind), Replay(spark, tmp_path)
    plan = pw.delta_frames({"v": 2}).by("name", "number", "real").at("at", pw.slack(AT[kind][2]))
    with settings(spark, shuffle_partitions=partitions):
        replay.add(table.slice(0, COUNT // 2), table.slice(COUNT // 2))
        found = replay.run(plan, AGG, shards=shards)
        assert len(found) == 2
        assert sum(map(len, found)) > 0
        found += replay.finish(plan, AGG, shards=shards)
    batch = plan.segments(replay.rows, AGG).toArrow()
    assert found[0].schema.equals(batch.schema)
    assert rows(pa.concat_tables(found)) == rows(batch)
    assert (replay.counted("rows"), replay.counted("late")) == (COUNT, 0)


# ---- where progress comes from

START = datetime(2024, 1, 1, tzinfo=UTC)


class Folder:
    """A folder of Parquet files, read as a stream."""

    def __init__(self, spark: SparkSession, path: Path, schema: str) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        path.mkdir()
        self._path, self._files = path, 0
        self.df = spark.readStream.schema(schema).parquet(str(path))
        self._schema = to_arrow_schema(self.df.schema, timezone="UTC")

    def add(self, *added: tuple[Any, ...]) -> None:
        """A file of rows."""
        named = [dict(zip(self._schema.names, row, strict=True)) for row in added]
        # Spark looks past names with a dot: nobody reads the half of it
        pq.write_table(pa.Table.from_pylist(named, self._schema), hidden := self._path / ".writing")
        hidden.rename(self._path / f"{self._files}.parquet")
        self._files += 1


def run(out: DataFrame, path: Path) -> Iterator[list[str]]:
    """What comes of each micro-batch of a run over all that is there: segments in short, and late rows."""
    found: list[pa.Table] = []
    write = out.writeStream.option("checkpointLocation", str(path / "state")).trigger(availableNow=True)
    write.foreachBatch(lambda batch, _: found.append(batch.toArrow())).start().awaitTermination()
    for table in found:
        yield sorted(_short(row) for row in table.to_pylist())


def _short(row: dict[str, Any]) -> str:
    if row["late"] is not None:
        return f"{row['late']['reason']}: {', '.join(map(_seconds, row['late']['row'].values()))}"
    segment = row["segment"]
    key = f"{row['k']}: " if "k" in row else ""
    return f"{key}{segment['bounds'][0]}{_seconds(segment['start'])}, {_seconds(segment['end'])}{segment['bounds'][1]}"


def _seconds(value: Any) -> str:
    return f"{(value - START).total_seconds():g}" if isinstance(value, datetime) else str(value)


def second(number: float) -> datetime:
    return START + timedelta(seconds=number)


def test_the_watermark_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """It moves between micro-batches, and in one without rows; Spark drops no row before we have counted it."""
    reports = Folder(spark, tmp_path / "rows", "t timestamp, ok boolean, note string")
    plan = pw.threshold_frames("ok").at("t", pw.watermark())
    out = plan.segments(reports.df.withWatermark("t", "10 seconds"), late=True, shards=2)
    with settings(spark, shuffle_partitions=2):
        reports.add((second(0), True, "a"), (second(5), True, "b"), (second(20), False, "c"), (second(40), False, "d"))
        assert list(run(out, tmp_path)) == [[], ["[0, 5]"]]
        # the watermark is at 30, and passes what is there
        reports.add((second(30), True, "e"), (second(31), True, "f"), (second(12), True, "g"), (None, True, "h"))
        reports.add((second(100), False, "i"))
        assert list(run(out, tmp_path)) == [
            ["late: 12, True, g", "late: 30, True, e", "null_at: None, True, h"],
            ["[31, 31]"],
        ]


@pytest.mark.slow
def test_another_stream_promises_for_all(spark: SparkSession, tmp_path: Path) -> None:
    reports = Folder(spark, tmp_path / "rows", "k string, t bigint, ok boolean")
    promises = Folder(spark, tmp_path / "promises", "upto bigint, source string")
    plan = pw.threshold_frames("ok").by("k").at("t", pw.external(promises.df, "upto"))
    out = plan.segments(reports.df, late=True, shards=4)
    with settings(spark, shuffle_partitions=1):
        reports.add(("a", 1, True), ("b", 1, True), ("a", 3, False), ("b", 4, False))
        assert list(run(out, tmp_path)) == [[]]
        promises.add((2, "x"), (3, "y"))
        reports.add(("a", 2, True))  # in time: the promise acts at the end
        assert list(run(out, tmp_path)) == [["a: [1, 2]"]]
        promises.add((4, "x"))
        reports.add(("b", 3, True), ("b", 5, False))
        assert list(run(out, tmp_path)) == [["b: [1, 1]", "late: b, 3, True"]]


def test_another_stream_promises_for_a_key(spark: SparkSession, tmp_path: Path) -> None:
    reports = Folder(spark, tmp_path / "rows", "k string, n int, t double, ok boolean")
    promises = Folder(spark, tmp_path / "promises", "n bigint, upto int, k string")
    plan = pw.threshold_frames("ok").by("k", "n").at("t", pw.external(promises.df, "upto", per_key=True))
    out = plan.segments(reports.df, late=True, shards=16)
    with settings(spark, shuffle_partitions=2):
        rows = [(1.5, True), (3.0, False)]
        reports.add(*((k, n, t, ok) for k in ("a", None) for n in (1, 2) for t, ok in rows))
        assert list(run(out, tmp_path)) == [[]]
        promises.add((1, 3, "a"), (2, 3, None))
        assert list(run(out, tmp_path)) == [["None: [1.5, 1.5]", "a: [1.5, 1.5]"]]
        reports.add(("a", 1, 2.0, True), ("a", 2, 2.0, True))
        assert list(run(out, tmp_path)) == [["late: a, 1, 2.0, True"]]
        promises.add((1, 9, None), (2, 9, "a"))
        assert list(run(out, tmp_path)) == [["None: [1.5, 1.5]", "a: [1.5, 2.0]"]]


@pytest.mark.slow
def test_a_clock_ticks_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    """Without `clock` it is Spark's own rate source that says when a source has been silent for too long."""
    reports = Folder(spark, tmp_path / "rows", "s string, t bigint, ok boolean")
    plan = pw.threshold_frames("ok").at("t", pw.ordered_per("s", idle_after="2 seconds"))
    reports.add(("x", 10, True), ("y", 8, False))
    found: list[Any] = []
    with settings(spark, shuffle_partitions=1):
        write = plan.segments(reports.df, shards=1).writeStream.option("checkpointLocation", str(tmp_path / "state"))
        query = write.foreachBatch(lambda batch, _: found.extend(batch.collect())).start()
        try:
            for t in range(20, 140):
                if found or not query.isActive:
                    break
                reports.add(("x", t, False))
                time.sleep(1)
        finally:
            query.stop()
    assert [row.segment.asDict() for row in found] == [{"id": 0, "start": 10, "end": 10, "bounds": "[]"}]


def test_late_rows_are_as_they_came(spark: SparkSession) -> None:
    """All columns, also those that the plan does not read."""
    df = spark.readStream.format("rate").load().selectExpr("timestamp as t", "value", "array(value) as list")
    out = pw.threshold_frames("value > 1").at("t", pw.slack("1 minute")).segments(df, late=True)
    assert out.columns == ["segment", "rows", "status", "late"]
    assert out.schema["late"].dataType.simpleString() == (
        "struct<reason:string,row:struct<t:timestamp,value:bigint,list:array<bigint>>>"
    )


def test_shards_are_dealt_to_tasks_evenly(spark: SparkSession) -> None:
    keys = spark.createDataFrame([(lane, number) for number, lane in enumerate(lanes(64))], "lane bigint, number int")
    for partitions in (1, 2, 4, 8, 16, 32, 64):
        dealt = keys.repartition(partitions, "lane").rdd.glom().map(len).collect()
        assert dealt == [64 // partitions] * partitions

"""How far the rows that fill have come: by Spark's watermark, and by promises about times where segments are days."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import panewise as pw
from spark.tables import settings
from spark.test_stream import START, Folder, second

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAYS = [(date(2024, 1, 1), True), (date(2024, 1, 2), False)]
HOUR = 3600


def run(out: DataFrame, path: Path) -> list[list[Any]]:
    """What comes of each micro-batch: how many rows a segment has, or why a row is late and when it is."""
    found: list[pa.Table] = []
    write = out.writeStream.option("checkpointLocation", str(path / "state")).trigger(availableNow=True)
    write.foreachBatch(lambda batch, _: found.append(batch.toArrow())).start().awaitTermination()
    return [sorted(map(_short, table.to_pylist()), key=str) for table in found]


def _short(row: dict[str, Any]) -> Any:
    late = row["late"]
    return row["n"] if late is None else (late["reason"], (late["filling"]["t"] - START) // timedelta(seconds=1))


@pytest.mark.slow
def test_the_watermark_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that do not count move it too."""
    framing = spark.createDataFrame(
        [(second(0), True), (second(5), True), (second(20), False)], "t timestamp, ok boolean"
    )
    readings = Folder(spark, tmp_path / "rows", "t timestamp, x int")
    live: dict[str, Any] = {"where": "x > 0", "punctuation": pw.watermark(), "late": True, "shards": 1}
    fill = pw.threshold_frames("ok").at("t").fill(framing, readings.df.withWatermark("t", "10 seconds"), **live)
    out = fill.agg(n="count(*)", tenth="sum(10 / x)")
    with settings(spark, shuffle_partitions=1):
        readings.add((second(1), 1), (second(2), 0), (second(14), 0))
        # the watermark is at 4
        assert run(out, tmp_path) == [[], []]
        readings.add((second(5), 1), (second(3), 1), (second(3), 0), (second(40), 0))
        assert run(out, tmp_path) == [[("late", 3)], [2]]


@pytest.mark.slow
def test_the_watermark_of_spark_on_days(spark: SparkSession, tmp_path: Path) -> None:
    """Days are those of the session's zone."""
    framing = spark.createDataFrame(DAYS, "d date, ok boolean")
    readings = Folder(spark, tmp_path / "rows", "t timestamp")
    live: dict[str, Any] = {"at": "t", "punctuation": pw.watermark(), "late": True, "shards": 1}
    with settings(spark, shuffle_partitions=1, session_timeZone="Asia/Tokyo"):
        fill = pw.threshold_frames("ok").at("d").fill(framing, readings.df.withWatermark("t", "10 seconds"), **live)
        out = fill.agg(n="count(*)")
        readings.add((second(HOUR),), (second(5 * HOUR),))
        assert run(out, tmp_path) == [[], []]
        # in Tokyo the day is over at 15:00 by UTC
        readings.add((second(2 * HOUR),), (second(15 * HOUR + 9.999),))
        assert run(out, tmp_path) == [[], []]
        readings.add((second(3 * HOUR),), (second(15 * HOUR + 10),))
        assert run(out, tmp_path) == [[], [4]]
        readings.add((second(4 * HOUR),))
        assert run(out, tmp_path)[0] == [("late", 4 * HOUR)]


def test_a_zone_that_only_spark_knows(spark: SparkSession, tmp_path: Path) -> None:
    framing = spark.createDataFrame(DAYS, "d date, ok boolean")
    readings = Folder(spark, tmp_path / "rows", "t timestamp").df.withWatermark("t", "10 seconds")
    fill = pw.threshold_frames("ok").at("d").fill(framing, readings, at="t", punctuation=pw.watermark())
    with settings(spark, session_timeZone="GMT+8"), pytest.raises(pw.InputError) as raised:
        fill.agg(n="count(*)")
    assert str(raised.value).startswith("`spark.sql.session.timeZone` (GMT+8) is a zone that only Spark knows")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["control", "external"])
def test_promises_about_times_on_days(spark: SparkSession, tmp_path: Path, way: str) -> None:
    framing = spark.createDataFrame(DAYS, "d date, ok boolean")
    readings = Folder(spark, tmp_path / "rows", "t timestamp")
    promises = Folder(spark, tmp_path / "promises", "upto timestamp")
    control = pw.Control(spark, str(tmp_path / "control"))
    given = pw.external(promises.df, "upto") if way == "external" else pw.in_band("false")
    live: dict[str, Any] = {"at": "t", "punctuation": given, "late": True, "shards": 1, "control": control.folder}
    out = pw.threshold_frames("ok").at("d").fill(framing, readings.df, **live).agg(n="count(*)")

    def promise(seconds: float) -> None:
        promises.add((second(seconds),)) if way == "external" else control.punctuate(second(seconds))

    with settings(spark, shuffle_partitions=1):
        readings.add((second(9 * HOUR),))
        promise(10 * HOUR)
        assert run(out, tmp_path) == [[]]
        readings.add((second(11 * HOUR),))
        promise(24 * HOUR - 0.000002)
        assert run(out, tmp_path) == [[]]
        readings.add((second(12 * HOUR),))
        promise(24 * HOUR - 0.000001)
        assert run(out, tmp_path) == [[3]]
        readings.add((second(13 * HOUR),))
        assert run(out, tmp_path) == [[("late", 13 * HOUR)]]


def test_of_segments_found_before_a_stream_tells_only_how_they_are_filled(spark: SparkSession, tmp_path: Path) -> None:
    framing = spark.createDataFrame([(second(0), True), (second(5), False)], "t timestamp, ok boolean")
    readings = Folder(spark, tmp_path / "rows", "t timestamp")
    live: dict[str, Any] = {"punctuation": pw.slack("1 second"), "shards": 2}
    out = pw.threshold_frames("ok").at("t").fill(framing, readings.df, **live).agg(n="count(*)")
    readings.add((second(0),), (second(9),))
    with settings(spark, shuffle_partitions=1):
        write = out.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "state"))
        query = write.trigger(availableNow=True).start()
        query.awaitTermination()
    told = pw.progress(query)
    assert (told.batch, told.rows, told.closed) == (0, 0, 0)
    assert told.filling is not None
    assert (told.filling.rows, told.filling.filled, told.filling.until) == (2, 1, second(7.999999))

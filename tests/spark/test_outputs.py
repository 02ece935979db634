"""Late rows and segments, told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import panewise as pw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOUND = "k string, segment struct<id bigint>, late struct<reason string, row struct<{}>>"


def test_segments_and_late_rows_go_their_ways(spark: SparkSession) -> None:
    schema = FOUND.format("k string, `t.t` int")
    made = [("a", (0,), None), (None, None, ("late", ("a", 3))), (None, None, ("null_at", ("b", None)))]
    segments, late = pw.outputs(spark.createDataFrame(made, schema))
    assert [(row.k, row.segment.id) for row in segments.collect()] == [("a", 0)]
    assert segments.columns == ["k", "segment"]
    assert late.columns == ["reason", "k", "t.t"]
    assert [tuple(row) for row in late.orderBy("k").collect()] == [("late", "a", 3), ("null_at", "b", None)]


def test_a_row_may_have_a_reason_of_its_own(spark: SparkSession) -> None:
    late = pw.outputs(spark.createDataFrame([], FOUND.format("Reason string, t int"))).late
    assert late.columns == ["late_reason", "Reason", "t"]


def test_late_rows_of_a_fill_say_whose_they_are(spark: SparkSession) -> None:
    schema = "n bigint, late struct<reason string, row struct<t int>, bgp struct<ts int, kind string>>"
    made = [(3, None), (None, ("late", (1,), None)), (None, ("after_idle", None, (2, "withdraw")))]
    segments, late = pw.outputs(spark.createDataFrame(made, schema))
    assert [row.n for row in segments.collect()] == [3]
    assert late.columns == ["reason", "row", "bgp"]
    assert [tuple(row) for row in late.orderBy("reason").collect()] == [
        ("after_idle", None, (2, "withdraw")),
        ("late", (1,), None),
    ]


@pytest.mark.parametrize("schema", ["k string", "late boolean", "late struct<reason string>"])
def test_results_without_late_rows(spark: SparkSession, schema: str) -> None:
    with pytest.raises(pw.InputError) as error:
        pw.outputs(spark.createDataFrame([], schema))
    assert str(error.value) == ("`df` has no late rows to split off. Ask for them: segments(..., late=True).")


def test_a_stream_is_split_micro_batch_by_micro_batch(spark: SparkSession) -> None:
    with pytest.raises(pw.InputError, match=r"^`df` is a stream, .* Use writeStream.foreachBatch"):
        pw.outputs(spark.readStream.format("rate").load())


def test_a_column_called_late_is_in_the_way(spark: SparkSession) -> None:
    plan = pw.session_frames(5).by("Late").at("value", pw.slack(0))
    rate = spark.readStream.format("rate").load().selectExpr("value", "value % 3 as Late")
    with pytest.raises(pw.SpecError, match=r"^`late` \(True\) adds a column 'late'"):
        plan.segments(rate, late=True)
    assert plan.segments(rate).columns == ["Late", "segment", "rows", "status"]


def test_a_watermark_that_is_not_there(spark: SparkSession) -> None:
    plan = pw.session_frames("5 seconds").at("timestamp", pw.watermark())
    rate = spark.readStream.format("rate").load()
    with pytest.raises(pw.InputError) as error:
        plan.segments(rate)
    assert str(error.value) == (
        "`at` ('timestamp') has no watermark, and watermark() promises what Spark's does. "
        "Add .withWatermark('timestamp', \"10 seconds\") to the DataFrame, or use another punctuation."
    )
    assert plan.segments(rate.withWatermark("timestamp", "1 second")).isStreaming

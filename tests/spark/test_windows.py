"""Windows on Spark: the same as Spark's own, where Spark has them, however rows lie in partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import panewise as pw
from panewise.errors import InputError, SpecError
from spark.tables import rows as table_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AGG = {"n": "count(*)", "total": "sum(v)", "top": "max(v)", "mean": "avg(x)"}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """Three thousand rows of seven keys, over some hours, in no order."""
    numbers = spark.range(0, 3000, 1, 3)
    return numbers.select(
        (F.col("id") % 7).cast("int").alias("k"),
        F.timestamp_micros(F.pmod(F.xxhash64("id"), F.lit(20_000_000_000)) - 5_000_000_000).alias("ts"),
        (F.col("id") % 100).alias("v"),
        (F.pmod(F.xxhash64("id", F.lit(1)), F.lit(64)) / 8).alias("x"),
    ).cache()


def ours(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, df.select("k", "segment.start", "segment.end", *AGG).collect()))


@pytest.mark.parametrize(
    ("size", "slide", "start"),
    [
        pytest.param("10 minutes", "10 minutes", "0 seconds", marks=pytest.mark.slow),
        ("1 hour", "10 minutes", "0 seconds"),
        # ends lie on the grid: (0 - range) mod slide
        ("25 minutes", "10 minutes", "5 minutes"),
        pytest.param("7 minutes", "3 minutes", "2 minutes", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_windows_are_those_of_spark(rows: DataFrame, size: str, slide: str, start: str, partitions: int) -> None:
    plan = pw.tumbling_windows(size) if size == slide else pw.sliding_windows(size, slide)
    calls = [F.expr(text).alias(name) for name, text in AGG.items()]
    theirs = rows.groupBy("k", F.window("ts", size, slide, start).alias("w")).agg(*calls)
    wanted = sorted(map(tuple, theirs.select("k", "w.start", "w.end", *AGG).collect()))
    found = plan.by("k").at("ts").agg(rows.repartition(partitions), AGG)
    assert ours(found) == wanted
    assert len(wanted) > 100


def test_results_are_named_and_numbered(rows: DataFrame) -> None:
    found = pw.tumbling_windows("1 hour").at("ts").agg(rows, n="count(*)")
    assert found.columns == ["segment", "rows", "status", "n"]
    told = sorted(found.select("segment.id", "segment.bounds", "rows", "n").collect())
    assert [row.id for row in told] == list(range(-2, 5))
    assert {row.bounds for row in told} == {"[)"}
    assert sum(row.rows for row in told) == 3000
    assert all(row.rows == row.n for row in told)


def test_landmark_windows_of_every_key_go_on_to_the_latest_row(rows: DataFrame) -> None:
    some = rows.filter("k < 2 or (k = 3 and ts < timestamp'1970-01-01 02:00:00')").filter("ts >= timestamp'1970-01-01'")
    found = pw.landmark_windows("30 minutes").by("k").at("ts").agg(some, total="sum(v)").collect()
    last = max(row.segment.id for row in found)
    for key in (0, 1, 3):
        mine = sorted((row.segment.id, row.rows, row.total) for row in found if row.k == key)
        assert [w for w, _, _ in mine] == list(range(mine[0][0], last + 1))
        whole = some.filter(f"k = {key}").agg(F.count("*"), F.sum("v")).first()
        assert mine[-1][1:] == tuple(whole)
        assert [rows for _, rows, _ in mine] == sorted(rows for _, rows, _ in mine)


def test_what_windows_do_not_have_is_refused(rows: DataFrame) -> None:
    with pytest.raises(SpecError, match=r"`tie_break` .* is about rows with one `at`"):
        pw.tumbling_windows("1 hour").at("ts", tie_break="v").segments(rows)
    with pytest.raises(SpecError, match="a window is sent once"):
        pw.tumbling_windows("1 hour").at("ts").segments(rows, emit="fragments")
    with pytest.raises(SpecError, match="rows of all keys are numbered together"):
        pw.row_windows(5).by("k").at("ts", pw.ordered_per("k")).segments(rows)
    with pytest.raises(SpecError, match="is bounded by numbers of rows"):
        pw.row_windows(5).by("k").at("ts").fill(rows, rows.select("*"))
    with pytest.raises(InputError, match="`range` \\(60\\) is a number, but `at` is a timestamp"):
        pw.tumbling_windows(60).at("ts").segments(rows)


@pytest.mark.parametrize(
    "plan",
    [
        pw.row_windows(50, 20).by("k"),
        pw.row_windows(7, partitioned=True).by("k"),
        pytest.param(pw.slide_by_tuple_windows("90 seconds").by("k"), marks=pytest.mark.slow),
        pw.slide_by_tuple_windows("10 minutes", every=5).by("k"),
        pw.slide_by_tuple_windows("10 minutes", every=50, numbered="v"),
    ],
)
@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_other_windows_are_those_of_a_table_in_memory(rows: DataFrame, plan: pw.Plan, partitions: int) -> None:
    calls = {**AGG, "first": "first(v)", "last": "last(x)", "spread": "stddev(x)"}
    found = plan.at("ts").agg(rows.repartition(partitions), calls).toArrow()
    wanted = pw.segments_local(plan.at("ts"), rows.toArrow(), calls)
    assert table_rows(found) == table_rows(wanted)
    assert len(wanted) > 20

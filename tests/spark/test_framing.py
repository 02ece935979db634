"""Frames where rows lie: whatever the files, their order, or how many tasks there are, what one process finds."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import panewise as pw
from conformance.executors import batch
from conformance.test_transcripts import STORIES
from conformance.transcripts import Story, differences
from panewise.spark import framing
from panewise.spark.batch import path_of
from panewise.spark.framescan import frame_scan_of
from panewise.spark.source import apply
from spark.tables import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 6_000
AGG = {"n": "count(*)", "total": "sum(w)", "mean": "avg(v)", "first": "first(v)", "last": "last(w)"}
PLANS = {
    "threshold": pw.threshold_frames("v > 0.5", min_rows=3),
    "gaps": pw.threshold_frames("v > 0.5", gaps=True),
    "longest": pw.threshold_frames("v > 0.2", longest=True),
    "hysteresis": pw.threshold_frames(open="v > 1", close="v < 0"),
    "boundary": pw.boundary_frames({"v": 0.7}),
    "session": pw.session_frames("40 seconds"),
    "delta": pw.delta_frames({"v": 1.5}, against="first"),
    "range": pw.delta_frames({"v": 1.5}),
    "sum": pw.aggregate_frames("sum(w)", reaches=25),
    "saturated": pw.delta_frames({"v": 1.5}, overlap="saturated"),
}


@pytest.fixture(autouse=True)
def _however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "SMALL", -1)


def readings(keys: int) -> pa.Table:
    """Rows in order of time, as several sensors report; some values are null."""
    generator = np.random.default_rng(3)
    walk = np.cumsum(generator.normal(0, 0.4, ROWS)) % 3 - 1
    seconds = np.arange(ROWS) // max(keys, 1) * 20 + generator.integers(0, 5, ROWS)
    at = pa.array(seconds.astype(np.int64) * 1_000_000 + 1_704_067_200_000_000).cast(pa.timestamp("us", "UTC"))
    table = pa.table(
        {
            "k": pa.array(np.arange(ROWS) % max(keys, 1)).cast(pa.string()),
            "t": at,
            "v": pa.array(walk, mask=generator.random(ROWS) < 0.05),
            "w": pa.array(generator.integers(0, 12, ROWS)),
        }
    )
    return table.sort_by([("t", "ascending")])


def laid(table: pa.Table, how: str) -> list[pa.Table]:
    """The same rows in several files."""
    places = np.arange(len(table))
    edges = np.linspace(0, len(table), 6).astype(int)
    if how == "shuffled":
        table = table.take(pa.array(np.random.default_rng(1).permutation(places)))
    if how == "by key":
        table = table.sort_by([("k", "ascending"), ("t", "ascending")])
    if how == "interleaved":
        return [table.take(pa.array(places[i::5])) for i in range(5)]
    files = [table.slice(a, b - a) for a, b in itertools.pairwise(edges)]
    # names that say nothing of the order
    return [files[i] for i in (3, 1, 4, 0, 2)] if how == "names" else files


def written(spark: SparkSession, folder: Path, tables: list[pa.Table]) -> DataFrame:
    for i, table in enumerate(tables):
        pq.write_table(table, folder / f"part-{i}.parquet", row_group_size=300)
    return spark.read.parquet(str(folder))


def same(spark: SparkSession, df: DataFrame, plan: Any, table: pa.Table) -> None:
    found, expected = plan.segments(df, AGG).toArrow(), pw.segments_local(plan, table, AGG)
    assert rows(found) == rows(expected.cast(found.schema))
    assert len(found) > 0


@pytest.mark.parametrize("scheme", PLANS)
@pytest.mark.parametrize("how", ["in order", "names", "by key", "interleaved", "shuffled"])
def test_files(spark: SparkSession, tmp_path: Path, scheme: str, how: str) -> None:
    table = readings(7)
    df, plan = written(spark, tmp_path, laid(table, how)), PLANS[scheme].by("k").at("t")
    assert not isinstance(frame_scan_of(df, apply(plan, plan.asked(AGG), df).layout), str)
    same(spark, df, plan, table)


@pytest.mark.parametrize("scheme", ["threshold", "delta", "sum"])
def test_any_rows(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    """What is more than files is read by Spark, and framed where it lies too."""
    table = readings(7)
    df, plan = written(spark, tmp_path, laid(table, "in order")), PLANS[scheme].by("k").at("t")
    chosen = df.filter("w >= 1").withColumn("more", df.w + 1)
    assert frame_scan_of(chosen, apply(plan, plan.asked(AGG), chosen).layout) == (
        "it is more than a scan of Parquet files"
    )
    kept = table.filter(pc.greater_equal(table["w"], 1))
    same(spark, chosen, plan, kept)
    same(spark, chosen.repartition(5), plan, kept)
    same(spark, chosen.unionByName(chosen.limit(0)), plan, kept)


@pytest.mark.parametrize("scheme", ["threshold", "delta", "sum", "longest"])
def test_one_key_and_none(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    table = readings(1)
    df = written(spark, tmp_path, laid(table, "in order"))
    same(spark, df, PLANS[scheme].by("k").at("t"), table)
    same(spark, df, PLANS[scheme].at("t"), table)


def test_two_keys_and_nulls(spark: SparkSession, tmp_path: Path) -> None:
    table = readings(7)
    generator = np.random.default_rng(9)
    kind = pa.array(generator.integers(0, 3, ROWS), mask=generator.random(ROWS) < 0.2)
    unknown = pa.array(generator.random(ROWS) < 0.1)
    table = table.append_column("kind", kind)
    table = table.set_column(1, "t", pc.if_else(unknown, pa.scalar(None, table["t"].type), table["t"]))
    df = written(spark, tmp_path, laid(table, "in order"))
    for scheme in ("threshold", "delta"):
        same(spark, df, PLANS[scheme].by("k", "kind").at("t"), table)


@pytest.mark.slow
@pytest.mark.parametrize("story", [story for story in STORIES if story.error is None], ids=lambda story: story.name)
def test_stories(spark: SparkSession, story: Story) -> None:
    """Every story of a batch: in `tests/conformance` they have too few rows for this."""
    version = story.at_once()
    if version is None or version.segments is None or story.broken_on.get("batch"):
        pytest.skip("it is no story of a batch")
    (told,) = batch(version, spark).steps
    found = differences(version.expected(version.segments), told)
    assert bool(found) == story.must_fail, "\n".join([story.tells, *found])


def test_few_rows_are_shuffled(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    df, plan = written(spark, tmp_path, laid(readings(7), "in order")), PLANS["threshold"].by("k").at("t")
    assert "scan lane" in path_of(plan, df)
    monkeypatch.undo()
    assert "which is few" in path_of(plan, df)

"""Frames where rows lie: whatever the files, their order, or how many tasks there are, what one process finds."""

from __future__ import annotations

import itertools
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import panewise as pw
from conformance.executors import batch
from conformance.test_transcripts import STORIES
from conformance.transcripts import Story, differences
from panewise.local.runner import apply_local
from panewise.spark import framescan, frametask, framing
from panewise.spark.batch import path_of
from panewise.spark.framescan import frame_scan_of, scan_of_files
from panewise.spark.frametask import FrameTask
from panewise.spark.parquet import Parquet
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
    # what follows has few rows of any key
    monkeypatch.setattr(framescan, "_SOME", framescan._FEW)


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


def plan_text(df: DataFrame) -> str:
    return str(df._jdf.queryExecution().executedPlan())  # the plan as text; the public way only prints it


@pytest.mark.parametrize("scheme", ["threshold", "boundary", "longest", "delta", "gaps"])
@pytest.mark.parametrize("how", ["touching", "jumbled"])
def test_files_in_order(spark: SparkSession, tmp_path: Path, scheme: str, how: str) -> None:
    """Row groups that meet at an instant, at which a key has rows on both sides; and rows in no order within each."""
    table = readings(7)
    seconds = pc.cast(pc.divide(pc.cast(table["t"], pa.int64()), 60_000_000), pa.int64())
    table = table.set_column(1, "t", pc.multiply(seconds, 60_000_000).cast(pa.timestamp("us", "UTC")))
    if how == "jumbled":
        generator = np.random.default_rng(5)
        order = np.concatenate([a + generator.permutation(300) for a in range(0, ROWS, 300)])
        table = table.take(pa.array(order))
    df, plan = written(spark, tmp_path, laid(table, "names")), PLANS[scheme].by("k").at("t", tie_break=["w", "v"])
    same(spark, df, plan, table)
    text, told = plan_text(plan.segments(df)), path_of(plan, df)
    if scheme in ("threshold", "boundary", "longest"):
        assert "they are in order, and no row is shuffled or sorted" in told
        assert text.count("Exchange") == 1
    else:
        assert "are read again" in told
        assert "BroadcastExchange" in text


@pytest.mark.parametrize("scheme", PLANS)
@pytest.mark.parametrize("how", ["names", "jumbled"])
def test_rows_of_sparse_keys_are_dealt(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, how: str
) -> None:
    """However many pages and shards there are; rows of an instant may come in several pages."""
    monkeypatch.setattr(frametask, "_DEALT", 250)
    monkeypatch.setattr(framing, "_DEALT_ROWS", 1_000)
    table = readings(500)
    if how == "jumbled":
        generator = np.random.default_rng(5)
        order = np.concatenate([a + generator.permutation(300) for a in range(0, ROWS, 300)])
        table = table.take(pa.array(order))
    df, plan = written(spark, tmp_path, laid(table, "names")), PLANS[scheme].by("k").at("t", tie_break=["w", "v"])
    same(spark, df, plan, table)
    text, told = plan_text(plan.segments(df)), path_of(plan, df)
    assert "keys have few rows each, and rows are shuffled, not sorted" in told
    assert text.count("Exchange") == 1
    assert "BroadcastExchange" not in text


@pytest.mark.parametrize(
    ("keys", "tasks", "sparse"),
    [
        (np.arange(100_000) % 100, 2, False),
        # one key has half of the rows
        (np.arange(100_000) % 2 * np.arange(100_000), 2, False),
        (np.arange(100_000) % 400, 2, False),
        (np.arange(100_000) % 1_000, 2, True),
        (np.arange(100_000) % 400, 8, True),
        (np.random.default_rng(0).integers(0, 400, 100_000), 2, False),
        (np.random.default_rng(0).integers(0, 1_200, 100_000), 2, True),
        (np.arange(100_000) // 500, 2, False),
        (np.arange(100_000), 2, True),
        # at the beginning, or at the end, there is only one key
        (np.maximum(np.arange(100_000), 30_000), 2, False),
        (np.minimum(np.arange(100_000), 80_000), 2, False),
        (np.zeros(100_000, np.int64), 2, False),
    ],
)
def test_sparse_keys_are_known(
    spark: SparkSession, tmp_path: Path, keys: np.ndarray[Any, Any], tasks: int, sparse: bool
) -> None:
    """As statistics say, or a stretch of rows; for keys of one and of two columns, of numbers and of text."""
    table = pa.table({"a": keys, "b": pa.array(keys % 3), "t": np.arange(len(keys)), "v": keys})
    text = table.set_column(0, "a", pc.cast(table["a"], pa.string()))
    for i, (stored, by) in enumerate([(table, ["a"]), (text, ["a"]), (text, ["b", "a"])]):
        folder = tmp_path / str(i)
        folder.mkdir()
        # keys in turn differ as long as a group of rows is small
        pq.write_table(stored, folder / "a.parquet", row_group_size=(20_000, 300, 5_000)[i])
        df, plan = spark.read.parquet(str(folder)), pw.threshold_frames("v > 0").by(*by).at("t")
        scan = frame_scan_of(df, apply(plan, plan.asked(None), df).layout)
        assert not isinstance(scan, str)
        assert scan.has_sparse_keys(tasks) == sparse
    plan = pw.threshold_frames("v > 0").at("t")
    scan = frame_scan_of(df, apply(plan, plan.asked(None), df).layout)
    assert not isinstance(scan, str)
    assert not scan.has_sparse_keys(tasks)


def test_what_statistics_say_must_hold(spark: SparkSession, tmp_path: Path) -> None:
    """Files that have changed between a plan and its run are not taken for what they were."""
    table = readings(7)
    df, plan = written(spark, tmp_path, laid(table, "in order")), PLANS["threshold"].by("k").at("t")
    found = plan.segments(df)
    later = table.set_column(1, "t", pc.add(table["t"], pa.scalar(timedelta(days=1))))
    written(spark, tmp_path, laid(later, "in order"))
    with pytest.raises(Exception, match="changed while it was to be read"):
        found.collect()


def test_parts_that_overlap_in_spite_of_all() -> None:
    """They are never joined to something wrong."""
    plan = PLANS["threshold"].by("k").at("t")
    seen = apply_local(plan, plan.asked(None), readings(7))
    for certain in (True, False):
        task = FrameTask(seen.layout, 1, certain)
        batches = [batch for _ in range(2) for batch in task.made([(0, seen.rows, False)])]
        if certain:
            with pytest.raises(RuntimeError, match="Rows are not as the statistics of their row groups say"):
                list(task.join(batches))
        else:
            assert not sum(len(batch) for batch in task.join(batches))


@pytest.mark.parametrize("at", [pa.int64(), pa.date32(), pa.float32(), pa.timestamp("us", "UTC")], ids=str)
def test_a_task_holds_few_keys_and_rows_at_a_time(monkeypatch: pytest.MonkeyPatch, at: pa.DataType) -> None:
    """Where rows are known to be in order, many keys with few rows each are no reason to give up; nor is any `at`."""
    monkeypatch.setattr(frametask, "_HELD", 16)
    monkeypatch.setattr(frametask, "_ROWS", 32)
    count = 600
    times = pa.array(np.arange(count) // 7, pa.int32()).cast(pa.int64() if pa.types.is_timestamp(at) else at)
    table = pa.table({"k": np.arange(count) % 97, "t": times.cast(at), "v": np.arange(count) // 97 % 3})
    plan = pw.threshold_frames("v > 0").by("k").at("t")
    seen = apply_local(plan, plan.asked(None), table)
    task = FrameTask(seen.layout, 3, certain=True)
    pieces = [(0, seen.rows.slice(first, 50), False) for first in range(0, count, 50)]
    made = sorted(task.made(pieces, earliest=True), key=lambda batch: batch.column(0)[0].as_py())
    assert len(made) > 3
    found = [(row["k0"], row["id"], row["rows"]) for batch in task.join(made) for row in batch.to_pylist()]
    expected = pw.segments_local(plan, table).to_pylist()
    assert sorted(found) == sorted((row["k"], row["segment"]["id"], row["rows"]) for row in expected)
    monkeypatch.setattr(frametask, "_ROWS", 8)
    uncertain = FrameTask(seen.layout, 3)
    assert [joined.num_rows for joined in uncertain.join(uncertain.made(pieces))] == []


@given(data=st.data())
def test_work_is_dealt_once(data: st.DataObject) -> None:
    """Whatever the row groups: each row has one task, and all rows of an instant have the same."""
    steps = data.draw(st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=12))
    cores, now, groups = data.draw(st.integers(1, 4)), 0, list[list[int]]()
    for group in steps:
        ats = list(itertools.accumulate(group, initial=now))[1:]
        now = ats[-1] if ats else now
        groups.append(data.draw(st.permutations(ats)))
    shuffled = data.draw(st.booleans())
    places = data.draw(st.permutations(range(len(groups)))) if shuffled else range(len(groups))
    with tempfile.TemporaryDirectory() as folder:
        schema, paths = pa.schema([("t", pa.int64()), ("v", pa.int64())]), []
        for i, some in enumerate([list(places)[j : j + 3] for j in range(0, len(places), 3)]):
            path = f"{folder}/{i}.parquet"
            with pq.ParquetWriter(path, schema) as writer:
                for place in some:
                    writer.write_table(pa.table({"t": groups[place], "v": [place] * len(groups[place])}, schema))
            paths.append((path, Path(path).stat().st_size))
        plan = pw.threshold_frames("v > 0").at("t")
        seen = apply_local(plan, plan.asked(None), schema.empty_table())
        scan = scan_of_files(Parquet(tuple(paths), schema), seen.layout, seen.rows.schema)
        with mock.patch.object(framescan, "_PIECE", data.draw(st.integers(1, 4))):
            read = [[(t.column("at").to_pylist(), over) for _, t, over in scan.tables(w)] for w in scan.work(cores)]
    tasks = [[row for ats, _ in some for row in ats] for some in read]
    for some in read:
        present = [(ats, over) for ats, over in some if ats]
        assert not any(over and ats[-1] == next_ats[0] for (ats, over), (next_ats, _) in itertools.pairwise(present))
        assert not scan.ordered or not present or present[-1][1]
    assert sorted(itertools.chain(*tasks)) == sorted(itertools.chain(*groups))
    if scan.ordered:
        assert list(itertools.chain(*tasks)) == sorted(itertools.chain(*groups))
        assert all(a[-1] < b[0] for a, b in itertools.pairwise([task for task in tasks if task]))


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


@pytest.mark.parametrize("scheme", ["threshold", "boundary", "delta", "range", "sum", "gaps"])
@pytest.mark.parametrize("how", ["in order", "interleaved"])
def test_few_keys_are_joined_by_several_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, how: str
) -> None:
    """Each has some of what is found; ids go on from one to the next."""
    monkeypatch.setattr(framing, "_ROWS", 1_000)
    for keys in (1, 3):
        table = readings(keys)
        table = table.set_column(0, "k", pc.cast(table["k"], pa.int64()))
        folder = tmp_path / str(keys)
        folder.mkdir()
        df, plan = written(spark, folder, laid(table, how)), PLANS[scheme].by("k").at("t")
        scan = frame_scan_of(df, apply(plan, plan.asked(AGG), df).layout)
        assert not isinstance(scan, str)
        assert scan.few_keys
        assert framing._shards(sum(group.rows for group in scan.groups) / framing._ROWS, 2, True) > 4
        same(spark, df, plan, table)
        same(spark, df.filter("w >= 0"), PLANS[scheme].at("t"), table)


@pytest.mark.parametrize("scheme", PLANS)
@pytest.mark.parametrize("shards", [1, 5])
def test_tasks_send_what_they_have_many_times(monkeypatch: pytest.MonkeyPatch, scheme: str, shards: int) -> None:
    """What is found is dealt evenly to those who join; each key's ids are those of one pass."""
    monkeypatch.setattr(frametask, "_FOUND", 30)
    monkeypatch.setattr(frametask, "_OF_EACH", 2)
    monkeypatch.setattr(frametask, "_ROWS", 200)
    table, plan = readings(3), PLANS[scheme].by("k").at("t")
    seen = apply_local(plan, plan.asked(AGG), table)
    few = scheme != "longest"
    sent: list[list[pa.RecordBatch]] = [[] for _ in range(shards)]
    for number in range(4):
        monkeypatch.setattr(frametask, "_task", lambda number=number: number)
        rows_of = seen.rows.slice(number * ROWS // 4, ROWS // 4)
        for batch_of in FrameTask(seen.layout, shards, few=few, tasks=4).made(
            [(0, rows_of, False)], earliest=number == 0
        ):
            sent[batch_of.column(0)[0].as_py()].append(batch_of)
    with_found = [sum(batch_of.column(2)[0].is_valid for batch_of in some) for some in sent]
    assert not few or max(with_found) - min(with_found) <= 1 or sum(with_found) < shards
    found = [
        row
        for some in sent
        for batch_of in FrameTask(seen.layout, shards, few=few).join(some)
        for row in batch_of.to_pylist()
    ]
    expected = pw.segments_local(plan, table, AGG).to_pylist()
    assert sorted((row["k0"], row["id"], row["rows"]) for row in found) == sorted(
        (row["k"], row["segment"]["id"], row["rows"]) for row in expected
    )


def test_files_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    table, plan = readings(2).slice(0, 0), PLANS["threshold"].by("k").at("t")
    df = written(spark, tmp_path, [table])
    assert "scan lane" in path_of(plan, df)
    assert plan.segments(df, AGG).count() == 0


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

"""The scan lane: where workers read Parquet themselves, they find what Spark finds; where they can't, Spark reads."""

from __future__ import annotations

from contextlib import redirect_stdout
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import panewise as pw
from panewise.spark.fill import _groups
from panewise.spark.parquet import Parquet, span
from spark.tables import rows, settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2024, 3, 10, 12, tzinfo=UTC)
OTHERS = (pa.int64(), pa.timestamp("us", "UTC"))
PLAN = pw.threshold_frames("hot").by("k", "name").at("t")
AGG = {
    "n": "count(*)",
    "x": "count(x)",
    "total": "sum(i)",
    "mean": "avg(x)",
    "least": "min(x)",
    "spread": "stddev(x * 2)",
    "money": "sum(d + 1)",
    "day": "max(g)",
    "local": "min(u)",
    "first": "first(i % 7)",
    "hour": "max(hour(t))",
}


def filling_rows() -> pa.Table:
    n = 400
    odd = [float("nan"), -0.0, 0.0, None, float("inf"), -1.5]
    t = [NOON + timedelta(seconds=i * 37 % 5_000) for i in range(n)]
    return pa.table(
        {
            "k": pa.array([[1, 2, None][i % 3] for i in range(n)], pa.int16()),
            "name": [["a", "b", None, ""][i % 4] for i in range(n)],
            "t": pa.array([None if i % 50 == 0 else v for i, v in enumerate(t)], pa.timestamp("us", "UTC")),
            "i": pa.array([None if i % 11 == 0 else i * i for i in range(n)], pa.int64()),
            "x": pa.array([odd[i % 17] if i % 17 < 6 else i / 3 for i in range(n)], pa.float64()),
            "d": pa.array([Decimal(i) / 100 for i in range(n)], pa.decimal128(10, 2)),
            "g": pa.array([date(2024, 1, 1) + timedelta(days=i) for i in range(n)], pa.date32()),
            "u": pa.array([v.replace(tzinfo=None) for v in t], pa.timestamp("us")),
        }
    )


def framing_rows() -> pa.Table:
    n = 120
    return pa.table(
        {
            "k": pa.array([[1, 2, None][i % 3] for i in range(n)], pa.int32()),
            "name": [["a", "b", None, ""][i // 3 % 4] for i in range(n)],
            "t": pa.array([NOON + timedelta(seconds=60 * (i // 12)) for i in range(n)], pa.timestamp("us", "UTC")),
            "hot": [i // 12 % 4 != 3 for i in range(n)],
        }
    )


@pytest.fixture(scope="module")
def files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    folder = tmp_path_factory.mktemp("a folder with blanks") / "rows"
    folder.mkdir()
    table = filling_rows()
    for i in range(3):
        pq.write_table(table.slice(i * 150, 150), folder / f"{i}.parquet", row_group_size=40)
    return spark.read.parquet(str(folder))


@pytest.fixture(scope="module")
def framing(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(framing_rows()).cache()


def explained(fill: Any, agg: dict[str, str]) -> str:
    said = StringIO()
    with redirect_stdout(said):
        fill.explain(agg)
    return said.getvalue()


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_same_is_found_as_by_spark(spark: SparkSession, framing: DataFrame, files: DataFrame, zone: str) -> None:
    agg = {name: call for name, call in AGG.items() if name != "hour"} | {"latest": "max(t)"}
    wheres = {
        "UTC": "(x > 2 or x is null) and name <> 'b'",
        "America/New_York": "t > timestamp'2024-03-10 08:02:00'",
    }
    with settings(spark, session_timeZone=zone):
        how = {"widen": ("5 seconds", "1 minute"), "where": wheres[zone], "keep_empty": True}
        fill = PLAN.fill(framing, files, **how)
        assert "scan lane: 3 Parquet files" in explained(fill, agg)
        found = fill.agg(agg)
        other = PLAN.fill(framing, files.filter("true"), **how)
        assert "Spark reads them: it is more than a scan of Parquet files" in explained(other, agg)
        assert rows(found.toArrow()) == rows(other.agg(agg).toArrow())
        assert found.agg({"n": "sum"}).first()[0] > 10
        plan = StringIO()
        with redirect_stdout(plan):
            found.explain()
        assert "Join" not in plan.getvalue()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda df: df.select("*"), "more than a scan"),
        (lambda df: df.repartition(2), "more than a scan"),
        (lambda df: df.sparkSession.createDataFrame(filling_rows()), "more than a scan"),
    ],
)
def test_what_is_more_than_a_scan(framing: DataFrame, files: DataFrame, change: Any, why: str) -> None:
    assert why in explained(PLAN.fill(framing, change(files)), AGG)


def test_folders_that_name_values(spark: SparkSession, framing: DataFrame, files: DataFrame, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    agg = {"n": "count(*)", "days": "count(day)", "last": "max(day)", "sum": "sum(x)"}
    days = files.withColumns({"day": F.to_date("t"), "label": F.concat("name", F.lit(" =/%ü"))})
    days.write.partitionBy("k", "label", "day").parquet(str(tmp_path / "by key"))
    parted = spark.read.parquet(str(tmp_path / "by key"))
    how = {"where": "label <> 'b =/%ü' or label is null"}
    fill = PLAN.fill(framing, parted, **how)
    assert "scan lane" in explained(fill, agg)
    found, other = fill.agg(agg), PLAN.fill(framing, parted.filter("true"), **how).agg(agg)
    assert rows(found.toArrow()) == rows(other.toArrow())
    assert found.agg({"days": "sum"}).first()[0] > 10
    halves = files.filter("abs(x) < 9").withColumn("half", F.floor("x") + 0.5)
    halves.write.partitionBy("half").parquet(str(tmp_path / "by half"))
    halves = spark.read.parquet(str(tmp_path / "by half"))
    said = explained(PLAN.fill(framing, halves), {"s": "sum(half)"})
    assert "'half' is the name of a folder, with double in it" in said
    assert "scan lane" in explained(PLAN.fill(framing, halves), {"s": "sum(i)"})


def test_what_only_spark_knows(spark: SparkSession, framing: DataFrame, files: DataFrame, tmp_path: Path) -> None:
    fill = PLAN.fill(framing, files)
    said = explained(fill, {"h": "max(hour(t))"})
    assert "Spark reads them: `hour(t)`: the local runner can't evaluate" in said
    assert fill.agg(h="max(hour(t))").count() > 0
    with settings(spark, ansi_enabled="false"):
        assert "spark.sql.ansi.enabled is false" in explained(fill, {"s": "sum(i + 1)"})
        assert "scan lane" in explained(fill, {"s": "sum(i)"})
    with settings(spark, files_ignoreCorruptFiles="true"):
        assert "spark.sql.files.ignoreCorruptFiles is true" in explained(fill, {"n": "count(*)"})
    files.write.partitionBy("k").parquet(str(tmp_path / "by key"))
    twice = spark.read.option("ignoreCorruptFiles", "true").parquet(str(tmp_path / "by key"))
    assert "its option ignorecorruptfiles is for Spark" in explained(PLAN.fill(framing, twice), {"n": "count(*)"})
    with settings(spark, session_timeZone="GMT+2"):
        assert "spark.sql.session.timeZone is GMT+2" in explained(fill, {"n": "count(*)"})
    files.write.parquet(str(tmp_path / "flat"))
    files.write.json(str(tmp_path / "json"))
    text = spark.read.schema(files.schema).json(str(tmp_path / "json"))
    assert "it is no scan of Parquet files" in explained(PLAN.fill(framing, text), {"n": "count(*)"})
    wide = spark.read.schema("k int, name string, t timestamp, i double").parquet(str(tmp_path / "flat"))
    assert "the column 'i' is int64 in the files" in explained(PLAN.fill(framing, wide), {"n": "count(i)"})


def as_spark_finds(fill: Any, other: Any, agg: dict[str, str], lane: bool = True) -> list[str]:
    """What both find, which is not nothing."""
    assert ("scan lane" in explained(fill, agg)) == lane
    found = rows(fill.agg(agg).toArrow())
    assert found == rows(other.agg(agg).toArrow())
    assert found
    return found


def test_files_that_are_not_alike(spark: SparkSession, framing: DataFrame, tmp_path: Path) -> None:
    """One lacks a column, one calls it otherwise, one has a narrower type: they are read as Spark reads them."""
    table = filling_rows()
    others = [
        table.slice(200).drop_columns(["i"]),
        table.slice(200).rename_columns([name.upper() for name in table.column_names]),
        table.slice(200).set_column(3, "i", table.slice(200)["i"].cast(pa.float64()).cast(pa.int32(), safe=False)),
    ]
    for number, other in enumerate(others):
        folder = tmp_path / str(number)
        folder.mkdir()
        pq.write_table(table.slice(0, 200), folder / "0.parquet")
        pq.write_table(other, folder / "1.parquet")
        df = spark.read.schema(spark.createDataFrame(table).schema).parquet(str(folder))
        as_spark_finds(PLAN.fill(framing, df), PLAN.fill(framing, df.filter("true")), {"n": "count(*)", "i": "sum(i)"})


def test_files_and_views_that_spark_reads_in_its_own_way(
    spark: SparkSession, framing: DataFrame, tmp_path: Path
) -> None:
    folder, agg = tmp_path / "rows", {"n": "count(*)", "i": "sum(i)"}
    folder.mkdir()
    pq.write_table(filling_rows(), folder / "1.parquet")
    (folder / "0.parquet").touch()
    df = spark.read.parquet(str(folder))
    once = as_spark_finds(PLAN.fill(framing, df), PLAN.fill(framing, df.filter("true")), agg)
    df.createOrReplaceTempView("some_rows")
    view = spark.table("some_rows")
    assert as_spark_finds(PLAN.fill(framing, view), PLAN.fill(framing, view.filter("true")), agg) == once
    both = spark.read.parquet(str(folder), str(folder))
    assert as_spark_finds(PLAN.fill(framing, both), PLAN.fill(framing, both.filter("true")), agg) != once
    collated = spark.read.schema("k smallint, name string collate UTF8_LCASE, t timestamp").parquet(str(folder))
    plan = pw.threshold_frames("hot").by("k").at("t")
    by_case = {"where": "name = 'A'"}
    as_spark_finds(
        plan.fill(framing, collated, **by_case),
        plan.fill(framing, collated.filter("true"), **by_case),
        agg={"n": "count(*)"},
        lane=False,
    )


def test_rows_that_do_not_count_are_not_computed_with(framing: DataFrame, files: DataFrame) -> None:
    how, agg = {"where": "i % 2 <> 0"}, {"x": "sum(1 / (i % 2))", "n": "count(*)"}
    as_spark_finds(PLAN.fill(framing, files, **how), PLAN.fill(framing, files.filter("true"), **how), agg)
    table = filling_rows()
    segments = pw.fill_local(PLAN, framing_rows(), table, agg, **how)
    assert len(segments)


@pytest.mark.parametrize("call", ["max(cast(name as timestamp))", "count(t > name)", "sum(cast(name as int))"])
def test_text_that_is_turned_into_something_else(framing: DataFrame, files: DataFrame, call: str) -> None:
    assert "Spark reads them" in explained(PLAN.fill(framing, files), {"x": call})


@pytest.mark.parametrize("kind", [pa.float64(), *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS)])
def test_stored_segments_may_be_null(spark: SparkSession, tmp_path: Path, kind: pa.DataType) -> None:
    plan = pw.threshold_frames("c").at("t")
    start = 2**53 if kind == pa.int64() else 0
    at = pa.array([start + 1, start + 2, start + 3], pa.int64()).cast(kind)
    segments = pw.segments_local(plan, pa.table({"t": at, "c": [True, True, False]})).replace_schema_metadata(None)
    nothing = pa.Table.from_arrays([pa.nulls(1, field.type) for field in segments.schema], schema=segments.schema)
    for name, table in (("segments", pa.concat_tables([segments, nothing])), ("rows", pa.table({"t": at}))):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    stored, df = (spark.read.parquet(str(tmp_path / f"{name}.parquet")) for name in ("segments", "rows"))
    agg = {"n": "count(*)"}
    found = as_spark_finds(plan.fill(stored, df), plan.fill(stored, df.filter("true")), agg)
    assert len(found) == 1
    assert "'n': 2" in found[0]
    kept = plan.fill(stored, df, keep_empty=True).agg(agg).toArrow().column("n").to_pylist()
    assert sorted(kept) == [0, 2]


def test_times_that_spark_wrote(spark: SparkSession, framing: DataFrame, tmp_path: Path) -> None:
    """Spark may write times as INT96, or in milliseconds."""
    given = spark.createDataFrame(filling_rows())
    for kind in ("INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"):
        with settings(spark, parquet_outputTimestampType=kind):
            given.write.parquet(str(tmp_path / kind))
        df = spark.read.parquet(str(tmp_path / kind))
        agg = {"n": "count(*)", "last": "max(t)"}
        assert "scan lane" in explained(PLAN.fill(framing, df), agg)
        found = rows(PLAN.fill(framing, df).agg(agg).toArrow())
        assert found == rows(PLAN.fill(framing, df.filter("true")).agg(agg).toArrow())
        assert found


@given(
    sizes=st.lists(st.integers(0, 200), min_size=1, max_size=6),
    group=st.integers(1, 60),
    bytes_=st.lists(st.integers(1, 10**10), min_size=6, max_size=6),
    cores=st.integers(1, 9),
)
def test_every_row_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], group: int, bytes_: list[int], cores: int
) -> None:
    folder = tmp_path_factory.mktemp("units")
    files = []
    first = 0
    for i, size in enumerate(sizes):
        path = folder / f"{i}.parquet"
        pq.write_table(pa.table({"t": np.arange(first, first + size)}), path, row_group_size=group)
        files.append((str(path), bytes_[i]))
        first += size
    parquet = Parquet(tuple(files), pa.schema([("t", pa.int64())]))
    tasks = parquet.tasks(cores)
    assert len(tasks) <= 4 * cores
    there = Parquet(tuple((path, Path(path).stat().st_size) for path, _ in files), parquet.schema)
    read = [t for units in tasks for table in there.read(units) for t in table.column("t").to_pylist()]
    assert sorted(read) == list(range(first))


def test_row_groups_say_what_they_hold(tmp_path: Path) -> None:
    path = tmp_path / "0.parquet"
    pq.write_table(filling_rows().sort_by("t"), path, row_group_size=50)
    with pq.ParquetFile(path) as file:
        spans = [span(file, i, "t").to_pylist() for i in range(file.num_row_groups)]
        held = [file.read_row_group(i).column("t").drop_null().to_pylist() for i in range(file.num_row_groups)]
    assert spans == [[min(some), max(some)] for some in held]


def test_chunks_are_held_as_many_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("panewise.spark.fill._HELD_BYTES", 10)
    sizes = [4, 4, 4, 20, 1]
    batches = [
        pa.record_batch({"task": pa.array([3], pa.int32()), "shard": [i], "chunk": [b"x" * size]})
        for i, size in enumerate(sizes)
    ]
    assert [(task, [shard for shard, _ in some]) for task, some in _groups(batches)] == [
        (3, [0, 1, 2]),
        (3, [3]),
        (3, [4]),
    ]

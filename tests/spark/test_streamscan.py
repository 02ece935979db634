"""The scan lane of streams: where workers read the files, they find what Spark finds, and a checkpoint serves both."""

from __future__ import annotations

import copy
import os
from contextlib import redirect_stdout
from decimal import Decimal
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import panewise as pw
from panewise.kernel.dealing import can_deal, shards_of
from panewise.spark import framing
from panewise.spark.parquet import _marked
from spark.tables import rows, settings
from spark.test_scan import filling_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLAN = pw.threshold_frames("x > 1 or i % 3 = 0").by("k", "name").at("t", pw.slack("15 minutes"))
AGG = {"n": "count(x)", "total": "sum(i)", "money": "sum(d + 1)", "day": "max(g)", "local": "min(u)", "last": "max(t)"}


def run(df: DataFrame, state: Path, plan: pw.Plan = PLAN, agg: dict[str, str] | None = None, **options: Any) -> Any:
    """What comes of all that is there, and how many rows Spark says that it has read."""
    found: list[pa.Table] = []
    write = plan.segments(df, AGG if agg is None else agg, **options).writeStream.trigger(availableNow=True)
    write = write.option("checkpointLocation", str(state)).foreachBatch(lambda batch, _: found.append(batch.toArrow()))
    query = write.start()
    query.awaitTermination()
    return pa.concat_tables(found), sum(progress.numInputRows for progress in query.recentProgress)


def path_of(df: DataFrame, plan: pw.Plan = PLAN, agg: dict[str, str] | None = None) -> str:
    said = StringIO()
    with redirect_stdout(said):
        plan.explain(AGG if agg is None else agg, df)
    return next(line for line in said.getvalue().splitlines() if line.startswith("Path"))


def stream_of(spark: SparkSession, folder: Path, **options: Any) -> DataFrame:
    schema = spark.createDataFrame(filling_rows()).schema
    return spark.readStream.schema(schema).options(**options).parquet(str(folder))


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_same_is_found_as_by_spark(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    """Files of some row groups, in folders with odd names; late rows as they are; one task, and several."""
    table, folder = filling_rows(), tmp_path / "a folder, 100 % of ü"
    folder.mkdir()
    for i in range(3):
        pq.write_table(table.slice(i * 150, 150), folder / f"{i} +=&;#?.parquet", row_group_size=40)
    with settings(spark, session_timeZone=zone, shuffle_partitions=2, files_maxPartitionBytes=2_000):
        df = stream_of(spark, folder, maxFilesPerTrigger=1)
        assert "scan lane" in path_of(df)
        assert "it is more than a stream of Parquet files" in path_of(df.where("true"))
        found, count = run(df, tmp_path / "lane", late=True, shards=4)
        other, _ = run(df.where("true"), tmp_path / "other", late=True, shards=4)
        assert found.schema.equals(other.schema)
        assert rows(found) == rows(other)
        assert count == len(table)
        assert found.column("late").null_count < len(found) - 10
        assert found.column("late").null_count > 10
        # what is read as late is told to the last bit
        reasons = {late["reason"] for late in found.column("late").to_pylist() if late is not None}
        assert reasons == {"late", "null_at"}


def test_every_row_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    """Row groups of all sizes, so that some have no place for a mark; and tasks that share files."""
    folder, edges = tmp_path / "rows", [0, 1, 5_000, 5_001, 9_000, 17_000, 17_010, 30_000]
    folder.mkdir()
    table = pa.table({"t": pa.array(range(30_000)), "k": pa.array(np.arange(30_000) % 7, pa.int8())})
    for i in range(2):
        with pq.ParquetWriter(folder / f"{i}.parquet", table.schema) as writer:
            for first, last in pairwise(edges):
                writer.write_table(table.slice(first, last - first))
    schema = spark.createDataFrame(table).schema
    plan, agg = pw.boundary_frames({"t": 1_000}).at("t", pw.slack(0)), {"n": "count(*)", "total": "sum(t)"}
    with settings(spark, files_maxPartitionBytes=20_000, files_openCostInBytes=1):
        df = spark.readStream.schema(schema).parquet(str(folder))
        assert "scan lane" in path_of(df, plan, agg)
        assert spark.read.parquet(str(folder)).rdd.getNumPartitions() > 4
        found, count = run(df, tmp_path / "state", plan, agg, shards=2)
    assert count == 60_000
    expected = [2 * sum(range(i * 1_000 + 1, i * 1_000 + 1_001)) for i in range(29)]
    assert [each["total"] for each in sorted(found.to_pylist(), key=lambda row: row["segment"]["id"])][1:] == expected
    assert set(found.column("n").to_pylist()[1:]) == {2_000}


def test_row_groups_by_their_marks(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    with pq.ParquetWriter(path, pa.schema([("t", pa.int64())])) as writer:
        for size in (3, 10, 1, 2, 8):
            writer.write_table(pa.table({"t": range(size)}))
    metadata = pq.ParquetFile(path).metadata
    # rows 0 to 2, 3 to 12, 13, 14 and 15, 16 to 23: marks at 0, 4, 8, 12, 16, 20
    assert _marked(metadata, {0}, 4) == ([0], [0])
    assert _marked(metadata, {4, 8, 12}, 4) == ([1, 2, 3], [4, 8, 12])
    assert _marked(metadata, {16, 20}, 4) == ([4], [16, 20])
    assert _marked(metadata, {0, 4, 8, 12, 16, 20}, 4) == ([0, 1, 2, 3, 4], [0, 4, 8, 12, 16, 20])


def test_a_checkpoint_serves_with_the_lane_and_without(spark: SparkSession, tmp_path: Path) -> None:
    table, folder = filling_rows().sort_by("t"), tmp_path / "rows"
    folder.mkdir()
    df = stream_of(spark, folder, maxFilesPerTrigger=1)
    found = []
    for i, given in enumerate((df, df.where("true"), df, df.where("true"))):
        pq.write_table(table.slice(i * 100, 100), folder / f"{i}.parquet")
        some, count = run(given, tmp_path / "state", shards=4, control=str(control(tmp_path, last=i == 3)))
        assert count == 100 + (i == 3)
        found.append(some)
    batch = PLAN.segments(spark.read.schema(df.schema).parquet(str(folder)), AGG)
    assert rows(pa.concat_tables(found)) == rows(batch.toArrow())


def control(path: Path, last: bool) -> Path:
    folder = path / "control"
    folder.mkdir(exist_ok=True)
    if last:
        (folder / "final.json").write_text('{"kind": "final"}')
    return folder


def test_files_that_are_not_alike(spark: SparkSession, tmp_path: Path) -> None:
    """One lacks columns, one calls them otherwise, one has narrower types, or words by number: as Spark reads them."""
    table, folder = filling_rows(), tmp_path / "rows"
    folder.mkdir()
    narrow = table.set_column(3, "i", table["i"].cast(pa.float64()).cast(pa.int32(), safe=False))
    some = [
        table,
        table.drop_columns(["i", "u"]),
        table.rename_columns([name.upper() for name in table.column_names]),
        narrow.set_column(4, "x", table["x"].cast(pa.float32())),
        table.set_column(1, "name", table["name"].dictionary_encode()),
        table.set_column(1, "name", table["name"].cast(pa.large_string())),
        table.set_column(5, "d", table["d"].cast(pa.decimal128(7, 1), safe=False)),
        table.set_column(2, "t", table["t"].cast(pa.timestamp("ms", "Europe/Berlin"), safe=False)),
    ]
    for i, each in enumerate(some):
        pq.write_table(each.slice(i * 50, 50), folder / f"{i}.parquet")
    df = stream_of(spark, folder)
    assert "scan lane" in path_of(df)
    found, count = run(df, tmp_path / "lane", late=True)
    assert rows(found) == rows(run(df.where("true"), tmp_path / "other", late=True)[0])
    assert (len(found) > 10, count) == (True, 400)


def test_what_no_worker_can_read(spark: SparkSession, tmp_path: Path) -> None:
    table, folder = filling_rows(), tmp_path / "rows"
    folder.mkdir()
    for i, each in enumerate((table, table.set_column(3, "i", table["x"].cast(pa.string())), table)):
        pq.write_table(each, folder / f"{i}.parquet")
    said = "1.parquet` can't be read by a worker: the column 'i' is string in the files. Write it as the others are, "
    with pytest.raises(StreamingQueryException, match=said + "or let Spark read it: `df.where"):
        run(stream_of(spark, folder), tmp_path / "state")
    # of what is there before, the first and the last file are looked into
    pq.write_table(table.set_column(3, "i", table["x"].cast(pa.string())), folder / "3.parquet")
    assert "Spark reads rows (the column 'i' is string in the files)" in path_of(stream_of(spark, folder))


def test_folders_that_name_values(spark: SparkSession, tmp_path: Path) -> None:
    """They are Spark's to read; where they come only later, the stream is to be started again."""
    table, folder = filling_rows(), tmp_path / "rows"
    spark.createDataFrame(table).repartition(1).write.partitionBy("k", "name").parquet(str(folder))
    df = stream_of(spark, folder)
    assert "scan lane" in path_of(df)
    found, _ = run(df, tmp_path / "lane", late=True)
    assert rows(found) == rows(run(df.where("true"), tmp_path / "other", late=True)[0])
    # a folder has no name for no text
    assert set(found.column("name").to_pylist()) == {"a", "b", None}
    later = tmp_path / "later"
    later.mkdir()
    df = stream_of(spark, later)
    folder.rename(later / "by key")
    with pytest.raises(StreamingQueryException, match="is in a folder that names 'k', and when the stream was started"):
        run(df, tmp_path / "later state")
    found, _ = run(stream_of(spark, later), tmp_path / "later state", late=True)
    assert len(found) > 10
    # what is above the folder that is read names nothing
    df = stream_of(spark, later / "by key" / "k=1")
    found, _ = run(df, tmp_path / "one state", late=True)
    assert rows(found) == rows(run(df.where("true"), tmp_path / "one other", late=True)[0])
    assert set(found.column("k").to_pylist()) == {None}


def test_folders_that_name_nothing(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files are found by a pattern, or in any folder, Spark asks none; nor those above."""
    table, folder = filling_rows(), tmp_path / "name=above" / "rows"
    for i in range(2):
        (folder / f"k={i}").mkdir(parents=True)
        pq.write_table(table.slice(i * 200, 200), folder / f"k={i}" / "some.parquet")
    monkeypatch.chdir(tmp_path)
    schema = spark.createDataFrame(table).schema
    given = (
        stream_of(spark, folder / "*"),
        stream_of(spark, folder, recursiveFileLookup="true"),
        spark.readStream.schema(schema).option("Path", str(folder / "k=1")).format("parquet").load(),
        spark.readStream.schema(schema).parquet(os.path.relpath(folder / "k=1", spark_home(spark))),
    )
    for i, df in enumerate(given):
        assert "scan lane" in path_of(df)
        found, count = run(df, tmp_path / f"lane {i}", late=True)
        assert rows(found) == rows(run(df.where("true"), tmp_path / f"other {i}", late=True)[0])
        assert (len(found) > 10, count) == (True, 400 if i < 2 else 200)
        assert 2 in found.column("k").to_pylist()
    assert "(its option basePath is for Spark)" in path_of(stream_of(spark, folder, basePath=str(tmp_path)))


def spark_home(spark: SparkSession) -> str:
    """The folder that Spark takes paths from."""
    return spark._jvm.java.lang.System.getProperty("user.dir")


def test_what_spark_completes(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that files do not have, and a view, through which Spark does not say where rows are."""
    monkeypatch.setattr(framing, "SMALL", 0)
    folder = tmp_path / "rows"
    folder.mkdir()
    pq.write_table(filling_rows().drop_columns(["i"]), folder / "some.parquet")
    df = stream_of(spark, folder)
    schema = copy.deepcopy(df.schema)
    schema["i"].metadata = {"EXISTS_DEFAULT": "7", "CURRENT_DEFAULT": "7"}
    for kind in ("readStream", "read"):
        completed = getattr(spark, kind).schema(schema).parquet(str(folder))
        assert "Spark completes the column 'i'" in path_of(completed)
    sevens, _ = run(spark.readStream.schema(schema).parquet(str(folder)), tmp_path / "state", agg={"i": "max(i)"})
    assert set(sevens.column("i").to_pylist()) == {7}
    df.createOrReplaceTempView("some_rows")
    view = spark.table("some_rows")
    assert "it is more than a stream of Parquet files" in path_of(view)
    assert rows(run(view, tmp_path / "view")[0]) == rows(run(df, tmp_path / "lane")[0])


def test_why_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    df = stream_of(spark, folder)
    assert "scan lane: Spark deals Parquet files to Python workers" in path_of(df)
    assert "scan lane" in path_of(df.alias("some"))
    json = spark.readStream.schema(df.schema).json(str(folder))
    assert "Spark reads rows (it is no stream of Parquet files)" in path_of(json)
    lenient = stream_of(spark, folder, ignoreCorruptFiles="true")
    assert "(its option ignoreCorruptFiles is for Spark)" in path_of(lenient)
    assert "(keys are of a type that Spark deals)" in path_of(df, pw.threshold_frames("i > 0").by("x").at("t"), {})
    told = pw.threshold_frames("i > 0").at("t", pw.in_band("name = 'end'"))
    assert "(some rows are punctuations, or prods)" in path_of(df, told, {})
    assert "the local runner can't evaluate" in path_of(df, agg={"h": "max(hour(t))"})
    with settings(spark, ansi_enabled="false"):
        assert "(spark.sql.ansi.enabled is false)" in path_of(df)
    with settings(spark, files_ignoreMissingFiles="true"):
        assert "(spark.sql.files.ignoreMissingFiles is true)" in path_of(df)


def test_keys_are_dealt_as_spark_deals_them(spark: SparkSession) -> None:
    """To the last bit: a stream's keys stay in their shards, whoever deals them."""
    generator = np.random.default_rng(3)
    n = 2_000
    absent = generator.random(n) < 0.1

    def integers(kind: pa.DataType) -> pa.Array:
        bits = np.dtype(kind.to_pandas_dtype())
        least, most = np.iinfo(bits).min, np.iinfo(bits).max
        return pa.array(generator.integers(least, most, n, bits, endpoint=True), kind, mask=absent)

    letters = list("aböz€😀 ")
    texts = ["".join(generator.choice(letters, size)) for size in generator.integers(0, 45, n)]
    days = pa.array(generator.integers(-100_000, 100_000, n).astype(np.int32), mask=absent)
    micros = pa.array(generator.integers(-(10**15), 2 * 10**15, n), mask=absent)
    table = pa.table(
        {
            "byte": integers(pa.int8()),
            "short": integers(pa.int16()),
            "int": integers(pa.int32()),
            "long": integers(pa.int64()),
            "bool": pa.array(generator.random(n) < 0.5, mask=absent),
            "text": pa.array(texts, mask=absent),
            "bytes": pa.array([generator.bytes(size) for size in generator.integers(0, 90, n)], mask=absent),
            "day": days.cast(pa.date32()),
            "at": micros.cast(pa.timestamp("us", "UTC")),
            "wall": micros.cast(pa.timestamp("us")),
            "money": pa.array(
                [Decimal(int(v)) / 1000 for v in generator.integers(-(10**15), 10**15, n)], pa.decimal128(18, 3)
            ),
        }
    )
    df = spark.createDataFrame(table)
    for names in (*([name] for name in table.column_names), ["int", "text"], ["bytes", "long", "bool", "money"]):
        keys = [table[name].combine_chunks().slice(3) for name in names]
        assert can_deal([key.type for key in keys])
        dealt = df.select(F.pmod(F.xxhash64(*names), F.lit(1 << 30)).cast("int")).toArrow().column(0)
        assert shards_of(keys, n - 3, 1 << 30).tolist() == dealt.to_pylist()[3:]
        large = [key.cast(pa.large_string()) if pa.types.is_string(key.type) else key for key in keys]
        assert shards_of(large, n - 3, 8).tolist() == [shard % 8 for shard in dealt.to_pylist()[3:]]
    assert not can_deal([pa.float64()])
    assert not can_deal([pa.decimal128(19, 0)])

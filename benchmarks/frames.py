"""Frames against what others would run for them, in one session, on the same files.

Every job is done by all that can do it, what they find is compared before anything is timed, then they take turns, and
the best of three counts. Spark's results go nowhere (`noop`); those of Polars and DuckDB stay in memory. What it takes
to plan each of them is timed with it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import peers
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from timing import bench, take_turns, told

import panewise as pw
from panewise.data import traffic

FAST = peers.Runs("coalesce(speed > 60, false)", (pl.col("speed") > 60).fill_null(value=False), counts="value", least=6)
CELLS = peers.Runs("cast(ceil(speed / 5) as bigint)", (pl.col("speed") / 5).ceil(), rows="speed is not null", held=True)
SCHEMES = {
    "threshold": pw.threshold_frames("speed > 60", min_rows=6),
    "boundary": pw.boundary_frames({"speed": 5}),
    "delta, first": pw.delta_frames({"speed": 5}, against="first"),
    "delta, range": pw.delta_frames({"speed": 5}),
    "volume": pw.aggregate_frames("sum(volume)", reaches=25),
}
RUNS = {"threshold": FAST, "boundary": CELLS}
STARTS = {
    "threshold": ("speed", peers.above(60, 6), False),
    "boundary": ("speed", peers.cells(5)),
    "delta, first": ("speed", peers.moves(5, "first")),
    "delta, range": ("speed", peers.moves(5, "range")),
    "volume": ("volume", peers.reaching(25)),
}
WITH = ", with avg, count, sum"
Job = Callable[[], DataFrame | pa.Table]
MANY = 100_000
"""Of more sensors, Spark's applyInPandas gets one of `PART`: it takes a millisecond or so for each."""
PART = 100
SCHEMA = pa.schema([("sensor", pa.int32()), ("start", pa.int64()), ("end", pa.int64()), ("rows", pa.int64())])


def jobs_of(
    name: str, spark: SparkSession, read: Callable[[], DataFrame], folder: Path, ordered: bool, sensors: int
) -> dict[str, Job]:
    """Who does a job, and how."""
    scheme = SCHEMES[name].by("sensor").at("ts")
    jobs: dict[str, Job] = {"panewise": lambda: _bare(scheme.segments(read()))}
    if name in RUNS:
        runs = RUNS[name]
        jobs |= {
            "Spark SQL": lambda: peers.in_spark_sql(spark, read(), runs),
            "Polars": lambda: peers.in_polars(folder, runs, ordered),
            "DuckDB": lambda: peers.in_duckdb(folder, runs),
        }
    some = f"sensor < {sensors // PART}" if sensors > MANY else "true"
    who = "applyInPandas" if sensors <= MANY else f"applyInPandas, {sensors // PART:,} sensors"
    jobs[who] = lambda: peers.in_pandas(read().where(some), *STARTS[name])
    return jobs


def fused_jobs(spark: SparkSession, read: Callable[[], DataFrame], folder: Path, ordered: bool) -> dict[str, Job]:
    """Who computes what of each segment, and how."""
    scheme = SCHEMES["threshold"].by("sensor").at("ts")
    return {
        f"{who}{WITH}": job
        for who, job in {
            "panewise": lambda: scheme.segments(read(), peers.AGG).select(
                "sensor", "segment.start", "segment.end", "rows", *peers.AGG
            ),
            "Spark SQL": lambda: peers.in_spark_sql(spark, read(), FAST, agg=True),
            "Polars": lambda: peers.in_polars(folder, FAST, ordered, agg=True),
            "DuckDB": lambda: peers.in_duckdb(folder, FAST, agg=True),
        }.items()
    }


def _bare(found: DataFrame) -> DataFrame:
    return found.select("sensor", "segment.start", "segment.end", "rows")


def _sorted(found: DataFrame | pa.Table) -> pa.Table:
    """Segments in order, and what is computed of them, if it is."""
    table = found.toArrow() if isinstance(found, DataFrame) else found
    columns = [
        table.column(field.name).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        if pa.types.is_timestamp(table.schema.field(field.name).type)
        else table.column(field.name).cast(field.type)
        for field in SCHEMA
    ]
    found = pa.Table.from_arrays(columns, schema=SCHEMA)
    if "mean" in table.column_names:
        found = found.append_column("mean", table.column("mean"))
        for name in ("n", "total"):
            found = found.append_column(name, table.column(name).cast(pa.int64()))
    return found.sort_by([("sensor", "ascending"), ("start", "ascending")])


def differ(jobs: Mapping[str, Job]) -> tuple[str, int]:
    """Who finds something else than the first, if anybody does; and how many segments there are."""
    (_, first), *others = jobs.items()
    expected = _sorted(first())
    wrong = [name for name, job in others if not _same(_sorted(job()), _for(name, expected))]
    return ", ".join(wrong), len(expected)


def _same(found: pa.Table, expected: pa.Table) -> bool:
    """Whether both are the same; means to twelve digits."""
    if "mean" in expected.column_names and len(found) == len(expected):
        means = (np.asarray(table.column("mean")) for table in (found, expected))
        if not np.allclose(*means, rtol=1e-12, atol=0):
            return False
        found, expected = found.drop_columns(["mean"]), expected.drop_columns(["mean"])
    return found.equals(expected)


def _for(name: str, expected: pa.Table) -> pa.Table:
    """What is expected of one who may have been given some of the sensors."""
    few = _few(name)
    return expected if few is None else expected.filter(pc.less(expected.column("sensor"), few))


def _few(name: str) -> int | None:
    """How many sensors one is given, if not all of them."""
    return int(name.split(", ")[1].split(" ")[0].replace(",", "")) if name.endswith(" sensors") else None


def laid(folder: Path, order: str, rows: int, sensors: int) -> Path:
    """Files of traffic reports, in order of time, of sensors, or in none."""
    plain = folder / "time"
    if not plain.exists():
        traffic.write(str(plain), rows, sensors=sensors, files=10)
    if order == "time":
        return plain
    place = folder / order
    if not place.exists():
        place.mkdir()
        whole = pl.read_parquet(plain / "*.parquet")
        whole = whole.sort("sensor", "ts") if order == "sensor" else whole.sample(fraction=1, shuffle=True, seed=7)
        each = -(-len(whole) // 10)
        for i in range(10):
            pq.write_table(whole.slice(i * each, each).to_arrow(), place / f"{i}.parquet", row_group_size=1 << 20)
    return place


def main() -> int:
    """Run it and print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--sensors", type=int, default=600)
    options.add_argument("--order", choices=["time", "sensor", "none"], default="time")
    options.add_argument("--jobs", default=",".join(SCHEMES).replace(", ", "_"), help="such as threshold,delta_first")
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--data", type=Path, help="a folder for the files; they stay there")
    options.add_argument("--note", type=Path, help="a file to add the figures to")
    given = options.parse_args()
    console = Console()
    with bench(**{"spark.sql.shuffle.partitions": "2"}) as (spark, folder):
        with console.status(f"generating {given.rows:,} rows of {given.sensors:,} sensors"):
            place = given.data or folder
            place = laid(place, given.order, given.rows, given.sensors)

        def read() -> DataFrame:
            return spark.read.parquet(str(place))

        ordered = {"time": "files in order of time", "sensor": "files by sensor", "none": "rows in no order"}
        what = (
            f"{given.rows:,} rows, {given.sensors:,} sensor{'s' if given.sensors > 1 else ''}, {ordered[given.order]}"
        )
        found = []
        for name in (name.replace("_", ", ") for name in given.jobs.split(",")):
            jobs = jobs_of(name, spark, read, place, given.order != "none", given.sensors)
            with console.status(f"{name}: comparing results"):
                wrong, count = differ(jobs)
            if wrong or not count:
                console.print(f"{name}: {wrong or 'nobody'} finds something else.")
                return 1
            if name == "threshold":
                fused = SCHEMES[name].by("sensor").at("ts")
                with_agg = fused_jobs(spark, read, place, given.order != "none")
                with console.status(f"{name}{WITH}: comparing results"):
                    wrong, _ = differ(with_agg)
                if wrong:
                    console.print(f"{name}{WITH}: {wrong} finds something else.")
                    return 1
                jobs |= with_agg
                jobs["panewise, any DataFrame"] = lambda fused=fused: _bare(fused.segments(_chosen(read())))
                jobs["Spark SQL, any DataFrame"] = lambda: peers.in_spark_sql(spark, _chosen(read()), FAST)
            if given.order == "time":
                jobs["tumbling 5 minutes"] = lambda: peers.tumbling(read())
            took, memory = take_turns(jobs, given.times, console)
            for who, seconds in took.items():
                of_all = given.sensors / (_few(who) or given.sensors)
                ratio = f"{seconds * of_all / took['panewise']:.2f} times panewise{' a row' if of_all > 1 else ''}"
                found.append((name, f"{count:,}", who, f"{seconds:.2f}", ratio, f"{memory[who]:,}"))
                console.print(*found[-1], sep="  ")
        columns = ("job", "segments", "who", "seconds", "takes", "worker MB")
        told(console, f"Frames: {what}", columns, found, given.note)
    return 0


def _chosen(df: DataFrame) -> DataFrame:
    """More than files: some of the rows, with a column that is computed."""
    return df.filter("speed >= 0 or speed is null").withColumn("pace", 60 / df.speed)


if __name__ == "__main__":
    sys.exit(main())

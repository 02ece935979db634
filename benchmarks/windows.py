"""Sliding windows against Spark's own `window()`, in one session, on the same files.

Twenty million rows of traffic, an hour every minute, a count, a sum and an average for each window and detector.
Spark's `window()` copies each row into each of its sixty windows. One who knows that an hour has sixty minutes adds up
minutes first, and then sixty of them in a row over all minutes that there are: in Spark SQL and DuckDB. What it takes
to build each of them is timed with it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from timing import agree, bench, take_turns, told

import panewise as pw
from panewise.data import traffic

PLAN = pw.sliding_windows("1 hour", "1 minute").by("sensor").at("ts")
AGG = {"n": "count(*)", "volume": "sum(volume)", "mean": "avg(speed)"}


def sparks(rows: DataFrame) -> DataFrame:
    """Spark's own."""
    found = rows.groupBy("sensor", F.window("ts", "1 hour", "1 minute").alias("w"))
    return found.agg(*(F.expr(text).alias(name) for name, text in AGG.items()))


_MINUTES = """
with minutes as (
  select sensor, date_trunc('minute', ts) as minute, count(*) as n, sum(volume) as volume, sum(speed) as speed,
         count(speed) as m
  from {source} group by 1, 2
), times as (
  select sensor, min(minute) as first, max(minute) + interval '59 minutes' as last from minutes group by sensor
), every as (
  select sensor, {every} as minute from times
), rolled as (
  select sensor, minute, sum(n) over w as n, sum(volume) over w as volume, sum(speed) over w as speed,
         sum(m) over w as m
  from every left join minutes using (sensor, minute)
  window w as (partition by sensor order by minute rows between 59 preceding and current row)
)
select sensor, minute - interval '59 minutes' as start, minute + interval '1 minute' as {end}, cast(n as bigint) as n,
       cast(volume as bigint) as volume, speed / m as mean
from rolled where n > 0
"""


def by_minutes(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """Spark SQL."""
    rows.createOrReplaceTempView("peer")
    every = "explode(sequence(first, last, interval '1 minute'))"
    return spark.sql(_MINUTES.format(source="peer", every=every, end="end"))


def in_duckdb(folder: Path, out: Path | None = None) -> pa.Table | None:
    """The same in DuckDB; into a file, if one is given."""
    source, every = f"read_parquet('{folder}/*.parquet')", "unnest(generate_series(first, last, interval '1 minute'))"
    text = _MINUTES.format(source=source, every=every, end='"end"')
    with duckdb.connect() as db:
        db.execute("set preserve_insertion_order = false; set timezone = 'UTC'")
        if out is None:
            return db.sql(text).to_arrow_table()
        db.execute(f"copy ({text}) to '{out}' (format parquet)")
    return None


def main() -> int:
    """Run it and print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--sensors", type=int, default=600)
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--note", type=Path, help="a file to add the figures to")
    given = options.parse_args()
    console = Console()
    with bench() as (spark, folder):
        with console.status("generating"):
            traffic.write(str(folder / "rows"), given.rows, sensors=given.sensors, files=10)
        rows = spark.read.parquet(str(folder / "rows"))
        jobs = {
            "panewise": lambda: PLAN.agg(rows, AGG),
            "Spark's window()": lambda: sparks(rows),
            "Spark SQL, minutes first": lambda: by_minutes(spark, rows),
            "DuckDB, minutes first": lambda: in_duckdb(folder / "rows"),
        }
        with console.status("comparing results"):
            ours = PLAN.agg(rows, AGG).selectExpr("sensor", "segment.start", "segment.end", *AGG)
            in_duckdb(folder / "rows", folder / "duckdb.parquet")
            others = {
                "Spark's window()": sparks(rows).selectExpr("sensor", "w.start", "w.end", *AGG),
                "Spark SQL": by_minutes(spark, rows),
                "DuckDB": spark.read.parquet(str(folder / "duckdb.parquet")),
            }
            wrong = [who for who, theirs in others.items() if not agree(ours, theirs, ["sensor", "start", "end"])]
            if wrong:
                console.print(f"{', '.join(wrong)}: something else is found.")
                return 1
        best, memory = take_turns(jobs, given.times, console)
        found = [
            (name, f"{took:.2f}", f"{took / best['panewise']:.2f} times panewise", f"{memory[name]:,}")
            for name, took in best.items()
        ]
        title = f"Windows of an hour, one a minute: {given.rows:,} rows, {given.sensors:,} sensors"
        told(console, title, ("", "seconds", "takes", "worker MB"), found, given.note)
    return 0


if __name__ == "__main__":
    sys.exit(main())

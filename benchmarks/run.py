"""Threshold frames against the same in Spark SQL, in one session, on the same files: `make bench`.

Both find every stretch of at least six reports at or below 30 mph, per detector, and both count its rows. What they
find is compared before anything is timed; then they take turns, and the best of three runs counts.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table
from timing import bench, take_turns

import panewise as pw
from panewise.data import traffic

PLAN = pw.threshold_frames("speed <= 30", min_rows=6).by("sensor").at("ts")

SQL = """
with marked as (
  select sensor, ts, coalesce(speed <= 30, false) as slow,
         lag(coalesce(speed <= 30, false)) over (partition by sensor order by ts) as before
  from {table}
), numbered as (
  select sensor, ts, slow,
         sum(case when slow = before then 0 else 1 end)
           over (partition by sensor order by ts rows between unbounded preceding and current row) as run
  from marked
)
select sensor, min(ts) as start, max(ts) as end, count(*) as rows
from numbered where slow group by sensor, run having count(*) >= 6
"""


def _frames(df: DataFrame) -> DataFrame:
    return PLAN.segments(df).select("sensor", "segment.start", "segment.end", "rows")


def _in_sql(spark: SparkSession, df: DataFrame) -> DataFrame:
    df.createOrReplaceTempView("traffic")
    return spark.sql(SQL.format(table="traffic"))


def main() -> int:
    """Run it and print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--times", type=int, default=3)
    given = options.parse_args()
    console = Console()
    with bench(**{"spark.sql.shuffle.partitions": "8"}) as (spark, folder):
        with console.status(f"generating {given.rows:,} rows"):
            traffic.write(str(folder / "traffic"), given.rows)
        df = spark.read.parquet(str(folder / "traffic"))
        works = {"panewise": lambda: _frames(df), "Spark SQL": lambda: _in_sql(spark, df)}
        with console.status("comparing results"):
            ours, theirs = works["panewise"]().toArrow(), works["Spark SQL"]().toArrow()
            order = [(name, "ascending") for name in ours.column_names]
            if ours.sort_by(order).to_pydict() != theirs.sort_by(order).to_pydict():
                console.print("The two do not find the same segments.")
                return 1
        best = take_turns(works, given.times, console)
        table = Table(
            title=f"threshold, at least 6 rows: {given.rows:,} rows, {len(ours):,} segments, best of {given.times}"
        )
        for heading in ("", "seconds", "against Spark SQL"):
            table.add_column(heading, justify="left" if not heading else "right")
        for name, seconds in best.items():
            table.add_row(name, f"{seconds:.1f}", f"{seconds / best['Spark SQL']:.2f}")
        console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Sliding windows against Spark's own `window()`, in one session, on the same files.

Five million rows of traffic, an hour every minute, a count, a sum and an average for each window and detector. Spark's
`window()` copies each row into each of its sixty windows. What it takes to build each of them is timed with it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyspark.sql import DataFrame
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


def main() -> int:
    """Run it and print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=5_000_000)
    options.add_argument("--sensors", type=int, default=600)
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--note", type=Path, help="a file to add the figures to")
    given = options.parse_args()
    console = Console()
    with bench() as (spark, folder):
        with console.status("generating"):
            traffic.write(str(folder / "rows"), given.rows, sensors=given.sensors, files=10)
        rows = spark.read.parquet(str(folder / "rows"))
        jobs = {"panewise": lambda: PLAN.agg(rows, AGG), "Spark's window()": lambda: sparks(rows)}
        with console.status("comparing results"):
            ours = jobs["panewise"]().selectExpr("sensor", "segment.start", "segment.end", *AGG)
            theirs = jobs["Spark's window()"]().selectExpr("sensor", "w.start", "w.end", *AGG)
            if not agree(ours, theirs, ["sensor", "start", "end"]):
                console.print("The two do not find the same.")
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

"""Sliding windows against Spark's own `window()`, in one session, on the same files.

Five million rows of traffic, an hour every minute, a count, a sum and an average for each window and detector. Spark's
`window()` copies each row into each of its sixty windows.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from memory import WorkerMemory
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

import panewise as pw
from panewise.data import traffic

PLAN = pw.sliding_windows("1 hour", "1 minute").by("sensor").at("ts")
AGG = {"n": "count(*)", "volume": "sum(volume)", "mean": "avg(speed)"}


def sparks(rows: DataFrame) -> DataFrame:
    """Spark's own."""
    found = rows.groupBy("sensor", F.window("ts", "1 hour", "1 minute").alias("w"))
    return found.agg(*(F.expr(text).alias(name) for name, text in AGG.items()))


def same(ours: DataFrame, theirs: DataFrame) -> bool:
    """Whether both found the same; averages to twelve digits."""
    a = ours.selectExpr("sensor", "segment.start", "segment.end", *AGG).alias("a")
    b = theirs.selectExpr("sensor", "w.start", "w.end", *AGG).alias("b")
    close = "(a.mean <=> b.mean or abs(a.mean - b.mean) <= 1e-12 * abs(b.mean))"
    unlike = F.expr(f"not (a.n <=> b.n and a.volume <=> b.volume and {close})")
    both = a.join(b, ["sensor", "start", "end"], "full")
    found = both.agg(F.count("*"), F.count_if(F.coalesce(unlike, F.lit(True)))).first()
    return found is not None and found[0] > 0 and found[1] == 0


def seconds(df: DataFrame) -> float:
    """How long it takes to compute all of it."""
    began = time.perf_counter()
    df.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def main() -> int:
    """Run it and print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=5_000_000)
    options.add_argument("--sensors", type=int, default=600)
    options.add_argument("--times", type=int, default=3)
    given = options.parse_args()
    console, folder = Console(), Path(tempfile.mkdtemp(prefix="panewise-bench-"))
    spark = pw.session("local[2]", **{"spark.ui.enabled": "false", "spark.driver.memory": "6g"})
    spark.sparkContext.setLogLevel("ERROR")
    table = Table(title=f"1 hour every minute, {given.rows:,} rows, {given.sensors:,} detectors")
    for heading in ("", "seconds", "times"):
        table.add_column(heading, justify="right" if heading else "left")
    try:
        with console.status("generating"):
            traffic.write(str(folder / "rows"), given.rows, sensors=given.sensors, files=10)
        rows = spark.read.parquet(str(folder / "rows"))
        jobs = {"panewise": PLAN.agg(rows, AGG), "Spark's window()": sparks(rows)}
        with console.status("comparing results"):
            if not same(*jobs.values()):
                console.print("The two do not find the same.")
                return 1
        best = dict.fromkeys(jobs, float("inf"))
        with WorkerMemory() as memory, console.status("timing"):
            for _ in range(given.times):
                for name, df in jobs.items():
                    best[name] = min(best[name], seconds(df))
        for name, took in best.items():
            table.add_row(name, f"{took:.2f}", f"{took / best['panewise']:.2f}")
        console.print(table)
        console.print(f"largest Python worker {memory.peak / 1e6:,.0f} MB")
    finally:
        spark.stop()
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

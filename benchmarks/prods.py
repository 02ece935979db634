"""What prods cost: the same stream three ways, in one session, on the same files.

Averages of ten minutes, one every two, of each sensor, from files of traffic reports, two million rows in each and
`--each` files to a micro-batch: without prods; prodded every second, for all that is open, by the clock; and by files
in the control folder, as another process would write them. A prod is answered at the end of its micro-batch, several of
one micro-batch with one answer, and the clock asks once in it at most: so what prods cost is a part of each
micro-batch, and a smaller one of a longer one. What counts is when final answers come, which is how long micro-batches
are. The machine is faster in one minute and slower in the next, by more than what is measured: therefore a micro-batch
with prods is followed by one without, each is compared with its neighbours that have none, and the median of these
differences counts, with the interval in which it lies in 95 of 100 draws from them. The final answers of all are
compared, too.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
import time
from pathlib import Path
from statistics import mean, median

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table
from timing import bench

import panewise as pw
from panewise.cli.prod import prod
from panewise.data import traffic

PLAN = pw.sliding_windows("10 minutes", "2 minutes").by("sensor").at("ts", pw.slack("30 seconds"))
AGG = {"n": "count(*)", "mean": "avg(speed)", "top": "max(speed)"}
FILE_ROWS = 2_000_000
EVERY = 1.0
NEAR = 3
"""How many micro-batches away a neighbour may be."""
WITHOUT, CLOCK, FILE = "without prods", "every second, by the clock", "every second, by files"
Took = list[tuple[bool, float]]
"""Of each micro-batch of a query, but for the first, whether there were prods in it, and its seconds."""


def _run(spark: SparkSession, data: Path, out: Path, way: str, given: argparse.Namespace, turn: float) -> Took:
    """Run a query; by the clock there are prods for so many seconds, then for as many none."""
    shutil.rmtree(out, ignore_errors=True)
    control = str(out / "control")
    pw.Control(spark, control)
    schema = spark.read.parquet(str(data)).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", given.each).parquet(str(data))
    ticks = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
    asked = {
        WITHOUT: {},
        CLOCK: {
            "prods": pw.prodder(f"{EVERY} seconds"),
            "clock": ticks.filter(F.pmod(F.unix_seconds("timestamp"), F.lit(2 * turn)) < turn),
        },
        FILE: {"prods": True},
    }[way]
    found = PLAN.segments(stream, AGG, control=control, shards=given.shards, **asked)
    query = (
        found.writeStream.format("parquet")
        .option("path", str(out / "found"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    over, latest = threading.Event(), 0.0
    try:
        while pw.progress(query).rows < given.rows:
            if query.exception() is not None:
                raise RuntimeError(query.exception())
            told = query.lastProgress
            # what is written during one micro-batch is read by the next
            if way == FILE and told is not None and told.batchId % 2 and time.monotonic() > latest + EVERY:
                latest = time.monotonic()
                prod(control, None, (), "local[2]", {})
            over.wait(0.1)
    finally:
        query.stop()
    reports = [report for report in query.recentProgress if report.numInputRows > FILE_ROWS // 2][1:]
    return [
        (any(m.asDict().get("asked") for m in report.observedMetrics.values()), report.batchDuration / 1000)
        for report in reports
    ]


def _differences(took: Took) -> tuple[list[float], list[float]]:
    """How much longer each micro-batch with prods took than its nearest without, and how long those took."""
    differences, quiet = [], []
    for i, (prodded, seconds) in enumerate(took):
        sides = (took[max(i - NEAR, 0) : i][::-1], took[i + 1 : i + 1 + NEAR])
        beside = [next((each for was, each in side if not was), None) for side in sides]
        known = [each for each in beside if each is not None]
        if prodded and known:
            differences.append(seconds - mean(known))
            quiet.append(mean(known))
    return differences, quiet


def _interval(differences: list[float]) -> tuple[float, float]:
    """Where the median lies in 95 of 100 draws."""
    drawn = np.random.default_rng(7).choice(np.array(differences), (10_000, len(differences)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return float(low), float(high)


def _finals(spark: SparkSession, out: Path) -> DataFrame:
    found = spark.read.parquet(str(out / "found"))
    found = found.filter("timing = 'final'") if "timing" in found.columns else found
    return found.select("sensor", "segment.start", "n", "mean", "top")


def main() -> int:
    """Run it and print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=96_000_000)
    options.add_argument("--sensors", type=int, default=600)
    options.add_argument("--each", type=int, default=4, help="how many files a micro-batch has")
    options.add_argument("--times", type=int, default=3, help="queries with prods, of each kind")
    options.add_argument("--shards", type=int, default=16)
    given = options.parse_args()
    if given.rows % FILE_ROWS or given.rows < 4 * given.each * FILE_ROWS:
        options.error(f"--rows must be a multiple of {FILE_ROWS:,}, and enough for four micro-batches")
    console = Console()
    with bench(**{"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.numRecentProgressUpdates": "1000"}) as (
        spark,
        folder,
    ):
        data = folder / "traffic"
        with console.status(f"generating {given.rows:,} rows of {given.sensors:,} sensors"):
            traffic.write(str(data), given.rows, sensors=given.sensors, files=given.rows // FILE_ROWS)
        outs = {way: folder / str(i) for i, way in enumerate((WITHOUT, FILE, CLOCK))}
        with console.status("timing"):
            alone = [seconds for _, seconds in _run(spark, data, outs[WITHOUT], WITHOUT, given, EVERY)]
            pairs: dict[str, tuple[list[float], list[float]]] = {FILE: ([], []), CLOCK: ([], [])}
            for way in (FILE, CLOCK) * given.times:
                for known, more in zip(
                    pairs[way],
                    _differences(_run(spark, data, outs[way], way, given, median(alone))),
                    strict=True,
                ):
                    known.extend(more)
        if not all(differences for differences, _ in pairs.values()):
            console.print(
                "No micro-batch had prods and a neighbour without: there are too few of them. Give more --rows."
            )
            return 1
        first, *others = (_finals(spark, out) for out in outs.values())
        if not first.count() or any(
            not first.exceptAll(o).isEmpty() or not o.exceptAll(first).isEmpty() for o in others
        ):
            console.print("The final answers differ.")
            return 1
        title = f"10 minutes by 2, {given.sensors:,} sensors, {given.rows:,} rows, {given.shards} shards"
        table = Table(title=title)
        for heading in ("", "micro-batches", "seconds without a prod", "longer with one", "", "95 %"):
            table.add_column(heading, justify="right" if heading else "left")
        table.add_row(WITHOUT, str(len(alone)), f"{median(alone):.3f}", "", "", "")
        for way, (differences, quiet) in pairs.items():
            usual, more = median(quiet), median(differences)
            low, high = (each / usual for each in _interval(differences))
            table.add_row(
                way, str(len(differences)), f"{usual:.3f}", f"{more:+.3f} s", f"{more / usual:+.1%}",
                f"{low:+.1%} to {high:+.1%}",
            )  # fmt: skip
        console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

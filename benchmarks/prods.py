"""What prods cost: the same stream three ways, in one session, on the same files.

Averages of ten minutes, one every two, of each sensor, from files of traffic reports, two million rows in each and
`--each` files to a micro-batch: without prods; prodded every second, for all that is open, by the clock; and by a file
in the control folder, as another process would write it. A prod is answered at the end of its micro-batch, several of
one micro-batch with one answer, and the clock asks once in it at most: so what prods cost is a part of each
micro-batch, and a smaller one of a longer one. What counts is when final answers come, which is how long micro-batches
are: the median of all of them, but for the first of each query, which starts Python workers or finds some that the
query before has left. The machine is faster in one minute and slower in the next, by more than what is measured:
therefore there are prods for some seconds and then none for as many, and micro-batches with one are compared with those
of the same queries without. The final answers of all are compared, too.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
import time
from itertools import chain
from pathlib import Path
from statistics import median

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
WITHOUT, CLOCK, FILE = "without prods", "every second, by the clock", "every second, by a file"
WAYS = (WITHOUT, CLOCK, FILE)
QUIET = {CLOCK: "a clock that is silent", FILE: "asked for by nobody"}
SHARDS = 4
TURN = 4
"""For how many micro-batches there are prods, or none, more or less."""
Took = dict[str, list[float]]


def _run(spark: SparkSession, data: Path, out: Path, way: str, rows: int, each: int, turn: float) -> Took:
    """The seconds of micro-batches with rows; for so many seconds there are prods, then for as many none."""
    shutil.rmtree(out, ignore_errors=True)
    control = str(out / "control")
    pw.Control(spark, control)
    schema = spark.read.parquet(str(data)).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", each).parquet(str(data))
    ticks = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
    asked = {
        WITHOUT: {},
        CLOCK: {
            "prods": pw.prodder(f"{EVERY} seconds"),
            "clock": ticks.filter(F.pmod(F.unix_seconds("timestamp"), F.lit(2 * turn)) < turn),
        },
        FILE: {"prods": True},
    }[way]
    found = PLAN.segments(stream, AGG, control=control, shards=SHARDS, **asked)
    over = threading.Event()
    query = (
        found.writeStream.format("parquet")
        .option("path", str(out / "found"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    asking = threading.Thread(target=_ask, args=(control, over, turn))
    if way == FILE:
        asking.start()
    try:
        while pw.progress(query).rows < rows:
            if query.exception() is not None:
                raise RuntimeError(query.exception())
            over.wait(0.2)
    finally:
        over.set()
        if way == FILE:
            asking.join()
        query.stop()
    took: Took = {}
    for report in [report for report in query.recentProgress if report.numInputRows > FILE_ROWS // 2][1:]:
        told = [metrics.asDict().get("asked") for metrics in report.observedMetrics.values()]
        took.setdefault(way if any(told) else QUIET.get(way, way), []).append(report.batchDuration / 1000)
    return took


def _ask(control: str, over: threading.Event, turn: float) -> None:
    while not over.wait(EVERY):
        if time.time() % (2 * turn) < turn:
            prod(control, None, (), "local[2]", {})


def _finals(spark: SparkSession, out: Path) -> DataFrame:
    found = spark.read.parquet(str(out / "found"))
    found = found.filter("timing = 'final'") if "timing" in found.columns else found
    return found.select("sensor", "segment.start", "n", "mean", "top")


def main() -> int:
    """Run it and print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=40_000_000)
    options.add_argument("--sensors", type=int, default=600)
    options.add_argument("--each", type=int, default=2, help="how many files a micro-batch has")
    options.add_argument("--times", type=int, default=6)
    given = options.parse_args()
    if given.rows % FILE_ROWS or given.rows < 2 * given.each * FILE_ROWS:
        options.error(f"--rows must be a multiple of {FILE_ROWS:,}, and enough for two micro-batches")
    console = Console()
    with bench(**{"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.numRecentProgressUpdates": "1000"}) as (
        spark,
        folder,
    ):
        data = folder / "traffic"
        with console.status(f"generating {given.rows:,} rows of {given.sensors:,} sensors"):
            traffic.write(str(data), given.rows, sensors=given.sensors, files=given.rows // FILE_ROWS)
        outs = {way: folder / str(i) for i, way in enumerate(WAYS)}
        took: Took = {}
        turn = 0.0
        with console.status("timing"):
            for i in range(given.times + 1):
                for way in WAYS[i % len(WAYS) :] + WAYS[: i % len(WAYS)]:
                    found = _run(spark, data, outs[way], way, given.rows, given.each, turn or EVERY)
                    if i:
                        for name, seconds in found.items():
                            took.setdefault(name, []).extend(seconds)
                    else:  # the first warms up, and says how long turns are
                        turn = TURN * median(chain(*found.values()))
        first, *others = (_finals(spark, out) for out in outs.values())
        if not first.count() or any(
            not first.exceptAll(o).isEmpty() or not o.exceptAll(first).isEmpty() for o in others
        ):
            console.print("The final answers differ.")
            return 1
        count = -(-given.rows // FILE_ROWS // given.each)
        title = f"10 minutes by 2, {given.sensors:,} sensors, {given.rows:,} rows in {count} micro-batches"
        table = Table(title=f"{title}, {given.times} times")
        for heading in ("", "micro-batches", "seconds, median", "against", "ratio"):
            table.add_column(heading, justify="left" if heading in ("", "against") else "right")
        for way in (WITHOUT, QUIET[FILE], FILE, QUIET[CLOCK], CLOCK):
            base = QUIET.get(way, QUIET[FILE])
            ratio = median(took[way]) / median(took[base])
            table.add_row(way, str(len(took[way])), f"{median(took[way]):.3f}", base, f"{ratio:.3f}")
        console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

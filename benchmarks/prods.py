"""What prods cost: the same stream four ways, in one session, on the same files.

Averages of ten minutes, one every two, of each sensor, from files of traffic reports, two million rows in each and
`--each` files to a micro-batch: without prods; with prods that nobody asks for; prodded every second, for all that is
open, by the clock; and by a file in the control folder, as another process would write it. A prod is answered at the
end of its micro-batch, several of one micro-batch with one answer, and the clock asks once in it at most: so what prods
cost is a part of each micro-batch, and a smaller one of a longer one. What counts is when final answers come, which is
how long micro-batches are: the median of all of them, but for the first of each query, which starts Python workers or
finds some that the query before has left. Whoever is first in one turn is last in the next, and the final answers of
all are compared.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
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
WAYS = ("without prods", "asked for by nobody", "every second, by the clock", "every second, by a file")


def _run(spark: SparkSession, data: Path, out: Path, way: str, rows: int, each: int) -> tuple[list[float], int]:
    """The seconds of each micro-batch with rows, and how many prods there were."""
    shutil.rmtree(out, ignore_errors=True)
    control = str(out / "control")
    pw.Control(spark, control)
    schema = spark.read.parquet(str(data)).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", each).parquet(str(data))
    asked = {WAYS[0]: None, WAYS[2]: pw.prodder(f"{EVERY} seconds")}.get(way, True)
    found = PLAN.segments(stream, AGG, prods=asked, control=control)
    over = threading.Event()
    query = (
        found.writeStream.format("parquet")
        .option("path", str(out / "found"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    asking = threading.Thread(target=_ask, args=(control, over))
    if way == WAYS[3]:
        asking.start()
    try:
        while pw.progress(query).rows < rows:
            if query.exception() is not None:
                raise RuntimeError(query.exception())
            over.wait(0.2)
    finally:
        over.set()
        if way == WAYS[3]:
            asking.join()
        query.stop()
    took = [report.batchDuration / 1000 for report in query.recentProgress if report.numInputRows > FILE_ROWS // 2]
    told_of = pw.progress(query).prods
    return took[1:], 0 if told_of is None else told_of.prods


def _ask(control: str, over: threading.Event) -> None:
    while not over.wait(EVERY):
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
    options.add_argument("--times", type=int, default=5)
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
        took: dict[str, list[float]] = {way: [] for way in WAYS}
        prods = dict.fromkeys(WAYS, 0)
        with console.status("timing"):
            for turn in range(given.times + 1):
                for way in WAYS[turn % len(WAYS) :] + WAYS[: turn % len(WAYS)]:
                    measured, asked = _run(spark, data, outs[way], way, given.rows, given.each)
                    if turn:  # the first warms up
                        took[way] += measured
                        prods[way] += asked
        first, *others = (_finals(spark, out) for out in outs.values())
        if not first.count() or any(
            not first.exceptAll(o).isEmpty() or not o.exceptAll(first).isEmpty() for o in others
        ):
            console.print("The final answers differ.")
            return 1
        count = -(-given.rows // FILE_ROWS // given.each)
        title = f"10 minutes by 2, {given.sensors:,} sensors, {given.rows:,} rows in {count} micro-batches"
        table = Table(title=f"{title}, {given.times} times")
        for heading in ("", "seconds of a micro-batch, median", "ratio", "best", "ratio", "prods"):
            table.add_column(heading, justify="right" if heading else "left")
        base = took[WAYS[1]]
        for way, each in took.items():
            figures = (median(each), median(each) / median(base), min(each), min(each) / min(base))
            table.add_row(way, *(f"{figure:.3f}" for figure in figures), str(prods[way]))
        console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

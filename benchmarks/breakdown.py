"""Where the time of a stream goes: the same files, through more and more of its stages; and empty micro-batches.

Each way does what the one before does, and one thing more: Spark deals row groups to tasks; workers read them, and pack
their rows into pages, by shard (or, `--by-spark`: Spark reads the columns; they come to Python; they are packed); pages
are shuffled, and Spark's stateful stage is given them, reads and writes a state, and does nothing; frames are found,
and what is open is kept; segments are unpacked. A micro-batch is a file; the median counts, without the first two. How
many cores are busy is the processor time of Spark and its workers over all of that.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from rich.console import Console
from timing import bench, told

import panewise as pw
from panewise.data import traffic
from panewise.spark.processor import Processor
from panewise.spark.report import STAGED
from panewise.spark.shard import ShardRunner
from panewise.spark.source import Dealt, apply
from panewise.spark.stream import packed
from panewise.spark.streamscan import stream_scan_of
from panewise.spec.emit import FINAL

PLAN = pw.threshold_frames("speed <= 45", min_rows=6).by("sensor").at("ts", pw.slack("0 seconds"))
SKIPPED = 2
"""How many micro-batches at the beginning do not count."""
EMPTY = 12


class Nothing(StatefulProcessor):
    """Reads a value and its pages, and writes the value."""

    def init(self, handle: Any) -> None:
        self._value = handle.getValueState("value", "value binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803  # Spark calls it so
        self._value.get()
        for _ in rows:
            pass
        self._value.update((b"state",))
        return iter(())

    def close(self) -> None:
        pass


def _dropped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    return iter(())


def ways(shards: int, by_spark: bool) -> dict[str, Callable[[DataFrame], DataFrame]]:
    """One stage more each."""

    def applied(df: DataFrame) -> Any:
        return apply(PLAN, (), df, FINAL, Dealt(shards, False))

    def scan(df: DataFrame) -> Any:
        return stream_scan_of(df, applied(df).layout, late=False)

    def elements(df: DataFrame) -> Any:
        return applied(df).df.drop("kind", "clock", "shard")

    def pages(df: DataFrame) -> DataFrame:
        layout = applied(df).layout
        if by_spark:
            return packed(elements(df), layout, shards)
        return packed(scan(df).marks(df), layout, shards, read=scan(df).rows)

    def staged(df: DataFrame, processor: StatefulProcessor) -> DataFrame:
        return pages(df).groupBy("lane").transformWithStateInPandas(processor, STAGED, "Append", "None")

    first: dict[str, Callable[[DataFrame], DataFrame]] = {"Spark deals row groups": lambda df: scan(df).marks(df)}
    if by_spark:
        first = {
            "Spark reads": lambda df: df.select("sensor", "ts", "speed"),
            "to Python": lambda df: elements(df).mapInArrow(_dropped, "nothing int"),
        }
    return {
        **first,
        "packed" if by_spark else "read by workers, packed": pages,
        "shuffled, given to a stateful stage": lambda df: staged(df, Nothing()),
        "frames, and their state": lambda df: staged(df, Processor(ShardRunner(applied(df).layout, shards, False))),
        "segments, unpacked": lambda df: PLAN.segments(df.where("true") if by_spark else df, shards=shards),
    }


def _run(spark: SparkSession, files: Path, built: Callable[[DataFrame], DataFrame], out: Path) -> tuple[float, float]:
    """The median of seconds that a micro-batch takes, and how many cores are busy."""
    schema = traffic.SCHEMA
    stream = spark.readStream.schema(spark.createDataFrame(schema.empty_table()).schema)
    rows = stream.option("maxFilesPerTrigger", 1).parquet(str(files))
    before = _used()
    query = (
        built(rows).writeStream.format("noop").option("checkpointLocation", str(out)).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    took = [progress.durationMs["triggerExecution"] / 1e3 for progress in query.recentProgress]
    return median(took[SKIPPED:]), (_used() - before) / sum(took)


def _used() -> float:
    """Seconds of processor time of all processes that this one has started and that live."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def main() -> int:
    """Run it and print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--sensors", type=int, default=600)
    options.add_argument("--files", type=int, default=10)
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--shards", type=int, default=4, help="twice as many as cores")
    options.add_argument("--by-spark", action="store_true", help="let Spark read the rows")
    options.add_argument("--note", type=Path, help="a file to add the figures to")
    given = options.parse_args()
    console = Console()
    with bench(**{"spark.sql.shuffle.partitions": "2"}) as (spark, folder):
        full, empty = folder / "full", folder / "empty"
        with console.status(f"generating {given.rows:,} rows"):
            traffic.write(str(full), given.rows, sensors=given.sensors, files=given.files)
            empty.mkdir()
            for i in range(EMPTY):
                pq.write_table(traffic.SCHEMA.empty_table(), empty / f"{i:02}.parquet")
        runs = 0
        best: dict[tuple[str, Path], tuple[float, float]] = {}
        with console.status("timing"):
            stages = ways(given.shards, given.by_spark)
            for _ in range(given.times + 1):
                for name, built in stages.items():
                    for files in (full, empty):
                        runs += 1
                        took = _run(spark, files, built, folder / f"run-{runs}")
                        # the first round warms up
                        if runs > 2 * len(stages):
                            best[name, files] = min(best.get((name, files), took), took)
    each, rows, before = given.rows / given.files, [], [0.0, 0.0]
    for name in stages:
        (some, busy), (none, _) = best[name, full], best[name, empty]
        rows.append(
            (
                name,
                f"{some:.2f}",
                f"{some - before[0]:+.2f}",
                f"{each / some:,.0f}",
                f"{busy:.1f}",
                f"{none * 1e3:.0f}",
                f"{(none - before[1]) * 1e3:+.0f}",
            )
        )
        before = [some, none]
    columns = ("stage", "seconds", "more", "rows/s", "cores busy", "empty, ms", "more")
    title = f"Stages of a stream: micro-batches of {each:,.0f} rows, {given.sensors:,} sensors, {given.shards} shards"
    title += " (Spark reads)" if given.by_spark else ""
    told(console, title, columns, rows, given.note)
    return 0


if __name__ == "__main__":
    sys.exit(main())

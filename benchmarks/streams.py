"""Threshold frames in a stream against what one would write by hand, in one session, on the same files.

All read files of traffic reports, micro-batch by micro-batch (availableNow; one file each, or several), and find
every stretch of at least six reports at or below 45 mph. What they write is compared; then rows per second are, with
results that go nowhere, as in the other benchmarks (or into Parquet files: `--sink parquet`). Those written by hand, of
which Spark has two ways, trust the order of rows and take long, so they may be given fewer rows (`--by-hand`): their
rate is what counts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from memory import WorkerMemory
from obvious import BY_HAND
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from timing import LONG, WARM, told

import panewise as pw
from panewise.data import traffic

SPEED, LEAST = 45, 6
PLAN = pw.threshold_frames(f"speed <= {SPEED}", min_rows=LEAST).by("sensor").at("ts", pw.slack("0 seconds"))
FILES = 10


def _stream(spark: SparkSession, folder: Path, files: int, at_a_time: int) -> DataFrame:
    names = "{" + ",".join(sorted(path.name for path in folder.glob("*.parquet"))[:files]) + "}"
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", at_a_time).parquet(str(folder / names))


def _run(found: DataFrame, out: Path, sink: str) -> tuple[float, int]:
    """Seconds, and the bytes of state after the last micro-batch."""
    shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    write = found.writeStream.format(sink).option("checkpointLocation", str(out / "checkpoint"))
    write = write.option("path", str(out / "found")) if sink == "parquet" else write
    query = write.trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = time.perf_counter() - began
    observed = [value for p in query.recentProgress for value in (p.observedMetrics or {}).values()]
    return seconds, observed[-1]["state_bytes"] if observed else 0


def _ours(df: DataFrame, shards: int) -> DataFrame:
    return PLAN.segments(df, shards=shards).select("sensor", "segment.start", "segment.end", "rows")


def _same(spark: SparkSession, ours: Path, theirs: Path) -> bool:
    """Whether both found the same, as far as both have come: the last quarter may still be under way."""
    a, b = (spark.read.parquet(str(path / "found")) for path in (ours, theirs))
    first, last = b.agg(F.min("start"), F.max("end")).first()
    a, b = (df.filter(df.end < last - (last - first) / 4) for df in (a, b))
    return a.count() > 0 and a.exceptAll(b).isEmpty() and b.exceptAll(a).isEmpty()


def _rows(
    spark: SparkSession, folder: Path, given: argparse.Namespace, sensors: int, files: int, at_a_time: int,
    console: Console,
) -> list[tuple[str, ...]]:  # fmt: skip
    """What each took, of so many sensors, in micro-batches of so many files; those by hand are given some files."""
    data, part = folder / f"traffic-{sensors}", given.rows // FILES
    if not data.exists():
        with console.status(f"generating {given.rows:,} rows of {sensors:,} sensors"):
            traffic.write(str(data), given.rows, sensors=sensors, files=FILES)
    ours, theirs = folder / "ours", {name: folder / name for name in BY_HAND}

    def run(name: str, count: int, sink: str = given.sink) -> tuple[float, int]:
        stream = _stream(spark, data, count, at_a_time)
        found = BY_HAND[name](stream, SPEED, LEAST) if name else _ours(stream, given.shards)
        return _run(found, theirs.get(name, ours), sink)

    with console.status(f"{sensors:,} sensors: warming up, comparing results"):
        few = max(2, at_a_time)
        run("", few, "parquet")
        for name in BY_HAND:
            run(name, min(few, files), "parquet")
            if files >= few and not _same(spark, ours, theirs[name]):
                raise SystemExit(f"{name} does not find the same segments.")
        with WorkerMemory() as memory:
            spent, state = run("", FILES)
        # all have run for as long before anything is timed
        while spent < 2 * WARM:
            spent += run("", FILES)[0]
        for name in BY_HAND:
            spent = 0.0
            while spent < 2 * WARM:
                spent += run(name, files)[0]
    best, others = float("inf"), dict.fromkeys(BY_HAND, float("inf"))
    with console.status(f"{sensors:,} sensors: timing"):
        for i in range(given.times):
            best = min(best, run("", FILES)[0])
            for name in BY_HAND:
                # what takes long is timed once
                if not i or others[name] <= LONG:
                    others[name] = min(others[name], run(name, files)[0])
    rate, who = given.rows / best, f"{sensors:,}"
    size, each = f"{memory.peak / 1e6:,.0f}", f"{state / sensors:,.0f}"
    found = [(who, "panewise", f"{given.rows:,}", f"{best:.1f}", f"{rate:,.0f}", "", each, size)]
    for name, took in others.items():
        base = files * part / took
        ratio = f"panewise is {rate / base:.1f} times as fast"
        found.append((who, name, f"{files * part:,}", f"{took:.1f}", f"{base:,.0f}", ratio, "", ""))
    return found


def main() -> int:
    """Run it and print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--sensors", type=int, nargs="+", default=[600, 100_000])
    options.add_argument("--by-hand", type=int, nargs="+", default=[10, 2], help="files for the others, of ten")
    options.add_argument("--at-a-time", type=int, nargs="+", default=[1], help="files of a micro-batch, of ten")
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--sink", choices=["noop", "parquet"], default="noop", help="where results go")
    options.add_argument("--shards", type=int, default=4, help="twice as many as cores")
    options.add_argument("--note", type=Path, help="a file to add the figures to")
    given = options.parse_args()
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="panewise-bench-"))
    # Spark's workers import what stands beside this file
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "6g", "spark.sql.shuffle.partitions": "2"}
    spark = pw.session("local[2]", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        for at_a_time in given.at_a_time:
            found = [
                row
                for sensors, files in zip(given.sensors, given.by_hand, strict=True)
                for row in _rows(spark, folder, given, sensors, max(files, at_a_time), at_a_time, console)
            ]
            batches = -(-FILES // at_a_time)
            each = f"{batches} micro-batch{'es' if batches > 1 else ''} of {given.rows // batches:,} rows"
            title = f"Streams: threshold, at least 6 rows, {each}"
            title += ", written to Parquet files" if given.sink == "parquet" else ""
            columns = ("sensors", "", "rows", "seconds", "rows/s", "ratio", "state bytes/key", "largest worker MB")
            told(console, title, columns, found, given.note)
    finally:
        spark.stop()
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

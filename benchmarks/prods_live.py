"""When final answers come, with prods and without: a live stream, three ways in turn, in one session.

Averages of ten seconds, one every two, of each sensor, over rows that come as fast as `--rate` says, in a file every
tenth of a second, each with the instant at which it was made: without prods; prodded every second, for all that is
open, by the clock; and by files in the control folder, as another process would write them. Latency runs from the first
row of a window to its final answer being there; a window in which a row is missing is an error. `prods.py` asks how
much longer the micro-batches of a replay take, which is all that a machine can do.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import threading
import time
from pathlib import Path
from statistics import mean

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from timing import bench, told

import panewise as pw
from panewise.cli.prod import prod

RANGE, SLIDE = 10, 2
FILES = 10
"""How many come in a second."""
AGG = {"n": "count(*)", "mean": "avg(speed)", "top": "max(speed)"}
PLAN = pw.sliding_windows(f"{RANGE} seconds", f"{SLIDE} seconds").by("sensor").at("ts", pw.slack("0 seconds"))
WITHOUT, CLOCK, FILE = "without prods", "every second, by the clock", "every second, by files"
WARM = 15
"""Seconds at the beginning that do not count."""
ASKED = {WITHOUT: {}, CLOCK: {"prods": pw.prodder("1 second")}, FILE: {"prods": True}}


class Results:
    """When each window was there, of a query that runs; and how many early answers there were."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given, self.there, self.early, self.batches = given, dict[float, float](), 0, 0

    def take(self, df: DataFrame, _batch: int) -> None:
        """Take the results of a micro-batch."""
        wanted = df.selectExpr(
            "segment.end", "n", "timing" if "timing" in df.columns else "'final' as timing"
        ).toArrow()
        now, self.batches = time.time(), self.batches + 1
        seen: dict[float, int] = {}
        for row in wanted.to_pylist():
            if row["timing"] == "early":
                self.early += 1
            else:
                end = row["end"].timestamp()
                seen[end] = seen.get(end, 0) + row["n"]
        for end, rows in seen.items():
            if self.there and end > min(self.there) + RANGE and rows != self._given.rate * RANGE:
                raise ValueError(f"The window that ends at {end} has {rows:,} rows.")
            self.there[end] = now

    def latencies(self) -> list[float]:
        """Of each window that counts."""
        first = min(self.there) + WARM
        return [there - (end - RANGE) for end, there in self.there.items() if end > first]


def _run(spark: SparkSession, out: Path, way: str, given: argparse.Namespace) -> Results:
    control = str(out / "control")
    pw.Control(spark, control)
    (out / "rows").mkdir()
    rows = spark.readStream.schema("sensor int, ts timestamp, speed double").parquet(str(out / "rows"))
    results, over = Results(given), threading.Event()
    feed = threading.Thread(target=_feed, args=(out / "rows", given, over))
    found = PLAN.segments(rows, AGG, control=control, shards=given.shards, **ASKED[way])
    query = found.writeStream.foreachBatch(results.take).option("checkpointLocation", str(out / "checkpoint")).start()
    feed.start()
    try:
        until = time.monotonic() + WARM + given.seconds
        while time.monotonic() < until:
            if query.exception() is not None:
                raise RuntimeError(query.exception())
            if way == FILE:
                prod(control, None, (), "local[2]", {})
            over.wait(1.0)
    finally:
        over.set()
        feed.join()
        query.stop()
    return results


def _feed(folder: Path, given: argparse.Namespace, over: threading.Event) -> None:
    """Write what comes, when it has come."""
    each = given.rate // FILES
    number = np.arange(each)
    began = -(-int(time.time()) // SLIDE) * SLIDE + SLIDE
    for file in itertools.count():
        until = began + (file + 1) / FILES
        if over.wait(max(until - time.time(), 0)):
            return
        ts = began * 1_000_000 + file * (1_000_000 // FILES) + number * (1_000_000 // FILES) // each
        columns = [pa.array(number % given.sensors, pa.int32()), pa.array(ts, pa.timestamp("us", "UTC"))]
        speeds = pa.array((number + file) * 7919 % 1000, pa.float64())
        hidden = folder / f".{file}"
        pq.write_table(pa.table([*columns, speeds], ["sensor", "ts", "speed"]), hidden)
        hidden.rename(folder / f"{file:06}.parquet")


def main() -> int:
    """Run it and print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--rate", type=int, default=200_000, help="rows a second")
    options.add_argument("--sensors", type=int, default=500)
    options.add_argument("--seconds", type=int, default=40, help="of each query, but for its first")
    options.add_argument("--times", type=int, default=2, help="an even number is fair")
    options.add_argument("--shards", type=int, default=16)
    options.add_argument("--note", type=Path, help="a file to add the figures to")
    given = options.parse_args()
    if given.rate % (FILES * given.sensors):
        options.error(f"--rate must be a multiple of {FILES} times --sensors")
    console = Console()
    took: dict[str, list[float]] = {way: [] for way in ASKED}
    early, batches = dict.fromkeys(ASKED, 0), dict.fromkeys(ASKED, 0)
    with bench(**{"spark.sql.shuffle.partitions": "2"}) as (spark, folder):
        # the first query of a session is slow
        _run(spark, folder / "warm", FILE, given)
        for turn in range(given.times):
            # a session becomes faster for some time: each way is as often early as late
            for way in ASKED if turn % 2 == 0 else reversed(ASKED):
                results = _run(spark, folder / f"{turn}-{way.split()[-1]}", way, given)
                took[way] += results.latencies()
                early[way] += results.early
                batches[way] += results.batches
    usual, found = np.array(took[WITHOUT]), []
    random = np.random.default_rng(7)
    for way, seconds in took.items():
        each = np.array(seconds)
        ratios = [
            random.choice(each, len(each)).mean() / random.choice(usual, len(usual)).mean() - 1 for _ in range(5_000)
        ]
        low, high = np.quantile(ratios, [0.025, 0.975])
        change = (
            ["", ""] if way == WITHOUT else [f"{mean(seconds) / usual.mean() - 1:+.1%}", f"{low:+.1%} to {high:+.1%}"]
        )
        found.append(
            (
                way,
                str(len(each)),
                f"{batches[way]:,}",
                f"{early[way]:,}",
                f"{mean(seconds):.2f}",
                f"{mean(seconds) - RANGE:.2f}",
                *change,
            )
        )
    columns = (
        "",
        "windows",
        "micro-batches",
        "early answers",
        "seconds to a final one",
        "after its end",
        "change",
        "95 %",
    )
    title = f"Prods in a live stream: {RANGE} s by {SLIDE}, {given.rate:,} rows/s of {given.sensors:,} sensors"
    told(console, title, columns, found, given.note)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Fill against Spark's own join with `between`, in one session, on the same files; and fused fill against framing.

Ten million rows of traffic fill a hundred thousand stored segments over 600 detectors, each with a count, a sum and an
average. The join is given what it does best: the segments broadcast, or a shuffle, whichever is faster. What it takes
to build each of them is timed with it, from DataFrames that read the files.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console
from timing import agree, bench, take_turns, told

import panewise as pw
from panewise.data import traffic

PLAN = pw.threshold_frames("speed <= 45", min_rows=6).by("sensor").at("ts")
AGG = {"n": "count(*)", "volume": "sum(volume)", "mean": "avg(speed)"}
ALONE = pw.threshold_frames("speed <= 30", min_rows=6).by("sensor").at("ts")


def stored(path: Path, rows: Path, segments: int, sensors: int) -> None:
    """Segments of random lengths, those of one sensor apart from each other, over the time of the rows."""
    seen = pq.read_table(rows, columns=["ts"]).column("ts").cast(pa.int64())
    first, last = seen.combine_chunks().to_numpy().min(), seen.combine_chunks().to_numpy().max()
    each = segments // sensors
    random = np.random.default_rng(7)
    cuts = np.sort(random.integers(first, last, (sensors, 2 * each)), axis=1)
    struct = pa.StructArray.from_arrays(
        [
            pa.array(np.tile(np.arange(each), sensors)),
            pa.array(cuts[:, ::2].reshape(-1), pa.timestamp("us", "UTC")),
            pa.array(cuts[:, 1::2].reshape(-1), pa.timestamp("us", "UTC")),
            pa.array(["[]"] * (each * sensors)),
        ],
        names=["id", "start", "end", "bounds"],
    )
    owner = pa.array(np.repeat(np.arange(sensors, dtype=np.int32), each))
    pq.write_table(pa.table({"sensor": owner, "segment": struct}), path)


def joined(segments: DataFrame, rows: DataFrame, how: str) -> DataFrame:
    """Spark's join with `between`."""
    s = segments.select("sensor", F.col("segment.id").alias("id"), "segment.start", "segment.end").hint(how)
    inside = (rows.sensor == s.sensor) & rows.ts.between(s.start, s.end)
    found = rows.join(s, inside).groupBy(s.sensor, "id")
    return found.agg(F.count("*").alias("n"), F.sum("volume").alias("volume"), F.avg("speed").alias("mean"))


def main() -> int:
    """Run it and print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--segments", type=int, default=100_000)
    options.add_argument("--sensors", type=int, default=600)
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--note", type=Path, help="a file to add the figures to")
    given = options.parse_args()
    console = Console()
    with bench() as (spark, folder):
        with console.status("generating"):
            traffic.write(str(folder / "rows"), given.rows, sensors=given.sensors, files=10)
            stored(folder / "segments.parquet", folder / "rows", given.segments, given.sensors)
        rows, segments = (spark.read.parquet(str(folder / name)) for name in ("rows", "segments.parquet"))
        theirs = {how: partial(joined, segments, rows, how) for how in ("broadcast", "shuffle_hash", "merge")}
        with console.status("comparing results"):
            ours = PLAN.fill(segments, rows).agg(AGG).selectExpr("sensor", "segment.id", *AGG)
            if not agree(ours, theirs["broadcast"](), ["sensor", "id"]):
                console.print("The two do not find the same.")
                return 1
        jobs = {
            "fill": lambda: PLAN.fill(segments, rows).agg(AGG),
            "fill, rows from any DataFrame": lambda: PLAN.fill(segments, rows.filter("sensor >= 0")).agg(AGG),
            **{f"join with between, {how}": build for how, build in theirs.items()},
            "framing alone": lambda: ALONE.segments(rows),
            "fused fill": lambda: ALONE.fill(rows, rows).agg(AGG),
        }
        best, memory = take_turns(jobs, given.times, console)
        found = []
        for name, took in best.items():
            base = "framing alone" if "fused" in name or "framing" in name else "fill"
            found.append((name, f"{took:.2f}", f"{took / best[base]:.2f} times {base}", f"{memory[name]:,}"))
        title = f"Fill: {given.rows:,} rows, {given.segments:,} stored segments, {given.sensors:,} sensors"
        told(console, title, ("", "seconds", "takes", "worker MB"), found, given.note)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Fill against Spark's own join with `between`, in one session, on the same files; and fused fill against framing.

Twenty million rows of traffic fill a hundred thousand stored segments over 600 detectors, each with a count, a sum and
an average. The join is given what it does best: the segments broadcast, or a shuffle, whichever is faster. DuckDB and
Polars have a join for segments that do not overlap, as these: a row finds the last that starts before it. What it
takes to build each of them is timed with it, from DataFrames that read the files.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
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


def in_duckdb(folder: Path) -> pa.Table:
    """DuckDB's ASOF join, with as many threads as there are cores."""
    segments = f"select sensor, segment.id as id, segment.start as a, segment.end as b from '{folder}/segments.parquet'"
    asked = ", ".join(f"{text} as {name}" for name, text in AGG.items())
    with duckdb.connect() as db:
        db.execute("set preserve_insertion_order = false; set timezone = 'UTC'")
        return db.sql(
            f"select s.sensor, s.id, {asked} from read_parquet('{folder}/rows/*.parquet') r asof join ({segments}) s "
            "on r.sensor = s.sensor and r.ts >= s.a where r.ts <= s.b group by all"
        ).to_arrow_table()


def in_polars(folder: Path) -> pa.Table:
    """Polars' join_asof; rows come in order of time, as it wants them."""
    segments = pl.scan_parquet(folder / "segments.parquet").unnest("segment").select("sensor", "id", "start", "end")
    rows = pl.scan_parquet(folder / "rows" / "*.parquet").select(pl.col("ts").set_sorted(), "sensor", "volume", "speed")
    both = rows.join_asof(segments.sort("start"), left_on="ts", right_on="start", by="sensor", check_sortedness=False)
    inside = both.filter(pl.col("ts") <= pl.col("end")).group_by("sensor", "id")
    found = inside.agg(n=pl.len().cast(pl.Int64), volume=pl.col("volume").sum(), mean=pl.col("speed").mean())
    return found.collect().to_arrow()


def main() -> int:
    """Run it and print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=20_000_000)
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
            others = {"DuckDB": in_duckdb(folder), "Polars": in_polars(folder)}
            found = {name: spark.createDataFrame(table) for name, table in others.items()}
            found["Spark"] = theirs["broadcast"]()
            wrong = [name for name, other in found.items() if not agree(ours, other, ["sensor", "id"])]
            if wrong:
                console.print(f"{', '.join(wrong)}: something else is found.")
                return 1
        jobs: dict[str, Any] = {
            "fill": lambda: PLAN.fill(segments, rows).agg(AGG),
            "fill, rows from any DataFrame": lambda: PLAN.fill(segments, rows.filter("sensor >= 0")).agg(AGG),
            **{f"join with between, {how}": build for how, build in theirs.items()},
            "DuckDB, ASOF join": partial(in_duckdb, folder),
            "Polars, join_asof": partial(in_polars, folder),
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

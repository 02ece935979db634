"""Frames against Flink's MATCH_RECOGNIZE, on the same files: `make bench-flink`.

Flink runs in a process and an environment of its own, on two cores, in batch mode, because that is its fastest; what
both find is compared, but for the runs at the end of each sensor, which have no next row and which its pattern leaves
out; where frames end with the next row, that is the row with which Flink's next match begins. It is slow, so there are
fewer rows than elsewhere. The time that either takes to start is not counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import polars as pl
from frames import SCHEMES
from rich.console import Console
from timing import bench, take_turns, told

from panewise.data import traffic

ROOT = Path(__file__).parent.parent
JOBS = ("threshold", "volume")
KEYS = ["sensor", "start"]


def _flink(python: Path, files: Path, out: Path, job: str, times: int) -> tuple[float, pl.DataFrame]:
    """The best time of Flink, and what it found."""
    peer = Path(__file__).parent / "flink_peer.py"
    command = [python, peer, files, out, job, str(times)]
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"Flink failed:\n{ran.stderr[-4000:]}")
    found = pl.concat(
        pl.read_csv(path, has_header=False, new_columns=["sensor", "start", "end", "rows"], try_parse_dates=True)
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.stat().st_size
    )
    return min(json.loads(ran.stdout.splitlines()[-1])), found


def _same(ours: pl.DataFrame, theirs: pl.DataFrame, last: pl.DataFrame, chained: bool) -> bool:
    """Whether both found the same, but for what ends with the last report of a sensor, or with its last match."""
    times = [pl.col("start", "end").cast(pl.Datetime("ms"))]
    kinds = [pl.col("sensor", "rows").cast(pl.Int64)]
    a, b = (found.with_columns(times).with_columns(kinds).sort(KEYS) for found in (ours, theirs))
    if chained:
        b = b.with_columns(end=pl.col("start").shift(-1).over("sensor"))
        a = a.join(b.group_by("sensor").agg(final=pl.col("start").max()), on="sensor").filter(
            pl.col("start") < pl.col("final")
        )
        a, b = a.drop("final"), b.filter(pl.col("end").is_not_null())
    ends = last.with_columns(pl.col("last").cast(pl.Datetime("ms")), pl.col("sensor").cast(pl.Int64))
    a, b = (found.join(ends, on="sensor").filter(pl.col("end") < pl.col("last")).drop("last") for found in (a, b))
    return len(a) > 0 and a.sort(KEYS).equals(b.select(a.columns).sort(KEYS))


def main() -> int:
    """Run it and print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=2_000_000)
    options.add_argument("--sensors", type=int, default=600)
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--python", type=Path, required=True, help="Flink's: what scripts/flink.sh prints")
    options.add_argument("--note", type=Path, help="a file to add the figures to")
    given = options.parse_args()
    console = Console()
    found = []
    with bench(**{"spark.sql.shuffle.partitions": "2"}) as (spark, folder):
        files = folder / "traffic"
        with console.status(f"generating {given.rows:,} rows of {given.sensors:,} sensors"):
            traffic.write(str(files), given.rows, sensors=given.sensors, files=10)
        last = (
            pl.read_parquet(files / "*.parquet")
            .group_by("sensor")
            .agg(last=pl.col("ts").max().dt.replace_time_zone(None))
        )
        for name in JOBS:
            scheme = SCHEMES[name].by("sensor").at("ts")

            def ours(scheme=scheme):
                df = scheme.segments(spark.read.parquet(str(files)))
                return df.select("sensor", "segment.start", "segment.end", "rows")

            took, _ = take_turns({"panewise": ours}, given.times, console)
            with console.status(f"{name}: Flink"):
                seconds, theirs = _flink(given.python, files, folder / f"flink-{name}", name, given.times)
            table = pl.from_arrow(ours().toArrow())
            if not _same(
                table.with_columns(pl.col("start", "end").dt.replace_time_zone(None)), theirs, last, name == "volume"
            ):
                console.print(f"{name}: Flink finds something else.")
                return 1
            for who, each in (("panewise", took["panewise"]), ("Flink", seconds)):
                rate = given.rows / each
                ratio = f"{each / took['panewise']:.1f} times panewise"
                found.append((name, f"{len(table):,}", who, f"{each:.2f}", f"{rate:,.0f}", ratio))
        title = f"Flink's MATCH_RECOGNIZE: {given.rows:,} rows, {given.sensors:,} sensors, files in order of time"
        told(console, title, ("job", "segments", "who", "seconds", "rows/s", "takes"), found, given.note)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How frames grow: with more rows, the time and the memory of a worker; and one key on one core and on two.

Files of traffic reports in order of time; the best of three counts, and results go nowhere (`noop`). Machines are
slower when they have worked for long: beside frames stands Spark's own average of every five minutes over those files.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import peers
import psutil
from frames import SCHEMES
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from timing import bench, take_turns, told

from panewise.data import traffic

JOBS = ("threshold", "boundary", "delta, first", "delta, range", "volume")
TUMBLING = "tumbling 5 minutes"


def _found(spark: SparkSession, place: Path, name: str) -> DataFrame:
    return SCHEMES[name].by("sensor").at("ts").segments(spark.read.parquet(str(place)))


def _measured(
    place: Path, rows: int, sensors: int, cores: int, times: int, console: Console
) -> tuple[dict[str, float], dict[str, int]]:
    if not place.exists():
        with console.status(f"generating {rows:,} rows"):
            traffic.write(str(place), rows, sensors=sensors, files=max(10, rows // 5_000_000))
    with bench(cores, **{"spark.sql.shuffle.partitions": "2"}) as (spark, _), _on(cores):
        jobs = {name: partial(_found, spark, place, name) for name in JOBS}
        jobs[TUMBLING] = lambda: peers.tumbling(spark.read.parquet(str(place)))
        return take_turns(jobs, times, console)


@contextmanager
def _on(cores: int) -> Iterator[None]:
    """Let Spark and its workers have so many cores: it has threads beside those of its tasks."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    every = sorted(os.sched_getaffinity(0))
    _pin(every[:cores])
    try:
        yield
    finally:
        _pin(every)


def _pin(cores: list[int]) -> None:
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            for thread in process.threads():
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(thread.id, cores)


def main() -> int:
    """Run it and print the tables."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, nargs="*", default=[2_000_000, 20_000_000, 100_000_000])
    options.add_argument("--one-key", type=int, default=100_000_000, help="rows of one key; 0 for none")
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--data", type=Path, help="a folder for the files; they stay there")
    options.add_argument("--note", type=Path, help="a file to add the figures to")
    given = options.parse_args()
    console = Console()
    folder = given.data or Path(tempfile.mkdtemp(prefix="panewise-bench-"))
    try:
        found = []
        for rows in given.rows:
            took, memory = _measured(folder / f"{rows}-600", rows, 600, 2, given.times, console)
            found += [
                (name, f"{rows:,}", f"{seconds:.2f}", f"{seconds / rows * 1e6:.3f}", f"{memory[name]:,}")
                for name, seconds in took.items()
            ]
        if found:
            columns = ("job", "rows", "seconds", "seconds for a million", "worker MB")
            told(console, "Growth: 600 sensors, files in order of time", columns, sorted(found, key=_job), given.note)
        if given.one_key:
            # in one process of Java, which has warmed up for those on one core
            two, _ = _measured(folder / f"{given.one_key}-1", given.one_key, 1, 2, given.times, console)
            one, _ = _measured(folder / f"{given.one_key}-1", given.one_key, 1, 1, given.times, console)
            rows = [(name, f"{one[name]:.2f}", f"{two[name]:.2f}", f"{one[name] / two[name]:.2f}") for name in one]
            title = f"One key of {given.one_key:,} rows"
            told(console, title, ("job", "one core, seconds", "two cores", "times as fast"), rows, given.note)
    finally:
        if given.data is None:
            shutil.rmtree(folder)
    return 0


def _job(row: tuple[str, ...]) -> tuple[str, int]:
    return row[0], int(row[1].replace(",", ""))


if __name__ == "__main__":
    sys.exit(main())

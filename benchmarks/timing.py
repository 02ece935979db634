"""What benchmarks share: a session and a folder of their own, turns that are timed, results that are compared."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memory import WorkerMemory
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

import panewise as pw

__all__ = ["LONG", "WARM", "agree", "bench", "take_turns", "told"]

LONG = 60
"""Seconds: what takes longer is timed once."""
WARM = 10
"""Seconds that each has run before anything is timed: so long Java compiles what it runs, on cores that work needs."""


@contextmanager
def bench(cores: int = 2, **settings: str) -> Iterator[tuple[SparkSession, Path]]:
    """Spark on some cores, and a folder; both are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="panewise-bench-"))
    # Spark's workers import what stands beside this file
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    spark = pw.session(f"local[{cores}]", **{"spark.ui.enabled": "false", "spark.driver.memory": "6g", **settings})
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark, folder
    finally:
        spark.stop()
        shutil.rmtree(folder)


def _seconds(build: Callable[[], Any]) -> float:
    """How long it takes to build and compute it."""
    began = time.perf_counter()
    made = build()
    if isinstance(made, DataFrame):
        made.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def take_turns(
    jobs: Mapping[str, Callable[[], Any]], times: int, console: Console
) -> tuple[dict[str, float], dict[str, int]]:
    """The best time of each, of so many in a row; and what the largest Python worker took by then, in MB.

    All have run for a while before anything is timed, and each runs once more before its turn, watched: what ran before
    it leaves traces, of memory and of workers that have stopped. What takes long is timed once.
    """
    best, memory = {}, {}
    with console.status("warming up"):
        first = {name: _warmed(build) for name, build in jobs.items()}
    with console.status("timing"):
        for name, build in jobs.items():
            with WorkerMemory() as watched:
                took = _seconds(build)
            best[name] = took if first[name] > LONG else min(_seconds(build) for _ in range(times))
            memory[name] = round(watched.peak / 1e6)
    return best, memory


def _warmed(build: Callable[[], Any]) -> float:
    """How long it takes the first time; it runs for a while."""
    until = time.perf_counter() + WARM
    first = _seconds(build)
    while time.perf_counter() < until:
        _seconds(build)
    return first


def told(
    console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: Path | None
) -> None:
    """Print a table; and add it to a file, if there is one."""
    table = Table(title=title)
    for i, column in enumerate(columns):
        numbers = any(row[i][:1].isdigit() for row in rows)
        table.add_column(column, justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if note is not None:
        note.parent.mkdir(parents=True, exist_ok=True)
        with note.open("a", encoding="utf-8") as out:
            out.write(json.dumps({"title": title, "columns": columns, "rows": rows}) + "\n")


def agree(ours: DataFrame, theirs: DataFrame, keys: list[str]) -> bool:
    """Whether both have the same n, volume and mean for each key; means to twelve digits."""
    close = "(a.mean <=> b.mean or abs(a.mean - b.mean) <= 1e-12 * abs(b.mean))"
    unlike = F.expr(f"not (a.n <=> b.n and a.volume <=> b.volume and {close})")
    both = ours.alias("a").join(theirs.alias("b"), keys, "full")
    found = both.agg(F.count("*"), F.count_if(F.coalesce(unlike, F.lit(True)))).first()
    return found is not None and found[0] > 0 and found[1] == 0

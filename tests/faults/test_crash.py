"""A stream that is killed at any moment and started again gives what an undisturbed one and a batch give."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import panewise as pw
from faults.crash_child import AGG, AROUND, FILL_AGG, PLAN, SCHEMA, Job, stream
from panewise.data import traffic
from spark.tables import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHILD = Path(__file__).with_name("crash_child.py")
PATIENCE = 300
"""Seconds after which a child that does not get on is given up."""
SLACK, MINUTE = 30, 60_000_000


def deliver(folder: Path, count: int, files: int, too_late: float = 0.0, seed: int = 0, asks: bool = False) -> pa.Table:
    """Write traffic to files in an order of arrival: a tenth up to the slack late, some of it more; give the rows.

    With `asks`, each file ends with a prod.
    """
    table = traffic.table(count, seed=seed)
    rng = np.random.default_rng(1 + seed)
    delay = np.where(rng.random(count) < 0.1, rng.integers(0, SLACK * MINUTE, count), 0)
    delay = np.where(rng.random(count) < too_late, rng.integers(4 * 60 * MINUTE, 6 * 60 * MINUTE, count), delay)
    arrival = np.argsort(table["ts"].cast(pa.int64()).to_numpy() + delay, kind="stable")
    folder.mkdir()
    arrived = table.take(pa.array(arrival))
    for n in range(files):
        first, last = count * n // files, count * (n + 1) // files
        path, some = folder / f"{n:05d}.parquet", arrived.slice(first, last - first)
        if asks:
            asked = {name: [-1] if name == "volume" else [None] for name in some.column_names}
            some = pa.concat_tables([some, pa.table(asked, schema=some.schema)])
        pq.write_table(some, path)
        # Spark takes files in the order of these times
        os.utime(path, (1_700_000_000 + n, 1_700_000_000 + n))
    return table


# ---- a child, its JVM and its workers


class Child:
    """A run in a process session of its own, so that all of it can be killed at once."""

    def __init__(self, job: Job, log: Path) -> None:
        self._log = log
        with log.open("ab") as told:
            self._process = subprocess.Popen(
                [sys.executable, str(CHILD), json.dumps(asdict(job))], stdout=told, stderr=told, start_new_session=True
            )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def finish(self) -> None:
        code = self._process.wait(PATIENCE * 3)
        assert code == 0, f"the child ended with {code}:\n{self._tail()}"

    def wait_for(self, happened: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not happened():
            assert not self.ended, f"the child ended by itself, with {self._process.returncode}:\n{self._tail()}"
            assert time.monotonic() < end, f"nothing for {PATIENCE} s:\n{self._tail()}"
            time.sleep(0.01)

    def kill(self) -> None:
        """SIGKILL for the driver and its JVM, then for Python's workers, which are in a group of their own."""
        if self._process.returncode is not None:
            return
        session = self._process.pid
        os.killpg(session, signal.SIGKILL)
        left = [process for process in psutil.process_iter() if _session(process.pid) == session != process.pid]
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        _, there = psutil.wait_procs(left, timeout=10)
        # what nobody has waited for yet is dead all the same
        assert not [process for process in there if _runs(process)]

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-40:])


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


@contextmanager
def child(job: Job) -> Iterator[Child]:
    Path(job.folder).mkdir(exist_ok=True)
    started = Child(job, Path(job.folder, "log"))
    try:
        yield started
    finally:
        started.kill()


# ---- runs


def count(job: Job, what: str) -> int:
    """How many micro-batches were begun ("offsets") or done ("commits")."""
    folder = job.checkpoint / what
    return sum(path.name.isdigit() for path in folder.iterdir()) if folder.exists() else 0


def finish(job: Job) -> None:
    """A run to the end of the files, then one that closes everything."""
    with child(replace(job, final=True)) as running:
        running.finish()


def kill_within(job: Job, what: str, number: int, delay: float) -> str:
    """Start a run and kill it so many seconds after it has begun or done so many micro-batches; where that was."""
    with child(job) as running:
        running.wait_for(lambda: count(job, what) >= number)
        time.sleep(delay)
        assert not running.ended
        running.kill()
    begun, done = count(job, "offsets"), count(job, "commits")
    return f"{done} done" + (f", in {begun - 1}" if begun > done else "")


def disturbed(job: Job, batches: int, kills: int, seed: int) -> list[str]:
    """The same with kills, spread over the whole run and one in its last micro-batch; where they were."""
    random = Random(seed)
    places = [kill_within(job, "offsets", 1, random.uniform(0, 0.5))]
    for k in range(1, kills - 1):
        done = max(count(job, "commits") + 1, batches * k // (kills - 1))
        what = random.choice(("commits", "offsets"))
        # a fast machine may be further by now: then it is killed while it starts
        number = min(done + (what == "offsets"), batches)
        places.append(kill_within(job, what, number, random.uniform(0, 1.5)))
    places.append(kill_within(replace(job, final=True), "offsets", batches + 1, random.uniform(0, 0.5)))
    finish(job)
    assert count(job, "commits") == batches + 1
    return places


# ---- what came out


def found(spark: SparkSession, job: Job) -> DataFrame:
    return spark.read.parquet(str(job.out) if job.sink == "files" else f"{job.out}/segments").drop("batch")


def late(spark: SparkSession, job: Job) -> DataFrame:
    return spark.read.parquet(f"{job.out}/late").drop("batch")


def same(one: DataFrame, other: DataFrame) -> int:
    """Both hold the same rows, to the last bit, as often; how many."""
    here, there = rows(one.toArrow()), rows(other.toArrow())
    assert here == there
    return len(here)


def test_killed_once(tmp_path: Path) -> None:
    """A small stream, killed in its second micro-batch."""
    table = deliver(tmp_path / "in", 60_000, 3)
    job = Job(str(tmp_path / "in"), str(tmp_path / "run"), "files")
    place = kill_within(job, "offsets", 2, 0.2)
    finish(job)
    # the file sink's own list says which files count
    log = sorted((job.out / "_spark_metadata").glob("[0-9]*"), key=lambda path: int(path.name))
    kept = [json.loads(line)["path"] for path in log for line in path.read_text().splitlines()[1:]]
    segments = pa.concat_tables([pq.read_table(path.removeprefix("file://")) for path in kept])
    wanted = pw.segments_local(PLAN, table, AGG)
    assert len(wanted) > 100
    assert _plain(segments) == _plain(wanted)
    print(f"killed: {place}; {len(wanted)} segments")


def _plain(table: pa.Table) -> list[str]:
    segment = table["segment"].combine_chunks()
    bounds = [pc.cast(segment.field(name), pa.timestamp("us", "UTC")).to_pylist() for name in ("start", "end")]
    others = table.drop_columns(["segment"]).to_pylist()
    return sorted(repr((a, b, sorted(row.items()))) for a, b, row in zip(*bounds, others, strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("crash")


COUNT, FILES, KILLS = 5_000_000, 40, 10


@pytest.mark.slow
def test_the_file_sink_holds_each_segment_once(spark: SparkSession, folder: Path) -> None:
    deliver(folder / "kept", COUNT, FILES)
    calm, job = both(spark, folder, "kept", "files", "final", seed=1)
    segments = same(found(spark, job), found(spark, calm))
    batch = PLAN.segments(spark.read.schema(SCHEMA).parquet(job.rows), AGG)
    assert same(found(spark, job), batch) == segments
    print(f"{segments:,} segments")


@pytest.mark.slow
def test_segments_and_late_rows_overwritten_by_batch(spark: SparkSession, folder: Path) -> None:
    """Fragments, so that what was sent of an open segment is not sent again."""
    deliver(folder / "late", COUNT, FILES, too_late=0.001)
    calm, job = both(spark, folder, "late", "batches", "fragments", seed=2)
    parts = same(found(spark, job), found(spark, calm))
    missed = same(late(spark, job), late(spark, calm))
    assert missed > COUNT * 0.0005
    read = spark.read.schema(SCHEMA).parquet(job.rows)
    on_time = read.join(late(spark, job).select("row.sensor", "row.ts"), ["sensor", "ts"], "left_anti")
    assert on_time.count() == COUNT - missed
    segments = same(_whole(found(spark, job)), _whole(PLAN.segments(on_time, AGG)))
    assert parts > segments
    print(f"{segments:,} segments in {parts:,} parts, {missed:,} late rows")


@pytest.mark.slow
def test_two_streams_one_filled_from_the_other(spark: SparkSession, folder: Path) -> None:
    """Segments and rows that wait in chunks are there once after every restart; late rows of both streams too."""
    deliver(folder / "framing", COUNT // 2, FILES, too_late=0.001)
    deliver(folder / "filling", COUNT // 2, FILES, too_late=0.001, seed=1)
    calm, job = both(spark, folder, "framing", "batches", "final", seed=3, filling=str(folder / "filling"))
    segments = same(found(spark, job), found(spark, calm))
    missed = same(late(spark, job), late(spark, calm))
    sides = []
    for name, path in (("row", job.rows), ("filling", job.filling)):
        gone = late(spark, job).where(f"{name} is not null").select(f"{name}.sensor", f"{name}.ts")
        assert gone.count() > COUNT * 0.0002
        read = spark.read.schema(SCHEMA).parquet(path)
        sides.append(read.join(gone, ["sensor", "ts"], "left_anti"))
    batch = PLAN.fill(*sides, widen=AROUND, keep_empty=True).agg(FILL_AGG)
    assert same(found(spark, job), batch) == segments
    print(f"{segments:,} segments filled, {missed:,} late rows")


@pytest.mark.slow
def test_early_answers_and_their_numbers_survive(spark: SparkSession, folder: Path) -> None:
    """A prod in each micro-batch: each early answer is there once, and each final one knows all of them."""
    deliver(folder / "prodded", COUNT, FILES, asks=True)
    calm, job = both(spark, folder, "prodded", "files", "final", seed=4, prods=True)
    answers = same(_timeless(found(spark, job)), _timeless(found(spark, calm)))
    read = spark.read.schema(SCHEMA).parquet(job.rows).where("volume >= 0")
    told = found(spark, job)
    finals = same(_few(told.where("timing = 'final'")), _few(PLAN.segments(read, AGG)))
    met = told.selectExpr("explode(early) as one").count()
    assert answers - finals >= met > finals * 0.01
    print(f"{finals:,} segments, {answers - finals:,} early answers, {met:,} of them with a final one")


def _few(segments: DataFrame) -> DataFrame:
    return segments.select("sensor", "segment", "rows", *AGG)


def _timeless(told: DataFrame) -> DataFrame:
    """Answers without what the clock says of them."""
    early = "transform(early, one -> struct(one.number, one.accuracy))"
    return told.drop("latency").withColumn("early", F.expr(early))


def both(
    spark: SparkSession,
    folder: Path,
    rows: str,
    sink: str,
    emit: str,
    seed: int,
    filling: str = "",
    prods: bool = False,
) -> tuple[Job, Job]:
    """A run that nobody disturbs, and one that is killed again and again."""
    calm = Job(str(folder / rows), str(folder / f"{rows}-calm"), sink, emit, filling=filling, final=True, prods=prods)
    begun = time.monotonic()
    stream(spark, calm)
    print(f"\n{COUNT:,} rows, {sink}, {emit}: {count(calm, 'commits')} micro-batches, {time.monotonic() - begun:.0f} s")
    job = replace(calm, folder=str(folder / f"{rows}-killed"), final=False)
    begun = time.monotonic()
    places = disturbed(job, FILES, KILLS, seed)
    print(f"with {len(places)} kills {time.monotonic() - begun:.0f} s; killed with {'; '.join(places)}")
    return calm, job


def _whole(parts: DataFrame) -> DataFrame:
    """Segments, put together from their parts."""
    named = parts.selectExpr("sensor", "segment.id as id", "segment.start", "segment.end", "rows", *AGG)
    folds = {"start": "min", "end": "max", "rows": "sum", "n": "sum", "volume": "sum", "slowest": "min"}
    return named.groupBy("sensor", "id").agg(folds)

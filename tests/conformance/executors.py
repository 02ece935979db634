"""Who tells stories: a table in memory, a batch on Spark, a stream in one process, streams on Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import panewise as pw
from conformance.transcripts import Story, plain, told
from panewise.jobs import plan_from_mapping
from panewise.kernel.arrivals import REASONS
from panewise.local.stream import LocalStream
from panewise.spec.prod_tables import prods_from_value
from spark.tables import settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkStreams", "Telling", "batch", "local", "local_stream"]

_START = datetime(2024, 1, 1, tzinfo=UTC)
"""When clocks start to tick."""
_AT_A_TIME = 2


@dataclass
class Telling:
    """What an executor says: the segments of each step (of all rows, where they come at once), and the late rows."""

    steps: list[list[dict[str, Any]]] = field(default_factory=list)
    late: list[dict[str, Any]] = field(default_factory=list)


def local(story: Story) -> Telling:
    """A table in memory."""
    rows = story.table(story.rows or ())
    return Telling([told(pw.segments_local(plan_from_mapping(story.plan), rows, story.agg))])


def batch(story: Story, spark: SparkSession) -> Telling:
    """A batch on Spark."""
    df = spark.createDataFrame(story.table(story.rows or ()), story.ddl)
    return Telling([told(plan_from_mapping(story.plan).segments(df, story.agg).toArrow())])


def local_stream(story: Story) -> Telling:
    """A stream in one process."""
    stream = LocalStream(plan_from_mapping(story.plan), story.agg, **_options(story))
    steps = []
    for step in story.steps or ():
        clock = None if step.tick is None else _clock(step.tick)
        rows = story.table(step.rows)
        made = stream.feed(rows, until=story.until(step), clock=clock, final=step.final, prod=story.asked(step))
        steps.append(told(made))
    assert sum(stream.counts[reason] for reason in REASONS) == len(stream.late)
    return Telling(steps, [plain(row) for row in stream.late])


def _options(story: Story) -> dict[str, Any]:
    """How a stream is run, as Python has it."""
    given = dict(story.stream)
    given |= {"prods": prods_from_value("prods", given["prods"])} if "prods" in given else {}
    return given | ({"set_aside": pw.set_aside(**given["set_aside"])} if "set_aside" in given else {})


def _clock(tick: float) -> datetime:
    return _START + timedelta(seconds=tick)


class SparkStreams:
    """Streams on Spark, a query for each story, two at a time: to start one takes longer than all of its steps."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder

    def tell(self, stories: Sequence[Story]) -> list[Telling | Exception]:
        """What becomes of each."""
        with settings(self._spark, shuffle_partitions=1), ThreadPoolExecutor(_AT_A_TIME) as pool:
            return [*pool.map(self._tell, stories)]

    def _tell(self, story: Story) -> Telling | Exception:
        try:
            return _Query(self._spark, story, Path(mkdtemp(dir=self._folder))).run()
        except Exception as error:
            return error


class _Query:
    """A story's query: a file for each step in each of its folders."""

    def __init__(self, spark: SparkSession, story: Story, folder: Path) -> None:
        self._story, self._folder, self._telling = story, folder, Telling()
        for name in ("rows", "control", "clock"):
            (folder / name).mkdir()
        options: dict[str, Any] = {"shards": 1, **_options(story), "control": str(folder / "control")}
        if any(step.tick is not None for step in story.steps or ()):
            options["clock"] = spark.readStream.schema("timestamp timestamp").parquet(str(folder / "clock"))
        df = spark.readStream.schema(story.ddl).parquet(str(folder / "rows"))
        self._late = "then" not in story.plan
        self._segments = plan_from_mapping(story.plan).segments(df, story.agg, late=self._late, **options)

    def run(self) -> Telling:
        """All steps, each a micro-batch."""
        self._write(0)
        write = self._segments.writeStream.option("checkpointLocation", str(self._folder / "state"))
        query = write.foreachBatch(self._after).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return self._telling

    def _after(self, df: DataFrame, number: int) -> None:
        found = df.toArrow()
        if self._late:
            late = found.column("late").combine_chunks()
            self._telling.late += told(pa.Table.from_struct_array(late.filter(late.is_valid())))
            found = found.filter(late.is_null()).drop_columns(["late"])
        self._telling.steps.append(told(found))
        # the next trigger looks for files only when this is over, so that they are one micro-batch
        self._write(number + 1)

    def _write(self, number: int) -> None:
        """The files of a step, if there is one."""
        steps = self._story.steps or ()
        if number >= len(steps):
            return
        step = steps[number]
        pq.write_table(self._story.table(step.rows), self._folder / "rows" / f"{number}.parquet")
        commands = [{"kind": "final"}] if step.final else []
        if step.until is not None:
            commands.append({"kind": "punctuation", "until": str(self._story.until(step))})
        for asked in self._story.asked(step):
            until = asked.pop("until", None)
            told = {} if until is None else {"until": str(until)}
            commands.append({"kind": "prod", **told, "key": asked or None})
        if commands:
            (self._folder / "control" / f"{number}.json").write_text("\n".join(map(json.dumps, commands)))
        if step.tick is not None:
            tick = pa.array([_clock(step.tick)], pa.timestamp("us", "UTC"))
            pq.write_table(pa.table({"timestamp": tick}), self._folder / "clock" / f"{number}.parquet")

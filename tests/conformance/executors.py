"""Who tells stories: a table in memory, a batch on Spark, a stream in one process, streams on Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import panewise as pw
from conformance.transcripts import Step, Story, told
from panewise.jobs import plan_from_mapping
from panewise.local.stream import LocalStream
from spark.tables import settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkStreams", "Telling", "batch", "local", "local_stream"]

_START = datetime(2024, 1, 1, tzinfo=UTC)
"""When clocks start to tick."""


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
    stream = LocalStream(plan_from_mapping(story.plan), story.agg, **story.stream)
    steps = []
    for step in story.steps or ():
        clock = None if step.tick is None else _clock(step.tick)
        rows = story.table(step.rows)
        steps.append(told(stream.feed(rows, until=story.until(step), clock=clock, final=step.final)))
    assert stream.counts["rows"] >= len(stream.late) == sum(stream.counts[r] for r in ("late", "after_idle", "null_at"))
    late = pa.Table.from_pylist([{"row": row} for row in stream.late])
    return Telling(steps, told(late))


def _clock(tick: float) -> datetime:
    return _START + timedelta(seconds=tick)


class SparkStreams:
    """Streams on Spark, many stories in one query: to start one, and each micro-batch, costs seconds."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self._queries = spark, folder, 0

    def tell(self, stories: Sequence[Story]) -> list[Telling | Exception]:
        """What becomes of each; where a query fails, its halves are asked again, to find out whose fault it is."""
        try:
            return [*self._query(stories)]
        except Exception as error:
            if len(stories) == 1:
                return [error]
            half = len(stories) // 2
            return self.tell(stories[:half]) + self.tell(stories[half:])

    def _query(self, stories: Sequence[Story]) -> list[Telling]:
        self._queries += 1
        root = self._folder / str(self._queries)
        sources = [_Source(self._spark, story, root / str(i)) for i, story in enumerate(stories)]
        tellings = [Telling() for _ in stories]
        count = max(len(story.steps or ()) for story in stories)

        def after(df: DataFrame, number: int) -> None:
            found = df.toArrow()
            for i, telling in enumerate(tellings):
                _add(telling, found.column(f"s{i}").combine_chunks())
            # the next trigger looks for files only when this is over: they are one micro-batch
            if number + 1 < count:
                for source in sources:
                    source.write(number + 1)

        union = sources[0].segments(0)
        for i, source in enumerate(sources[1:], 1):
            union = union.unionByName(source.segments(i), allowMissingColumns=True)
        for source in sources:
            source.write(0)
        with settings(self._spark, shuffle_partitions=1):
            query = union.writeStream.foreachBatch(after).option("checkpointLocation", str(root / "state")).start()
            try:
                query.processAllAvailable()
            finally:
                query.stop()
        return tellings


def _add(telling: Telling, found: pa.StructArray) -> None:
    """The rows of one micro-batch that are a story's own."""
    table = pa.Table.from_struct_array(found.filter(found.is_valid()))
    late = table.column("late").combine_chunks()
    telling.steps.append(told(table.filter(late.is_null()).drop_columns(["late"])))
    telling.late += told(pa.Table.from_struct_array(late.filter(late.is_valid())))


class _Source:
    """A story's folders: a file for each step in each."""

    def __init__(self, spark: SparkSession, story: Story, folder: Path) -> None:
        self._spark, self._story, self._folder = spark, story, folder
        for name in ("rows", "control", "clock"):
            (folder / name).mkdir(parents=True)

    def segments(self, number: int) -> DataFrame:
        """What becomes of the rows, in one column."""
        from pyspark.sql import functions as F

        read, story = self._spark.readStream, self._story
        options: dict[str, Any] = {"shards": 1, **story.stream, "control": str(self._folder / "control")}
        if "idle_after" in story.plan.get("punctuation", {}):
            options["clock"] = read.schema("timestamp timestamp").parquet(str(self._folder / "clock"))
        df = read.schema(story.ddl).parquet(str(self._folder / "rows"))
        found = plan_from_mapping(story.plan).segments(df, story.agg, late=True, **options)
        return found.select(F.struct("*").alias(f"s{number}"))

    def write(self, number: int) -> None:
        """The files of a step."""
        steps = self._story.steps or ()
        if number < len(steps):
            self._write(steps[number], str(number))

    def _write(self, step: Step, name: str) -> None:
        pq.write_table(self._story.table(step.rows), self._folder / "rows" / f"{name}.parquet")
        commands: list[dict[str, str]] = []
        if step.until is not None:
            commands.append({"kind": "punctuation", "until": str(self._story.until(step))})
        if step.final:
            commands.append({"kind": "final"})
        if commands:
            (self._folder / "control" / f"{name}.json").write_text("\n".join(map(json.dumps, commands)))
        if step.tick is not None:
            tick = pa.array([_clock(step.tick)], pa.timestamp("us", "UTC"))
            pq.write_table(pa.table({"timestamp": tick}), self._folder / "clock" / f"{name}.parquet")

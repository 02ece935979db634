"""Stories of fills, told by Spark: every combination of tables and streams."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import panewise as pw
from conformance.fills import FillStory, Told, options_of, table_of, told_of
from conformance.transcripts import plain
from panewise.fill import ONLY
from panewise.jobs import plan_from_mapping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Spark"]

Fills = Mapping[str, "DataFrame"]
_DDL = {"int": "bigint", "bool": "boolean"}


class Spark:
    """Every combination of tables and streams on Spark."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self._number = spark, folder, 0

    def _new(self, *names: str) -> Path:
        self._number += 1
        folder = self._folder / str(self._number)
        for name in ("rows", "filling", *names):
            (folder / name).mkdir(parents=True)
        return folder

    def _frame(self, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> DataFrame:
        return self._spark.createDataFrame(table_of(columns, rows), _ddl(columns))

    def batch(self, story: FillStory) -> Told:
        """A table and a table."""
        framing = self._frame(story.columns, story.rows)
        return self._finished(story, framing, {ONLY: framing} if story.same else self._tables(story))

    def scanned(self, story: FillStory) -> Told:
        """A table, and Parquet files."""
        framing, files = self._frame(story.columns, story.rows), self._files(story, self._new())
        return self._finished(story, framing, {ONLY: files}, lane=True)

    def scanned_stored(self, story: FillStory) -> Told:
        """Parquet files of segments, and Parquet files."""
        folder = self._new()
        plan = plan_from_mapping(story.plan)
        segments = pw.segments_local(plan, story.table(story.rows)).replace_schema_metadata(None)
        # each is stored twice, and counts once
        pq.write_table(pa.concat_tables([segments, segments]), folder / "rows" / "0.parquet")
        stored = self._spark.read.parquet(str(folder / "rows"))
        return self._finished(story, stored, {ONLY: self._files(story, folder)}, lane=True)

    def _files(self, story: FillStory, folder: Path) -> DataFrame:
        table = story.filling_table(story.filling["rows"])
        half = len(table) // 2
        for i, some in enumerate((table[half:], table[:half])):
            pq.write_table(some, folder / "filling" / f"{i}.parquet", row_group_size=2)
        return self._spark.read.schema(_ddl(story.filling["columns"])).parquet(str(folder / "filling"))

    def stored(self, story: FillStory) -> Told:
        """Segments that were found before, and a table."""
        segments = plan_from_mapping(story.plan).segments(self._frame(story.columns, story.rows))
        return self._finished(story, segments, self._tables(story))

    def _tables(self, story: FillStory) -> dict[str, DataFrame]:
        return {name: self._frame(source["columns"], source["rows"]) for name, source in story.sources.items()}

    def _finished(self, story: FillStory, framing: DataFrame, fills: Fills, lane: bool = False) -> Told:
        fill = plan_from_mapping(story.plan).fill(framing, _given(story, fills), **story.options)
        if lane and story.agg is not None and story.error is None:
            said = StringIO()
            with redirect_stdout(said):
                fill.explain(story.agg)
            kinds = story.columns[story.plan["at"]], story.filling["columns"][story.filling.get("at", story.plan["at"])]
            # days and times are left to Spark
            crossed = kinds.count("date") == 1
            assert ("scan lane" in said.getvalue()) != crossed, said.getvalue()
        found = fill.rows() if story.agg is None else fill.agg(story.agg)
        return Told([told_of(found.toArrow())])

    def streams(self, story: FillStory) -> Told:
        """A stream and a stream, or the same one."""
        folder = self._new(*filter(None, story.sources))
        framing = self._stream(folder / "rows", story.columns)
        return self._run(story, folder, framing, {ONLY: framing} if story.same else self._streams(story, folder))

    def stream_and_table(self, story: FillStory) -> Told:
        """A stream, and a stored table."""
        folder = self._new()
        framing = self._stream(folder / "rows", story.columns)
        return self._run(story, folder, framing, self._tables(story))

    def stream_and_files(self, story: FillStory) -> Told:
        """A stream, and Parquet files."""
        folder = self._new()
        framing = self._stream(folder / "rows", story.columns)
        return self._run(story, folder, framing, {ONLY: self._files(story, self._new())})

    def stored_and_stream(self, story: FillStory) -> Told:
        """Segments that were found before, and a stream."""
        folder = self._new(*filter(None, story.sources))
        framing = plan_from_mapping(story.plan).segments(self._frame(story.columns, story.rows))
        return self._run(story, folder, framing, self._streams(story, folder))

    def _stream(self, folder: Path, columns: Mapping[str, str]) -> DataFrame:
        return self._spark.readStream.schema(_ddl(columns)).parquet(str(folder))

    def _streams(self, story: FillStory, folder: Path) -> dict[str, DataFrame]:
        sources = story.sources.items()
        return {name: self._stream(folder / (name or "filling"), source["columns"]) for name, source in sources}

    def _run(self, story: FillStory, folder: Path, framing: DataFrame, fills: Fills) -> Told:
        control = pw.Control(self._spark, str(folder / "control"))
        live = any(df.isStreaming for df in fills.values())
        said = {"punctuation": story.punctuation()} if live and not story.same and not story.several else {}
        options = {"shards": 1, "late": live, **story.stream, **said, **story.options}
        fill = story.streaming().fill(framing, _given(story, fills, live), control=control.folder, **options)
        found = fill.rows() if story.agg is None else fill.agg(story.agg)
        steps, told = story.fills, Told()

        def write(number: int) -> None:
            rows, fresh, final = steps[number]
            pq.write_table(story.table(rows), folder / "rows" / f"{number}.parquet")
            for name in story.sources:
                some = story.filling_table(fresh.get(name, []), name)
                pq.write_table(some, folder / (name or "filling") / f"{number}.parquet")
            if final:
                (Path(control.folder) / "final.json").write_text(json.dumps({"kind": "final"}))

        def after(df: DataFrame, number: int) -> None:
            table = df.toArrow()
            if "late" in table.column_names:
                late = table.column("late").combine_chunks()
                kept = late.filter(late.is_valid())
                told.late += [_late(row) for row in kept.to_pylist() if row["reason"] != "null_at"]
                table = table.filter(late.is_null()).drop_columns(["late"])
            told.steps.append(told_of(table))
            # the next trigger looks for files only when this is over, so that they are one micro-batch
            if number + 1 < len(steps):
                write(number + 1)

        write(0)
        query = found.writeStream.option("checkpointLocation", str(folder / "state")).foreachBatch(after).start()
        try:
            query.processAllAvailable()
            seen = pw.progress(query).filling
        finally:
            query.stop()
        assert seen is None or seen.rows_waiting == seen.segments_waiting == 0
        return told


def _given(story: FillStory, fills: Fills, live: bool = False) -> Any:
    """What fills, as `fill` takes it: a DataFrame, or several with how each of them fills."""
    if not story.several:
        return fills[ONLY]
    promised = {name: story.punctuation(name) if live else None for name in fills}
    return {
        name: pw.filling(df, punctuation=promised[name], **options_of(story.sources[name]))
        for name, df in fills.items()
    }


def _late(row: dict[str, Any]) -> dict[str, Any]:
    given = next(each for name, each in row.items() if name != "reason" and each is not None)
    return {"reason": row["reason"], **plain(given)}


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {_DDL.get(kind, kind)}" for name, kind in columns.items())

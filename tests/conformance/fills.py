"""Stories of fills: segments of one source, rows of another, told by every combination of tables and streams."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

import panewise as pw
from conformance.transcripts import ARROW, FOLDER, plain, python
from panewise.jobs import plan_from_mapping
from panewise.local.fill_stream import LocalFill
from panewise.spec.codec import Table
from panewise.spec.fill import filling as checked_filling
from panewise.spec.tables import punctuation_from_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FillStep", "FillStory", "Spark", "Told", "fill_stories", "local", "local_stored", "local_stream"]

_DDL = {"int": "bigint", "bool": "boolean"}
_TIMES = ("timestamp", "timestamp_ntz", "date")
_PARTS = 3
"""In how many micro-batches a story comes that has no steps."""


@dataclass(frozen=True, kw_only=True)
class FillStep:
    """A micro-batch of both sides, what it lets go, and what waits behind it."""

    rows: Sequence[Sequence[Any]] = ()
    filling: Sequence[Sequence[Any]] = ()
    final: bool = False
    segments: Sequence[Mapping[str, Any]] = ()
    waiting: Mapping[str, int] | None = None


@dataclass
class Told:
    """What an executor says: results step by step, late rows, and what waits after each step, where it knows."""

    steps: list[list[dict[str, Any]]] = field(default_factory=list)
    late: list[dict[str, Any]] = field(default_factory=list)
    waiting: list[dict[str, int]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class FillStory:
    """A plan and its rows, what fills its segments, and what must come out: all at once, or step by step."""

    name: str
    tells: str
    plan: Mapping[str, Any]
    columns: Mapping[str, str]
    filling: Mapping[str, Any]
    rows: Sequence[Sequence[Any]] = ()
    agg: Mapping[str, str] | None = None
    segments: Sequence[Mapping[str, Any]] | None = None
    steps: Sequence[FillStep] | None = None
    late: Sequence[Mapping[str, Any]] = ()
    stream: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    must_fail: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """What `fill` is given."""
        names = ("at", "by", "where", "shift", "keep_empty")
        given = {name: self.filling[name] for name in names if name in self.filling}
        if "widen" in self.filling:
            given["widen"] = tuple(self.filling["widen"])
        return given

    def table(self, rows: Sequence[Sequence[Any]]) -> pa.Table:
        """Rows that draw segments."""
        return _table(self.columns, rows)

    def filling_table(self, rows: Sequence[Sequence[Any]]) -> pa.Table:
        """Rows that fill them."""
        return _table(self.filling["columns"], rows)

    @property
    def fills(self) -> list[tuple[list[Any], list[Any], bool]]:
        """Rows of both sides in micro-batches, and whether the streams end."""
        if self.steps is not None:
            return [(list(step.rows), list(step.filling), step.final) for step in self.steps]
        mine, theirs = _cut(self.rows), _cut(self.filling["rows"])
        return [*((a, b, False) for a, b in zip(mine, theirs, strict=True)), ([], [], True)]

    def streaming(self) -> pw.Plan:
        """The plan, with a punctuation that all rows keep, if it has none."""
        if "punctuation" in self.plan:
            return plan_from_mapping(self.plan)
        kept = {"kind": "slack", "amount": _lateness(self.columns, self.rows, self.plan["at"])}
        return plan_from_mapping({**self.plan, "punctuation": kept})

    @property
    def punctuation(self) -> Any:
        """What is promised of the rows that fill."""
        given = self.filling.get("punctuation")
        if given is None:
            at = self.filling.get("at", self.plan["at"])
            amount = _lateness(self.filling["columns"], self.filling["rows"], at)
            # what fills days is late by days
            amount = "10 days" if self.columns[self.plan["at"]] == "date" else amount
            given = {"kind": "slack", "amount": amount}
        return punctuation_from_table(Table("punctuation", dict(given)))

    def expected(self, segments: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Results that must come out, as Python has them."""
        kinds = {key: self.columns[key] for key in self.plan.get("by", ())}
        at = self.columns[self.plan["at"]]
        kinds |= {"start": at, "end": at}
        if self.agg is not None:
            kinds |= {name: at for name, call in self.agg.items() if call in ("first(ts)", "last(ts)")}
        found = []
        for segment in segments:
            told = {"status": "final", **{name: python(kinds.get(name, ""), v) for name, v in segment.items()}}
            if "row" in told:
                told["row"] = plain(self.filling_table([segment["row"]]).to_pylist()[0])
            found.append(told)
        return found

    @property
    def expected_late(self) -> list[dict[str, Any]]:
        """Late rows that must come out."""
        rows = self.filling_table([late["filling"] for late in self.late]).to_pylist()
        return [{"reason": late["reason"], **plain(row)} for late, row in zip(self.late, rows, strict=True)]


def _table(columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> pa.Table:
    return pa.table(
        {
            name: pa.array([python(kind, row[i]) for row in rows], ARROW[kind])
            for i, (name, kind) in enumerate(columns.items())
        }
    )


def _cut(rows: Sequence[Any]) -> list[list[Any]]:
    size = max(1, math.ceil(len(rows) / _PARTS))
    return [list(rows[i * size : (i + 1) * size]) for i in range(_PARTS)]


def _lateness(columns: Mapping[str, str], rows: Sequence[Sequence[Any]], at: str) -> Any:
    """A slack that all rows keep: the whole of the time that they span."""
    kind = columns[at]
    known = [v for v in _table(columns, rows).column(at).to_pylist() if v is not None]
    if kind in _TIMES:
        span = max(known) - min(known) if known else timedelta(0)
        return f"{span // timedelta(microseconds=1)} microseconds"
    finite = [v for v in known if math.isfinite(v)]
    span = max(finite) - min(finite) if finite else 0
    return math.nextafter(span, math.inf) if kind == "double" else span


def fill_stories() -> list[FillStory]:
    """Every transcript of a fill."""
    found = []
    for path in sorted((FOLDER / "fill").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if "steps" in document:
                document["steps"] = [FillStep(**step) for step in document["steps"]]
            found.append(FillStory(**document))
    return found


def _told(table: pa.Table) -> list[dict[str, Any]]:
    result = []
    for row in table.to_pylist():
        inner = row.pop("segment")
        if "row" in row:
            row["row"] = plain(row["row"])
        result.append(plain({**row, **inner}))
    return result


def local(story: FillStory) -> Told:
    """Tables in memory."""
    framing, rows = story.table(story.rows), story.filling_table(story.filling["rows"])
    return Told([_told(pw.fill_local(plan_from_mapping(story.plan), framing, rows, story.agg, **story.options))])


def local_stored(story: FillStory) -> Told:
    """Segments that were found before, and a table in memory."""
    plan = plan_from_mapping(story.plan)
    segments = pw.segments_local(plan, story.table(story.rows))
    rows = story.filling_table(story.filling["rows"])
    return Told([_told(pw.fill_local(plan, segments, rows, story.agg, **story.options))])


def local_stream(story: FillStory) -> Told:
    """Two streams in one process."""
    plan, options = story.streaming(), story.options
    keep_empty = options.pop("keep_empty", False)
    given = checked_filling(plan.keys, options.pop("at", plan.ordered_by), punctuation=story.punctuation, **options)
    fill = LocalFill(
        plan, given, story.agg, story.table([]), story.filling_table([]), keep_empty=keep_empty, **story.stream
    )
    told = Told()
    for rows, filling, final in story.fills:
        told.steps.append(_told(fill.feed(story.table(rows), story.filling_table(filling), final=final)))
        told.waiting.append({"rows": fill.counts["rows_waiting"], "segments": fill.counts["segments_waiting"]})
    told.late = [plain(row) for row in fill.late if row["reason"] != "null_at"]
    return told


class Spark:
    """Every combination of tables and streams on Spark."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self._number = spark, folder, 0

    def _new(self) -> Path:
        self._number += 1
        folder = self._folder / str(self._number)
        for name in ("rows", "filling"):
            (folder / name).mkdir(parents=True)
        return folder

    def _frame(self, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> DataFrame:
        return self._spark.createDataFrame(_table(columns, rows), _ddl(columns))

    def batch(self, story: FillStory) -> Told:
        """A table and a table."""
        filling = self._frame(story.filling["columns"], story.filling["rows"])
        return self._finished(story, self._frame(story.columns, story.rows), filling)

    def scanned(self, story: FillStory) -> Told:
        """A table, and Parquet files."""
        framing, files = self._frame(story.columns, story.rows), self._files(story, self._new())
        return self._finished(story, framing, files, lane=True)

    def scanned_stored(self, story: FillStory) -> Told:
        """Parquet files of segments, and Parquet files."""
        folder = self._new()
        plan = plan_from_mapping(story.plan)
        segments = pw.segments_local(plan, story.table(story.rows)).replace_schema_metadata(None)
        # each is stored twice, and counts once
        pq.write_table(pa.concat_tables([segments, segments]), folder / "rows" / "0.parquet")
        stored = self._spark.read.parquet(str(folder / "rows"))
        return self._finished(story, stored, self._files(story, folder), lane=True)

    def _files(self, story: FillStory, folder: Path) -> DataFrame:
        table = story.filling_table(story.filling["rows"])
        half = len(table) // 2
        for i, some in enumerate((table[half:], table[:half])):
            pq.write_table(some, folder / "filling" / f"{i}.parquet", row_group_size=2)
        return self._spark.read.schema(_ddl(story.filling["columns"])).parquet(str(folder / "filling"))

    def stored(self, story: FillStory) -> Told:
        """Segments that were found before, and a table."""
        segments = plan_from_mapping(story.plan).segments(self._frame(story.columns, story.rows))
        return self._finished(story, segments, self._frame(story.filling["columns"], story.filling["rows"]))

    def _finished(self, story: FillStory, framing: DataFrame, filling: DataFrame, lane: bool = False) -> Told:
        fill = plan_from_mapping(story.plan).fill(framing, filling, **story.options)
        if lane and story.agg is not None and story.error is None:
            said = StringIO()
            with redirect_stdout(said):
                fill.explain(story.agg)
            kinds = story.columns[story.plan["at"]], story.filling["columns"][story.filling.get("at", story.plan["at"])]
            # days and times are left to Spark
            crossed = kinds.count("date") == 1
            assert ("scan lane" in said.getvalue()) != crossed, said.getvalue()
        found = fill.rows() if story.agg is None else fill.agg(story.agg)
        return Told([_told(found.toArrow())])

    def streams(self, story: FillStory) -> Told:
        """A stream and a stream."""
        folder = self._new()
        framing = self._stream(folder / "rows", story.columns)
        return self._run(story, folder, framing, self._stream(folder / "filling", story.filling["columns"]))

    def stream_and_table(self, story: FillStory) -> Told:
        """A stream, and a stored table."""
        folder = self._new()
        framing = self._stream(folder / "rows", story.columns)
        return self._run(story, folder, framing, self._frame(story.filling["columns"], story.filling["rows"]))

    def stream_and_files(self, story: FillStory) -> Told:
        """A stream, and Parquet files."""
        folder = self._new()
        framing = self._stream(folder / "rows", story.columns)
        return self._run(story, folder, framing, self._files(story, self._new()))

    def stored_and_stream(self, story: FillStory) -> Told:
        """Segments that were found before, and a stream."""
        folder = self._new()
        framing = plan_from_mapping(story.plan).segments(self._frame(story.columns, story.rows))
        return self._run(story, folder, framing, self._stream(folder / "filling", story.filling["columns"]))

    def _stream(self, folder: Path, columns: Mapping[str, str]) -> DataFrame:
        return self._spark.readStream.schema(_ddl(columns)).parquet(str(folder))

    def _run(self, story: FillStory, folder: Path, framing: DataFrame, filling: DataFrame) -> Told:
        control = pw.Control(self._spark, str(folder / "control"))
        live = {"punctuation": story.punctuation, "late": True} if filling.isStreaming else {}
        fill = story.streaming().fill(
            framing, filling, control=control.folder, **{"shards": 1, **story.stream}, **live, **story.options
        )
        found = fill.rows() if story.agg is None else fill.agg(story.agg)
        steps, told = story.fills, Told()

        def write(number: int) -> None:
            rows, fresh, final = steps[number]
            for name, columns, some in (("rows", story.columns, rows), ("filling", story.filling["columns"], fresh)):
                pq.write_table(_table(columns, some), folder / name / f"{number}.parquet")
            if final:
                (Path(control.folder) / "final.json").write_text(json.dumps({"kind": "final"}))

        def after(df: DataFrame, number: int) -> None:
            table = df.toArrow()
            if "late" in table.column_names:
                late = table.column("late").combine_chunks()
                kept = late.filter(late.is_valid())
                told.late += [_late(row) for row in kept.to_pylist() if row["reason"] != "null_at"]
                table = table.filter(late.is_null()).drop_columns(["late"])
            told.steps.append(_told(table))
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


def _late(row: dict[str, Any]) -> dict[str, Any]:
    given = row.get("filling") or row.get("row")
    assert given is not None
    return {"reason": row["reason"], **plain(given)}


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {_DDL.get(kind, kind)}" for name, kind in columns.items())

"""Stories of fills: segments of one source, rows of another, told by every combination of tables and streams."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa
import yaml

import panewise as pw
from conformance.transcripts import ARROW, FOLDER, plain, python
from panewise.fill import ONLY
from panewise.jobs import plan_from_mapping
from panewise.local.fill_stream import LocalFill
from panewise.spec.codec import Table
from panewise.spec.fill import filling as checked_filling
from panewise.spec.tables import punctuation_from_table

__all__ = [
    "FillStep", "FillStory", "Told",
    "fill_stories", "local", "local_stored", "local_stream", "options_of", "table_of", "told_of",
]  # fmt: skip

_TIMES = ("timestamp", "timestamp_ntz", "date")
_PARTS = 3
"""In how many micro-batches a story comes that has no steps."""


@dataclass(frozen=True, kw_only=True)
class FillStep:
    """A micro-batch of both sides, what it lets go, and what waits behind it."""

    rows: Sequence[Sequence[Any]] = ()
    filling: Sequence[Sequence[Any]] | Mapping[str, Sequence[Sequence[Any]]] = ()
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
    agg: Mapping[str, Any] | None = None
    segments: Sequence[Mapping[str, Any]] | None = None
    steps: Sequence[FillStep] | None = None
    late: Sequence[Mapping[str, Any]] = ()
    stream: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    must_fail: bool = False

    @property
    def sources(self) -> Mapping[str, Mapping[str, Any]]:
        """What fills, by name: columns, rows, and how. The only one has no name; it may be the rows of the plan."""
        if "sources" in self.filling:
            found: Mapping[str, Mapping[str, Any]] = self.filling["sources"]
            return found
        return {ONLY: {**({"columns": self.columns, "rows": self.rows} if self.same else {}), **self.filling}}

    @property
    def same(self) -> bool:
        """Whether segments are filled from the rows that draw them."""
        return bool(self.filling.get("same"))

    @property
    def several(self) -> bool:
        """Whether sources have names."""
        return "sources" in self.filling

    @property
    def options(self) -> dict[str, Any]:
        """What `fill` is given of the only source."""
        kept = {"keep_empty": self.filling["keep_empty"]} if "keep_empty" in self.filling else {}
        return {**kept, **({} if self.several else options_of(self.filling))}

    def table(self, rows: Sequence[Sequence[Any]]) -> pa.Table:
        """Rows that draw segments."""
        return table_of(self.columns, rows)

    def filling_table(self, rows: Sequence[Sequence[Any]], name: str = ONLY) -> pa.Table:
        """Rows that fill them."""
        return table_of(self.sources[name]["columns"], rows)

    @property
    def fills(self) -> list[tuple[list[Any], dict[str, list[Any]], bool]]:
        """Rows of all sides in micro-batches, and whether the streams end."""
        if self.steps is not None:
            given = [step.filling if isinstance(step.filling, Mapping) else {ONLY: step.filling} for step in self.steps]
            some = [{name: list(each.get(name, ())) for name in self.sources} for each in given]
            return [(list(step.rows), each, step.final) for step, each in zip(self.steps, some, strict=True)]
        theirs = {name: _cut(source["rows"]) for name, source in self.sources.items()}
        parts = [{name: cut[i] for name, cut in theirs.items()} for i in range(_PARTS)]
        return [*((a, b, False) for a, b in zip(_cut(self.rows), parts, strict=True)), ([], {}, True)]

    def streaming(self) -> pw.Plan:
        """The plan, with a punctuation that all rows keep, if it has none."""
        if "punctuation" in self.plan:
            return plan_from_mapping(self.plan)
        kept = {"kind": "slack", "amount": _lateness(self.columns, self.rows, self.plan["at"])}
        return plan_from_mapping({**self.plan, "punctuation": kept})

    def punctuation(self, name: str = ONLY) -> Any:
        """What is promised of the rows that fill."""
        source = self.sources[name]
        given = source.get("punctuation")
        if given is None:
            at = source.get("at", self.plan["at"])
            amount = _lateness(source["columns"], source["rows"], at)
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
        found = []
        for late in self.late:
            name = next(key for key in late if key != "reason")
            table = self.table([late[name]]) if name == "rows" else self.filling_table([late[name]], _known(self, name))
            found.append({"reason": late["reason"], **plain(table.to_pylist()[0])})
        return found


def _known(story: FillStory, name: str) -> str:
    return name if story.several else ONLY


def options_of(source: Mapping[str, Any]) -> dict[str, Any]:
    """What `fill` is given of a source."""
    given = {name: source[name] for name in ("at", "by", "where", "shift") if name in source}
    return {**given, **({"widen": tuple(source["widen"])} if "widen" in source else {})}


def table_of(columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Rows of a transcript as a table."""
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
    known = [v for v in table_of(columns, rows).column(at).to_pylist() if v is not None]
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


def told_of(table: pa.Table) -> list[dict[str, Any]]:
    """Results as a transcript has them."""
    result = []
    for row in table.to_pylist():
        inner = row.pop("segment")
        if "row" in row:
            row["row"] = plain(row["row"])
        result.append(plain({**row, **inner}))
    return result


def local(story: FillStory) -> Told:
    """Tables in memory."""
    framing = story.table(story.rows)
    rows = framing if story.same else story.filling_table(story.filling["rows"])
    return Told([told_of(pw.fill_local(plan_from_mapping(story.plan), framing, rows, story.agg, **story.options))])


def local_stored(story: FillStory) -> Told:
    """Segments that were found before, and a table in memory."""
    plan = plan_from_mapping(story.plan)
    segments = pw.segments_local(plan, story.table(story.rows))
    rows = story.filling_table(story.filling["rows"])
    return Told([told_of(pw.fill_local(plan, segments, rows, story.agg, **story.options))])


def local_stream(story: FillStory) -> Told:
    """Two streams in one process."""
    plan, options = story.streaming(), story.options
    keep_empty = options.pop("keep_empty", False)
    given = checked_filling(plan.keys, options.pop("at", plan.ordered_by), punctuation=story.punctuation(), **options)
    fill = LocalFill(
        plan, given, story.agg, story.table([]), story.filling_table([]), keep_empty=keep_empty, **story.stream
    )
    told = Told()
    for rows, filling, final in story.fills:
        told.steps.append(
            told_of(fill.feed(story.table(rows), story.filling_table(filling.get(ONLY, [])), final=final))
        )
        told.waiting.append({"rows": fill.counts["rows_waiting"], "segments": fill.counts["segments_waiting"]})
    told.late = [plain(row) for row in fill.late if row["reason"] != "null_at"]
    return told

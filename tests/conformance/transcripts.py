"""Transcripts: stories that every executor must tell the same way. Reading them, and comparing what came out.

A story is told of rows, all at once, or in steps: micro-batches of a stream, with what must have come out of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

__all__ = ["ARROW", "FOLDER", "Step", "Story", "differences", "plain", "python", "stories", "told"]

FOLDER = Path(__file__).parent.parent / "transcripts"

ARROW = {
    "int": pa.int64(),
    "short": pa.int16(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "date": pa.date32(),
}
_DDL = {"int": "bigint", "bool": "boolean"}
_TOLERANCE = 1e-12
_LONGEST = "`longest` (True) needs a finished stream: on an unbounded one a longer frame may always come."


def python(kind: str, value: Any) -> Any:
    """What a transcript writes, as Python has it."""
    if value is None:
        return None
    match kind:
        case "double":
            return float(value)
        case "timestamp":
            return datetime.fromisoformat(value).replace(tzinfo=UTC)
        case "timestamp_ntz":
            return datetime.fromisoformat(value)
        case "date":
            return date.fromisoformat(value)
    return value


@dataclass(frozen=True, kw_only=True)
class Step:
    """A micro-batch: rows, then what is told (a promise, the clock in seconds, prods, the end), and what it lets go."""

    rows: Sequence[Sequence[Any]] = ()
    until: Any = None
    tick: float | None = None
    final: bool = False
    prods: Sequence[Mapping[str, Any]] = ()
    segments: Sequence[Mapping[str, Any]] = ()
    early: Sequence[Mapping[str, Any]] = ()
    """Answers to prods."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """One transcript: a plan, rows as they arrive, and the segments or the error that must come out."""

    name: str
    tells: str
    plan: Mapping[str, Any]
    columns: Mapping[str, str]
    rows: Sequence[Sequence[Any]] | None = None
    steps: Sequence[Step] | None = None
    agg: Mapping[str, str] = field(default_factory=dict)
    segments: Sequence[Mapping[str, Any]] | None = None
    """Of all rows. A story in steps tells them step by step."""
    late: Sequence[Mapping[str, Any]] = ()
    """In steps: the rows that break a promise, or count nowhere, each with its `reason`."""
    stream: Mapping[str, Any] = field(default_factory=dict)
    """In steps: `emit`, `fragment_every`, `shards` and `prods`."""
    only_in_steps: bool = False
    """Where a row counts in some windows and not in others, for coming late."""
    error: str | None = None
    must_fail: bool = False
    broken_on: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.rows is None) == (self.steps is None):
            raise ValueError(f"{self.name!r} must have rows or steps, and not both.")
        if self.steps is None and (self.segments is None) == (self.error is None):
            raise ValueError(f"{self.name!r} must have segments or an error, and not both.")
        if unknown := set(self.columns.values()) - set(ARROW):
            raise ValueError(f"{self.name!r} has columns of unknown type {sorted(unknown)}.")
        rows = [*(self.rows or ()), *(row for step in self.steps or () for row in step.rows)]
        for row in [*rows, *(late["row"] for late in self.late)]:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.name!r} has a row of {len(row)} for {len(self.columns)} columns: {row}")
        names = {*self.keys, "id", "start", "end", "bounds", "rows", *self.last.get("agg", self.agg)}
        names |= {"gap"} if self.last.get("gaps") else set()
        names |= {"part"} if self.sends_parts else set()
        in_steps = [s for step in self.steps or () for s in (*step.segments, *step.early)]
        for segment in [*(self.segments or ()), *in_steps]:
            if set(segment) - {"status", "certain", "number"} != names:
                raise ValueError(f"{self.name!r} must tell {sorted(names)} of every segment: {segment}")

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns of the results."""
        return tuple(self.last.get("by", ()))

    @property
    def last(self) -> Mapping[str, Any]:
        """The plan, or the last of those that follow."""
        return self.plan["then"][-1] if "then" in self.plan else self.plan

    @property
    def at(self) -> str:
        """The type of the column that orders rows."""
        return self.columns[self.plan["at"]]

    @property
    def sends_parts(self) -> bool:
        """Whether segments are told in parts, too."""
        return self.stream.get("emit", "final") != "final"

    @property
    def ddl(self) -> str:
        """The columns as Spark declares them; from Arrow alone it would take timestamp_ntz for timestamp."""
        return ", ".join(f"`{name}` {_DDL.get(kind, kind)}" for name, kind in self.columns.items())

    def table(self, rows: Sequence[Sequence[Any]]) -> pa.Table:
        """Rows in the order in which they arrive."""
        return pa.table(
            {
                name: pa.array([python(kind, row[i]) for row in rows], ARROW[kind])
                for i, (name, kind) in enumerate(self.columns.items())
            }
        )

    @property
    def prodded(self) -> bool:
        """Whether there are early answers."""
        return bool(self.stream.get("prods"))

    def asked(self, step: Step) -> list[dict[str, Any]]:
        """What prods of a step ask for, as Python has it."""
        kinds = {**self.columns, "until": self.at}
        return [{name: python(kinds[name], value) for name, value in prod.items()} for prod in step.prods]

    def until(self, step: Step) -> Any:
        """What a step promises, as Python has it."""
        return python(self.at, step.until)

    def expected(
        self, segments: Sequence[Mapping[str, Any]] | None, early: Sequence[Mapping[str, Any]] = ()
    ) -> list[dict[str, Any]]:
        """Segments that must come out, as Python has them, and early answers."""
        known = {key: self.columns[key] for key in self.keys if key in self.columns}
        kinds = {**known, **dict.fromkeys(("start", "end"), self.at)}
        finals: dict[str, Any] = {"status": "final"}
        finals |= {"timing": "final", "number": None, "certain": True} if self.prodded else {}
        earlies = {"status": "partial", "timing": "early", "number": 0, "certain": True}
        return [
            {**own, **{name: python(kinds.get(name, ""), value) for name, value in segment.items()}}
            for own, some in ((finals, segments or ()), (earlies, early))
            for segment in some
        ]

    @property
    def expected_late(self) -> list[dict[str, Any]]:
        """The late rows that must come out."""
        rows = self.table([late["row"] for late in self.late]).to_pylist()
        return [{"reason": late["reason"], **plain(row)} for late, row in zip(self.late, rows, strict=True)]

    def in_steps(self) -> Story:
        """The same as a stream: rows in three micro-batches, late by no more than its punctuation allows for."""
        if self.rows is None:
            return self
        third = math.ceil(len(self.rows) / 3)
        steps = [Step(rows=self.rows[i * third : (i + 1) * third], final=i == 2) for i in range(3)]
        told: dict[str, Any] = {"error": _LONGEST, "segments": None} if self.plan.get("longest") else {}
        plan = {**self.plan, "punctuation": {"kind": "slack", "amount": self._lateness()}}
        return replace(self, rows=None, steps=steps, plan=plan, **told)

    def _lateness(self) -> Any:
        """How far behind the largest `at` before it a row comes, at most."""
        column = self.table(self.rows or ()).column(self.plan["at"]).to_pylist()
        zero: Any = timedelta(0) if self.at in ("timestamp", "timestamp_ntz", "date") else 0
        worst, highest = zero, None
        for at in column:
            if at is not None and at == at:
                highest = at if highest is None else max(highest, at)
                worst = max(worst, highest - at)
        if isinstance(worst, timedelta):
            return f"{worst // timedelta(microseconds=1)} microseconds"
        return math.nextafter(worst, math.inf) if self.at == "double" else worst

    def at_once(self) -> Story | None:
        """The same of all rows but the late ones; nothing where that tells less: parts, or a stream without an end."""
        if self.steps is None:
            return self
        if self.only_in_steps or self.sends_parts or self.must_fail or not self.steps[-1].final:
            return None
        rows = [row for step in self.steps for row in step.rows]
        for late in self.late:
            # NaN is not equal to NaN, and written alike
            del rows[[*map(repr, rows)].index(repr(late["row"]))]
        segments = [segment for step in self.steps for segment in step.segments]
        return replace(self, rows=rows, steps=None, segments=segments, late=(), stream={})


def stories() -> list[Story]:
    """Every transcript, file by file."""
    return [
        Story(**_in_steps(document))
        for path in sorted(FOLDER.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]


def _in_steps(document: dict[str, Any]) -> dict[str, Any]:
    return document | {"steps": [Step(**step) for step in document["steps"]]} if "steps" in document else document


def _canonical(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose values compare: NaN is null, times are in UTC."""
    return {name: _canonical(value) for name, value in row.items()}


def told(table: pa.Table) -> list[dict[str, Any]]:
    """The segments that an executor reports, or late rows, in the words of a transcript."""
    result = []
    for row in table.to_pylist():
        for name in ("early", "latency"):  # times, of a clock that is not told
            row.pop(name, None)
        inner = row.pop("segment" if "segment" in row else "row")
        result.append(plain({**row, **inner}))
    return result


def _same_value(expected: Any, actual: Any) -> bool:
    if isinstance(expected, float) and isinstance(actual, (int, float)) and not isinstance(actual, bool):
        return math.isclose(expected, actual, rel_tol=_TOLERANCE, abs_tol=0.0)
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    return bool(expected == actual)


def _same(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> bool:
    return set(expected) == set(actual) and all(_same_value(expected[name], actual[name]) for name in expected)


def differences(expected: Sequence[Mapping[str, Any]], actual: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is missing and what is too much, as multisets; nothing where the two are the same."""
    left, missing = list(actual), []
    for segment in expected:
        found = next((i for i, other in enumerate(left) if _same(segment, other)), None)
        if found is None:
            missing.append(segment)
        else:
            del left[found]
    return [f"missing: {dict(s)}" for s in missing] + [f"not expected: {dict(s)}" for s in left]

"""Transcripts: stories that every executor must tell the same way. Reading them, and comparing what came out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

__all__ = ["FOLDER", "Story", "differences", "stories", "told"]

FOLDER = Path(__file__).parent.parent / "transcripts"

_ARROW = {
    "int": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "date": pa.date32(),
}
_DDL = {"int": "bigint", "bool": "boolean"}
_TOLERANCE = 1e-12


def _value(kind: str, value: Any) -> Any:
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
class Story:
    """One transcript: a plan, rows as they arrive, and the segments or the error that must come out."""

    name: str
    tells: str
    plan: Mapping[str, Any]
    columns: Mapping[str, str]
    rows: Sequence[Sequence[Any]]
    agg: Mapping[str, str] = field(default_factory=dict)
    segments: Sequence[Mapping[str, Any]] | None = None
    error: str | None = None
    must_fail: bool = False
    broken_on: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.segments is None) == (self.error is None):
            raise ValueError(f"{self.name!r} must have segments or an error, and not both.")
        if unknown := set(self.columns.values()) - set(_ARROW):
            raise ValueError(f"{self.name!r} has columns of unknown type {sorted(unknown)}.")
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.name!r} has a row of {len(row)} for {len(self.columns)} columns: {row}")
        names = {*self.keys, "id", "start", "end", "bounds", "rows", *self.agg}
        names |= {"gap"} if self.plan.get("gaps") else set()
        for segment in self.segments or ():
            if set(segment) - {"status"} != names:
                raise ValueError(f"{self.name!r} must tell {sorted(names)} of every segment: {segment}")

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns of the plan."""
        return tuple(self.plan.get("by", ()))

    @property
    def table(self) -> pa.Table:
        """The rows in the order in which they arrive."""
        return pa.table(
            {
                name: pa.array([_value(kind, row[i]) for row in self.rows], _ARROW[kind])
                for i, (name, kind) in enumerate(self.columns.items())
            }
        )

    @property
    def ddl(self) -> str:
        """The columns as Spark declares them; from Arrow alone it would take timestamp_ntz for timestamp."""
        return ", ".join(f"`{name}` {_DDL.get(kind, kind)}" for name, kind in self.columns.items())

    @property
    def expected(self) -> list[dict[str, Any]]:
        """The segments that must come out."""
        kinds = {**{key: self.columns[key] for key in self.keys}}
        kinds |= dict.fromkeys(("start", "end"), self.columns[self.plan["at"]])
        return [
            {"status": "final", **{name: _value(kinds.get(name, ""), value) for name, value in segment.items()}}
            for segment in self.segments or ()
        ]


def stories() -> list[Story]:
    """Every transcript, file by file."""
    return [
        Story(**document)
        for path in sorted(FOLDER.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]


def _canonical(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def told(table: pa.Table) -> list[dict[str, Any]]:
    """The segments that an executor reports, in the words of a transcript."""
    result = []
    for row in table.to_pylist():
        flat = {**row, **row["segment"]}
        del flat["segment"]
        result.append({name: _canonical(value) for name, value in flat.items()})
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

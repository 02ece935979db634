"""Segments as a table on the screen."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

__all__ = ["screen", "show"]

_WIDE = 1000  # long lines are for the terminal to fold, and for a pipe to pass on

_USUAL = {"status": "final", "bounds": "[]"}


def screen() -> Console:
    """Where results go."""
    return Console(highlight=False, markup=False, width=_WIDE)


def show(segments: pa.Table, title: str | None = None) -> None:
    """Print segments, and the rows in them, structs spread out, without what goes without saying."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    columns = [column for column in _columns(segments) if not _goes_without_saying(*column)]
    for name, kind, _ in columns:
        zone = kind.tz if pa.types.is_timestamp(kind) else None
        table.add_column(f"{name} ({zone})" if zone else name, justify="right" if _number(kind) else "left")
    for row in zip(*(values for _, _, values in columns), strict=True):
        table.add_row(*(_text(value) for value in row))
    screen().print(table)


def _columns(segments: pa.Table) -> Iterator[tuple[str, pa.DataType, list[Any]]]:
    """Names, types and values; a field of the segment, or of a row in it, has its bare name, if nothing else has it."""
    taken = set(segments.column_names)
    for name in segments.column_names:
        column = segments[name].combine_chunks()
        if name not in ("segment", "row") or not pa.types.is_struct(column.type):
            yield name, column.type, column.to_pylist()
            continue
        fields = {field.name: column.field(i).to_pylist() for i, field in enumerate(column.type)}
        if name == "segment":
            fields["end"] = [_after(*ends) for ends in zip(fields["start"], fields["end"], strict=True)]
        for field, values in fields.items():
            if name == "row" and field in segments.column_names and values == segments[field].to_pylist():
                continue  # the key, once more
            shown = f"{name}.{field}" if field in taken else field
            yield shown, column.type.field(field).type, values
        taken |= fields.keys()


def _goes_without_saying(name: str, _: pa.DataType, values: list[Any]) -> bool:
    return name in _USUAL and set(values) <= {_USUAL[name]}


def _after(start: Any, end: Any) -> Any:
    """An end on the day of its start is a time only."""
    same = isinstance(start, datetime) and isinstance(end, datetime) and start.date() == end.date()
    return end.time() if same else end


def _number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _text(value: Any) -> str:
    """A value for a person.

    >>> [_text(v) for v in (None, 1234567, 0.123456, 1e12, True, datetime(2024, 1, 1, 8))]
    ['', '1,234,567', '0.1235', '1,000,000,000,000', 'true', '2024-01-01 08:00:00']
    """
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
        case datetime():
            return value.replace(tzinfo=None).isoformat(sep=" ")
        case date() | time():
            return value.isoformat()
        case _:
            return str(value)

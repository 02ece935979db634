"""Segments as a table on the screen."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

__all__ = ["screen", "show"]

_WIDE = 200  # where nobody looks, no line is folded


def screen() -> Console:
    """Where results go."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=_WIDE)


def show(segments: pa.Table, title: str | None = None) -> None:
    """Print segments, the struct spread out; what is the same in all results anyway is left out."""
    columns = {name: column for name, column in _spread(segments) if not _usual(name, column)}
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    for name, column in columns.items():
        zone = column.type.tz if pa.types.is_timestamp(column.type) else None
        table.add_column(
            f"{name} ({zone})" if zone else name,
            justify="right" if _number(column.type) else "left",
            overflow="fold",
        )
    for row in zip(*(column.to_pylist() for column in columns.values()), strict=True):
        table.add_row(*(_text(value) for value in row))
    screen().print(table)


def _spread(segments: pa.Table) -> list[tuple[str, pa.ChunkedArray]]:
    spread = []
    for name in segments.column_names:
        column = segments[name].combine_chunks()
        if name == "segment":
            spread += [(field.name, column.field(i)) for i, field in enumerate(column.type)]
        else:
            spread.append((name, column))
    return spread


def _usual(name: str, column: pa.ChunkedArray) -> bool:
    return name == "status" and set(column.to_pylist()) <= {"final"}


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
        case date():
            return value.isoformat()
        case _:
            return str(value)

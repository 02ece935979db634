"""Where a job's rows come from, where its segments go, and what is drawn of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

__all__ = ["SCREEN", "ConsoleSink", "FileSink", "FileSource", "Plot", "Sink", "Source", "TableSource"]


@dataclass(frozen=True, slots=True)
class FileSource:
    """Files that Spark reads: `format` is parquet, csv or json, `schema` is DDL, `options` are the reader's."""

    format: str
    path: str
    schema: str | None = None
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table that Spark knows by name."""

    table: str
    options: tuple[tuple[str, str], ...] = ()


Source = Union[FileSource, TableSource]


@dataclass(frozen=True, slots=True)
class FileSink:
    """Files that Spark writes: `format` is parquet or csv, `mode` is error or overwrite."""

    format: str
    path: str
    mode: str = "error"


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    """The first `limit` segments on the screen; `order` is SQL such as "rows desc"."""

    limit: int = 20
    order: str | None = None


SCREEN = ConsoleSink()
"""Where segments go if nothing else is said."""

Sink = Union[FileSink, ConsoleSink]


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture of `value` over time with the segments marked, for some keys (or the first ones)."""

    value: str
    path: str
    keys: tuple[str | int, ...] = ()
    threshold: float | None = None

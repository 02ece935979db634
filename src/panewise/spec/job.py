"""Where a job's rows come from, what fills its segments, how streams are run, where results go, what is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Union

from panewise.spec.aside import SetAside
from panewise.spec.duration import Amount
from panewise.spec.fill import Filling
from panewise.spec.prod import Prods

__all__ = [
    "MAX_SHARDS",
    "SCREEN",
    "ConsoleSink",
    "FileSink",
    "FileSource",
    "FillTable",
    "FillTables",
    "KafkaSource",
    "Plot",
    "Sink",
    "Source",
    "StreamOptions",
    "TableSource",
]

MAX_SHARDS = 1024
"""Into how many shards the keys of a stream may be dealt."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """Files that Spark reads: `format` is parquet, csv or json, `schema` is DDL, `options` are the reader's.

    As a `stream`, files that come later are read too.
    """

    format: str
    path: str
    schema: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    stream: bool = False


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table that Spark knows by name; as a `stream`, with the rows that come later."""

    table: str
    options: tuple[tuple[str, str], ...] = ()
    stream: bool = False


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """A topic of Kafka: `value` is json or avro, `schema` is DDL for json and an Avro schema in JSON for avro."""

    stream: ClassVar[bool] = True

    servers: str
    topic: str
    value: str
    schema: str
    options: tuple[tuple[str, str], ...] = ()


Source = Union[FileSource, TableSource, KafkaSource]


@dataclass(frozen=True, slots=True)
class FillTable:
    """Rows that fill segments, of the job's own source where `source` is None, and aggregates: without, each row."""

    filling: Filling
    source: Source | None = None
    agg: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FillTables:
    """All that fills a job's segments: [fill], whose name is empty, or each [fill.NAME]."""

    named: tuple[tuple[str, FillTable], ...]
    keep_empty: bool = False

    @property
    def tables(self) -> dict[str, FillTable]:
        """Each under the name of its table."""
        return {f"fill.{name}" if name else "fill": table for name, table in self.named}

    @property
    def gives_rows(self) -> bool:
        """Whether each matching row is given, and not one row for each segment."""
        return not any(table.agg for _, table in self.named)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream is run.

    `checkpoint` is the folder of its state; `trigger` is "once" (what there is, then close everything and end) or
    the time between micro-batches; `late` is a path for late rows, `control` one that punctuations and prods are read
    from; `prods` says who asks for early answers, `set_aside` what waits after one.
    """

    checkpoint: str
    emit: str = "final"
    fragment_every: Amount | None = None
    shards: int | None = None
    late: str | None = None
    trigger: str = "once"
    control: str | None = None
    prods: Prods | None = None
    set_aside: SetAside | None = None


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
    """A picture of `value` over time with the segments marked, for some keys (or the first ones).

    `fill` has what is drawn of the rows that fill them, by the name of their table; else it is what is aggregated.
    """

    value: str
    path: str
    keys: tuple[str | int, ...] = ()
    threshold: float | None = None
    fill: tuple[tuple[str, str], ...] = ()

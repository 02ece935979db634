"""Where a job's rows come from, how a stream of them is run, where its segments go, and what is drawn of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Union

from panewise.spec.duration import Amount

__all__ = [
    "MAX_SHARDS",
    "SCREEN",
    "ConsoleSink",
    "FileSink",
    "FileSource",
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
class StreamOptions:
    """How a stream is run.

    `checkpoint` is the folder of its state; `trigger` is "once" (what there is, then close everything and end) or
    the time between micro-batches; `late` is a path for late rows, `control` one that punctuations are read from.
    """

    checkpoint: str
    emit: str = "final"
    fragment_every: Amount | None = None
    shards: int | None = None
    late: str | None = None
    trigger: str = "once"
    control: str | None = None


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

"""The scan lane of a fill: where rows are nothing but Parquet files, Python workers read them, and meet all segments.

Rows then need not pass from the JVM to Python, be sorted, or be shuffled. What is not certain to mean the same on Arrow
as in Spark takes the general path, and `explain` says why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from panewise.errors import DataError, InputError
from panewise.kernel.fill import FillLayout
from panewise.kernel.keys import codes
from panewise.kernel.matching import Taker, reaching
from panewise.kernel.page import Array
from panewise.kernel.progress import aligned
from panewise.local.fill import apply_filling, numbered
from panewise.local.source import names_read
from panewise.spark.parquet import Parquet, Unit, parquet_of, span, unsettled
from panewise.spec.aggregates import Calls
from panewise.spec.fill import Filling
from panewise.spec.punctuate import InBand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Scan", "as_spark_has", "files_of", "scan_of", "two_rows", "unsettled_texts", "why_not", "zone_of_times",
]  # fmt: skip

_HELD_FILES = 32 << 20
"""How many bytes of segments in files each task reads by itself."""
_NAME = re.compile(r"\w+")
_SOME = datetime(2024, 7, 1, 12, 34, 56, 789)


@dataclass(frozen=True)
class Scan:
    """Rows of Parquet files that fill segments; `stored` are files of segments, where those are read too."""

    rows: Parquet
    filling: Filling
    calls: Calls
    segments: pa.Schema
    keys: tuple[str, ...]
    stored: Parquet | None

    def take(self, layout: FillLayout, units: Sequence[Unit], taker: Taker) -> None:
        """Let segments take the rows of these files; groups of rows between which no segment lies are skipped."""
        (name,) = (name for name in self.rows.schema.names if name.lower() == self.filling.time.lower())
        kind = self.rows.schema.field(name).type

        def wanted(file: Any, group: int) -> bool:
            known = span(file, group, name)
            if known is None:
                return True
            at = layout.progress.numbers(aligned(known.cast(kind, safe=False), layout.at_type))
            # what is not a number is no reason to skip
            return not (at[0] > taker.last or at[1] < taker.first)

        for table in self.rows.read(units, wanted):
            rows, _ = apply_filling(self.filling, self.calls, table, self.segments, self.keys, False, present=True)
            taker.take(rows)

    def taker(self, layout: FillLayout, shards: int) -> Taker | None:
        """The stored segments, each once; None if there are none."""
        assert self.stored is not None
        everything = [(path, 0.0, 1.0) for path, _ in self.stored.files]
        table = pa.concat_tables([self.stored.schema.empty_table(), *self.stored.read(everything)])
        if not len(table):
            return None
        found = Taker(layout, self._dealt(layout, table, shards))
        if not found.may_repeat:
            return found
        return Taker(layout, self._dealt(layout, table.take(pa.array(_distinct(table))), shards))

    def _dealt(self, layout: FillLayout, segments: pa.Table, shards: int) -> list[tuple[int, pa.Table]]:
        whole = reaching(layout, numbered(segments, self.keys))
        size = -(-len(whole) // shards)
        return [(i, whole.slice(i * size, size)) for i in range(shards) if i * size < len(whole)]


def _distinct(segments: pa.Table) -> Array:
    """The first of each kind of row."""
    return codes([column.combine_chunks() for column in segments.flatten().columns], len(segments))[1]


def scan_of(df: DataFrame, segments: DataFrame, keys: tuple[str, ...], layout: FillLayout, stored: bool) -> Scan | str:
    """How Python workers can read the rows of a DataFrame themselves, and `stored` segments; or why they can't."""
    given, calls = layout.filling, layout.agg
    if isinstance(given.punctuation, InBand):
        return "some rows are punctuations"
    texts = [call.argument for _, call in calls if call.argument is not None]
    texts += [given.where] if given.where is not None else []
    rows = files_of(df, (given.time, *given.keys), texts)
    if isinstance(rows, str):
        return rows
    own = to_arrow_schema(segments.schema, timezone="UTC")
    why = _refused(layout, rows.schema, own, keys)
    if why:
        return why
    files = parquet_of(segments, segments.columns, "UTC") if stored else ""
    return Scan(rows, given, calls, own, keys, files if isinstance(files, Parquet) and _is_small(files) else None)


def files_of(df: DataFrame, listed: Sequence[str], texts: Sequence[str]) -> Parquet | str:
    """The Parquet files that a DataFrame is, of which columns are listed, or read by SQL texts; or why it is none."""
    rows = parquet_of(df, names_read(df.columns, listed, texts), zone_of_times(df.sparkSession))
    return rows if isinstance(rows, str) else unsettled_texts(df.sparkSession, texts) or rows


def zone_of_times(spark: SparkSession) -> str:
    """The zone in which expressions see times."""
    return spark.conf.get("spark.sql.session.timeZone") or "UTC"


def unsettled_texts(spark: SparkSession, texts: Sequence[str]) -> str:
    """Which setting changes what Spark makes of files, or of SQL texts, if any does."""
    why, conf, zone = unsettled(spark), spark.conf, zone_of_times(spark)
    if why:
        return why
    if not all(map(_NAME.fullmatch, texts)):
        if conf.get("spark.sql.ansi.enabled") != "true":
            return "spark.sql.ansi.enabled is false"
        if conf.get("spark.sql.ansi.doubleQuotedIdentifiers") == "true":
            return "spark.sql.ansi.doubleQuotedIdentifiers is true"
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError):
        return f"spark.sql.session.timeZone is {zone}"
    return ""


def two_rows(schema: pa.Schema) -> pa.Table:
    """Two rows to try expressions on: one of nulls, one of values that nothing is wrong with."""
    return pa.table([pa.array([None, _sample(field.type)], field.type) for field in schema], schema=schema)


def as_spark_has(types: Sequence[pa.DataType | None]) -> tuple[pa.DataType | None, ...]:
    """Types of what aggregates read, with times in UTC."""
    return tuple(
        pa.timestamp("us", "UTC") if kind is not None and pa.types.is_timestamp(kind) and kind.tz else kind
        for kind in types
    )


def why_not(error: Exception) -> str:
    """The first words of an error."""
    return str(error).splitlines()[0].split(". ")[0]


def _refused(layout: FillLayout, schema: pa.Schema, segments: pa.Schema, keys: tuple[str, ...]) -> str:
    """Why what is asked of the rows can't be evaluated on Arrow for certain: it is tried on two rows."""
    given, calls = layout.filling, layout.agg
    some = two_rows(schema)
    try:
        _, found = apply_filling(given, calls, some, segments, keys, False)
        # what `where` leaves out is evaluated too
        apply_filling(replace(given, where=None), calls, some, segments, keys, False)
    except (InputError, DataError, pa.ArrowException) as e:
        return why_not(e)
    at = next(field.type for field in schema if field.name.lower() == given.time.lower())
    own_types = as_spark_has(found.input_types)
    if replace(found, input_types=own_types) != layout or pa.types.is_date(at) != pa.types.is_date(layout.at_type):
        return "types differ from those of Spark"
    return ""


def _sample(kind: pa.DataType) -> object:
    """A value that nothing is wrong with, but that no text turns into a number or a time."""
    if pa.types.is_timestamp(kind):
        return _SOME
    if pa.types.is_date(kind):
        return _SOME.date()
    if pa.types.is_decimal(kind):
        return Decimal(1) if kind.precision > kind.scale else Decimal(0)
    if pa.types.is_boolean(kind):
        return True
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return 1
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "x"
    return None


def _is_small(files: Parquet) -> bool:
    """Whether segments can be read by each task, and told apart there."""
    flat = files.schema.empty_table().flatten().schema
    return files.size <= _HELD_FILES and not any(pa.types.is_nested(field.type) for field in flat)

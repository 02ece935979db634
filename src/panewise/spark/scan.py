"""The scan lane of a fill: where rows are nothing but Parquet files, Python workers read them, and meet all segments.

Rows then need not pass from the JVM to Python, be sorted, or be shuffled. What is not certain to be read as Spark reads
it takes the general path, and `explain` says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema

from panewise.errors import DataError, InputError
from panewise.kernel.fill import FillLayout
from panewise.kernel.keys import codes
from panewise.kernel.matching import Taker, reaching
from panewise.kernel.page import Array
from panewise.local.fill import apply_filling, numbered
from panewise.local.source import names_read
from panewise.spec.aggregates import Aggregate
from panewise.spec.fill import Filling
from panewise.spec.punctuate import InBand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Scan", "files_of", "scan_of"]

Unit = tuple[str, float, float]
"""A file, and which part of its rows, from 0 to 1."""

_BATCH_ROWS = 1 << 20
_LEAST, _MOST = 4 << 20, 128 << 20
"""How many bytes of a file are one unit of work."""
_EACH, _EACH_BYTES = 4, 32 << 20
"""How many tasks there are for a core at most, and how many bytes a task has at least."""
_HELD_FILES = 32 << 20
"""How many bytes of segments in files each task reads by itself."""
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_NAME = re.compile(r"\w+")


@dataclass(frozen=True)
class Parquet:
    """Parquet files that Python workers can read as Spark would."""

    files: tuple[tuple[str, int], ...]
    schema: pa.Schema
    """The columns that are read, as Spark has them."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size in self.files)

    def tasks(self, cores: int) -> list[list[Unit]]:
        """Units of work, dealt to tasks: each has a stretch of files next to each other."""
        count = min(max(self.size // _EACH_BYTES, cores), _EACH * cores)
        size_of_unit = min(max(self.size // (_EACH * count), _LEAST), _MOST)
        units: list[tuple[Unit, float]] = []
        for path, size in self.files:
            pieces = max(1, round(size / size_of_unit))
            units += [((path, i / pieces, (i + 1) / pieces), size / pieces) for i in range(pieces)]
        dealt: list[list[Unit]] = [[] for _ in range(min(count, len(units)))]
        before = 0.0
        for unit, part in units:
            place = (before + part / 2) / max(self.size, 1) * len(dealt)
            dealt[min(int(place), len(dealt) - 1)].append(unit)
            before += part
        return dealt

    def read(self, units: Sequence[Unit], wanted: Callable[[Any, int], bool] | None = None) -> Iterator[pa.Table]:
        """The rows of these files, but for row groups that are not wanted."""
        for path, begin, end in units:
            with pq.ParquetFile(path, pre_buffer=False, coerce_int96_timestamp_unit="us") as file:
                groups = [i for i in _groups(file.metadata, begin, end) if wanted is None or wanted(file, i)]
                if not groups:
                    continue
                _check_calendar(path, file.metadata)
                names = [name for name in self.schema.names if name in file.schema_arrow.names]
                # what is read is decoded by this thread: Spark has a task for every core
                for batch in file.iter_batches(_BATCH_ROWS, groups, names, use_threads=False):
                    yield self._as_spark(path, batch)

    def _as_spark(self, path: str, batch: pa.RecordBatch) -> pa.Table:
        """Columns of a file under the types that Spark gives them; one that it lacks is null."""
        columns = []
        for field in self.schema:
            if field.name not in batch.schema.names:
                columns.append(pa.nulls(len(batch), field.type))
                continue
            column = batch.column(field.name)
            try:
                columns.append(column if column.type == field.type else column.cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise DataError(
                    f"`{path}`: the column {field.name!r} is {column.type} there, and {field.type} in other files. "
                    "Write it again, or give those files a DataFrame of their own."
                ) from None
        return pa.Table.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True)
class Scan:
    """Rows of Parquet files that fill segments; `stored` are files of segments, where those are read too."""

    rows: Parquet
    filling: Filling
    calls: tuple[tuple[str, Aggregate], ...]
    segments: pa.Schema
    keys: tuple[str, ...]
    stored: Parquet | None

    def take(self, layout: FillLayout, units: Sequence[Unit], taker: Taker) -> None:
        """Let segments take the rows of these files; groups of rows between which no segment lies are skipped."""
        (name,) = (name for name in self.rows.schema.names if name.lower() == self.filling.time.lower())
        kind = self.rows.schema.field(name).type

        def wanted(file: Any, group: int) -> bool:
            spans = _span(file, group, name)
            if spans is None:
                return True
            least, most = layout.progress.numbers(spans.cast(kind, safe=False))
            return bool(least <= taker.last and most >= taker.first)

        for table in self.rows.read(units, wanted):
            rows, _ = apply_filling(self.filling, self.calls, table, self.segments, self.keys, False)
            at = rows.column("at")
            taker.take(rows.filter(pc.is_valid(at)) if at.null_count else rows)

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


def _span(file: Any, group: int, name: str) -> pa.Array | None:
    """The least and the largest value of a column in a row group, if they are known."""
    metadata = file.metadata.row_group(group)
    for i in range(metadata.num_columns):
        column = metadata.column(i)
        if column.path_in_schema != name or column.physical_type == "INT96":
            continue
        if column.is_stats_set and column.statistics.has_min_max:
            try:
                return pa.array([column.statistics.min, column.statistics.max], file.schema_arrow.field(name).type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError, TypeError):
                return None
    return None


def _groups(metadata: Any, begin: float, end: float) -> Iterator[int]:
    """The row groups whose middle lies in this part of a file."""
    before, total = 0, max(metadata.num_rows, 1)
    for i in range(metadata.num_row_groups):
        rows = metadata.row_group(i).num_rows
        if begin <= (before + rows / 2) / total < end:
            yield i
        before += rows


def _check_calendar(path: str, metadata: Any) -> None:
    if _is_legacy(metadata):
        raise DataError(
            f"`{path}` was written in Spark's legacy calendar, and other files were not. "
            'Use .filter("true") on the DataFrame, so that Spark reads it.'
        )


def _is_legacy(metadata: Any) -> bool:
    return any(key in (metadata.metadata or {}) for key in _LEGACY)


def scan_of(
    df: DataFrame, segments: DataFrame, keys: tuple[str, ...], layout: FillLayout, stored: DataFrame | None
) -> Scan | str:
    """How Python workers can read the rows of a DataFrame themselves; or why they can't."""
    given, calls = layout.filling, layout.agg
    if isinstance(given.punctuation, InBand):
        return "some rows are punctuations"
    texts = [call.argument for _, call in calls if call.argument is not None]
    texts += [given.where] if given.where is not None else []
    conf = df.sparkSession.conf
    # times are in the zone in which expressions see them
    zone = conf.get("spark.sql.session.timeZone") or "UTC"
    rows = _parquet(df, names_read(df.columns, (given.time, *given.keys), texts), zone)
    if isinstance(rows, str):
        return rows
    if conf.get("spark.sql.ansi.enabled") != "true" and not all(map(_NAME.fullmatch, texts)):
        return "spark.sql.ansi.enabled is false"
    own = to_arrow_schema(segments.schema, timezone="UTC")
    try:
        _, found = apply_filling(given, calls, rows.schema.empty_table(), own, keys, False)
    except (InputError, DataError) as e:
        return str(e).split(". ")[0]
    at = next(field.type for field in rows.schema if field.name.lower() == given.time.lower())
    if found != layout or pa.types.is_date(at) != pa.types.is_date(layout.at_type):
        return "types differ from those of Spark"
    files = "" if stored is None else _parquet(stored, stored.columns, "UTC")
    return Scan(rows, given, calls, own, keys, files if isinstance(files, Parquet) and _is_small(files) else None)


def _is_small(files: Parquet) -> bool:
    """Whether segments can be read by each task, and told apart there."""
    flat = files.schema.empty_table().flatten().schema
    return files.size <= _HELD_FILES and not any(pa.types.is_nested(field.type) for field in flat)


def _parquet(df: DataFrame, names: Sequence[str], zone: str) -> Parquet | str:
    """The files of a DataFrame, where these columns of them are certain to be read as Spark reads them; or why not."""
    uris = files_of(df)
    if isinstance(uris, str):
        return uris
    conf = df.sparkSession.conf
    for name in ("files.ignoreCorruptFiles", "files.ignoreMissingFiles", "caseSensitive"):
        if conf.get(f"spark.sql.{name}") == "true":
            return f"spark.sql.{name} is true"
    try:
        schema = to_arrow_schema(df.select(*(df[name] for name in names)).schema, timezone=zone)
    except PySparkException:
        return "Arrow has no type for what is read"
    files = []
    for uri in uris:
        parts = urlparse(uri)
        path = Path(unquote(parts.path))
        if parts.scheme != "file" or not path.is_file():
            return f"{uri} is no file here"
        files.append((str(path), path.stat().st_size))
    files.sort()
    return _unlike(files, schema) or Parquet(tuple(files), schema)


def files_of(df: DataFrame) -> list[str] | str:
    """The files of a DataFrame that is nothing but a scan of Parquet."""
    plan = getattr(df, "_jdf", None)
    if plan is None:
        return "Spark Connect does not say where rows come from"
    node = plan.queryExecution().analyzed()
    while node.getClass().getSimpleName() == "SubqueryAlias":
        node = node.child()
    if node.getClass().getSimpleName() != "LogicalRelation":
        return "it is more than a scan of Parquet files"
    relation = node.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation" or str(relation.fileFormat()) != "Parquet":
        return "it is no scan of Parquet files"
    return list(df.inputFiles()) or "there is no file"


def _is_int96(file: Any, name: str) -> bool:
    columns = [file.schema.column(i) for i in range(len(file.schema))]
    return any(column.path == name and column.physical_type == "INT96" for column in columns)


def _unlike(files: Sequence[tuple[str, int]], schema: pa.Schema) -> str:
    """Why the columns of the first file are not those that Spark says."""
    with pq.ParquetFile(files[0][0], coerce_int96_timestamp_unit="us") as file:
        if _is_legacy(file.metadata):
            return "dates are in Spark's legacy calendar"
        for field in schema:
            if field.name not in file.schema_arrow.names:
                return f"the column {field.name!r} is not in the files"
            found = file.schema_arrow.field(field.name).type
            alike = [field.type]
            if pa.types.is_timestamp(field.type):
                zone = "UTC" if field.type.tz else None
                # what is stored as INT96 is an instant, though Arrow does not say so
                zone = None if zone and _is_int96(file, field.name) else zone
                alike += [pa.timestamp("us", zone), pa.timestamp("ms", zone)]
            if found not in alike:
                return f"the column {field.name!r} is {found} in the files"
    return ""

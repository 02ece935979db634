"""The scan lane of a fill: where rows are nothing but Parquet files, Python workers read them, and meet all segments.

Rows then need not pass from the JVM to Python, be sorted, or be shuffled. What is not certain to be read as Spark reads
it takes the general path, and `explain` says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
from panewise.local.fill import apply_filling
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
_EACH = 4
"""How many tasks there are for a core: with fewer, one waits for another at the end."""
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_NAME = re.compile(r"\w+")


@dataclass(frozen=True)
class Scan:
    """Parquet files that hold all that a fill reads, and how to read them."""

    files: tuple[tuple[str, int], ...]
    schema: pa.Schema
    """The columns that are read, as Spark has them."""
    filling: Filling
    calls: tuple[tuple[str, Aggregate], ...]
    segments: pa.Schema
    keys: tuple[str, ...]

    def tasks(self, cores: int) -> list[list[Unit]]:
        """Units of work, dealt to tasks: each has a stretch of files next to each other."""
        total = sum(size for _, size in self.files)
        size_of_unit = min(max(total // (_EACH * cores), _LEAST), _MOST)
        units: list[tuple[Unit, float]] = []
        for path, size in self.files:
            pieces = max(1, round(size / size_of_unit))
            units += [((path, i / pieces, (i + 1) / pieces), size / pieces) for i in range(pieces)]
        count = max(1, min(len(units), _EACH * cores))
        dealt: list[list[Unit]] = [[] for _ in range(count)]
        before = 0.0
        for unit, part in units:
            dealt[min(int((before + part / 2) / max(total, 1) * count), count - 1)].append(unit)
            before += part
        return dealt

    def rows(self, layout: FillLayout, units: Sequence[Unit], first: Any, last: Any) -> Iterator[pa.Table]:
        """What the fill sees of these files: rows of groups that may hold some between two instants."""
        for path, begin, end in units:
            # what is read is decoded by this thread: Spark has a task for every core
            with pq.ParquetFile(path, pre_buffer=False, coerce_int96_timestamp_unit="us") as file:
                groups = [i for i in _groups(file.metadata, begin, end) if self._may_meet(layout, file, i, first, last)]
                if not groups:
                    continue
                _check_calendar(path, file.metadata)
                names = [name for name in self.schema.names if name in file.schema_arrow.names]
                for batch in file.iter_batches(_BATCH_ROWS, groups, names, use_threads=False):
                    rows, _ = apply_filling(
                        self.filling, self.calls, self._as_spark(path, batch), self.segments, self.keys, False
                    )
                    yield rows.filter(pc.is_valid(rows.column("at")))

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

    def _may_meet(self, layout: FillLayout, file: Any, group: int, first: Any, last: Any) -> bool:
        """Whether a row group may hold rows between two instants, by its statistics."""
        name = next(name for name in self.schema.names if name.lower() == self.filling.time.lower())
        metadata = file.metadata.row_group(group)
        for i in range(metadata.num_columns):
            column = metadata.column(i)
            if column.path_in_schema != name or not column.is_stats_set or not column.statistics.has_min_max:
                continue
            kind = file.schema_arrow.field(name).type
            try:
                found = pa.array([column.statistics.min, column.statistics.max], kind)
                least, most = layout.progress.numbers(found.cast(self.schema.field(name).type, safe=False))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError, TypeError):
                return True
            return bool(least <= last and most >= first)
        return True


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


def scan_of(df: DataFrame, segments: DataFrame, keys: tuple[str, ...], layout: FillLayout) -> Scan | str:
    """How Python workers can read the rows of a DataFrame themselves; or why they can't."""
    uris = files_of(df)
    if isinstance(uris, str):
        return uris
    conf = df.sparkSession.conf
    for name, value in (
        ("spark.sql.files.ignoreCorruptFiles", "true"),
        ("spark.sql.files.ignoreMissingFiles", "true"),
        ("spark.sql.caseSensitive", "true"),
    ):
        if conf.get(name) == value:
            return f"{name} is {value}"
    given, calls = layout.filling, layout.agg
    if isinstance(given.punctuation, InBand):
        return "some rows are punctuations"
    texts = [call.argument for _, call in calls if call.argument is not None]
    texts += [given.where] if given.where is not None else []
    if conf.get("spark.sql.ansi.enabled") != "true" and not all(map(_NAME.fullmatch, texts)):
        return "spark.sql.ansi.enabled is false"
    zone = conf.get("spark.sql.session.timeZone")
    names = names_read(df.columns, (given.time, *given.keys), texts)
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
    why = _unlike(files, schema)
    if why:
        return why
    own = to_arrow_schema(segments.schema, timezone="UTC")
    scan = Scan(tuple(sorted(files)), schema, given, calls, own, keys)
    try:
        _, found = apply_filling(given, calls, schema.empty_table(), own, keys, False)
    except (InputError, DataError) as e:
        return str(e).split(". ")[0]
    at = next(field.type for field in schema if field.name.lower() == given.time.lower())
    if found != layout or pa.types.is_date(at) != pa.types.is_date(layout.at_type):
        return "types differ from those of Spark"
    return scan


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


def _unlike(files: Sequence[tuple[str, int]], schema: pa.Schema) -> str:
    """Why the columns of the first file are not those that Spark says."""
    with pq.ParquetFile(files[0][0], coerce_int96_timestamp_unit="us") as file:
        if _is_legacy(file.metadata):
            return "dates are in Spark's legacy calendar"
        for field in schema:
            if field.name not in file.schema_arrow.names:
                return f"the column {field.name!r} is not in the files"
            found = file.schema_arrow.field(field.name).type
            stored = pa.timestamp("us", "UTC" if field.type.tz else None) if pa.types.is_timestamp(field.type) else None
            in_millis = pa.timestamp("ms", stored.tz) if stored is not None else None
            if found not in (field.type, stored, in_millis):
                return f"the column {field.name!r} is {found} in the files"
    return ""

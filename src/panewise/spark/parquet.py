"""Parquet files of a DataFrame that Python workers read themselves, where that is certain to give what Spark reads.

Certain means: the DataFrame is nothing but a scan of files by Spark's own reader, where pyarrow reaches them too, every
file has each column that is read under its name, but for case, in its type or a narrower one, or is in a folder that
names its value, or has none; and no setting changes what Spark makes of it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cached_property, partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, LocalFileSystem
from pyspark.errors import PySparkException
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from panewise.errors import DataError
from panewise.kernel.page import Array
from panewise.spark.filecolumns import names_in, unlike
from panewise.spark.store import files_in, is_local, side_by_side

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "READER", "Group", "Parquet", "Unit", "arrow_of", "for_spark", "node_of", "parquet_of", "relation_of", "several",
    "span", "unsettled", "why_unlike",
]  # fmt: skip

Unit = tuple[str, float, float]
"""A file, and which part of its rows, from 0 to 1."""


class Group(NamedTuple):
    """A row group: its file and number, how many rows it has, of how many bytes, and the values columns lie between."""

    path: str
    number: int
    rows: int
    size: float
    spans: tuple[pa.Array | None, ...]


_BATCH_ROWS = 1 << 19
_LEAST, _MOST = 4 << 20, 128 << 20
"""How many bytes of a file are one unit of work."""
_EACH, _EACH_BYTES, _EACH_ROWS = 4, 32 << 20, 8 << 20
"""How many tasks there are for a core at most, and of how many bytes or rows there is one at least."""
_FILES = 10_000
"""How many files are looked into before anything runs; where there are more, Spark reads them."""
_AGAIN = "Read the files anew."
_BY_SPARK = "let Spark read it: `df.where('true')` instead of `df`."
_OPTIONS = ("ignorecorruptfiles", "ignoremissingfiles", "datetimerebasemode", "int96rebasemode")
_SETTINGS = {
    "files.ignoreCorruptFiles": "true",
    "files.ignoreMissingFiles": "true",
    "caseSensitive": "true",
    "parquet.int96TimestampConversion": "true",
    "parquet.datetimeRebaseModeInRead": "LEGACY",
    "parquet.int96RebaseModeInRead": "LEGACY",
    "parquet.fieldId.read.enabled": "true",
}
_NOTHING = "__HIVE_DEFAULT_PARTITION__"
_DEFAULT, _SQL_TYPE = "EXISTS_DEFAULT", "__CHAR_VARCHAR_TYPE_STRING"
"""What the metadata of a column say of a value where files have none; and of its type, if that is not its own."""
READER = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"


@dataclass(frozen=True)
class Parquet:
    """Files, and the columns that are read of them, as Spark has them."""

    files: tuple[tuple[str, int], ...]
    schema: pa.Schema
    folders: Mapping[str, Mapping[str, object]] = dataclasses.field(default_factory=dict)
    """What the folders of a file say: the values of columns that are in no file."""
    store: FileSystem = dataclasses.field(default_factory=LocalFileSystem)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size in self.files)

    @cached_property
    def _sizes(self) -> dict[str, int]:
        return dict(self.files)

    def groups(self, names: Sequence[str]) -> list[Group]:
        """The row groups of all files, and what they say of the values of columns; None where they do not."""
        with side_by_side(self.store, len(self.files)) as work:
            return [group for groups in work(partial(self._groups_of, names), self.files) for group in groups]

    def _groups_of(self, names: Sequence[str], file: tuple[str, int]) -> list[Group]:
        path, size = file
        said = self.folders.get(path, {})
        with _opened(self.store, path) as opened:
            metadata = opened.metadata
            rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
            share, found = size / max(sum(rows), 1), []
            for i, count in enumerate(rows):
                own = {name: span(opened, i, name) for name in names if name not in said}
                own |= {
                    name: pa.array([said[name]] * 2, self.schema.field(name).type) for name in names if name in said
                }
                found.append(Group(path, i, count, count * share, tuple(own[name] for name in names)))
        return [group for group in found if group.rows]

    def count(self, cores: int, rows: int = 0) -> int:
        """How many tasks read them, if so many rows are known of: as many for each core."""
        wanted = max(self.size // _EACH_BYTES, rows // _EACH_ROWS) // cores
        return cores * min(max(wanted, 1), _EACH)

    def tasks(self, cores: int) -> list[list[Unit]]:
        """Units of work, dealt to tasks: each has a stretch of files next to each other."""
        count = self.count(cores)
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
            with self._checked(path) as file:
                groups = [i for i in _groups(file.metadata, begin, end) if wanted is None or wanted(file, i)]
                yield from self._rows(file, path, groups)

    def read_groups(
        self, groups: Iterable[tuple[str, int]], batch_rows: int = _BATCH_ROWS
    ) -> Iterator[Iterator[pa.Table]]:
        """The rows of row groups, one group after another, so many at a time."""
        for path, some in groupby(groups, key=itemgetter(0)):
            with self._checked(path) as file:
                for _, number in some:
                    yield self._rows(file, path, [number], batch_rows)

    def read_marked(self, path: str, marks: Array, every: int) -> Iterator[pa.Table]:
        """The rows of those row groups of a file in which marks are: the places of some rows, one of so many."""
        with self._checked(path) as file:
            groups, places = _marked(file.metadata, set(marks.tolist()), every)
            if places != sorted(marks.tolist()):
                raise DataError(f"`{path}` has changed while it was to be read: rows are elsewhere. {_AGAIN}")
            yield from self._rows(file, path, groups)

    @contextmanager
    def _checked(self, path: str) -> Iterator[Any]:
        try:
            opened = _opened(self.store, path)
        except (OSError, pa.ArrowException) as e:
            raise DataError(
                f"`{path}` can't be read by a worker ({str(e).splitlines()[0]}). Let workers reach it as the driver "
                f"does, or {_BY_SPARK}"
            ) from e
        with opened as file:
            why = unlike(file, self.schema, self.folders.get(path, {}))
            if why and path not in self._sizes:
                raise DataError(
                    f"`{path}` can't be read by a worker: {why}. Write it as the others are, or {_BY_SPARK}"
                )
            if path in self._sizes and self.store.get_file_info(path).size != self._sizes[path]:
                why = f"it had {self._sizes[path]:,} bytes"
            if why:
                raise DataError(f"`{path}` has changed while it was to be read: {why}. {_AGAIN}")
            yield file

    def _rows(self, file: Any, path: str, groups: Sequence[int], batch_rows: int = _BATCH_ROWS) -> Iterator[pa.Table]:
        said = self.folders.get(path, {})
        named = {field.name: name for field in self.schema for name in names_in(file, field.name)}
        stored = [named[field.name] for field in self.schema if field.name not in said and field.name in named]
        if not groups:
            return
        # what is read is decoded by this thread: Spark has a task for every core
        for batch in file.iter_batches(batch_rows, groups, stored, use_threads=False):
            columns = [
                pa.repeat(pa.scalar(said.get(field.name), field.type), len(batch))
                if field.name in said or field.name not in named
                else batch.column(named[field.name]).cast(field.type)
                for field in self.schema
            ]
            yield pa.Table.from_arrays(columns, schema=self.schema)


def _opened(store: FileSystem, path: str) -> Any:
    # from far away, what is read of a row group comes in few and large pieces
    away = not is_local(store)
    return pq.ParquetFile(path, filesystem=store, pre_buffer=away, coerce_int96_timestamp_unit="us")


def _groups(metadata: Any, begin: float, end: float) -> Iterator[int]:
    """The row groups whose middle lies in this part of a file."""
    before, total = 0, max(metadata.num_rows, 1)
    for i in range(metadata.num_row_groups):
        rows = metadata.row_group(i).num_rows
        if begin <= (before + rows / 2) / total < end:
            yield i
        before += rows


def _marked(metadata: Any, marks: set[int], every: int) -> tuple[list[int], list[int]]:
    """The row groups in which rows are marked, and all places for marks there: rows 0, `every`, 2 `every`, ...

    A row group has all of its marks, or none; one that has no place for any goes with the one before.
    """
    groups, places, begin, mine = list[int](), list[int](), 0, False
    for i in range(metadata.num_row_groups):
        end = begin + metadata.row_group(i).num_rows
        some = range(-(-begin // every) * every, end, every)
        mine = some[0] in marks if some else mine
        if mine:
            groups.append(i)
            places += some
        begin = end
    return groups, places


def span(file: Any, group: int, name: str) -> pa.Array | None:
    """The least and the largest value of a column in a row group, if they are known."""
    metadata = file.metadata.row_group(group)
    for i in range(metadata.num_columns):
        column = metadata.column(i)
        if column.path_in_schema != name or column.physical_type == "INT96":
            continue
        if column.is_stats_set and column.statistics.has_min_max:
            try:
                return pa.array([column.statistics.min, column.statistics.max], file.schema_arrow.field(name).type)
            except (pa.ArrowException, OverflowError, TypeError, UnicodeDecodeError):
                return None
    return None


def relation_of(df: DataFrame) -> Any:
    """The scan of Parquet files that a DataFrame is and nothing else; or, as text, why it is none."""
    plan = getattr(df, "_jdf", None)
    if plan is None:
        return "Spark Connect does not say where rows come from"
    node = node_of(plan)
    if node.getClass().getSimpleName() != "LogicalRelation":
        return "it is more than a scan of Parquet files"
    relation = node.relation()
    is_files = relation.getClass().getSimpleName() == "HadoopFsRelation"
    if not is_files or relation.fileFormat().getClass().getName() != READER:
        return "it is no scan of Parquet files"
    return relation


def node_of(plan: Any, names: Sequence[str] = ("SubqueryAlias", "View")) -> Any:
    """What a plan of Spark's is, but for names."""
    node = plan.queryExecution().analyzed()
    while node.getClass().getSimpleName() in names:
        node = node.child()
    return node


def several(values: Any) -> Iterator[Any]:
    """What an iterator of Scala's gives."""
    while values.hasNext():
        yield values.next()


def for_spark(options: Any, more: Sequence[str] = ()) -> str:
    """Which option of a source only Spark can do, if it has one."""
    given = (key for key in several(options.keysIterator()) if key.lower() in (*_OPTIONS, *more))
    return next((f"its option {key} is for Spark" for key in given), "")


def unsettled(spark: SparkSession) -> str:
    """Which setting changes what Spark makes of files, if any does."""
    for name, value in _SETTINGS.items():
        if (spark.conf.get(f"spark.sql.{name}", None) or "").lower() == value.lower():
            return f"spark.sql.{name} is {value}"
    return ""


def parquet_of(df: DataFrame, names: Sequence[str], zone: str) -> Parquet | str:
    """The files of a DataFrame, of which these columns are read; or why they are left to Spark."""
    relation = relation_of(df)
    if isinstance(relation, str):
        return relation
    why = for_spark(relation.options())
    if why:
        return why
    named = {name.lower() for name in relation.partitionSchema().fieldNames()}
    schema = arrow_of(df, names, zone)
    if isinstance(schema, str):
        return schema
    uris = list(relation.location().inputFiles())
    if not 0 < len(uris) <= _FILES:
        return f"there are {len(uris):,} files"
    found = files_in(uris, df.sparkSession, relation.options())
    if isinstance(found, str):
        return found
    store, files = found
    folders = _folders(files, [field for field in schema if field.name.lower() in named])
    if isinstance(folders, str):
        return folders
    rows = Parquet(files, schema, folders, store)
    return why_unlike(rows, [path for path, _ in files]) or rows


def arrow_of(df: DataFrame, names: Sequence[str], zone: str) -> pa.Schema | str:
    """The columns of these names, as Arrow has them; or why it has not."""
    fields = {field.name: field for field in df.schema.fields}
    wanted = T.StructType([fields[name] for name in names])
    if " collate " in wanted.simpleString():
        return "text has a collation"
    for field in wanted.fields:
        if _DEFAULT in field.metadata or str(field.metadata.get(_SQL_TYPE, "")).startswith("char"):
            return f"Spark completes the column {field.name!r}, which has a default, or a length"
    try:
        return to_arrow_schema(wanted, timezone=zone)
    except PySparkException:
        return "Arrow has no type for what is read"


def _folders(files: Sequence[tuple[str, int]], fields: Sequence[pa.Field]) -> dict[str, dict[str, object]] | str:
    """The values of columns that the folders of each file name; or why they are not certain."""
    if not fields:
        return {}
    found: dict[str, dict[str, object]] = {}
    for path, _ in files:
        pairs = [part.split("=", 1) for part in Path(path).parts[:-1] if "=" in part]
        found[path] = {}
        for field in fields:
            texts = [text for name, text in pairs if unquote(name).lower() == field.name.lower()]
            if len(texts) != 1:
                return f"{field.name!r} is not the name of one folder"
            try:
                found[path][field.name] = _named(unquote(texts[0]), field.type)
            except ValueError:
                return f"{field.name!r} is the name of a folder, with {field.type} in it"
    return found


def _named(text: str, kind: pa.DataType) -> object:
    """The value that the name of a folder stands for, of types in which there is no doubt."""
    if text == _NOTHING:
        return None
    if pa.types.is_string(kind):
        return text
    if pa.types.is_integer(kind) and re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    if pa.types.is_date(kind) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return date.fromisoformat(text)
    raise ValueError(text)


def why_unlike(rows: Parquet, paths: Sequence[str]) -> str:
    """Why one of these files is not as Spark says."""

    def looked_into(path: str) -> str:
        try:
            with _opened(rows.store, path) as file:
                return unlike(file, rows.schema, rows.folders.get(path, {}))
        except (OSError, pa.ArrowException) as e:
            return f"{path} can't be read here ({str(e).splitlines()[0]})"

    with side_by_side(rows.store, len(paths)) as work:
        return next((why for why in work(looked_into, paths) if why), "")

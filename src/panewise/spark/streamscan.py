"""The scan lane of streams: where a stream is nothing but Parquet files, Python workers read their columns.

Files are listed, and dealt to micro-batches and tasks, by Spark's own source, so that a checkpoint serves with the lane
and without. Of rows it hands over none but marks: of every so many rows the place of one, and in which file it is, for
which no column is read. They say which row groups are a task's, and workers read these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSystem
from pyspark.sql import functions as F

from panewise.errors import DataError, InputError
from panewise.kernel.dealing import can_deal
from panewise.kernel.page import Array, in_one
from panewise.kernel.punctuate import source_columns
from panewise.kernel.sequence import Layout
from panewise.local.runner import apply_local
from panewise.local.source import names_read
from panewise.spark.framescan import alike, texts_of
from panewise.spark.parquet import READER, Parquet, arrow_of, for_spark, node_of, several, why_unlike
from panewise.spark.scan import as_spark_has, two_rows, unsettled_texts, why_not, zone_of_times
from panewise.spark.source import named
from panewise.spark.store import some_files, store_of
from panewise.spec.punctuate import InBand, Passed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["StreamScan", "marks_rows", "stream_scan_of"]

_EVERY = 1 << 12
"""Of how many rows one is a mark; a power of two."""
_PATTERN = re.compile(r"[*?{\[]")


@dataclass(frozen=True)
class StreamScan:
    """Rows of Parquet files that come as a stream."""

    layout: Layout
    schema: pa.Schema
    """What is read of the files."""
    said: tuple[str, ...]
    """The columns among these that folders name."""
    elements: pa.Schema
    """What is packed."""
    store: FileSystem
    root: str
    roots: tuple[str, ...]
    """Below which folders others may name values."""

    def marks(self, df: DataFrame) -> DataFrame:
        """Which rows are a task's, as marks."""
        file = df.metadataColumn("_metadata")
        values = [df[named(name)].alias(f"said{i}") for i, name in enumerate(self.said)]
        told = df.select(file["file_path"].alias("file"), file["row_index"].alias("place"), *values)
        return told.filter(F.col("place").bitwiseAND(_EVERY - 1) == 0)

    def rows(self, marks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that are a task's, as elements."""
        plan, calls, emit, prods = self.layout.plan, self.layout.agg, self.layout.emit, self.layout.prods
        for table in self._read(marks):
            found = apply_local(plan, calls, table, emit, prods).rows
            if "row" in self.elements.names:
                fields = list(self.elements.field("row").type)
                row = [in_one(column).cast(field.type) for field, column in zip(fields, table.columns, strict=True)]
                found = found.append_column("row", pa.StructArray.from_arrays(row, fields=fields))
            yield from found.cast(self.elements).to_batches()

    def _read(self, marks: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        places: dict[str, list[Array]] = {}
        said: dict[str, Mapping[str, object]] = {}
        for batch in marks:
            files = batch.column("file").dictionary_encode()
            for i, uri in enumerate(files.dictionary.to_pylist()):
                mine = batch.filter(pc.equal(files.indices, i))
                if uri not in places:
                    places[uri], said[uri] = [], self._said(uri, mine)
                places[uri].append(mine.column("place").to_numpy())
        for uri, found in places.items():
            path = self.root + unquote(urlsplit(uri).path)
            rows = Parquet((), self.schema, {path: said[uri]}, self.store)
            yield from rows.read_marked(path, np.concatenate(found), _EVERY)

    def _said(self, uri: str, marks: pa.RecordBatch) -> Mapping[str, object]:
        """The values that the folders of a file name."""
        path = unquote(urlsplit(uri).path)
        below = [path.removeprefix(root) for root in self.roots if path.startswith(f"{root}/")]
        folders = _named_by(min(below, key=len, default="").split("/")[:-1])
        for name in self.schema.names:
            if name not in self.said and name.lower() in folders:
                raise DataError(
                    f"`{uri}` is in a folder that names {name!r}, and when the stream was started there was none. "
                    "Start it again, and it will be read from there."
                )
        return {
            name: marks.column(f"said{i}")[0].cast(self.schema.field(name).type).as_py()
            for i, name in enumerate(self.said)
        }


def stream_scan_of(df: DataFrame, layout: Layout, late: bool) -> StreamScan | str:
    """How Python workers can read the rows of a stream themselves; or why they can't."""
    plan, calls, spark = layout.plan, layout.agg, df.sparkSession
    if marks_rows(layout):
        return "some rows are punctuations, or prods"
    if not can_deal(layout.key_types):
        return "keys are of a type that Spark deals"
    source = _source_of(df)
    if isinstance(source, str):
        return source
    texts = texts_of(plan, calls)
    names = names_read(df.columns, (plan.ordered_by, *plan.keys, *plan.tie_break, *source_columns(plan)), texts)
    # late rows are wanted as they are
    schema = arrow_of(df, df.columns if late else names, zone_of_times(spark))
    if isinstance(schema, str):
        return schema
    why = unsettled_texts(spark, texts)
    if why:
        return why
    odd = next((field.name for field in schema if not _is_plain(field.type)), None)
    if odd is not None:
        return f"the column {odd!r} is of a type that only Spark reads"
    partitions = {name.lower() for name in several(source.sourceInfo().partitionColumns().iterator())}
    said = tuple(name for name in schema.names if name.lower() in partitions)
    found = _folders(df, source, schema, said)
    if isinstance(found, str):
        return found
    try:
        tried = apply_local(plan, calls, two_rows(schema), layout.emit, layout.prods)
    except (InputError, DataError, pa.ArrowException) as e:
        return why_not(e)
    if not alike(tried.layout, layout):
        return "types differ from those of Spark"
    elements = _in_utc(tried.rows.schema)
    if late:
        elements = elements.append(pa.field("row", pa.struct(list(_in_utc(schema)))))
    return StreamScan(layout, schema, said, elements, *found)


def _folders(
    df: DataFrame, source: Any, schema: pa.Schema, said: tuple[str, ...]
) -> tuple[FileSystem, str, tuple[str, ...]] | str:
    """The store of a source, what comes before paths there, and folders that may name values; or why Spark reads it.

    A file or two are looked into, if some are there: others may come later, but most will be like them.
    """
    roots = _roots(source, df)
    if len({urlsplit(root)[:2] for root in roots}) != 1:
        return "files are in several stores" if roots else "it does not say where its files are"
    found = store_of(roots[0], df.sparkSession, source.options())
    if isinstance(found, str):
        return found
    store, before = found
    paths = [unquote(urlsplit(root).path).rstrip("/") for root in roots]
    # where folders are found by a pattern, or there may be any, Spark does not ask for their names
    plain = tuple(path for path in paths if not _PATTERN.search(path))
    recursive = source.options().get("recursiveFileLookup")
    named_by = () if recursive.isDefined() and recursive.get().lower() == "true" else plain
    try:
        some = [file for path in plain for file in some_files(store, before + path)]
    except (OSError, pa.ArrowException) as e:
        return f"pyarrow does not reach {roots[0]} ({str(e).splitlines()[0]})"
    why = why_unlike(Parquet((), schema, {file: dict.fromkeys(said) for file in some}, store), some)
    return why or (store, before, named_by)


def _is_plain(kind: pa.DataType) -> bool:
    """Whether it is known as which types files may have values of this one.

    >>> _is_plain(pa.int8()), _is_plain(pa.time64("us")), _is_plain(pa.list_(pa.int8()))
    (True, False, False)
    """
    known = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_string)
    return any(each(kind) for each in (*known, pa.types.is_binary, pa.types.is_timestamp, pa.types.is_date))


def _in_utc(schema: pa.Schema) -> pa.Schema:
    return pa.schema(list(zip(schema.names, as_spark_has(schema.types), strict=True)))


def marks_rows(layout: Layout) -> bool:
    """Whether some of the rows are punctuations, or prods."""
    prods = layout.prods is not None and layout.prods.in_band is not None
    return prods or isinstance(layout.plan.punctuation, InBand | Passed)


def _source_of(df: DataFrame) -> Any:
    """The source of Parquet files that a stream is and nothing else; or, as text, why it is none."""
    plan = getattr(df, "_jdf", None)
    if plan is None:
        return "Spark Connect does not say where rows come from"
    # through a view Spark does not say in which file a row is
    node = node_of(plan, ("SubqueryAlias",))
    if node.getClass().getSimpleName() != "StreamingRelation":
        return "it is more than a stream of Parquet files"
    source = node.dataSource()
    if source.providingClass().getName() != READER:
        return "it is no stream of Parquet files"
    return for_spark(source.options(), ("basepath",)) or source


def _roots(source: Any, df: DataFrame) -> tuple[str, ...]:
    """Where a source looks for files, with the stores that they are in."""
    spark: Any = df.sparkSession
    conf = spark._jsparkSession.sessionState().newHadoopConfWithOptions(source.options())
    given = [*several(source.paths().iterator())]
    given += [pair._2() for pair in several(source.options().iterator()) if pair._1().lower() == "path"]
    places = [spark._jvm.org.apache.hadoop.fs.Path(path) for path in given]
    return tuple(place.getFileSystem(conf).makeQualified(place).toUri().toString() for place in places)


def _named_by(folders: Iterable[str]) -> set[str]:
    """The columns that folders name.

    >>> sorted(_named_by(["data", "Day=2024-05-01", "a%2Fb=1"]))
    ['a/b', 'day']
    """
    return {unquote(folder.partition("=")[0]).lower() for folder in folders if "=" in folder}

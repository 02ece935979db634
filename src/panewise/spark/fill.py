"""Fill on Spark, from what is stored: rows become pages, segments chunks; Spark joins them by shard, and we merge.

segments --mapInArrow: chunks--> (shard, piece, first, last)   ─┐
rows     --mapInArrow: pages---> (shard, piece, first, last)   ─┴ join on shard where they overlap (Spark broadcasts
         what is small) --mapInArrow: match--> partial results by shard ─┐
rows of Parquet files, in the scan lane (`spark/scan.py`): chunks go to  │
         every task, --mapInArrow: read, match--> partial results ───────┴ --by shard; mapInArrow: merge--> segments

Rows are never compared with segments one by one, and neither side is held in memory. Segments may also be a stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from panewise.kernel.fill import FillLayout
from panewise.kernel.matching import UID, Merger, Piece, Taker, chunks, filled, matched, opened, pages
from panewise.spark.filling import apply_filling
from panewise.spark.scan import Scan, scan_of
from panewise.spark.source import Dealt, named, shard_of
from panewise.spec.aggregates import Calls
from panewise.spec.fill import Filling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SHARDS", "Stored", "aggregated", "cores_of", "matching_rows"]

SHARDS = 32
"""How many parts the keys are dealt to, if nothing else is said: how many tasks can match at a time."""

_HELD_BYTES = 1 << 26
"""How many bytes of segments are held in memory while rows are scanned: for more, rows are scanned again."""

_PARTIAL = T.StructType([T.StructField("shard", T.IntegerType()), T.StructField("partial", T.BinaryType())])
_NUMBER = {True: "double", False: "bigint"}


class Stored:
    """A stored table whose rows fill segments."""

    def __init__(
        self,
        segments: DataFrame,
        keys: tuple[str, ...],
        df: DataFrame,
        filling: Filling,
        calls: Calls,
        shards: int | None,
        whole_rows: bool = False,
        stored: bool = False,
    ) -> None:
        """`segments` are each there once; but there may be repeats in them if they are `stored` ones, as they lie."""
        self.keys, self.df, self.shards = keys, df, shards or SHARDS
        self._given, self._stored = segments, stored
        self.applied = apply_filling(filling, calls, df, segments.schema, keys, Dealt(self.shards, whole_rows))
        self.layout: FillLayout = self.applied.layout
        self.schema = T.StructType([T.StructField(f.name, f.dataType) for f in segments.schema.fields])

    @cached_property
    def segments(self) -> DataFrame:
        """The segments, each once."""
        return self._given.dropDuplicates() if self._stored else self._given

    def scan(self) -> Scan | str:
        """How workers read the rows themselves, or why Spark does."""
        return scan_of(self.df, self._given, self.keys, self.layout, self._stored)

    def _pieces(self, side: str) -> str:
        number = _NUMBER[self.layout.progress.unit == "real"]
        return f"shard int, {side} binary, {side}_first {number}, {side}_last {number}"

    def chunks(self) -> DataFrame:
        """The segments, as chunks."""
        layout = self.layout
        uid = F.xxhash64(*(F.col(named(name)) for name in self.segments.columns))
        keys = [F.col(named(name)) for name in self.keys]
        selected = self.segments.select(
            shard_of(keys, self.shards).alias("shard"),
            *(key.alias(f"k{i}") for i, key in enumerate(keys)),
            uid.alias(UID),
            *(F.col(named(name)) for name in self.segments.columns),
        )

        def deal_segments(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return _as_batches(layout, "chunk", chunks(layout, batches))

        return selected.mapInArrow(deal_segments, self._pieces("chunk"))

    def pairs(self, keep_empty: bool = False) -> DataFrame:
        """Chunks and pages that meet; with `keep_empty` each chunk also meets none."""
        layout = self.layout

        def deal_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return _as_batches(layout, "page", pages(layout, batches))

        right = self.applied.df.mapInArrow(deal_rows, self._pieces("page")).withColumnRenamed("shard", "page_shard")
        if keep_empty:
            none = self.segments.sparkSession.range(self.shards).select(
                F.col("id").cast("int").alias("page_shard"),
                *(F.lit(None).cast(f.dataType).alias(f.name) for f in right.schema.fields[1:]),
            )
            right = right.unionByName(none)
        meets = F.col("page").isNull() | (
            (F.col("chunk_first") <= F.col("page_last")) & (F.col("page_first") <= F.col("chunk_last"))
        )
        joined = self.chunks().join(right, (F.col("shard") == F.col("page_shard")) & meets)
        return joined.select("shard", "chunk", "page")


def _as_batches(layout: FillLayout, side: str, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
    number = pa.float64() if layout.progress.unit == "real" else pa.int64()
    for shard, piece, first, last in pieces:
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([shard], pa.int32()),
                pa.array([piece], pa.binary()),
                pa.array([first], number),
                pa.array([last], number),
            ],
            names=["shard", side, f"{side}_first", f"{side}_last"],
        )


def _partial(shard: int, found: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([shard], pa.int32()), pa.array([found], pa.binary())], names=["shard", "partial"]
    )


def _each(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, bytes, bytes | None]]:
    for batch in batches:
        for shard, chunk, page in zip(*batch.columns, strict=True):
            yield shard.as_py(), chunk.as_py(), page.as_py()


def matching_rows(stored: Stored) -> DataFrame:
    """Each matching row with its segment."""
    layout = stored.layout
    schema = T.StructType([*stored.schema.fields, T.StructField("row", stored.applied.df.schema["row"].dataType)])
    arrow = to_arrow_schema(schema, timezone="UTC")

    def match(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, chunk, page in _each(batches):
            assert page is not None
            found = matched(layout, chunk, page)
            if found is not None:
                yield from found.cast(arrow).to_batches()

    return stored.pairs().mapInArrow(match, schema)


def aggregated(stored: Stored, keep_empty: bool) -> DataFrame:
    """Each segment with aggregates over its rows."""
    layout, keys = stored.layout, stored.keys
    outputs = pa.schema([pa.field(output.name, output.type) for output in layout.aggregation.outputs])
    made = from_arrow_schema(outputs, prefer_timestamp_ntz=True)
    schema = T.StructType([*stored.schema.fields, *made.fields])
    result = to_arrow_schema(schema, timezone="UTC")

    def match(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for shard, chunk, page in _each(batches):
            found = filled(layout, chunk, page)
            if found is not None:
                yield _partial(shard, found)

    def merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        each = (pair for batch in batches for pair in zip(*(c.to_pylist() for c in batch.columns), strict=True))
        return Merger(layout, keys, result).run(each)

    scan = stored.scan()
    if isinstance(scan, Scan):
        partials = _scanned(stored, scan, keep_empty)
    else:
        partials = stored.pairs(keep_empty).mapInArrow(match, _PARTIAL)
    cores = cores_of(stored.df.sparkSession)
    # as many tasks as there are cores; without it Spark would make two hundred, and put them together again
    placed = partials.repartitionById(cores, F.pmod("shard", F.lit(cores))) if cores else partials.repartition("shard")
    return placed.mapInArrow(merge, schema)


def cores_of(spark: SparkSession) -> int:
    """How many tasks run at a time; 0 where Spark Connect does not say."""
    return spark.sparkContext.defaultParallelism if hasattr(spark, "_jsparkSession") else 0


def _scanned(stored: Stored, scan: Scan, keep_empty: bool) -> DataFrame:
    """Partial results where workers read the rows themselves: all segments go to every task, or are read there too."""
    layout, spark = stored.layout, stored.df.sparkSession
    cores = cores_of(spark)
    tasks = scan.rows.tasks(cores)

    def taken(task: int, taker: Taker) -> Iterator[pa.RecordBatch]:
        scan.take(layout, tasks[task], taker)
        # segments without rows are told of once
        for shard, found in taker.partials(keep_empty and task == 0):
            yield _partial(shard, found)

    def match(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task, given in _groups(batches):
            yield from taken(task, Taker(layout, [(shard, opened(chunk)) for shard, chunk in given]))

    def read_and_match(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task in (task for batch in batches for task in batch.column(0).to_pylist()):
            taker = scan.taker(layout, cores)
            if taker is not None:
                yield from taken(task, taker)

    if scan.stored is not None:
        return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read_and_match, _PARTIAL)
    every = F.explode(F.sequence(F.lit(0), F.lit(len(tasks) - 1)))
    placed = stored.chunks().select(every.alias("task"), "shard", "chunk")
    return placed.repartitionById(len(tasks), F.col("task")).mapInArrow(match, _PARTIAL)


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, list[tuple[int, bytes]]]]:
    """The chunks of a task, as many at a time as can be held in memory."""
    some: list[tuple[int, bytes]] = []
    task = size = 0
    for batch in batches:
        for number, shard, chunk in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            task, size = number, size + len(chunk)
            some.append((shard, chunk))
            if size >= _HELD_BYTES:
                yield task, some
                some, size = [], 0
    if some:
        yield task, some

"""Fill on Spark, from what is stored: rows become pages, segments chunks; Spark joins them by shard, and we merge.

segments --mapInArrow: chunks--> (shard, piece, first, last)   ─┐
rows     --mapInArrow: pages---> (shard, piece, first, last)   ─┴ join on shard where they overlap (Spark broadcasts
         what is small) --mapInArrow: match--> partial results --by segment, sorted; mapInArrow: merge--> segments

Rows are never compared with segments one by one, and neither side is held in memory. Segments may also be a stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from panewise.kernel.fill import FillLayout
from panewise.kernel.matching import FLOATS, INTS, UID, Merger, Piece, chunks, filled, matched, pages
from panewise.spark.source import Dealt, apply_filling, named, shard_of
from panewise.spec.aggregates import Aggregate
from panewise.spec.fill import Filling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SHARDS", "Stored", "aggregated", "matching_rows"]

SHARDS = 32
"""How many parts the keys are dealt to, if nothing else is said: how many tasks can match at a time."""

_NUMBER = {True: "double", False: "bigint"}


class Stored:
    """A stored table whose rows fill segments."""

    def __init__(
        self,
        segments: DataFrame,
        keys: tuple[str, ...],
        df: DataFrame,
        filling: Filling,
        calls: tuple[tuple[str, Aggregate], ...],
        shards: int | None,
        whole_rows: bool = False,
    ) -> None:
        self.segments, self.keys, self.shards = segments, keys, shards or SHARDS
        self.applied = apply_filling(filling, calls, df, segments.schema, keys, Dealt(self.shards, whole_rows))
        self.layout: FillLayout = self.applied.layout
        self.schema = T.StructType([T.StructField(f.name, f.dataType) for f in segments.schema.fields])

    def _pieces(self, side: str) -> str:
        number = _NUMBER[self.layout.progress.unit == "real"]
        return f"shard int, {side} binary, {side}_first {number}, {side}_last {number}"

    def pairs(self, keep_empty: bool = False) -> DataFrame:
        """Chunks and pages that meet; with `keep_empty` each chunk also meets none."""
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

        def deal_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return _as_batches(layout, "page", pages(layout, batches))

        left = selected.mapInArrow(deal_segments, self._pieces("chunk"))
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
        return left.join(right, (F.col("shard") == F.col("page_shard")) & meets).select("chunk", "page")


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


def _each(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[bytes, bytes | None]]:
    for batch in batches:
        for chunk, page in zip(batch.column("chunk"), batch.column("page"), strict=True):
            yield chunk.as_py(), page.as_py()


def matching_rows(stored: Stored) -> DataFrame:
    """Each matching row with its segment."""
    layout = stored.layout
    schema = T.StructType([*stored.schema.fields, T.StructField("row", stored.applied.df.schema["row"].dataType)])
    arrow = to_arrow_schema(schema, timezone="UTC")

    def match(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for chunk, page in _each(batches):
            assert page is not None
            found = matched(layout, chunk, page)
            if found is not None:
                yield from found.cast(arrow).to_batches()

    return stored.pairs().mapInArrow(match, schema)


def aggregated(stored: Stored, keep_empty: bool) -> DataFrame:
    """Each segment with aggregates over its rows."""
    layout, keys = stored.layout, stored.keys
    cells = [
        T.StructField(UID, T.LongType()),
        *stored.schema.fields,
        T.StructField(FLOATS, T.ArrayType(T.DoubleType())),
        T.StructField(INTS, T.ArrayType(T.LongType())),
    ]
    partial = T.StructType(cells)
    arrow = to_arrow_schema(partial, timezone="UTC")
    outputs = pa.schema([pa.field(output.name, output.type) for output in layout.aggregation.outputs])
    made = from_arrow_schema(outputs, prefer_timestamp_ntz=True)
    schema = T.StructType([*stored.schema.fields, *made.fields])
    result = to_arrow_schema(schema, timezone="UTC")
    streaming = stored.segments.isStreaming

    def match(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for chunk, page in _each(batches):
            found = filled(layout, chunk, page)
            if found is not None:
                yield from found.cast(arrow).to_batches()

    def merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return Merger(layout, keys, result, unsorted=streaming).run(batches)

    partials = stored.pairs(keep_empty).mapInArrow(match, partial)
    placed = partials.repartition(named(UID))
    if not streaming:
        # a stream can't be sorted; the partial results of one of its micro-batches are few
        order = [F.col(named(name)) for name in (UID, *keys)]
        placed = placed.sortWithinPartitions(*order, F.col("segment.id"), F.col("segment.start"))
    return placed.mapInArrow(merge, schema)

"""Windows on Spark, of what is stored: rows are added to panes where they lie, and only panes are shuffled.

source --Apply--> rows --mapInArrow: partials--> (shard, partial) --by shard; mapInArrow: merge--> windows
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F

from panewise.kernel.sequence import Layout
from panewise.kernel.windowbatch import merged, partials
from panewise.spark.fill import SHARDS, cores_of
from panewise.spark.source import Applied, shard_of
from panewise.spec.frames import RowWindows, Windows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import types as T

__all__ = ["windows"]


def windows(applied: Applied, rows: DataFrame, result: T.StructType) -> DataFrame:
    """The windows of rows that have an `at`."""
    layout: Layout = applied.layout
    keys, scheme = [F.col(f"k{i}") for i in range(len(applied.keys))], layout.plan.scheme
    if isinstance(scheme, RowWindows):
        rows = _numbered(scheme, rows, keys, applied)
    placed = rows.withColumn("shard", shard_of(keys, SHARDS))

    def add(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for shard, found in partials(layout, batches):
            yield pa.RecordBatch.from_pydict({"shard": pa.array([shard], pa.int32()), "partial": [found]})

    def merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return merged(layout, _each(layout, batches))

    found = placed.mapInArrow(add, "shard int, partial binary")
    if isinstance(scheme, Windows) and (scheme.range is None or scheme.keep_empty):
        # those of every key go on to the latest row of all
        found = found.crossJoin(F.broadcast(applied.df.agg(F.max("at").alias("latest"))))
    cores = cores_of(rows.sparkSession)
    dealt = found.repartitionById(cores, F.pmod("shard", F.lit(cores))) if cores else found.repartition("shard")
    return dealt.sortWithinPartitions("shard").mapInArrow(merge, result)


def _numbered(windows: RowWindows, rows: DataFrame, keys: list[Column], applied: Applied) -> DataFrame:
    """Rows with their numbers: of each key, or of all, which then are one sequence in one task."""
    breaks = [f"b{i}" for i in range(len(applied.layout.plan.tie_break))]
    others = [name for name in applied.order if name not in ("at", *breaks)]
    apart = windows.partitioned and bool(keys)
    order: list[Column | str] = ["at", *breaks, *([] if apart else keys), *others]
    sequence = (Window.partitionBy(*keys) if apart else Window.partitionBy()).orderBy(*order)
    # row_number would end at 2**31
    number = F.count(F.lit(1)).over(sequence.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    return rows.withColumn("number", number).drop("at", *breaks)


def _each(layout: Layout, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, bytes, object]]:
    for batch in batches:
        shards, pieces = batch.column("shard").to_pylist(), batch.column("partial")
        latest = None
        if "latest" in batch.schema.names and len(batch):
            latest = layout.progress.numbers(batch.column("latest").slice(0, 1))[0]
        for shard, piece in zip(shards, pieces, strict=True):
            yield shard, piece.as_py(), latest

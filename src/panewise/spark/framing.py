"""Frames on Spark, of what is stored: rows are framed where they lie; what is shuffled is a few rows, and results.

rows --mapInArrow: frame--> (shard, parts) --by shard--┬ --mapInArrow: join--> segments
                                                       └ --mapInArrow: name the keys that can't be joined--┐
rows of those keys, if there are any (broadcast) <---------------------------------------------------------┘
     --by key, sorted; mapInArrow: one pass--> segments

Spark computes the parts once for both, and reads no row again where no key is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from panewise.kernel.page import in_one
from panewise.kernel.parts import Framer, Joiner, Parts
from panewise.kernel.sequence import Layout, Sequence
from panewise.spark.fill import SHARDS, cores_of
from panewise.spark.source import Applied
from panewise.spec.emit import FINAL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import types as T

__all__ = ["framed", "is_framed", "one_pass"]

_ROWS = 1 << 17
"""How many rows are gathered before they are framed."""
_HELD = 1 << 18
"""How many parts a task holds before it sends them."""
_SENT = 1 << 16
"""How many segments are sent at a time."""
_BACKWARD = 32
"""Where time goes back more often than once in so many rows, rows are in no order, and a pass over sorted ones is
cheaper."""
_PARTS = "shard int, parts binary"


def one_pass(applied: Applied, rows: DataFrame, result: T.StructType) -> DataFrame:
    """The segments of rows that are shuffled and sorted."""
    layout = applied.layout
    keys = [f"k{i}" for i in range(len(layout.key_types))]
    placed = rows.repartition(*keys) if keys else rows.repartition(1)
    ordered = placed.sortWithinPartitions(*keys, *applied.order)
    if layout.plan.tie_break:
        ordered = ordered.drop(*(f"b{i}" for i in range(len(layout.plan.tie_break))))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return Sequence(layout).run(batches)

    return ordered.mapInArrow(run, result)


def is_framed(layout: Layout) -> bool:
    """Whether rows are framed where they lie: reducers and ties that count once need all rows of a key in order."""
    return layout.plan.ties == "all" and not layout.aggregation.reducers and layout.emit == FINAL


def framed(applied: Applied, rows: DataFrame, observed: DataFrame, result: T.StructType) -> DataFrame:
    """The segments of rows, framed where they lie; `observed` are the same rows, which are read first."""
    layout: Layout = applied.layout
    names = [f"k{i}" for i in range(len(layout.key_types))]

    def frame(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for shard, parts in _framed(layout, batches):
            yield pa.RecordBatch.from_arrays(
                [pa.array([shard], pa.int32()), pa.array([parts], pa.binary())], names=["shard", "parts"]
            )

    def join(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        emitter = layout.emitter
        for joiner in _joiners(layout, batches):
            if joiner is not None:
                columns, found, _ = joiner.run()
                for first in range(0, len(found), _SENT):
                    yield emitter.batch(columns, found.slice(first, _SENT))

    def name(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for joiner in _joiners(layout, batches):
            if joiner is None:
                nobody = [pa.nulls(1, kind) for kind in layout.key_types]
                yield pa.RecordBatch.from_arrays([pa.array([True]), *nobody], names=["every", *names])
                continue
            columns, _, bad = joiner.run(check=True)
            if len(bad):
                named = [column.take(pa.array(bad)) for column in columns]
                yield pa.RecordBatch.from_arrays([pa.array(np.zeros(len(bad), bool)), *named], names=["every", *names])

    parts = _with_source(observed).mapInArrow(frame, _PARTS)
    cores = cores_of(rows.sparkSession)
    dealt = parts.repartitionById(cores, F.pmod("shard", F.lit(cores))) if cores else parts.repartition("shard")
    dealt = dealt.sortWithinPartitions("shard")
    types = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in rows.select(*names).schema.fields)
    unjoined = dealt.mapInArrow(name, f"every boolean{', ' if names else ''}{types}")
    return dealt.mapInArrow(join, result).unionByName(one_pass(applied, _left(rows, unjoined, names), result))


def _with_source(rows: DataFrame) -> DataFrame:
    """Rows with what says where they come from; Spark does not where they come from several tables."""
    try:
        found = rows.withColumn("source", _source())
        _ = found.schema
    except AnalysisException:
        return rows.withColumn("source", F.lit(0).cast("bigint"))
    return found


def _source() -> Column:
    """A number that changes with the file, or the part of one, that rows come from; if it does not, no harm is done."""
    return F.input_file_block_length() * F.lit(31) + F.input_file_block_start()


def _left(rows: DataFrame, unjoined: DataFrame, names: list[str]) -> DataFrame:
    """The rows of keys that can't be joined: of those named, or of all."""
    every = rows.join(F.broadcast(unjoined.filter("every").select("every").limit(1)), F.lit(True), "left_semi")
    if not names:
        return rows.join(F.broadcast(unjoined.select("every").limit(1)), F.lit(True), "left_semi")
    some = F.broadcast(unjoined.filter("not every").select(*(F.col(name).alias(f"u{name}") for name in names)))
    same = [F.col(name).eqNullSafe(F.col(f"u{name}")) for name in names]
    return rows.join(some, same, "left_semi").unionByName(every)


def _pages(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[bool, pa.Table]]:
    """Rows, and before those of another source a word of it; an `at` that comes several times is in one page."""
    before, held, count = None, list[pa.RecordBatch](), 0
    for batch in batches:
        sources = batch.column("source").to_numpy()
        edges = np.concatenate([[0], np.flatnonzero(np.diff(sources)) + 1, [len(batch)]])
        for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if first == last:
                continue
            if sources[first] != before:
                if held:
                    yield False, pa.Table.from_batches(held)
                held, count = [], 0
                before = sources[first]
                yield True, pa.table({})
            held.append(batch.slice(first, last - first))
            count += last - first
            if count >= _ROWS:
                whole = pa.Table.from_batches(held).combine_chunks()
                end = _before_last(whole)
                if end:
                    yield False, whole.slice(0, end)
                    held, count = whole.slice(end).to_batches(), count - end
    if held:
        yield False, pa.Table.from_batches(held)


def _before_last(rows: pa.Table) -> int:
    """How many rows come before those that share the last `at`."""
    at = in_one(rows.column("at"))
    numbers = np.asarray(at.view(pa.int64()) if at.type.bit_width == 64 else at.cast(pa.int64()))
    other = np.flatnonzero(numbers != numbers[-1])
    return int(other[-1]) + 1 if len(other) else 0


def _framed(layout: Layout, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, bytes | None]]:
    framer, rows = Framer(layout), 0
    for cut, table in _pages(batches):
        if cut:
            framer.cut()
            continue
        page = table.drop_columns(["source"]).combine_chunks()
        framer.take(page)
        rows += len(page)
        if framer.backward * _BACKWARD > rows:
            # rows in no order: all of them go the other way
            yield from ((shard, None) for shard in range(SHARDS))
            return
        if len(framer) >= _HELD:
            yield from ((shard, parts.dump()) for shard, parts in framer.parts(SHARDS))
            framer.clear()
    yield from ((shard, parts.dump()) for shard, parts in framer.parts(SHARDS))


def _joiners(layout: Layout, batches: Iterable[pa.RecordBatch]) -> Iterator[Joiner | None]:
    """The parts of each shard; None where rows are in no order."""
    each = (pair for batch in batches for pair in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    for _, some in groupby(each, key=lambda pair: pair[0]):
        given = [parts for _, parts in some]
        if any(parts is None for parts in given):
            yield None
            continue
        joiner = Joiner(layout)
        for parts in given:
            joiner.add(Parts.load(parts))
        yield joiner

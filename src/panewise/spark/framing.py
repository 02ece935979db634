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
from pyspark.sql.pandas.types import to_arrow_schema

from panewise.kernel.framer import Framer
from panewise.kernel.joiner import Joiner
from panewise.kernel.keys import slots_of
from panewise.kernel.page import in_one
from panewise.kernel.parts import Parts
from panewise.kernel.sequence import Layout, Sequence
from panewise.spark.fill import SHARDS, cores_of
from panewise.spark.framescan import FrameScan
from panewise.spark.parquet import Unit
from panewise.spark.source import Applied
from panewise.spark.worker import settle
from panewise.spec.emit import FINAL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import types as T

__all__ = ["SMALL", "framed", "one_pass", "why_not_framed"]

SMALL = 1 << 20
"""Up to how many bytes rows are shuffled and sorted: more stages would cost more than that."""
_ROWS = 1 << 17
"""How many rows are gathered before they are framed."""
_UNPACKED = 4
"""How many bytes of rows there are for each of a file, more or less."""
_HELD = 1 << 18
"""How many parts a task holds before it sends them."""
_HEADS = 1 << 22
"""How many rows heads have before a task sends its parts."""
_FEW = 8
"""Where parts have fewer rows, there is little in framing them first."""
_SHARD = 1 << 26
"""How many bytes of rows a shard has, more or less: what is found in them is joined in memory."""
_SENT = 1 << 16
"""How many segments are sent at a time."""
_BACKWARD = 32
"""Where time goes back more often than once in so many rows, rows are in no order, and a pass over sorted ones is
cheaper."""
Sent = tuple[int, bytes | None, bytes | None]
"""A shard, its parts without what is found, and that; neither, where rows are in no order."""
_PARTS = "shard int, parts binary, found binary"


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


def why_not_framed(layout: Layout, df: DataFrame) -> str:
    """Why rows are not framed where they lie, if they are not."""
    if layout.plan.ties != "all":
        return f"`ties` ({layout.plan.ties!r}) asks for all rows of an instant at once"
    if layout.emit != FINAL:
        return "parts are asked for"
    if layout.aggregation.reducers:
        return "an aggregate keeps values, or is your own"
    size = _size_of(df)
    return f"Spark takes them for {size:,} bytes at most, which is few" if size <= SMALL else ""


def _size_of(df: DataFrame) -> int:
    """How many bytes rows have at most, as Spark estimates it; through Connect it does not say."""
    plan = getattr(df, "_jdf", None)
    return SMALL + 1 if plan is None else int(plan.queryExecution().optimizedPlan().stats().sizeInBytes())


def framed(
    applied: Applied, rows: DataFrame, observed: DataFrame, result: T.StructType, scan: FrameScan | None
) -> DataFrame:
    """The segments of rows, framed where they lie; `observed` are the same rows, which are read first.

    With a `scan` the workers read them themselves.
    """
    layout: Layout = applied.layout
    names = [f"k{i}" for i in range(len(layout.key_types))]
    cores = cores_of(rows.sparkSession)
    shards = _shards((_size_of(rows) if scan is None else scan.rows.size) * _UNPACKED, cores)

    def made(tables: Iterable[tuple[object, pa.Table]], earliest: bool = False) -> Iterator[pa.RecordBatch]:
        for shard, parts, found in _framed(Framer(layout, earliest), tables, shards):
            columns = [pa.array([shard], pa.int32()), pa.array([parts], pa.binary()), pa.array([found], pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, names=["shard", "parts", "found"])
        settle("frame")

    def frame(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return made(_by_source(batches))

    def read_and_frame(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert scan is not None
        for task in (task for batch in batches for task in batch.column(0).to_pylist()):
            yield from made(scan.tables(tasks[task]), scan.is_earliest(tasks[task]))

    def join(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        emitter = layout.emitter
        for joiner in _joiners(layout, batches):
            if joiner is not None:
                columns, found, _ = joiner.run()
                for first in range(0, len(found), _SENT):
                    yield emitter.batch(columns, found.slice(first, _SENT))
        settle("join")

    def name(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # left out here, and not by Spark, which would then compute the parts twice
        for joiner in _joiners(layout, (batch.select(["shard", "parts"]) for batch in batches)):
            if joiner is None:
                nobody = [pa.nulls(1, kind) for kind in layout.key_types]
                yield pa.RecordBatch.from_arrays([pa.array([True]), *nobody], names=["every", *names])
                continue
            columns, _, bad = joiner.run(check=True)
            if len(bad):
                named = [column.take(pa.array(bad)) for column in columns]
                yield pa.RecordBatch.from_arrays([pa.array(np.zeros(len(bad), bool)), *named], names=["every", *names])

    if scan is None:
        parts = _with_source(observed).mapInArrow(frame, _PARTS)
    else:
        tasks = scan.rows.tasks(cores)
        parts = rows.sparkSession.range(0, len(tasks), 1, len(tasks)).mapInArrow(read_and_frame, _PARTS)
    dealt = parts.repartitionById(cores, F.pmod("shard", F.lit(cores))) if cores else parts.repartition("shard")
    dealt = dealt.sortWithinPartitions("shard")
    types = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in rows.select(*names).schema.fields)
    unjoined = dealt.mapInArrow(name, f"every boolean{', ' if names else ''}{types}")
    left = _left(rows, unjoined, names) if scan is None else _read_again(scan, tasks, rows.schema, unjoined, names)
    return dealt.mapInArrow(join, result).unionByName(one_pass(applied, left, result))


def _read_again(
    scan: FrameScan, tasks: list[list[Unit]], schema: T.StructType, unjoined: DataFrame, names: list[str]
) -> DataFrame:
    """The rows of keys that can't be joined, read by the workers too."""
    arrow = to_arrow_schema(schema, timezone="UTC")

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = [batch for batch in batches if len(batch)]
        if not given:
            return
        wanted = pa.Table.from_batches(given)
        mine = tasks[wanted.column("task")[0].as_py()]
        every = not names or any(wanted.column("every").to_pylist())
        known = [in_one(wanted.column(key)) for key in names]
        for _, table in scan.tables(mine):
            if not every:
                keys = [in_one(table.column(key)).cast(kind.type) for key, kind in zip(names, known, strict=True)]
                table = table.filter(pa.array(slots_of(known, keys, len(wanted), len(table)) < len(wanted)))
            yield from table.cast(arrow).to_batches()

    # where nobody is named, Spark finds that out before it plans what follows
    each = unjoined.sparkSession.range(0, len(tasks), 1, len(tasks)).withColumnRenamed("id", "task")
    return each.crossJoin(F.broadcast(unjoined)).mapInArrow(read, schema)


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


def _by_source(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[object, pa.Table]]:
    """Rows, and where they are from."""
    for batch in batches:
        sources = batch.column("source").to_numpy()
        rows = pa.Table.from_batches([batch]).drop_columns(["source"])
        edges = np.concatenate([[0], np.flatnonzero(np.diff(sources)) + 1, [len(batch)]])
        for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if first < last:
                yield sources[first], rows.slice(first, last - first)


def _pages(tables: Iterable[tuple[object, pa.Table]]) -> Iterator[tuple[bool, pa.Table]]:
    """Rows, and before those of another source a word of it; an `at` that comes several times is in one page."""
    before, held, count = None, list[pa.Table](), 0
    for source, table in tables:
        if source != before:
            if held:
                yield False, pa.concat_tables(held)
            held, count = [], 0
            before = source
            yield True, pa.table({})
        held.append(table)
        count += len(table)
        if count >= _ROWS:
            whole = pa.concat_tables(held).combine_chunks()
            end = _before_last(whole)
            if end:
                yield False, whole.slice(0, end)
                held, count = [whole.slice(end)], count - end
    if held:
        yield False, pa.concat_tables(held)


def _before_last(rows: pa.Table) -> int:
    """How many rows come before those that share the last `at`."""
    at = in_one(rows.column("at"))
    numbers = np.asarray(at.view(pa.int64()) if at.type.bit_width == 64 else at.cast(pa.int64()))
    other = np.flatnonzero(numbers != numbers[-1])
    return int(other[-1]) + 1 if len(other) else 0


def _shards(size: int, cores: int) -> int:
    """How many shards rows of so many bytes have: each costs some milliseconds.

    >>> _shards(1 << 20, 2), _shards(1 << 28, 2), _shards(1 << 40, 2), _shards(1 << 20, 0)
    (2, 4, 32, 32)
    """
    return min(max(cores, size // _SHARD), max(cores, SHARDS)) if cores else SHARDS


def _framed(framer: Framer, tables: Iterable[tuple[object, pa.Table]], shards: int) -> Iterator[Sent]:
    rows = 0
    for cut, table in _pages(tables):
        if cut:
            framer.cut()
            continue
        page = table.combine_chunks()
        framer.take(page)
        rows += len(page)
        full = len(framer) >= _HELD
        if framer.backward * _BACKWARD > rows or (full and rows < _FEW * len(framer)):
            # rows in no order, or of too many keys: all of them go the other way
            yield from ((shard, None, None) for shard in range(shards))
            return
        if full or framer.held >= _HEADS:
            yield from ((shard, *parts.dump()) for shard, parts in framer.parts(shards))
            framer.clear()
    yield from ((shard, *parts.dump()) for shard, parts in framer.parts(shards))


def _joiners(layout: Layout, batches: Iterable[pa.RecordBatch]) -> Iterator[Joiner | None]:
    """The parts of each shard; None where rows are in no order."""
    each = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    for _, some in groupby(each, key=lambda row: row[0]):
        given = [row[1:] for row in some]
        if any(row[0] is None for row in given):
            yield None
            continue
        joiner = Joiner(layout)
        for row in given:
            joiner.add(Parts.load(*row))
        yield joiner

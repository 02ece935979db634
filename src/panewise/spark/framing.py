"""Frames on Spark, of what is stored: rows are framed where they lie; what is shuffled is a few rows, and results.

rows --mapInArrow: frame--> (shard, parts) --by shard--┬ --mapInArrow: join--> segments
                                                       └ --mapInArrow: name the keys that can't be joined--┐
rows of those keys, if there are any (broadcast) <---------------------------------------------------------┘
     --by key, sorted by time; mapInArrow: one pass--> segments

Spark computes the parts once for both, and reads no row again where no key is named. Where files are in order, and a
frame depends on its own rows alone, all keys can be joined, and there is only the first line. Where keys have few rows
each in files in order, rows themselves are dealt:

row groups --mapInArrow: deal--> (shard, page, rows) --by shard, in order of pages; mapInArrow: pass--> segments
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from panewise.kernel.keys import slots_of
from panewise.kernel.page import in_one
from panewise.kernel.sequence import Layout, Sequence
from panewise.spark.emit import plain_schema, worded
from panewise.spark.fill import SHARDS, cores_of
from panewise.spark.framescan import FrameScan, Work
from panewise.spark.frametask import DEALT, EVERY, PARTS, FrameTask
from panewise.spark.source import Applied
from panewise.spec.emit import FINAL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["SMALL", "framed", "framed_files", "is_certain", "is_few", "is_sparse", "one_pass", "why_not_framed"]

SMALL = 1 << 20
"""Up to how many bytes rows are shuffled and sorted: more stages would cost more than that."""
_ROWS, _BYTES = 1 << 24, 1 << 25
"""How many rows, or bytes as Spark estimates them, a shard has, more or less: what is found in them is in memory."""
_MOST = 1 << 10
"""How many shards there are at most."""
_OF_ALL = 4
"""And for a core, where each has all keys: each joins all parts."""
_PARTS = T.StructType([T.StructField(n, T.BinaryType() if i else T.IntegerType()) for i, n in enumerate(PARTS)])
_PAGES = T.StructType(
    [T.StructField(n, kind) for n, kind in zip(DEALT, (T.IntegerType(), T.LongType(), T.BinaryType()), strict=True)]
)
_DEALT_ROWS, _DEALT_BYTES = 1 << 21, 1 << 26
"""How many rows, or bytes of files, a shard has, more or less, where rows are dealt: a task has all of one at once."""


def one_pass(applied: Applied, rows: DataFrame, result: T.StructType) -> DataFrame:
    """The segments of rows that are shuffled and sorted."""
    layout = applied.layout
    keys = [f"k{i}" for i in range(len(layout.key_types))]
    ordered = _by_key(applied, rows).sortWithinPartitions(*keys, *applied.order)
    if layout.plan.tie_break:
        ordered = ordered.drop(*(f"b{i}" for i in range(len(layout.plan.tie_break))))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return Sequence(layout).run(batches)

    return ordered.mapInArrow(run, result)


def _in_time(applied: Applied, task: FrameTask, rows: DataFrame, plain: T.StructType) -> DataFrame:
    """The segments of rows that are shuffled, and sorted by time alone: Spark is fast at that, and slow at more."""
    return _by_key(applied, rows).sortWithinPartitions("at").mapInArrow(task.pass_once, plain)


def _by_key(applied: Applied, rows: DataFrame) -> DataFrame:
    keys = [f"k{i}" for i in range(len(applied.layout.key_types))]
    return rows.repartition(*keys) if keys else rows.repartition(1)


def why_not_framed(layout: Layout, spark: SparkSession) -> str:
    """Why rows are not framed where they lie, whatever they are."""
    if layout.plan.ties != "all":
        return f"`ties` ({layout.plan.ties!r}) asks for all rows of an instant at once"
    if layout.emit != FINAL:
        return "parts are asked for"
    if layout.aggregation.reducers:
        return "an aggregate keeps values, or is your own"
    # without it Spark would not wait for the keys to be named
    return "" if spark.conf.get("spark.sql.adaptive.enabled") == "true" else "spark.sql.adaptive.enabled is false"


def is_few(df: DataFrame, scan: FrameScan | str) -> str:
    """That rows are few, if they are, as Spark estimates it; through Connect it does not say."""
    size = _size_of(df) if isinstance(scan, str) else scan.rows.size
    return f"Spark takes them for {size:,} bytes at most, which is few" if size <= SMALL else ""


def _size_of(df: DataFrame) -> int:
    plan = getattr(df, "_jdf", None)
    return SMALL + 1 if plan is None else int(plan.queryExecution().optimizedPlan().stats().sizeInBytes())


def framed(applied: Applied, rows: DataFrame, observed: DataFrame, result: T.StructType) -> DataFrame:
    """The segments of rows, framed where they lie; `observed` are the same rows, which are read first."""
    cores = cores_of(rows.sparkSession)
    few = _few(applied.layout, not applied.keys)
    # it may be any number: that of a join is a product
    shards = min(_shards(min(_size_of(rows), _BYTES * _MOST) / _BYTES, cores, few), max(SHARDS, cores))
    task = FrameTask(applied.layout, shards, few=few)
    dealt = _by_shard(_with_source(observed).mapInArrow(task.frame, _PARTS), shards)
    keys = _keys(applied)
    left = _left(rows, dealt.mapInArrow(task.name, _named(keys)), keys.names)
    plain = plain_schema(applied.layout, result)
    found = dealt.mapInArrow(task.join, plain).unionByName(_in_time(applied, task, left, plain))
    return worded(applied.layout, found, result)


def framed_files(applied: Applied, spark: SparkSession, scan: FrameScan, result: T.StructType) -> DataFrame:
    """The segments of rows that the workers read themselves."""
    cores = cores_of(spark)
    work = scan.work(cores)
    if is_sparse(scan, len(work)):
        return _dealt_files(applied, spark, scan, work, result)
    certain, few = is_certain(scan), _few(applied.layout, scan.few_keys)
    shards = _shards(scan.count / _ROWS, cores, few)
    if few:
        # what each task has found goes to one shard, and another's to the next: so that all have as much
        shards = len(work) // ceil(len(work) / shards)
    task = FrameTask(applied.layout, shards, certain, few, len(work))

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            yield from task.made(scan.tables(work[number]), work[number].earliest)

    dealt = _by_shard(spark.range(0, len(work), 1, len(work)).mapInArrow(read, _PARTS), shards)
    plain = plain_schema(applied.layout, result)
    joined = dealt.mapInArrow(task.join, plain)
    if certain:
        return worded(applied.layout, joined, result)
    keys = _keys(applied)
    left = _read_again(scan, work, dealt.mapInArrow(task.name, _named(keys)), keys.names)
    return worded(applied.layout, joined.unionByName(_in_time(applied, task, left, plain)), result)


def _dealt_files(
    applied: Applied, spark: SparkSession, scan: FrameScan, work: list[Work], result: T.StructType
) -> DataFrame:
    """The segments of rows that are dealt by key as the workers read them, in order of time as they are."""
    shards = _shards(_dealt_shards(scan), cores_of(spark), few=False)
    task = FrameTask(applied.layout, shards)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            yield from task.deal(number, (rows for _, rows, _ in scan.tables(work[number])))

    pages = _by_shard(spark.range(0, len(work), 1, len(work)).mapInArrow(read, _PAGES), shards)
    ordered = pages.sortWithinPartitions("shard", "page")
    return worded(applied.layout, ordered.mapInArrow(task.pass_dealt, plain_schema(applied.layout, result)), result)


def is_sparse(scan: FrameScan, tasks: int) -> bool:
    """Whether rows are in order, and keys have few in each of so many tasks: dealt by key, they need one pass."""
    return scan.ordered and _dealt_shards(scan) <= _MOST and scan.has_sparse_keys(tasks)


def _dealt_shards(scan: FrameScan) -> float:
    return max(scan.count / _DEALT_ROWS, scan.rows.size / _DEALT_BYTES)


def is_certain(scan: FrameScan) -> bool:
    """Whether all parts can be joined: files are in order, and frames depend on their own rows alone."""
    return scan.ordered and scan.always_joins


def _by_shard(parts: DataFrame, shards: int) -> DataFrame:
    return parts.repartitionById(shards, F.col("shard"))


def _keys(applied: Applied) -> T.StructType:
    return T.StructType([T.StructField(f"k{i}", field.dataType) for i, field in enumerate(applied.keys)])


def _named(keys: T.StructType) -> T.StructType:
    return T.StructType([T.StructField(EVERY, T.BooleanType()), *keys.fields])


def _read_again(scan: FrameScan, work: list[Work], unjoined: DataFrame, names: list[str]) -> DataFrame:
    """The rows of keys that can't be joined, read by the workers too."""
    schema = scan.elements

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = [batch for batch in batches if len(batch)]
        if not given:
            return
        wanted = pa.Table.from_batches(given)
        mine = work[wanted.column("task")[0].as_py()]
        every = not names or any(wanted.column(EVERY).to_pylist())
        known = [in_one(wanted.column(key)) for key in names]
        for _, table, _ in scan.tables(mine):
            if not every:
                keys = [in_one(table.column(key)).cast(kind.type) for key, kind in zip(names, known, strict=True)]
                table = table.filter(pa.array(slots_of(known, keys, len(wanted), len(table)) < len(wanted)))
            yield from table.cast(schema).to_batches()

    # where nobody is named, Spark finds that out before it plans what follows
    each = unjoined.sparkSession.range(0, len(work), 1, len(work)).withColumnRenamed("id", "task")
    return each.crossJoin(F.broadcast(unjoined)).mapInArrow(read, from_arrow_schema(schema, prefer_timestamp_ntz=True))


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


def _few(layout: Layout, few: bool) -> bool:
    """Whether each shard has all keys; who looks for the longest segment of a key has to see all that is found."""
    return few and not layout.plan.scheme.longest


def _shards(wanted: float, cores: int, few: bool) -> int:
    """How many shards there are, each with a task of its own: about as many as wanted, and as many for each core.

    >>> [_shards(wanted, 2, False) for wanted in (0.1, 3.2, 1e9)], _shards(50, 2, True), _shards(50, 0, False)
    ([2, 4, 1024], 8, 32)
    """
    if not cores:
        return SHARDS
    return min(cores * max(ceil(wanted / cores), 1), min(cores * _OF_ALL, SHARDS) if few else _MOST)

"""Plans over plans on Spark: segments become the rows of the plan that follows, and its results get their bounds.

segments --mapInArrow: rows--> the next plan, as over any DataFrame --mapInArrow: bounded--> its segments

Of a stream the plan before passes its progress on, among its segments, shard by shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type, to_arrow_schema

from panewise.kernel.bundle import dump, load
from panewise.kernel.follow import Follow
from panewise.kernel.pack import EARLY, PROD, UNSURE
from panewise.kernel.page import in_one
from panewise.kernel.prod import TOLD, without_told
from panewise.kernel.punctuate import ENDED, KIND, SHARD
from panewise.kernel.shard import ASKED, PUNCTUATION
from panewise.spec.plan import PlanSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["bounded", "follow_of", "followed", "passed_type"]

_LEAST = np.iinfo(np.int64).min


def follow_of(following: PlanSpec, found: DataFrame) -> Follow:
    """A plan over the segments in a DataFrame."""
    schema = to_arrow_schema(found.schema, timezone="UTC")
    answered = "timing" in schema.names and ASKED in _fields(found)
    left = (PUNCTUATION, *(TOLD if answered else ()))
    return Follow(following, pa.schema([field for field in schema if field.name not in left]))


def passed_type(bound: T.DataType, asks: bool, ranges: bool = False) -> T.StructType:
    """What is passed on: how far starts and ends have come, of which shard, whether it is over; prods; and ranges."""
    told = [("start", bound), ("end", bound), ("shard", T.IntegerType()), ("ended", T.BooleanType())]
    told += [(ASKED, T.BinaryType())] if asks else []
    between = T.StructType([T.StructField("after", bound), T.StructField("until", bound)])
    told += [("ranges", T.ArrayType(between))] if ranges else []
    return T.StructType([T.StructField(*field) for field in told])


def _fields(found: DataFrame) -> list[str]:
    """Of what is passed on."""
    if PUNCTUATION not in found.columns:
        return []
    return cast(T.StructType, found.schema[PUNCTUATION].dataType).names


def followed(follow: Follow, found: DataFrame, keys: Sequence[str] = (), last: bool = True) -> DataFrame:
    """Segments as rows; and progress, where it is among them, as rows that say where it comes from.

    So are prods, which name the keys of the plan before, and ask for segments of the last.
    """
    passes, asks = PUNCTUATION in found.columns, ASKED in _fields(found)
    kinds = {field.name: field.dataType for field in found.schema.fields}
    made = [(f.name, kinds.get(f.name, from_arrow_type(f.type, prefer_timestamp_ntz=True))) for f in follow.rows_schema]
    made += [(SHARD, T.IntegerType()), (ENDED, T.BooleanType())] if passes else []
    made += [(KIND, T.ByteType())] if asks else []
    schema = T.StructType([T.StructField(name, kind) for name, kind in made])
    arrow = to_arrow_schema(schema, timezone="UTC")

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            if passes:
                told = table.filter(pc.is_valid(table.column(PUNCTUATION)))
                table = table.filter(pc.is_null(table.column(PUNCTUATION))).drop_columns([PUNCTUATION])
                yield from _padded(_progress(follow, told), arrow)
                if asks:
                    yield from _padded(_prods(follow, told, keys, last), arrow)
                    for kind, certain in ((EARLY, True), (UNSURE, False)):
                        early = follow.rows(without_told(table, "early", certain))
                        kinds = pa.array(np.full(len(early), kind, np.int8))
                        yield from _padded(early.append_column(KIND, kinds), arrow)
                    table = without_told(table, "final")
            yield from _padded(follow.rows(table), arrow)

    return found.mapInArrow(rows, schema)


def _progress(follow: Follow, told: pa.Table) -> pa.Table:
    """Progress as rows of the next plan: up to where nothing more comes of a shard."""
    column = told.column(PUNCTUATION).combine_chunks()
    until = column.field("end" if follow.by_end else "start")
    known = np.asarray(until.is_valid().to_numpy(zero_copy_only=False))
    numbers = np.zeros(len(until), follow.progress.dtype)
    numbers[known] = follow.progress.numbers(until.drop_null())
    promised = follow.promise(numbers)
    found = pa.array(promised, mask=~known)
    if follow.grid is None:
        found = pc.if_else(pa.array(known), follow.progress.bounds(promised), pa.scalar(None, follow.progress.type))
    told = {SHARD: column.field("shard"), ENDED: column.field("ended")}
    return pa.table({follow.plan().ordered_by: found, **told})


def _prods(follow: Follow, told: pa.Table, keys: Sequence[str], last: bool) -> pa.Table:
    """Prods as rows of the next plan: of the keys that it has too."""
    given = in_one(told.column(PUNCTUATION)).field(ASKED).drop_null()
    asked = pa.concat_tables([load(each.as_py())[0][ASKED] for each in given]) if len(given) else None
    at = follow.plan().ordered_by
    if asked is None:
        return pa.table({at: pa.nulls(0), KIND: pa.array([], pa.int8())})
    until = (follow.asked_at if last else follow.asked_on)(in_one(asked.column("at")))
    columns = {at: until, KIND: pa.array(np.full(len(asked), PROD, np.int8))}
    names = [name for name in follow.following.keys if name in keys]
    return pa.table({**columns, **{name: asked.column(f"k{keys.index(name)}") for name in names}})


def _padded(table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """With nulls for what is not there."""
    names = table.column_names
    columns = [table.column(f.name).cast(f.type) if f.name in names else pa.nulls(len(table), f.type) for f in schema]
    yield from pa.Table.from_arrays(columns, schema=schema).to_batches()


def _bounded(follow: Follow, told: pa.ChunkedArray) -> pa.Array:
    """Progress in window-ids as progress in the bounds of windows."""
    column = told.combine_chunks()
    found = []
    for row in column.to_pylist():
        given = [_LEAST if row[name] is None else row[name] for name in ("start", "end")]
        start, end = follow.passed((given[0], given[1]))
        found.append((start, end, row["shard"], row["ended"]))
    bounds = []
    for which in range(2):
        numbers = np.array([row[which] for row in found], follow.progress.dtype)
        known = (numbers > follow.progress.nothing) & (numbers < follow.progress.everything)
        made = follow.progress.bounds(np.where(known, numbers, 0).astype(follow.progress.dtype))
        bounds.append(pc.if_else(pa.array(known), made, pa.scalar(None, made.type)))
    arrays = [*bounds, pa.array([row[2] for row in found], pa.int32()), pa.array([row[3] for row in found], pa.bool_())]
    names = ["start", "end", "shard", "ended"]
    if ASKED in (field.name for field in column.type):
        arrays.append(pa.array([_back(follow, each.as_py()) for each in column.field(ASKED)], pa.binary()))
        names.append(ASKED)
    return pa.StructArray.from_arrays(arrays, names=names)


def _back(follow: Follow, asked: bytes | None) -> bytes | None:
    """Prods as they were before a plan that had window-ids for instants."""
    if asked is None:
        return None
    table = load(asked)[0][ASKED]
    return dump(
        {ASKED: table.set_column(table.column_names.index("at"), "at", follow.asked_back(table.column("at")))}, {}
    )


def bounded(follow: Follow, found: DataFrame) -> DataFrame:
    """Results with the bounds of their windows."""
    if follow.grid is None:
        return found
    segment = from_arrow_schema(pa.schema([("segment", follow.segment)]), prefer_timestamp_ntz=True)["segment"]
    passes, fields = PUNCTUATION in found.columns, []
    bound = cast(T.StructType, segment.dataType)["start"].dataType
    for field in found.schema.fields:
        if field.name == PUNCTUATION:
            field = T.StructField(PUNCTUATION, passed_type(bound, ASKED in _fields(found)))
        fields.append(segment if field.name == "segment" else field)
    schema = T.StructType(fields)
    arrow = to_arrow_schema(schema, timezone="UTC")

    def named(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            if not passes:
                yield from _padded(follow.bounded(table), arrow)
                continue
            told = table.filter(pc.is_valid(table.column(PUNCTUATION)))
            table = table.filter(pc.is_null(table.column(PUNCTUATION)))
            yield from _padded(follow.bounded(table.drop_columns([PUNCTUATION])), arrow)
            yield from _padded(pa.table({PUNCTUATION: _bounded(follow, told.column(PUNCTUATION))}), arrow)

    return found.mapInArrow(named, schema)

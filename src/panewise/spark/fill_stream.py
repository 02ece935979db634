"""Fill on Spark, from streams: rows that draw segments and rows that fill them meet in one stateful stage.

framing --pack--> pages ─┐
source  --pack--> pages ─┼ union --groupBy(shard).transformWithStateInPandas--> page --unpack--> results
control --pack--> pages ─┘

Segments that were found before are the state that the stage starts with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from panewise.errors import InputError, SpecError
from panewise.kernel.fill import FillLayout
from panewise.kernel.filler import FILL_COUNTS, FILL_TOTALS
from panewise.kernel.fillshard import EVERY, FillSpec
from panewise.kernel.matching import gathered_by_shard
from panewise.kernel.sequence import Layout
from panewise.kernel.sqltypes import Unsupported, zone_of
from panewise.spark.batch import result_schema
from panewise.spark.control import describe
from panewise.spark.elements import clocks, commands, ticks
from panewise.spark.fill_shard import FillRunner
from panewise.spark.filling import AppliedFilling, apply_filling
from panewise.spark.lanes import PAGES, lanes, page_of
from panewise.spark.processor import ChunkedProcessor
from panewise.spark.report import STAGED, SUMS, Report
from panewise.spark.source import Dealt, apply, named, shard_of
from panewise.spark.stream import (
    check_framing,
    check_name,
    checked_stream,
    finished,
    packed,
    together,
)
from panewise.spec.aggregates import Aggregates, Calls, aggregates
from panewise.spec.emit import emit as checked_emit
from panewise.spec.fill import Filling, FillOptions, check_windows
from panewise.spec.plan import PlanSpec
from panewise.spec.punctuate import Ordered, Watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["aggregated", "matching_rows"]

_ZONE = "spark.sql.session.timeZone"
Side = tuple[str, "DataFrame", Filling, Calls]


def aggregated(
    plan: PlanSpec, source: DataFrame, fused: Aggregates, sides: Sequence[Side], options: FillOptions
) -> DataFrame:
    """Segments of a stream, or found before, with aggregates over the rows of streams."""
    return _filled(plan, source, fused, sides, options, whole_rows=False)


def matching_rows(
    plan: PlanSpec, source: DataFrame, df: DataFrame, filling: Filling, options: FillOptions
) -> DataFrame:
    """Each row of a stream with each segment that it lies in."""
    return _filled(plan, source, {}, [("", df, filling, ())], options, whole_rows=True)


def _filled(
    plan: PlanSpec,
    source: DataFrame,
    fused: Aggregates,
    sides: Sequence[Side],
    options: FillOptions,
    whole_rows: bool,
) -> DataFrame:
    live = source.isStreaming
    check_windows(plan, live)
    count = 0
    for name, df, filling, _ in sides:
        count = checked_stream(
            filling, df, options.shards, f" of the source {name!r}" if name else " of `filling_source`"
        )
    rows: list[T.StructField] = []
    pages: list[DataFrame] = []
    framing: Layout | None = None
    # a clock that is given ticks for whoever listens
    listeners: list[Ordered] = [plan, *(side[2] for side in sides)]
    heard = [options.clock if ticks(each) else None for each in listeners]
    if options.clock is not None and not any(heard):
        raise SpecError("`clock` ticks for `idle_after`, and neither the plan nor a source has one. Leave it out.")
    if live:
        check_framing(plan)
        checked_stream(plan, source, options.shards)
        sent = checked_emit(options.emit, options.fragment_every)
        applied = apply(plan, aggregates(fused or None), source, sent, Dealt(count, options.late))
        framing = applied.layout
        made = result_schema(framing, applied.keys)
        told = clocks(plan, applied.df.schema, source.sparkSession, heard[0], count)
        pages.append(packed(together(applied.df, *told), framing, count))
        if options.late:
            rows.append(T.StructField("row", applied.df.schema["row"].dataType))
    else:
        made = T.StructType([T.StructField(f.name, f.dataType) for f in source.schema.fields])
    fills: list[AppliedFilling] = []
    for i, (name, df, filling, calls) in enumerate(sides):
        dealt = Dealt(count, options.late or whole_rows)
        found = apply_filling(filling, calls, df, made, plan.keys, dealt, stream=True)
        fills.append(found)
        told = clocks(filling, found.df.schema, df.sparkSession, heard[1 + i], count, found.promised)
        pages.append(packed(together(found.df, *told), found.layout, count, side=i))
        if options.late:
            rows.append(T.StructField(name or "filling", found.df.schema["row"].dataType))
        if whole_rows:
            made = T.StructType([*made.fields, T.StructField("row", found.df.schema["row"].dataType)])
    if options.control is not None:
        # what is said of all must hold of times, if some have them
        said = [each.promised for each in fills]
        time = next((kind for kind in said if not isinstance(kind, T.DateType)), said[0])
        orders = commands(source.sparkSession, options.control, fills[0].df.schema, time)
        describe(options.control, {}, time.simpleString(), False)
        # where it was in older checkpoints: behind the first source
        pages.insert(1 + live, packed(orders, fills[0].layout, count, side=EVERY))
    layouts = tuple(each.layout for each in fills)
    if not whole_rows:
        outputs = [pa.field(o.name, o.type) for layout in layouts for o in layout.aggregation.outputs]
        made = T.StructType([*made.fields, *from_arrow_schema(pa.schema(outputs), prefer_timestamp_ntz=True).fields])
    if options.late:
        check_name("late", made.names)
    union = together(*pages)
    # late rows of a source are under its name; None where nobody asked for them
    names = tuple(field.name for field in rows[live:]) if options.late else ()
    spec = FillSpec(framing, layouts, plan.keys, count, whole_rows)
    given = [plan.punctuation if live else None, *(side[2].punctuation for side in sides)]
    marks = tuple(isinstance(each, Watermark) for each in given)
    zones = tuple(
        _zone(mark, each.layout, each.promised, side[1])
        for mark, each, side in zip(marks[1:], fills, sides, strict=True)
    )
    staged = union.groupBy("lane").transformWithStateInPandas(
        ChunkedProcessor(FillRunner(spec, marks, zones, names)),
        STAGED,
        "Append",
        "EventTime" if any(marks) else "None",
        None if live else _initial(source, plan.keys, count).groupBy("lane"),
    )
    late = T.StructType([T.StructField("reason", T.StringType()), *rows]) if options.late else None
    sums = (*SUMS, *FILL_COUNTS, *(f"total_{name}" for name in FILL_TOTALS))
    return finished(staged, made, late, Report(sums))


def _zone(mark: bool, layout: FillLayout, kind: T.DataType, df: DataFrame) -> str | None:
    """By which clocks a watermark is told as a day; None where it is not."""
    if not mark or layout.progress.unit != "days":
        return None
    if isinstance(kind, T.TimestampNTZType):
        return "UTC"
    name = df.sparkSession.conf.get(_ZONE) or "UTC"
    try:
        zone_of(name)
    except Unsupported:
        raise InputError(
            f"`{_ZONE}` ({name}) is a zone that only Spark knows, and watermark() must be told in days. "
            'Set it to one such as "Europe/Paris" or "+02:00", or use another punctuation.'
        ) from None
    return name


def _initial(segments: DataFrame, keys: tuple[str, ...], shards: int) -> DataFrame:
    """Segments found before, as pages by shard."""
    if "shard" in segments.columns:
        raise SpecError("`framing_source` has a column `shard`, which is used on the way. Rename it.")
    owner = shard_of([F.col(named(name)) for name in keys], shards).alias("shard")
    selected = segments.select(owner, *(F.col(named(name)) for name in segments.columns))

    def deal(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for shard, page in gathered_by_shard(batches):
            yield page_of(lane[shard], page)

    lane = lanes(shards)
    return selected.mapInArrow(deal, PAGES)

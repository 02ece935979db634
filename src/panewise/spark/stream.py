"""The stream executor: rows are packed into pages, dealt to shards, and one stateful stage does everything else.

source --Apply--> elements --mapInArrow: pack--> (lane, page) --groupBy(lane).transformWithStateInPandas--> page
(or Parquet files --> marks --mapInArrow: read, Apply, pack--> (lane, page))
and report --observe: what `pw.progress` tells--> page --mapInArrow: unpack--> segments, late rows
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from panewise.errors import InputError, SpecError
from panewise.kernel.bundle import load
from panewise.kernel.dealing import can_deal
from panewise.kernel.fill import FillLayout
from panewise.kernel.ledger import check_measures
from panewise.kernel.pack import Packer
from panewise.kernel.sequence import Layout
from panewise.kernel.shard import PUNCTUATION
from panewise.spark.batch import result_schema
from panewise.spark.control import describe
from panewise.spark.elements import asking, clocks, commands
from panewise.spark.follow import bounded, follow_of, followed, passed_type
from panewise.spark.lanes import PAGES, lanes, page_of
from panewise.spark.processor import Processor
from panewise.spark.report import STAGED, Report
from panewise.spark.session import ROCKSDB
from panewise.spark.shard import ShardRunner
from panewise.spark.source import Applied, Dealt, apply
from panewise.spark.streamscan import StreamScan, marks_rows, stream_scan_of
from panewise.spark.worker import settle
from panewise.spec.aggregates import Aggregates
from panewise.spec.aside import SetAside
from panewise.spec.emit import FINAL as FINAL_ONLY
from panewise.spec.emit import Emit
from panewise.spec.frames import RowWindows
from panewise.spec.job import MAX_SHARDS
from panewise.spec.plan import PlanSpec
from panewise.spec.prod import Prods, first_of, later_of, on_grid
from panewise.spec.punctuate import Ordered, Passed, Watermark, check_punctuation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "SHARDS", "check_framing", "check_name", "checked_stream", "finished", "packed", "path_of", "segments", "together",
]  # fmt: skip

SHARDS = 16
"""How many parts the keys are dealt to, if nothing else is said."""

_PARTITIONS = "spark.sql.shuffle.partitions"
_LOG = logging.getLogger("panewise")
_STORE = "spark.sql.streaming.stateStore.providerClass"
_DELAY = "spark.watermarkDelayMs"
Read = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What reads elements where something says which."""


def checked_stream(plan: Ordered, df: DataFrame, shards: int | None, which: str = "") -> int:
    """Check what every stream needs, whether it draws segments or fills them, and say how many shards there are."""
    given = plan.punctuation
    if given is None:
        raise SpecError(
            f"`punctuation` (None){which}: a stream must say how it is known that rows have come, or no segment could "
            'ever close. Add it to `at`, such as .at("time", pw.slack("10 seconds"))'
            f"{', or to fill(punctuation=...)' if which else ''}."
        )
    if isinstance(given, Watermark) and not _has_watermark(df, plan.ordered_by):
        raise InputError(
            f"`at` ({plan.ordered_by!r}) has no watermark, and watermark() promises what Spark's does. "
            f'Add .withWatermark({plan.ordered_by!r}, "10 seconds") to the DataFrame, or use another punctuation.'
        )
    count = SHARDS if shards is None else shards
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_SHARDS or count & (count - 1):
        raise SpecError(
            f"`shards` ({count!r}) must be a power of two, from 1 to {MAX_SHARDS}: keys are dealt to them for good. "
            f"Give one, or leave it out for {SHARDS}."
        )
    store = df.sparkSession.conf.get(_STORE, "")
    if store != ROCKSDB:
        raise InputError(
            f"`{_STORE}` ({store}): Spark keeps the state of such a stream in RocksDB only. "
            f"Use pw.session(), or set it to {ROCKSDB}."
        )
    partitions = int(df.sparkSession.conf.get(_PARTITIONS, "0") or 0)
    if partitions > count:
        _LOG.warning(
            "%s (%d) is more than the %d shards of the stream: each is a task and a state store in every micro-batch. "
            "Set it to %d or fewer before the first run; a checkpoint keeps it.",
            _PARTITIONS, partitions, count, count,
        )  # fmt: skip
    return count


def check_framing(plan: PlanSpec) -> None:
    """Refuse a plan that no stream can run."""
    if plan.scheme.longest:
        raise SpecError(
            "`longest` (True) needs a finished stream: on an unbounded one a longer frame may always come. "
            "Leave it out, or read the source as a batch."
        )
    if plan.punctuation is not None:
        check_punctuation(plan)


def _check_shards(plan: PlanSpec, count: int) -> None:
    if plan.one_sequence and count > 1:
        raise SpecError(
            f"`shards` ({count}) must be 1: rows of all keys are numbered together. "
            "Leave it out, or give `partitioned=True`."
        )


def _has_watermark(df: DataFrame, at: str) -> bool:
    """Whether Spark keeps a watermark of a column; one that is not there has none to miss."""
    found = [field for field in df.schema.fields if field.name.lower() == at.lower()]
    return not found or any(_DELAY in field.metadata for field in found)


def segments(
    plan: PlanSpec,
    df: DataFrame,
    agg: Aggregates | None,
    emit: Emit,
    *,
    late: bool = False,
    punctuations: bool = False,
    shards: int | None = None,
    control: str | None = None,
    clock: DataFrame | None = None,
    prods: Prods | None = None,
    set_aside: SetAside | None = None,
) -> DataFrame:
    """The segments of a streaming DataFrame, as a streaming DataFrame."""
    first, *rest = plan.chain()
    prods = on_grid(prods, (first, *rest)[-1].scheme)
    if not rest:
        return _segments(first, df, agg, emit, late, punctuations, shards, control, clock, prods, set_aside)
    if late:
        raise SpecError(
            "`late` (True): late rows come beside the segments of the first plan, and others follow. Leave it out; "
            "pw.progress counts them, and the first plan by itself gives them."
        )
    early = first_of(prods)
    found = _segments(first, df, agg, FINAL_ONLY, False, True, shards, control, clock, early, set_aside)
    for i, following in enumerate(rest):
        last = i == len(rest) - 1
        before = 1 if plan.chain()[i].one_sequence and shards is None else shards
        follow = follow_of(following, found)
        passed = follow.plan(Passed(SHARDS if before is None else before))
        sent, passes = emit if last else FINAL_ONLY, punctuations or not last
        early = None if prods is None else later_of(prods, last)
        rows = followed(follow, found, plan.chain()[i].keys, last)
        made = _segments(passed, rows, None, sent, False, passes, shards, None, None, early, clocked=clock is not None)
        found = bounded(follow, made)
    return found


def _segments(
    plan: PlanSpec,
    df: DataFrame,
    agg: Aggregates | None,
    emit: Emit,
    late: bool,
    passes: bool,
    shards: int | None,
    control: str | None,
    clock: DataFrame | None,
    prods: Prods | None = None,
    set_aside: SetAside | None = None,
    clocked: bool = False,
) -> DataFrame:
    check_framing(plan)
    # what is one sequence is in one shard
    count = checked_stream(plan, df, 1 if plan.one_sequence and shards is None else shards)
    _check_shards(plan, count)
    calls = plan.asked(agg)
    if passes and isinstance(plan.scheme, RowWindows) and plan.scheme.partitioned:
        raise SpecError(
            "`partitioned` (True): rows are numbered anew in each key, so that nothing can be promised of those to "
            "come. Leave it out, or let no plan follow."
        )
    for asked, name in ((late, "late"), (passes, PUNCTUATION)):
        if asked:
            check_name(name, (*plan.keys, *(name for name, _ in calls)))
    if prods is not None:
        check_measures(prods.accuracy, [name for name, _ in calls])
    applied = apply(plan, calls, df, emit, Dealt(count, late), prods)
    layout, schema = replace(applied.layout, set_aside=set_aside), applied.df.schema
    # a lull is a micro-batch too: a clock makes them, but Spark's own would make a replay one single micro-batch
    timed = (set_aside is not None and clock is not None) or (prods is not None and prods.prodder is not None)
    others = clocks(plan, schema, df.sparkSession, clock, count, timed=timed)
    if prods is not None and prods.stream is not None:
        others.append(asking(prods.stream, plan, schema))
    if control is not None:
        others.append(commands(df.sparkSession, control, schema, keys=plan.keys))
        types = {field.name: field.dataType.simpleString() for field in applied.keys}
        describe(control, types, schema["at"].dataType.simpleString(), prods is not None)
    watermark = isinstance(plan.punctuation, Watermark)
    staged = (
        _pages(applied, layout, df, others, count, late)
        .groupBy("lane")
        .transformWithStateInPandas(
            Processor(ShardRunner(layout, count, watermark, passes, clocked or clock is not None)),
            STAGED,
            "Append",
            "EventTime" if watermark else "None",
        )
    )
    made = result_schema(layout, applied.keys)
    late_type = None
    if late:
        # null in the rows that are segments
        row = T.StructField("row", applied.df.schema["row"].dataType)
        late_type = T.StructType([T.StructField("reason", T.StringType()), row])
    passed = None
    if passes:
        bound = cast(T.StructType, made["segment"].dataType)["start"].dataType
        passed = passed_type(bound, prods is not None and prods.passes, set_aside is not None)
    answers = None if prods is None or prods.passes else tuple(name for name, _ in calls)
    return finished(staged, made, late_type, Report(answers=answers), passed)


def _pages(
    applied: Applied, layout: Layout, df: DataFrame, others: list[DataFrame], shards: int, late: bool
) -> DataFrame:
    """All elements as pages: rows, which workers read if they can, and others."""
    scan = stream_scan_of(df, applied.layout, late)
    if isinstance(scan, StreamScan):
        pages = packed(scan.marks(df), layout, shards, read=scan.rows)
        return together(pages, packed(together(*others), layout, shards)) if others else pages
    elements = together(applied.df, *others)
    if not others and not marks_rows(layout):
        # all of them are rows: what says so need not go to Python with each, nor what their keys say
        elements = elements.drop("kind", "clock", *(["shard"] if can_deal(layout.key_types) else []))
    return packed(elements, layout, shards)


def path_of(plan: PlanSpec, df: DataFrame, agg: Aggregates | None = None) -> str:
    """Which way the rows of a stream go, and why."""
    scan = stream_scan_of(df, apply(plan, plan.asked(agg), df).layout, late=False)
    if isinstance(scan, StreamScan):
        return "scan lane: Spark deals Parquet files to Python workers, which read them; shuffled as pages, by shard"
    return f"Spark reads rows ({scan}); shuffled as pages, by shard"


def check_name(name: str, taken: Iterable[str]) -> None:
    """Refuse a column of results where others go."""
    if name in (other.lower() for other in taken):
        option = f"{name}s" if name == PUNCTUATION else name
        raise SpecError(f"`{option}` (True) adds a column {name!r}, and the results have one. Rename theirs.")


def together(first: DataFrame, *others: DataFrame) -> DataFrame:
    """The rows of several DataFrames."""
    return reduce(lambda found, more: found.unionByName(more), others, first)


def packed(
    elements: DataFrame, layout: Layout | FillLayout, shards: int, side: int | None = None, read: Read | None = None
) -> DataFrame:
    """Elements as pages; or what says which of them are read here."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for shard, page in Packer(layout, shards, side=side).run(batches if read is None else read(batches)):
            yield page_of(keys[shard], page)
        settle("pack")

    keys = lanes(shards)
    return elements.mapInArrow(pack, PAGES)


def finished(
    stage: DataFrame,
    made: T.StructType,
    late: T.StructType | None,
    report: Report,
    passed: T.StructType | None = None,
) -> DataFrame:
    """What comes out of the stateful stage: results, and late rows where they are wanted; reports are observed.

    `passed` is of what type progress is that is passed on, if it is.
    """
    fields = [T.StructField(field.name, field.dataType) for field in made.fields]
    if late is not None:
        fields.append(T.StructField("late", late))
    if passed is not None:
        fields.append(T.StructField(PUNCTUATION, passed))
    schema = T.StructType(fields)
    arrow = to_arrow_schema(schema, timezone="UTC")

    def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for page in batch.column("page"):
                yield from _unpacked(page.as_py(), arrow)
        settle("unpack")

    return report.observed(stage).mapInArrow(unpack, schema)


def _unpacked(page: bytes, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Results, late rows and what is passed on; in the rows of one the columns of the others are null."""
    tables, _ = load(page)
    for batch in tables["segments"].to_batches() if "segments" in tables else ():
        yield _padded({name: batch.column(name) for name in batch.schema.names}, len(batch), schema)
    for name, table in tables.items():
        if name == "segments":
            continue
        if name == PUNCTUATION:
            kind = schema.field(PUNCTUATION).type
            passed = [table.column(field.name).combine_chunks().cast(field.type) for field in kind]
            yield _padded({PUNCTUATION: pa.StructArray.from_arrays(passed, fields=list(kind))}, len(table), schema)
            continue
        # late rows: a reason, and the row under the name of where it comes from
        for batch in table.to_batches():
            kinds = list(schema.field("late").type)
            told = {field.name: batch.column(field.name) for field in batch.schema}
            columns = [told[f.name].cast(f.type) if f.name in told else pa.nulls(len(batch), f.type) for f in kinds]
            yield _padded({"late": pa.StructArray.from_arrays(columns, fields=kinds)}, len(batch), schema)


def _padded(columns: Mapping[str, pa.Array], rows: int, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [columns[f.name].cast(f.type) if f.name in columns else pa.nulls(rows, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

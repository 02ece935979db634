"""Fill without Spark: tables in memory, the same kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.errors import InputError, SpecError, did_you_mean
from panewise.kernel.fill import FillLayout
from panewise.kernel.matching import UID, Merger, Taker, chunks, matched, pages, reaching
from panewise.kernel.progress import aligned, check_same_kind, promised
from panewise.kernel.punctuate import heeds_rows, source_columns
from panewise.local.runner import condition_of, inputs_of, segments_local
from panewise.local.source import plain, read_columns, whole_rows
from panewise.spec.aggregates import Aggregates, Calls, aggregates, input_columns
from panewise.spec.fill import Filling, check_keys, check_parts, check_windows
from panewise.spec.fill import filling as checked_filling
from panewise.spec.plan import PlanSpec
from panewise.spec.punctuate import InBand, per_key

if TYPE_CHECKING:
    from panewise.local.runner import Table

__all__ = ["apply_filling", "fill_local", "numbered"]


def fill_local(
    plan: PlanSpec,
    framing: Table,
    filling: Table,
    agg: Aggregates | None = None,
    *,
    at: str | None = None,
    by: object = None,
    where: str | None = None,
    widen: object = None,
    shift: object = None,
    keep_empty: bool = False,
) -> pa.Table:
    """The segments of a table in memory with the rows of another: what `plan.fill` gives on Spark.

    With `agg` one row a segment, without it one for each matching row. `framing` may hold segments found before.

    >>> import panewise as pw
    >>> hot = pw.threshold_frames("temp > 32").at("t")
    >>> readings, visits = pa.table({"t": [1, 2, 3], "temp": [33, 34, 30]}), pa.table({"t": [0, 1, 2, 9]})
    >>> pw.fill_local(hot, readings, visits, {"n": "count(*)"}, widen=(1, None)).column("n").to_pylist()
    [3]
    """
    given = checked_filling(plan.keys, plan.ordered_by if at is None else at, by, where, widen, shift)
    calls = aggregates(agg)
    stored = _segments(framing)
    if stored is not None and "part" in stored.column_names and "part" not in plan.keys:
        check_parts(given)
    own = stored is None and framing is filling and not given.moves and where is None
    if own and calls and (given.time, given.keys) == (plan.time, plan.keys):
        return segments_local(plan, framing, agg)
    if stored is None:
        check_windows(plan, live=False)
    segments = segments_local(plan, framing).replace_schema_metadata(None) if stored is None else stored
    taken = [column.lower() for column in segments.column_names]
    for name, _ in calls:
        if name.lower() in taken:
            raise SpecError(f"`agg` ({name!r}) can't name a result: segments have that column. Choose another name.")
    if not calls and "row" in taken:
        raise SpecError("`agg` (None) adds a column `row`, and segments have one. Rename it, or give `agg`.")
    rows, layout = apply_filling(given, calls, filling, segments, plan.keys, with_rows=not calls, present=True)
    return _filled(segments, plan.keys, rows, layout, keep_empty)


def _segments(table: Any) -> pa.Table | None:
    """A table of segments found before, or None if it is one of rows."""
    if not isinstance(table, (pa.Table, pa.RecordBatch)) or "segment" not in table.schema.names:
        return None
    kind = table.schema.field("segment").type
    if not pa.types.is_struct(kind) or not {"id", "start", "end", "bounds"} <= {f.name for f in kind}:
        return None
    return table if isinstance(table, pa.Table) else pa.Table.from_batches([table])


def apply_filling(
    given: Filling,
    calls: Calls,
    table: Table,
    segments: pa.Table | pa.Schema,
    keys: tuple[str, ...],
    with_rows: bool,
    present: bool = False,
    others: bool = False,
) -> tuple[pa.Table, FillLayout]:
    """Check a filling against a table, and evaluate what the fill needs: k0.., at, row, s0.., promise, a0...

    Rows that do not count are left out first, and those without an `at`, if only `present` ones are wanted. If `others`
    are wanted, those that say how far a stream has come are marked (`other`) instead.
    """
    schema = segments.schema if isinstance(segments, pa.Table) else segments
    texts = [call.argument for _, call in calls if call.argument is not None]
    texts += [given.where] if given.where is not None else []
    marked = given.punctuation.condition if isinstance(given.punctuation, InBand) else None
    texts += [marked] if marked is not None else []
    source = read_columns(table, (given.time, *given.keys, *source_columns(given)), texts)
    kind = schema.field("segment").type.field("start").type
    at = source.at(given.time)
    check_same_kind(given.time, at.type, kind)
    columns = {}
    fits = None
    for i, (name, key) in enumerate(zip(given.keys, keys, strict=True)):
        if key not in schema.names:
            known = did_you_mean(key, schema.names)
            raise InputError(f"`framing`: segments have no column {key!r}, which is a key of the plan. {known}")
        found, target = source.plain("by", name), schema.field(key).type
        check_keys(name, str(found.type), key, str(target), found.type == target or _whole(found.type, target))
        cast, valid = _cast(found, target)
        columns[f"k{i}"] = cast
        fits = _both(fits, valid)
    columns["at"] = aligned(at, kind)
    if with_rows:
        columns["row"] = whole_rows(table)
    columns |= {f"s{i}": source.plain("per", name) for i, name in enumerate(source_columns(given))}
    kept = fits
    if given.where is not None:
        kept = _both(fits, pc.fill_null(condition_of("where", given.where, source.rows), False))
    if marked is not None:
        columns["promise"] = promise = pc.fill_null(condition_of("condition", marked, source.rows), False)
        columns["at"] = pc.if_else(promise, promised(at, kind), columns["at"])
        kept = None if kept is None else pc.or_(kept, _both(promise, fits) if per_key(given) else promise)
    if present and at.null_count:
        kept = _both(kept, at.is_valid())
    rows, whole = pa.table(columns), source.rows
    left: pa.Table | None = None
    if kept is not None and kept.true_count < len(rows):
        if others and heeds_rows(given):
            left = rows.filter(_both(_both(pc.invert(kept), at.is_valid()), fits if per_key(given) else None))
        rows, whole = rows.filter(kept), whole.filter(kept)
    inputs = inputs_of(calls, whole)
    named = {read: column for read, column in zip(input_columns(calls), inputs, strict=True) if read is not None}
    for read, column in named.items():
        rows = rows.append_column(read, column)
    rows = _with_others(rows, left) if others else rows
    layout = FillLayout(
        given,
        calls,
        tuple(schema.field(key).type for key in keys),
        kind,
        tuple(None if column is None else column.type for column in inputs),
        "part" in schema.names and "part" not in keys,
    )
    return rows, layout


def _with_others(rows: pa.Table, left: pa.Table | None) -> pa.Table:
    """Rows, and those that were left out, of which nothing is read."""
    both = [(rows, False), *(() if left is None else ((left, True),))]
    marked = [some.append_column("other", pa.array(np.full(len(some), mark))) for some, mark in both]
    return pa.concat_tables(marked, promote_options="default")


def _both(a: pa.Array | None, b: pa.Array | None) -> pa.Array | None:
    """Where both hold; None holds everywhere."""
    return b if a is None else a if b is None else pc.and_(a, b)


def _whole(a: pa.DataType, b: pa.DataType) -> bool:
    return bool(pa.types.is_integer(a) and pa.types.is_integer(b))


def _cast(column: pa.Array, target: pa.DataType) -> tuple[pa.Array, pa.Array | None]:
    """Integers of another width, and which of them fit."""
    if column.type == target:
        return column, None
    cast = column.cast(target, safe=False)
    back = pc.equal(cast.cast(column.type, safe=False), column)
    signs = [pc.less(each, pa.scalar(0, each.type)) for each in (cast, column)]
    return cast, pc.fill_null(pc.and_(back, pc.equal(*signs)), True)


def numbered(segments: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Segments with their keys and a number before all their columns."""
    beside = {f"k{i}": plain(segments.column(key)) for i, key in enumerate(keys)}
    beside[UID] = pa.array(np.arange(len(segments)))
    return pa.table([*beside.values(), *segments.columns], [*beside, *segments.column_names])


def _filled(
    segments: pa.Table, keys: tuple[str, ...], rows: pa.Table, layout: FillLayout, keep_empty: bool
) -> pa.Table:
    if not layout.agg:
        if keep_empty:
            raise InputError("`keep_empty` (True) keeps segments without rows: give `agg`, or leave it out.")
        schema = segments.schema.append(rows.schema.field("row"))
        named = numbered(segments, keys)
        dealt_segments = named.add_column(0, "shard", pa.array(np.zeros(len(segments), np.int32)))
        all_chunks = [piece for _, piece, _, _ in chunks(layout, dealt_segments.to_batches())]
        dealt = rows.append_column("shard", pa.array(np.zeros(len(rows), np.int32)))
        all_pages = [piece for _, piece, _, _ in pages(layout, dealt.to_batches())]
        found = [matched(layout, chunk, page) for chunk in all_chunks for page in all_pages]
        return pa.concat_tables([schema.empty_table(), *(table for table in found if table is not None)])
    outputs = [pa.field(output.name, output.type) for output in layout.aggregation.outputs]
    result = pa.schema([*segments.schema, *outputs])
    if not len(segments):
        return result.empty_table()
    taker = Taker(layout, [(0, reaching(layout, numbered(segments, keys)))])
    taker.take(rows)
    return pa.Table.from_batches(Merger(layout, keys, result).run(taker.partials(keep_empty)), result)

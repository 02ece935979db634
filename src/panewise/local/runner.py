"""Segments of a table in memory: Apply, sort, then the same operator as on Spark."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Union

import pyarrow as pa
import pyarrow.compute as pc

from panewise.errors import InputError
from panewise.kernel.apply import evaluate
from panewise.kernel.follow import Follow
from panewise.kernel.order import sortable
from panewise.kernel.page import in_one
from panewise.kernel.prod import ARRIVED
from panewise.kernel.punctuate import source_columns
from panewise.kernel.sequence import PAGE_ROWS, Layout, Sequence, check_condition, check_value
from panewise.kernel.windowbatch import windows_of
from panewise.local.source import is_plain, plain, read
from panewise.spec.aggregates import AS_THEY_ARE, Aggregate, Aggregates, Calls, input_columns
from panewise.spec.emit import FINAL, Emit
from panewise.spec.frames import Value, WindowScheme
from panewise.spec.plan import PlanSpec
from panewise.spec.prod import InBandProds, Prods
from panewise.spec.punctuate import InBand

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    Table = Union[pa.Table, pa.RecordBatch, pd.DataFrame, pl.DataFrame, pl.LazyFrame]

__all__ = ["Applied", "apply_local", "condition_of", "inputs_of", "segments_local"]

_DAY = 86_400_000_000


def _evaluated(option: str, text: str, table: pa.Table, exact: bool = False) -> pa.Array:
    try:
        return plain(evaluate(option, text, table, exact))
    except pa.ArrowException as e:
        said = str(e).splitlines()[0].rstrip(".")
        raise InputError(
            f"`{option}` ({text!r}) can't be evaluated in memory: {said}. "
            "Cast what it reads, or use plan.segments on Spark."
        ) from None


def _value(option: str, value: Value, table: pa.Table) -> pa.Array:
    found = _evaluated(option, value.text, table)
    time = pa.types.is_timestamp(found.type) or pa.types.is_date(found.type)
    number = pa.types.is_integer(found.type) or pa.types.is_floating(found.type) or pa.types.is_null(found.type)
    check_value(option, value, str(found.type), time, number)
    if pa.types.is_date(found.type):
        found = pc.multiply(found.cast(pa.int32()).cast(pa.float64()), _DAY)
    elif time:
        found = found.cast(pa.int64())
    # an integer of more than 53 bits becomes the nearest number, as on Spark
    return plain(found.cast(pa.float64(), safe=False))


def condition_of(option: str, text: str, table: pa.Table) -> pa.Array:
    """A boolean expression."""
    found = _evaluated(option, text, table)
    if pa.types.is_null(found.type):
        return found.cast(pa.bool_())
    check_condition(option, text, str(found.type), pa.types.is_boolean(found.type))
    return found


def inputs_of(calls: Calls, table: pa.Table) -> list[pa.Array | None]:
    """What aggregates read."""
    return [_input(name, call, table) for name, call in calls]


def _input(name: str, call: Aggregate, table: pa.Table) -> pa.Array | None:
    if call.argument is None:
        return None
    found = _evaluated(f"agg[{name}]", call.argument, table, exact=call.function in AS_THEY_ARE)
    if pa.types.is_null(found.type):
        return found.cast(pa.float64())
    if call.function == "count" and not is_plain(found.type):
        # what has no order is there or not
        return pc.if_else(found.is_valid(), pa.scalar(True), pa.scalar(None, pa.bool_()))
    return found


@dataclass(frozen=True)
class Applied:
    """What the operator sees of a table: k0.., at, b0.., v0.., c0.., a0..; which rows are punctuations, and prods."""

    rows: pa.Table
    layout: Layout
    promises: pa.Array | None = None
    prods: pa.Array | None = None


def apply_local(plan: PlanSpec, calls: Calls, table: Table, emit: Emit = FINAL, prods: Prods | None = None) -> Applied:
    """Check a plan against a table and evaluate what the operator needs."""
    asks = [prods.in_band.condition] if prods is not None and prods.in_band is not None else []
    source, scheme = read(table, plan, calls, asks), plan.scheme
    at = source.at(plan.ordered_by)
    keys = [source.plain("by", name) for name in plan.keys]
    breaks = [source.plain("tie_break", name) for name in plan.tie_break]
    values = [_value(scheme.value_option, value, source.rows) for value in scheme.values]
    named = zip(scheme.condition_options, scheme.conditions, strict=False)
    conditions = [condition_of(option, text, source.rows) for option, text in named]
    inputs = inputs_of(calls, source.rows)
    types = tuple(None if column is None else column.type for column in inputs)
    layout = Layout(plan, calls, tuple(key.type for key in keys), at.type, types, emit, prods, prods is not None)
    columns = {f"k{i}": key for i, key in enumerate(keys)}
    columns["at"] = at
    columns |= {f"b{i}": column for i, column in enumerate(breaks)}
    columns |= {f"v{i}": column for i, column in enumerate(values)}
    columns |= {f"c{i}": column for i, column in enumerate(conditions)}
    columns |= {name: column for name, column in zip(input_columns(calls), inputs, strict=True) if name is not None}
    columns |= {f"s{i}": source.plain("per", name) for i, name in enumerate(source_columns(plan))}
    if prods is not None and isinstance(table, pa.Table) and ARRIVED in table.column_names:
        columns[ARRIVED] = in_one(table.column(ARRIVED))
    rows = pa.table(columns)
    marked = []
    for given in (plan.punctuation, None if prods is None else prods.in_band):
        found = None
        if isinstance(given, (InBand, InBandProds)):
            found = pc.fill_null(condition_of("condition", given.condition, source.rows), False)
        marked.append(found)
    return Applied(rows, layout, *marked)


def _checked(plan: object, page_rows: object) -> None:
    if not isinstance(plan, PlanSpec):
        raise InputError(
            f"`plan` ({type(plan).__name__}) must be a plan; the table comes after it. "
            'Give one, such as threshold_frames("speed > 30").at("time").'
        )
    if not isinstance(page_rows, Integral) or isinstance(page_rows, bool) or page_rows < 1:
        raise InputError(f"`page_rows` ({page_rows!r}) must be a whole number, at least 1. Leave it out, or give one.")


def segments_local(
    plan: PlanSpec, table: Table, agg: Aggregates | None = None, *, page_rows: int = PAGE_ROWS
) -> pa.Table:
    """The segments of a table in memory: the same rows that `plan.segments` gives on Spark.

    Rows without a finite `at` are dropped; their number is in the result's metadata, `null_at`.

    >>> import panewise as pw
    >>> plan = pw.threshold_frames("temp > 32").at("t")
    >>> pw.segments_local(plan, pa.table({"t": [1, 2, 3], "temp": [33, 34, 30]})).to_pylist()
    [{'segment': {'id': 0, 'start': 1, 'end': 2, 'bounds': '[]'}, 'rows': 2, 'status': 'final'}]
    """
    _checked(plan, page_rows)
    if plan.following is not None:
        first, *rest = plan.chain()
        found = segments_local(first, table, agg, page_rows=page_rows)
        told = found.schema.metadata
        for following in rest:
            follow = Follow(following, found.schema)
            found = follow.bounded(segments_local(follow.plan(), follow.rows(found), page_rows=page_rows))
        return found.replace_schema_metadata(told)
    calls = plan.asked(agg)
    applied = apply_local(plan, calls, table)
    rows, layout = applied.rows, applied.layout
    if applied.promises is not None:
        rows = rows.filter(pc.invert(applied.promises))
    present = rows.filter(pc.is_valid(rows.column("at")))
    if isinstance(plan.scheme, WindowScheme):
        return windows_of(layout, present).replace_schema_metadata({"null_at": str(len(rows) - len(present))})
    order = [(name, "ascending", "at_start") for name in present.column_names if not name.startswith("s")]
    ordered = present.take(pc.sort_indices(sortable(present), sort_keys=order))
    found = pa.Table.from_batches(
        Sequence(layout, int(page_rows)).run(ordered.combine_chunks().to_batches()), layout.emitter.schema
    )
    return found.replace_schema_metadata({"null_at": str(len(rows) - len(present))})

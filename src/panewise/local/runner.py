"""Segments of a table in memory: Apply, sort, then the same operator as on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Union

import pyarrow as pa
import pyarrow.compute as pc

from panewise.errors import InputError, did_you_mean
from panewise.kernel.apply import evaluate
from panewise.kernel.sequence import PAGE_ROWS, Layout, Sequence, check_condition, check_value
from panewise.spec.aggregates import aggregates
from panewise.spec.frames import Value
from panewise.spec.plan import PlanSpec

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    Table = Union[pa.Table, pa.RecordBatch, pd.DataFrame, pl.DataFrame]

__all__ = ["segments_local"]


def _as_arrow(table: Any) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    home = type(table).__module__.partition(".")[0]
    if home == "pandas":
        return pa.Table.from_pandas(table, preserve_index=False)
    if home == "polars":
        return table.to_arrow()
    raise InputError(
        f"`table` ({type(table).__name__}) must be an Arrow, pandas or polars table. "
        "For a Spark DataFrame use plan.segments(df)."
    )


def _column(role: str, name: str, table: pa.Table) -> pa.Array:
    if name not in table.column_names:
        raise InputError(f"`{role}` ({name!r}): no such column. {did_you_mean(name, table.column_names)}")
    return _one_chunk(table.column(name))


def _one_chunk(column: Any) -> pa.Array:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_decode()
    if pa.types.is_floating(whole.type):
        numbers = whole.cast(pa.float64()) if pa.types.is_float16(whole.type) else whole
        # adding zero turns -0.0 into 0.0, which sorts and groups as one value
        return pc.add(pc.if_else(pc.is_nan(numbers), None, numbers), pa.scalar(0, numbers.type))
    return whole


def _value(option: str, value: Value, table: pa.Table) -> pa.Array:
    found = _one_chunk(evaluate(option, value.text, table))
    time = pa.types.is_timestamp(found.type) or pa.types.is_date(found.type)
    number = pa.types.is_integer(found.type) or pa.types.is_floating(found.type) or pa.types.is_null(found.type)
    check_value(option, value, str(found.type), time, number)
    if value.timed:
        found = found.cast(pa.timestamp("us", getattr(found.type, "tz", None))).cast(pa.int64())
    return _one_chunk(found.cast(pa.float64()))


def _condition(option: str, text: str, table: pa.Table) -> pa.Array:
    found = _one_chunk(evaluate(option, text, table))
    if pa.types.is_null(found.type):
        return found.cast(pa.bool_())
    check_condition(option, text, str(found.type), pa.types.is_boolean(found.type))
    return found


def segments_local(
    plan: PlanSpec, table: Table, agg: Mapping[str, str] | None = None, *, page_rows: int = PAGE_ROWS
) -> pa.Table:
    """The segments of a table in memory: the same rows that `plan.segments` gives on Spark.

    Rows without an `at` are dropped; their number is in the result's metadata, `null_at`.

    >>> import panewise as pw
    >>> plan = pw.threshold_frames("temp > 32").at("t")
    >>> pw.segments_local(plan, pa.table({"t": [1, 2, 3], "temp": [33, 34, 30]})).to_pylist()
    [{'segment': {'id': 0, 'start': 1, 'end': 2, 'bounds': '[]'}, 'rows': 2, 'status': 'final'}]
    """
    source = _as_arrow(table)
    calls = aggregates(agg)
    keys = [_column("by", name, source) for name in plan.keys]
    at = _column("at", plan.ordered_by, source)
    breaks = [_column("tie_break", name, source) for name in plan.tie_break]
    scheme = plan.scheme
    values = [_value(scheme.value_option, value, source) for value in scheme.values]
    conditions = [
        _condition(o, text, source) for o, text in zip(scheme.condition_options, scheme.conditions, strict=False)
    ]
    inputs = [
        None if call.argument is None else _one_chunk(evaluate(f"agg[{name}]", call.argument, source))
        for name, call in calls
    ]
    types = tuple(None if column is None else column.type for column in inputs)
    layout = Layout(plan, calls, tuple(key.type for key in keys), at.type, types)
    columns = {f"k{i}": key for i, key in enumerate(keys)}
    columns["at"] = at
    columns |= {f"b{i}": column for i, column in enumerate(breaks)}
    columns |= {f"v{i}": column for i, column in enumerate(values)}
    columns |= {f"c{i}": column for i, column in enumerate(conditions)}
    columns |= {f"a{i}": column for i, column in enumerate(inputs) if column is not None}
    rows = pa.table(columns)
    present = rows.filter(pc.is_valid(rows.column("at")))
    order = [(name, "ascending", "at_start") for name in columns]
    ordered = present.take(pc.sort_indices(_sortable(present), sort_keys=order))
    found = pa.Table.from_batches(
        Sequence(layout, page_rows).run(ordered.combine_chunks().to_batches()), layout.emitter.schema
    )
    return found.replace_schema_metadata({"null_at": str(len(rows) - len(present))})


def _sortable(rows: pa.Table) -> pa.Table:
    """The same rows with booleans as numbers, which Arrow sorts."""
    return pa.table(
        {
            name: c.cast(pa.uint8()) if pa.types.is_boolean(c.type) else c
            for name, c in zip(rows.column_names, rows.columns, strict=True)
        }
    )

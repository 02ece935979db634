"""Batch on Spark against the oracle: any scheme, any options, many keys with any rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import panewise as pw
from panewise.kernel.oracle import Row
from properties.streams import AGG, BUILDERS, CALLS, expected, null, plans, same, streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARROW = {"k": pa.int32(), "b": pa.int64(), "x": pa.float64(), "i": pa.int64()}
ARROW |= {"c": pa.bool_(), "d": pa.bool_(), "s": pa.bool_(), "v": pa.float64(), "w": pa.float64()}
INPUTS = {call.argument: a for a, (_, call) in enumerate(CALLS) if call.argument is not None}


def _table(plan: pw.Plan, keys: Sequence[Sequence[Row]], real: bool) -> pa.Table:
    """The oracle's rows under the names that the plan reads; a NaN stays one."""
    names = [*plan.scheme.conditions, *(value.text for value in plan.scheme.values)]
    found: dict[str, list[object]] = {name: [] for name in ("k", "t", "b", "x", "i", *names)}
    for key, rows in enumerate(keys):
        for row in rows:
            inputs = [row.inputs[INPUTS["x"]], row.inputs[INPUTS["i"]]]
            given_values = (key, row.at, row.tie[0] if row.tie else 0, *inputs, *row.conditions, *row.values)
            for name, value in zip(found, given_values, strict=True):
                found[name].append(value)
    types = ARROW | {"t": pa.float64() if real else pa.int64()}
    return pa.table({name: pa.array(values, types[name]) for name, values in found.items()})


@pytest.mark.parametrize("scheme", sorted(BUILDERS))
@settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_batch_equals_oracle(spark: SparkSession, scheme: str, data: st.DataObject) -> None:
    plan = data.draw(plans(scheme))
    real = data.draw(st.booleans())
    keys = data.draw(st.lists(streams(plan, max_size=10, real=real), min_size=6, max_size=14))
    table = _table(plan, keys, real)
    keyed = plan.by("k")
    told = _per_key(keyed.segments(spark.createDataFrame(table), AGG).toArrow(), len(keys))
    assert told == _per_key(pw.segments_local(keyed, table, AGG), len(keys))
    for rows, segments in zip(keys, told, strict=True):
        wanted = expected(plan, [row for row in rows if not null(row.at)])
        assert same(segments, wanted, 1e-12), f"\nbatch {segments}\noracle {wanted}"


def _per_key(table: pa.Table, keys: int) -> list[list[dict]]:
    told: list[list[dict]] = [[] for _ in range(keys)]
    for row in table.to_pylist():
        told[row.pop("k")].append(row)
    return [sorted(segments, key=lambda row: row["segment"]["id"]) for segments in told]

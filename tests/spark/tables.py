"""What the tests on Spark share: settings for a while, and results as rows that compare exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

import panewise as pw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["assert_same", "rows", "settings"]


@contextmanager
def settings(spark: SparkSession, **wanted: object) -> Iterator[None]:
    """Settings by their Spark names, with _ for a dot, and as they were afterwards."""
    named = {f"spark.sql.{name.replace('_', '.')}": str(value) for name, value in wanted.items()}
    before = {name: spark.conf.get(name, None) for name in named}
    try:
        for name, value in named.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def rows(table: pa.Table) -> list[str]:
    """Every row to the last bit, in an order that all executors share."""
    return sorted(repr(row) for row in table.to_pylist())


def assert_same(plan: pw.Plan, df: DataFrame, table: pa.Table, agg: Mapping[str, str] | None = None) -> int:
    """Spark finds what the local runner finds, bit by bit; how many segments that is."""
    found, wanted = plan.segments(df, agg).toArrow(), pw.segments_local(plan, table, agg)
    assert found.column_names == wanted.column_names
    assert rows(found) == rows(wanted)
    return len(wanted)

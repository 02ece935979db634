"""One key with 50 million rows: nothing is held in memory whole."""

from __future__ import annotations

import pytest
from memory import WorkerMemory
from pyspark.sql import SparkSession

import panewise as pw

ROWS = 50_000_000


@pytest.mark.slow
def test_one_key_of_fifty_million_rows(spark: SparkSession) -> None:
    # shuffled on the way in: pmod by a factor coprime to ROWS visits every time once
    df = spark.range(ROWS).selectExpr(f"pmod(id * 7919, {ROWS}) as t").selectExpr("'one' as k", "t", "t % 1000 as v")
    plan = pw.threshold_frames("v >= 900", min_rows=100).by("k").at("t")
    with WorkerMemory() as memory:
        found = plan.segments(df, {"total": "sum(v)"}).selectExpr(
            "count(*) as segments", "sum(rows) as rows", "sum(total) as total", "max(segment.id) as last"
        )
        row = found.first()
    assert row is not None
    assert row.asDict() == {
        "segments": ROWS // 1000,
        "rows": ROWS // 10,
        "total": ROWS // 1000 * sum(range(900, 1000)),
        "last": ROWS // 1000 - 1,
    }
    print(f"largest Python worker: {memory.peak / 1e6:,.0f} MB")
    assert memory.peak < 1e9

"""A frame of six hours over a busy stream: how many rows wait to fill it, with parts and without."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import panewise as pw
from panewise.local.fill_stream import LocalFill
from panewise.spec.fill import filling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINUTE, HOUR = 60_000_000, 3_600_000_000
LASTS, END = 6 * HOUR, 7 * HOUR
PLAN = pw.threshold_frames("v > 10").at("t", pw.slack(0))
AGG = {"n": "count(*)", "total": "sum(x)", "mean": "avg(x)"}


def framing(first: int, last: int) -> pa.Table:
    """A reading each second; those of the first six hours are high."""
    t = np.arange(first, last, 1_000_000)
    return pa.table({"t": t, "v": np.where(t <= LASTS, 11, 0)})


def busy(first: int, last: int, rate: int) -> pa.Table:
    """So many rows a second."""
    t = np.arange(first, last, 1_000_000 // rate)
    return pa.table({"t": t, "x": t // 7 % 1_000})


def expected(rate: int) -> int:
    """Rows in the frame, which ends with its last row."""
    return LASTS // (1_000_000 // rate) + 1


@pytest.mark.parametrize(("rate", "every"), [(10, MINUTE), pytest.param(1_000, MINUTE, marks=pytest.mark.slow)])
def test_parts_let_rows_go(rate: int, every: int) -> None:
    """Both streams promise all that has come, once a minute."""
    given = filling((), "t", punctuation=pw.slack(0))
    most = {}
    for emit in ("fragments", "final"):
        stream = LocalFill(PLAN, given, AGG, framing(0, 1), busy(0, 1, rate), emit=emit)
        waiting, found = [], []
        for first, last in pairwise(range(0, END + every, every)):
            found += stream.feed(framing(first, last), busy(first, last, rate)).to_pylist()
            waiting.append(stream.counts["rows_waiting"])
        found += stream.finish().to_pylist()
        assert sum(row["n"] for row in found) == expected(rate)
        most[emit] = max(waiting)
        kind = "with parts" if emit == "fragments" else "without"
        print(f"\n{rate:,} rows/s, a punctuation each {every // 1_000_000} s, {kind}: at most {most[emit]:,} rows wait")
    interval = every // (1_000_000 // rate)
    assert most["fragments"] <= interval
    assert most["final"] == pytest.approx(expected(rate), rel=0.01)


@pytest.mark.slow
def test_parts_let_rows_go_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The same over files of ten minutes each, 25 million rows."""
    rate, every = 1_000, 10 * MINUTE
    for name in ("rows", "filling"):
        (tmp_path / name).mkdir()
    for i, (first, last) in enumerate(pairwise(range(0, END + every, every))):
        for name, table in (("rows", framing(first, last)), ("filling", busy(first, last, rate))):
            path = tmp_path / name / f"{i:05d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + i,) * 2)
    most = {}
    for emit in ("fragments", "final"):
        found, observed = run(spark, tmp_path, emit)
        waiting = [row["rows_waiting"] for row in observed]
        sizes = [row["state_bytes"] for row in observed]
        assert sum(found.column("n").to_pylist()) == expected(rate)
        most[emit] = max(waiting)
        kind = "with parts" if emit == "fragments" else "without"
        print(
            f"\n{len(waiting)} micro-batches of {every // MINUTE} minutes, {kind}: at most {most[emit]:,} rows wait, "
            f"state {max(sizes):,} bytes"
        )
    interval = every // (1_000_000 // rate)
    assert most["fragments"] <= interval
    assert most["final"] == pytest.approx(expected(rate), rel=0.03)


def run(spark: SparkSession, folder: Path, emit: str) -> tuple[pa.Table, list[dict[str, Any]]]:
    def stream(name: str, columns: str) -> DataFrame:
        read = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
        return read.parquet(str(folder / name))

    found: list[pa.Table] = []
    fill = PLAN.fill(
        stream("rows", "t long, v long"),
        stream("filling", "t long, x long"),
        punctuation=pw.slack(0),
        shards=1,
        emit=emit,
    )
    query = (
        fill.agg(AGG)
        .writeStream.option("checkpointLocation", str(folder / emit))
        .trigger(availableNow=True)
        .foreachBatch(lambda batch, _: found.append(batch.toArrow()))
        .start()
    )
    query.awaitTermination()
    observed = [
        row.asDict()
        for batch in query.recentProgress
        for name, row in batch.observedMetrics.items()
        if name.startswith("panewise")
    ]
    return pa.concat_tables(found), observed

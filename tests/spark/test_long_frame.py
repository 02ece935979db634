"""A frame that lasts for a million rows: it is told while it lasts, and what is remembered of it does not grow."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import panewise as pw
from panewise.local.stream import LocalStream
from spark.replay import Replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, HOUR, SLACK = 1_000_000, 3_600, 60
AGG = {"n": "count(*)", "top": "max(v)", "mean": "avg(v)"}
FRAMES = pw.threshold_frames("v > 10", min_duration=2 * HOUR).by("k")


def seconds(first: int, last: int) -> pa.Table:
    """A row each second, all above the threshold but the last of all."""
    t = np.arange(first, last)
    return pa.table({"k": ["one"] * len(t), "t": t, "v": np.where(t == ROWS - 1, 0, 11 + t % 50)})


def edges(step: int) -> list[int]:
    """Micro-batches of an hour at first, so that the minimum is met in the third; then long ones."""
    return [0, HOUR, 2 * HOUR, 3 * HOUR, *range(3 * HOUR + step, ROWS, step), ROWS]


def test_each_part_is_what_progress_has_closed() -> None:
    stream = LocalStream(FRAMES.at("t", pw.slack(SLACK)), AGG, emit="fragments")
    begun, sizes, parts = 0, [], 0
    for first, last in pairwise(edges(5_000)):
        found = stream.feed(seconds(first, last)).to_pylist()
        sizes.append(stream.state_bytes)
        assert stream.waiting == SLACK + 1
        closed = last - 1 - SLACK - 1
        if closed < 2 * HOUR:
            assert found == []
            continue
        (part,) = found
        bounds = "[]" if parts == 0 else "(]"
        assert part["segment"] == {"id": 0, "start": begun, "end": closed, "bounds": bounds}
        assert (part["part"], part["status"]) == (parts, "partial")
        assert part["rows"] == part["n"] == closed - begun + (parts == 0)
        begun, parts = closed, parts + 1
    (rest,) = stream.finish().to_pylist()
    assert rest["segment"] == {"id": 0, "start": begun, "end": ROWS - 2, "bounds": "(]"}
    assert (rest["part"], rest["status"], rest["rows"]) == (parts, "final", SLACK)
    print(f"\n{parts + 1} parts; state {sizes[2]:,} bytes after 3 micro-batches, {sizes[-1]:,} after {len(sizes)}")
    assert max(sizes[2:]) <= 1.2 * sizes[2]


@pytest.mark.slow
def test_state_stays_flat_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    plan = FRAMES.at("t", pw.slack(SLACK))
    replay = Replay(spark, tmp_path / "stream")
    replay.add(*(seconds(first, last) for first, last in pairwise(edges(250_000))))
    options = {"emit": "fragments", "shards": 2}
    found = replay.run(plan, AGG, **options)
    sizes = [row["state_bytes"] for row in replay.observed]
    print(f"\nstate after each micro-batch: {', '.join(f'{size:,}' for size in sizes)} bytes")
    assert len(found) == len(sizes) == len(edges(250_000)) - 1
    assert [len(table) for table in found] == [0, 0] + [1] * (len(found) - 2)
    assert max(sizes[2:]) <= 1.2 * sizes[2]
    whole = pa.concat_tables([*found, *replay.finish(plan, AGG, **options)])
    assert whole["part"].to_pylist() == list(range(len(whole)))
    assert whole["status"].to_pylist() == ["partial"] * (len(whole) - 1) + ["final"]
    assert sum(whole["rows"].to_pylist()) == ROWS - 1
    assert whole["segment"].to_pylist()[-1]["end"] == ROWS - 2

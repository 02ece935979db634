"""Bursts set aside on Spark: what a batch finds, in an output that is grammatical in ranges, across restarts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import panewise as pw
from spark.replay import Replay
from spark.tables import rows, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2024, 1, 1, tzinfo=UTC)
AGG = {"n": "count(*)", "total": "sum(v)"}
PLAN = pw.tumbling_windows("10 seconds").by("k").at("t", pw.in_band("kind = 'mark'"))
OPTIONS = {"prods": pw.prods_in("kind = 'prod'"), "punctuations": True}
ANSWERS = ("timing", "number", "certain", "latency", "early", "punctuation")


def second(number: float) -> datetime:
    return START + timedelta(seconds=number)


def file(*given: tuple[str, float | None, str]) -> pa.Table:
    """A micro-batch: rows of a key, prods and marks."""
    times = pa.array([None if t is None else second(t) for _, t, _ in given], pa.timestamp("us", "UTC"))
    return pa.table({"k": [k for k, _, _ in given], "t": times, "v": [1] * len(given), "kind": [w for *_, w in given]})


def at(*given: tuple[str, float]) -> list[tuple[str, float, str]]:
    return [(k, t, "row") for k, t in given]


class Reader:
    """Reads micro-batches in order, and sees to it that no result lies in what was promised before it."""

    def __init__(self) -> None:
        self.until: dict[int, datetime] = {}
        self.ranges: dict[int, list[tuple[datetime, datetime]]] = {}

    def read(self, batch: pa.Table) -> list[tuple[str, float, int]]:
        """Final results in short."""
        told, found = batch.to_pylist(), []
        for row in told:
            if row["segment"] is not None:
                end = row["segment"]["end"]
                assert not self.until or any(end > until for until in self.until.values())
                assert not self.ranges or any(not any(a < end <= b for a, b in some) for some in self.ranges.values())
                if row["timing"] == "final":
                    found.append((row["k"], (end - START).total_seconds(), row["n"]))
        for passed in (row["punctuation"] for row in told if row["punctuation"] is not None):
            if passed["end"] is not None:
                self.until[passed["shard"]] = passed["end"]
            self.ranges[passed["shard"]] = [(one["after"], one["until"]) for one in passed["ranges"]]
        return sorted(found)


def test_a_burst_is_set_aside_across_restarts(spark: SparkSession, tmp_path: Path) -> None:
    replay, reader, options = Replay(spark, tmp_path), Reader(), {**OPTIONS, "shards": 1, "set_aside": pw.set_aside(2)}
    with settings(spark, shuffle_partitions=1):
        replay.add(file(*at(("a", 1), ("a", 2), ("a", 3), ("b", 1)), ("a", None, "prod")))
        replay.add(file(*at(("a", 4), ("b", 5), ("a", 5), ("a", 12))))
        first = replay.run(PLAN, AGG, **options)
        assert [reader.read(batch) for batch in first] == [[], []]
        assert [seen["aside"] for seen in replay.observed] == [0, 2]
        # the window of the other key is on time, and so is the next
        replay.add(
            file(
                *at(
                    ("b", 31),
                ),
                ("a", 20, "mark"),
            )
        )
        (second_run,) = replay.run(PLAN, AGG, **options)
        assert reader.read(second_run) == [("a", 20, 1), ("b", 10, 2)]
        assert reader.ranges == {0: [(second(10), second(30) - timedelta(microseconds=1))]}
        assert reader.until == {0: second(10) - timedelta(microseconds=1)}
        # a lull
        replay.add(file(("a", 25, "mark")))
        (third,) = replay.run(PLAN, AGG, **options)
        assert reader.read(third) == [("a", 10, 5)]
        assert (reader.ranges, reader.until) == ({0: []}, {0: second(30) - timedelta(microseconds=1)})
        assert replay.observed[-1]["aside"] == 0
        (last,) = replay.finish(PLAN, AGG, **options)
        assert reader.read(last) == [("b", 40, 1)]


@pytest.mark.slow
def test_final_results_are_those_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Many keys and shards, bursts in most windows."""
    replay, options = Replay(spark, tmp_path), {**OPTIONS, "shards": 4, "set_aside": pw.set_aside(3, every=5)}
    kept: list[Any] = []
    found = []
    with settings(spark, shuffle_partitions=2):
        for n in range(8):
            some = at(*((k, 4 * n + i * 0.5) for k in "abcdef" for i in range(12)))
            kept += some
            replay.add(file(*some, ("a", None, "prod"), ("a", 4 * n - 1, "mark")))
        found += replay.run(PLAN, AGG, **options)
        assert max(seen["aside"] for seen in replay.observed) > 10
        found += replay.finish(PLAN, AGG, **options)
    finals = [batch.filter(pa.compute.equal(batch["timing"], "final")).drop_columns([*ANSWERS]) for batch in found]
    batch = PLAN.segments(spark.createDataFrame(file(*kept)), AGG).toArrow()
    assert rows(pa.concat_tables(finals)) == rows(batch)
    assert replay.counted("late") == 0


def test_rows_set_aside_are_told() -> None:
    assert "3 rows waiting, 5 rows set aside, 2 keys" in str(pw.StreamProgress(batch=1, waiting=3, aside=5, keys=2))
    assert "set aside" not in str(pw.StreamProgress(batch=1, waiting=3, keys=2))


def test_a_batch_sets_nothing_aside(spark: SparkSession) -> None:
    with pytest.raises(pw.InputError, match="`set_aside` is for a stream"):
        PLAN.segments(spark.createDataFrame(file(*at(("a", 1)))), AGG, set_aside=True)

"""How far a query is: counted in full where somebody watches, and told in words."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row

import panewise as pw
from panewise.spark.stream import COUNTS
from panewise.spark.watch import SourceProgress, _taken
from spark.tables import rows, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENDS_WITHIN = 120
MIDNIGHT = datetime(2024, 1, 1, tzinfo=UTC)
PLAN = pw.threshold_frames("v > 1").by("k").at("t", pw.ordered_per("site"))


def at(seconds: float) -> datetime:
    return MIDNIGHT + timedelta(seconds=seconds)


def write(folder: Path, number: int, given: list[tuple[str, str, float | None, int]]) -> None:
    """A file of (site, k, seconds, v), after those before it."""
    folder.mkdir(exist_ok=True)
    table = pa.table(
        {
            "site": [site for site, *_ in given],
            "k": [k for _, k, *_ in given],
            "t": pa.array([None if s is None else at(s) for *_, s, _ in given], pa.timestamp("us", "UTC")),
            "v": pa.array([v for *_, v in given], pa.int64()),
        }
    )
    pq.write_table(table, folder / f"{number}.parquet")
    os.utime(folder / f"{number}.parquet", (1_700_000_000 + number,) * 2)


def test_a_query_that_is_watched_is_counted_in_full(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    write(folder, 0, [("a", "x", 0, 2), ("a", "x", 15, 1), ("b", "x", 5, 2), ("b", "y", 10, 2)])
    write(folder, 1, [("b", "y", 3, 9), ("b", "y", None, 9)])
    write(folder, 2, [("a", "x", 30, 1), ("b", "y", 20, 2)])
    batch = spark.read.parquet(str(folder))
    stream = spark.readStream.schema(batch.schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
    seen: list[tuple[str, pw.StreamProgress]] = []
    with settings(spark, streaming_numRecentProgressUpdates=2):
        with pw.Watch(spark, lambda *news: seen.append(news)) as watch:
            writer = PLAN.segments(stream, shards=2).writeStream.format("memory").queryName("watched")
            query = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(ENDS_WITHIN)
            assert watch.settled(query.runId, ENDS_WITHIN)
            full = pw.progress(query)
        latest = pw.progress(query)
    assert [news.batch for name, news in seen if name == query.id] == [0, 1, 2]
    assert seen[-1][1] == full == watch.known(query.id)
    assert (full.since, full.batch, full.rows, full.closed, full.keys_found) == (0, 2, 8, 1, 1)
    assert dict(full.late) == {"late": 1, "after_idle": 0, "null_at": 1}
    assert (full.open, full.waiting, full.keys, full.ended) == (1, 2, 2, False)
    assert full.until == at(20) - timedelta(microseconds=1)
    assert full.sources == (SourceProgress("a", at(30), False), SourceProgress("b", at(20), False))
    assert full.lag is not None
    assert full.lag > timedelta(days=365)
    assert full.state_bytes > 0
    # without the watch, only what Spark remembers
    assert (latest.since, latest.batch, latest.rows, latest.closed, latest.late["null_at"]) == (2, 2, 2, 1, 0)
    assert (latest.until, latest.open, latest.sources) == (full.until, full.open, full.sources)
    assert "so far since micro-batch 2: 2 rows, " in str(latest)
    # and what was sent is what a batch finds, as far as it is certain
    kept = batch.where("t is not null and v < 9")
    whole = rows(PLAN.segments(kept.where("k = 'x'")).toArrow())
    assert rows(spark.table("watched").toArrow()) == whole


# in words


def test_no_micro_batch_yet() -> None:
    assert str(pw.StreamProgress()) == "no micro-batch yet"


def test_progress_in_words() -> None:
    now = datetime.now(UTC)
    told = pw.StreamProgress(
        batch=1200,
        since=0,
        rows=24_000,
        closed=31,
        parts=1,
        late={"late": 10, "after_idle": 0, "null_at": 2},
        batch_rows=2_000,
        batch_seconds=1.25,
        open=3,
        waiting=1,
        keys=4,
        state_bytes=11_263,
        until=now - timedelta(minutes=5),
        sources=(SourceProgress("a", 5, False), SourceProgress("b", MIDNIGHT, True)),
    )
    assert told.rows_per_second == 1600
    assert str(told).splitlines() == [
        "micro-batch 1,200: 2,000 rows in 1.2 s (1,600 a second)",
        "so far: 24,000 rows, 31 segments closed, 1 part sent; late: 10 late, 2 null_at",
        "now: 3 segments open, 1 row waiting, 4 keys, 11.3 kB of state",
        f"progress: {now.replace(tzinfo=None) - timedelta(minutes=5)} UTC, 5 min ago",
        "  a: 5",
        "  b: 2024-01-01 00:00:00 UTC, idle",
    ]


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({}, "nothing yet"),
        ({"ended": True}, "everything, the stream has ended"),
        ({"until": 7}, "7"),
        ({"until": MIDNIGHT.replace(tzinfo=None)}, "2024-01-01 00:00:00"),
    ],
)
def test_how_far_in_words(told: dict[str, Any], text: str) -> None:
    assert pw.StreamProgress(**told).reached == text
    assert pw.StreamProgress(**told).lag is None


# adding up

NOTHING = dict.fromkeys((*COUNTS, "until_text", "sources", "ended")) | {"keys_found": 0}
SOME = dict.fromkeys(NOTHING, 1) | {"until_text": "5", "sources": "[]", "ended": False}


def batch(number: int, **observed: Any) -> Any:
    """A report of a micro-batch."""
    metrics = {name: Row(*row)(*row.values()) for name, row in observed.items()}
    return SimpleNamespace(batchId=number, batchDuration=500, observedMetrics=metrics)


def test_reports_count_once() -> None:
    one = _taken(pw.StreamProgress(), batch(3, panewise=SOME))
    assert (one.since, one.batch, one.rows, one.until, one.batch_seconds) == (3, 3, 1, 5, 0.5)
    assert _taken(one, batch(3, panewise=SOME)) is one
    assert _taken(one, batch(2, panewise=SOME)) is one
    assert _taken(one, batch(4)) is one
    assert _taken(one, batch(4, others=SOME)) is one


def test_a_micro_batch_without_anything_leaves_the_state_as_it_was() -> None:
    one = _taken(pw.StreamProgress(), batch(0, panewise=SOME))
    two = _taken(one, batch(1, panewise=NOTHING))
    assert (two.batch, two.rows, two.batch_rows, two.open, two.until) == (1, 1, 0, 1, 5)


def test_several_plans_in_one_query() -> None:
    both = _taken(pw.StreamProgress(), batch(0, panewise=SOME, panewise_2=SOME | {"until_text": "3", "ended": True}))
    assert (both.rows, both.open, both.until, both.ended) == (2, 2, 3, False)
    unsaid = _taken(pw.StreamProgress(), batch(0, panewise=SOME, panewise_2=SOME | {"until_text": None}))
    assert unsaid.until is None

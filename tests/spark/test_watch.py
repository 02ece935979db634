"""How far a query is: counted from its first micro-batch on, and told in words."""

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
from panewise.spark.report import SUMS
from panewise.spark.watch import SourceProgress
from spark.tables import rows

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


def test_a_query_is_counted_from_its_first_micro_batch_on(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    write(folder, 0, [("a", "x", 0, 2), ("a", "x", 15, 1), ("b", "x", 5, 2), ("b", "y", 10, 2)])
    write(folder, 1, [("b", "y", 3, 9), ("b", "y", None, 9)])
    batch = spark.read.parquet(str(folder))
    stream = spark.readStream.schema(batch.schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
    writer = PLAN.segments(stream, shards=2).writeStream.format("parquet").option("path", f"{tmp_path}/out")
    writer = writer.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True)
    seen: list[tuple[str, pw.StreamProgress]] = []
    with pw.Watch(spark, lambda *news: seen.append(news)) as watch:
        first = writer.start()
        assert first.awaitTermination(ENDS_WITHIN)
        write(folder, 2, [("a", "x", 30, 1), ("b", "y", 20, 2)])
        query = writer.start()
        assert query.awaitTermination(ENDS_WITHIN)
        assert watch.settled(query.runId, ENDS_WITHIN)
    told = pw.progress(query)
    assert [news.batch for name, news in seen if name == query.id] == [0, 1, 2]
    assert [news.batch_rows for _, news in seen] == [4, 2, 2]
    assert seen[1][1] == pw.progress(first)
    assert seen[2][1] == watch.known(query.id) == told
    assert (told.batch, told.rows, told.closed, told.keys_found, told.parts) == (2, 8, 1, 1, 0)
    assert dict(told.late) == {"late": 1, "after_idle": 0, "null_at": 1, "before_origin": 0, "partly_late": 0}
    assert (told.open, told.waiting, told.keys, told.ended) == (1, 2, 2, False)
    assert (told.until, told.per_key) == (at(20) - timedelta(microseconds=1), False)
    assert told.sources == (SourceProgress("b", at(20), False), SourceProgress("a", at(30), False))
    assert told.lag is not None
    assert told.lag > timedelta(days=365)
    assert told.state_bytes > 0
    assert told.batch_seconds > 0
    # and what was sent is what a batch finds, as far as it is certain
    kept = spark.read.parquet(str(folder)).where("k = 'x'")
    assert rows(spark.read.parquet(f"{tmp_path}/out").toArrow()) == rows(PLAN.segments(kept).toArrow())


def test_of_keys_that_are_in_order_by_themselves_the_last_one_counts(spark: SparkSession, tmp_path: Path) -> None:
    ats = {"a": 12, "b": 9, "c": 30, "d": 111, "e": 12, "f": 1000, "g": 12}
    spark.createDataFrame([*ats.items(), (None, None)], "k string, t int").write.parquet(f"{tmp_path}/rows")
    stream = spark.readStream.schema("k string, t int").parquet(f"{tmp_path}/rows")
    found = pw.session_frames(5).by("k").at("t", pw.ordered_per("k")).segments(stream, shards=4)
    writer = found.writeStream.format("noop").option("checkpointLocation", f"{tmp_path}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(ENDS_WITHIN)
    told = pw.progress(query)
    assert (told.until, told.per_key, told.sources, told.keys) == (8, True, (), 8)
    assert told.reached == "8 (the key furthest behind)"


# in words


def test_no_micro_batch_yet() -> None:
    assert str(pw.StreamProgress()) == "no micro-batch yet"


def test_progress_in_words() -> None:
    now = datetime.now(UTC)
    told = pw.StreamProgress(
        batch=1200,
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
        ({}, "nothing for all keys yet"),
        ({"ended": True}, "everything, the stream has ended"),
        ({"until": 7}, "7"),
        ({"until": 7, "per_key": True}, "7 (the key furthest behind)"),
        ({"until": MIDNIGHT.replace(tzinfo=None)}, "2024-01-01 00:00:00"),
    ],
)
def test_how_far_in_words(told: dict[str, Any], text: str) -> None:
    assert pw.StreamProgress(**told).reached == text
    assert pw.StreamProgress(**told).lag is None


# reports

NOTHING = dict.fromkeys((*SUMS, "until", "sources", "ended"))
SOME = dict.fromkeys(SUMS, 1) | {"total_rows": 7, "until": "5", "sources": "[]", "ended": False}


def report(number: int, **observed: Any) -> Any:
    metrics = {name: Row(*row)(*row.values()) for name, row in observed.items()}
    return SimpleNamespace(batchId=number, batchDuration=500, observedMetrics=metrics)


def test_the_latest_report_that_says_something_counts() -> None:
    none, some = report(3), report(2, panewise=SOME)
    query: Any = SimpleNamespace(recentProgress=[report(1, panewise=SOME), some, report(4, panewise=NOTHING), none])
    told = pw.progress(query)
    assert (told.batch, told.rows, told.batch_rows, told.until, told.batch_seconds) == (2, 7, 1, 5, 0.5)


@pytest.mark.parametrize("reports", [[], [report(1)], [report(1, others=SOME)], [report(1, panewise=NOTHING)]])
def test_reports_that_say_nothing(reports: list[Any]) -> None:
    query: Any = SimpleNamespace(recentProgress=reports)
    assert pw.progress(query) == pw.StreamProgress()


def test_several_plans_in_one_query() -> None:
    behind = SOME | {"until": "3", "ended": True}
    query: Any = SimpleNamespace(recentProgress=[report(1, **{"panewise-1": SOME, "panewise-2": behind})])
    both = pw.progress(query)
    assert (both.rows, both.open, both.until, both.ended) == (14, 2, 3, False)
    query.recentProgress = [report(1, **{"panewise-1": SOME, "panewise-2": behind | {"until": None}})]
    assert pw.progress(query).until is None


def test_values_may_come_apart_from_their_names() -> None:
    apart = {"values": list(SOME.values()), "schema": {"fields": [{"name": name} for name in SOME]}}
    query: Any = SimpleNamespace(recentProgress=[report(1, panewise=apart)])
    assert pw.progress(query).rows == 7

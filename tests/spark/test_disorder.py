"""Real disorder, replayed in the order of arrival: enough slack loses nothing; less loses the rows that it says."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import panewise as pw
from panewise.local.stream import LocalStream
from spark.replay import Replay
from spark.tables import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(os.environ.get("PANEWISE_DATA") or Path(__file__).parents[3] / "shared" / "data")


@dataclass(frozen=True)
class Arrivals:
    """Rows in the order of arrival, with `n`, the number of each."""

    rows: pa.Table
    plan: pw.Plan
    agg: dict[str, str]

    @property
    def delays(self) -> np.ndarray:
        """How far each is behind the largest time before it, in microseconds."""
        at = self.rows["event_time"].cast(pa.int64()).to_numpy()
        return np.maximum.accumulate(at) - at

    def slack(self, quantile: float) -> pw.Plan:
        """The plan with a slack that so large a part of the delays keep."""
        micros = int(np.quantile(self.delays, quantile, method="higher"))
        return self.plan.at("event_time", pw.slack(f"{micros} microseconds"))

    def cut(self, count: int) -> list[pa.Table]:
        edges = [len(self.rows) * i // count for i in range(count + 1)]
        return [self.rows.slice(a, b - a) for a, b in pairwise(edges)]

    def without(self, numbers: list[int]) -> pa.Table:
        kept = np.ones(len(self.rows), bool)
        kept[numbers] = False
        return self.rows.filter(pa.array(kept))


def _table(name: str, *columns: str) -> pa.Table:
    path = FOLDER / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"there is no {path}: set PANEWISE_DATA to the folder of real data")
    table = pq.read_table(path, columns=list(columns))
    plain = {
        field.name: pa.string() if pa.types.is_dictionary(field.type) else field.type for field in table.schema
    } | {"event_time": pa.timestamp("us")}
    return table.cast(pa.schema(plain))


def _arrived(table: pa.Table, order: np.ndarray, plan: pw.Plan, agg: dict[str, str]) -> Arrivals:
    arrived = table.take(pa.array(order)).append_column("n", pa.array(np.arange(len(table))))
    return Arrivals(arrived, plan.at("event_time"), agg)


def zeek() -> Arrivals:
    """Twelve logs. Each is in its own order of writing; a line is written once its log has seen as late a time."""
    table = _table("zeek_wrccdc_2018", "log", "arrival_seq", "event_time", "rtt_s")
    table = table.sort_by([("log", "ascending"), ("arrival_seq", "ascending")])
    at = table["event_time"].cast(pa.int64()).to_numpy()
    edges = [0, *(np.flatnonzero(np.diff(table["arrival_seq"].to_numpy()) < 0) + 1), len(table)]
    written = np.concatenate([np.maximum.accumulate(at[a:b]) for a, b in pairwise(edges)])
    plan = pw.session_frames("2 seconds").by("log")
    return _arrived(table, np.argsort(written, kind="stable"), plan, {"n": "count(*)", "rtt": "avg(rtt_s)"})


def flights() -> Arrivals:
    """A flight is known when it has left; those that never did have no place in the order of arrival."""
    table = _table("flights_nyc_2013", "arrival_seq", "event_time", "arrival_time", "carrier", "dep_delay_min")
    table = table.filter(table["arrival_time"].is_valid()).drop_columns(["arrival_time"])
    plan = pw.threshold_frames("dep_delay_min > 30", min_rows=3).by("carrier")
    agg = {"n": "count(*)", "mean": "avg(dep_delay_min)", "worst": "max(dep_delay_min)", "last": "max(arrival_seq)"}
    return _arrived(table, np.argsort(table["arrival_seq"].to_numpy()), plan, agg)


@pytest.fixture(scope="module", params=[zeek, pytest.param(flights, marks=pytest.mark.slow)], ids=["zeek", "flights"])
def arrivals(request: pytest.FixtureRequest) -> Arrivals:
    return request.param()


def tell(arrivals: Arrivals, plan: pw.Plan, batches: int, segments: int, late: int) -> None:
    behind = np.quantile(arrivals.delays, [0.5, 0.9, 0.99, 1]) / 1e6
    print(
        f"\n{', '.join(plan.keys)}: {len(arrivals.rows):,} rows, {(arrivals.delays > 0).mean():.1%} behind; median "
        f"{behind[0]:,.0f} s, p90 {behind[1]:,.0f} s, p99 {behind[2]:,.0f} s, worst {behind[3]:,.0f} s. "
        f"{plan.punctuation}, {batches} micro-batches: {segments:,} segments, {late:,} late rows"
    )


@pytest.mark.parametrize("quantile", [1.0, 0.9, 0.5])
def test_in_many_micro_batches(arrivals: Arrivals, quantile: float) -> None:
    plan = arrivals.slack(quantile)
    stream = LocalStream(plan, arrivals.agg, shards=2)
    found = pa.concat_tables([*(stream.feed(batch) for batch in arrivals.cut(200)), stream.finish()])
    late = [row["n"] for row in stream.late]
    tell(arrivals, plan, 200, len(found), len(late))
    check_late(arrivals, quantile, late, stream.counts["late"])
    assert stream.counts["rows"] == len(arrivals.rows)
    assert rows(found) == rows(pw.segments_local(plan, arrivals.without(late), arrivals.agg))


@pytest.mark.slow
@pytest.mark.parametrize("quantile", [1.0, 0.5])
def test_in_few_micro_batches_on_spark(
    spark: SparkSession, arrivals: Arrivals, quantile: float, tmp_path: Path
) -> None:
    plan = arrivals.slack(quantile)
    replay = Replay(spark, tmp_path / "stream")
    replay.add(*arrivals.cut(6))
    made = replay.run(plan, arrivals.agg, late=True, shards=2) + replay.finish(plan, arrivals.agg, late=True, shards=2)
    out = pa.concat_tables(made)
    late = [row["row"]["n"] for row in out["late"].to_pylist() if row is not None]
    found = out.filter(out["late"].is_null()).drop_columns(["late"])
    tell(arrivals, plan, 6, len(found), len(late))
    check_late(arrivals, quantile, late, replay.counted("late"))
    assert replay.counted("rows") == len(arrivals.rows)
    assert replay.counted("segments") == len(found)
    pq.write_table(arrivals.without(late), tmp_path / "kept.parquet")
    batch = plan.segments(spark.read.parquet(str(tmp_path / "kept.parquet")), arrivals.agg).toArrow()
    assert rows(found) == rows(batch)


def check_late(arrivals: Arrivals, quantile: float, late: list[int], counted: int) -> None:
    """Each late row is told once, is counted, and was further behind than the slack; without need none is."""
    assert len(late) == len(set(late)) == counted
    assert (counted == 0) == (quantile == 1)
    assert (arrivals.delays[late] > np.quantile(arrivals.delays, quantile, method="higher")).all()

"""A query that starts again on its checkpoint: what may change goes on and is right, the rest is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import panewise as pw
from spark.replay import Replay
from spark.tables import rows, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AGG = {"n": "count(*)", "top": "max(v)", "mean": "avg(v)"}
FRAMES = pw.threshold_frames("v > 1", min_rows=2).by("k")
PLAN = FRAMES.at("t", pw.slack(4))
SHARDS = 2


def part(number: int) -> pa.Table:
    """Twenty times of three keys, each up to 4 behind; runs go over from one part to the next, and rows wait."""
    order = [20 * number + t for five in range(0, 20, 5) for t in (five + 4, five + 1, five, five + 3, five + 2)]
    made = [{"k": k, "t": t, "v": (t // 3 + len(k)) % 4, "site": t % 2} for t in order for k in ("a", "bb", "ccc")]
    return pa.Table.from_pylist(made)


def out(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(
        [table.drop_columns(["late"]) if "late" in table.column_names else table for table in tables]
    )


# ---- what may not change


@pytest.fixture(scope="module")
def begun(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Replay:
    """A query that has run for a while, with new rows to read."""
    replay = Replay(spark, tmp_path_factory.mktemp("recovery") / "stream")
    replay.add(part(0))
    replay.run(PLAN, AGG, shards=SHARDS)
    replay.add(part(1))
    return replay


@pytest.mark.parametrize(
    ("plan", "agg", "options", "told"),
    [
        (
            pw.threshold_frames("v > 2", min_rows=2).by("k").at("t", pw.slack(4)),
            AGG,
            {},
            "`condition` was \"'v > 1'\" and is \"'v > 2'\"",
        ),
        pytest.param(
            PLAN,
            {**AGG, "top": "min(v)"},
            {},
            "`agg` was 'n = count(*) of None, top = max(v) of int64, mean = avg(v) of int64' and is "
            "'n = count(*) of None, top = min(v) of int64, mean = avg(v) of int64'",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            FRAMES.by("k", "site").at("t", pw.slack(4)),
            AGG,
            {},
            "`by` was 'k string' and is 'k string, site int64'",
            marks=pytest.mark.slow,
        ),
        pytest.param(PLAN, AGG, {"shards": 4}, "`shards` was '2' and is '4'", marks=pytest.mark.slow),
    ],
    ids=["condition", "agg", "key", "shards"],
)
def test_another_plan_is_refused(begun: Replay, plan: pw.Plan, agg: dict[str, str], options: Any, told: str) -> None:
    with pytest.raises(StreamingQueryException) as caught:
        begun.run(plan, agg, **{"shards": SHARDS, **options})
    said = str(caught.value)
    assert f"StateError: The checkpoint belongs to another plan: {told}" in said
    assert "Undo the change, or start with a new checkpoint." in said


def test_the_old_plan_goes_on_after_a_refusal(begun: Replay) -> None:
    found = begun.run(PLAN, AGG, shards=SHARDS) + begun.finish(PLAN, AGG, shards=SHARDS)
    # what came before the refusals is not in `found`: with it, it is all that a batch gives
    wanted = pw.segments_local(PLAN, pa.concat_tables([part(0), part(1)]), AGG)
    assert set(rows(out(found))) < set(rows(wanted))
    assert begun.counted("segments") == len(wanted)


# ---- what may change


def changed(
    spark: SparkSession, folder: Path, before: tuple[pw.Plan, dict[str, Any]], after: tuple[pw.Plan, dict[str, Any]]
) -> tuple[list[pa.Table], Replay]:
    """Two parts of a stream, the second under a changed plan; all that comes out."""
    replay = Replay(spark, folder)
    replay.add(part(0), part(1))
    found = replay.run(before[0], AGG, shards=SHARDS, **before[1])
    assert replay.observed[-1]["waiting"] > 0
    assert replay.observed[-1]["open"] > 0
    replay.add(part(2))
    found += replay.run(after[0], AGG, shards=SHARDS, **after[1])
    return found + replay.finish(after[0], AGG, shards=SHARDS, **after[1]), replay


WHOLE = pa.concat_tables([part(n) for n in range(3)])


@pytest.mark.parametrize(
    ("before", "after"),
    [(pw.slack(7), pw.slack(4)), (pw.slack(4), pw.slack(rows=15))],
    ids=["less", "rows"],
)
@pytest.mark.slow
def test_another_slack(spark: SparkSession, tmp_path: Path, before: Any, after: Any) -> None:
    found, replay = changed(spark, tmp_path / "stream", (FRAMES.at("t", before), {}), (FRAMES.at("t", after), {}))
    assert replay.counted("late") == 0
    assert rows(out(found)) == rows(pw.segments_local(PLAN, WHOLE, AGG))


@pytest.mark.slow
def test_another_fragment_every(spark: SparkSession, tmp_path: Path) -> None:
    long = pw.threshold_frames("v >= 0", min_rows=2).by("k").at("t", pw.slack(4))
    before, after = ({"emit": "fragments", "fragment_every": every} for every in (1, 15))
    found, _ = changed(spark, tmp_path / "stream", (long, before), (long, after))
    told = [(r["k"], r["part"], r["segment"]["start"], r["segment"]["end"], r["rows"]) for r in out(found).to_pylist()]
    # progress after each part: 14, 34, 54, everything; the third part is asked for once 15 more are certain
    wanted = [(0, 0, 14, 15), (1, 14, 34, 20), (2, 34, 54, 20), (3, 54, 59, 5)]
    assert sorted(told) == sorted((k, *row) for k in ("a", "bb", "ccc") for row in wanted)


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True])
def test_late_rows_asked_for_or_no_longer(spark: SparkSession, tmp_path: Path, late: bool) -> None:
    """Rows that wait were kept without the row as it was, or with it."""
    replay = Replay(spark, tmp_path / "stream")
    replay.add(part(0))
    found = replay.run(PLAN, AGG, shards=SHARDS, late=late)
    assert replay.observed[-1]["waiting"] > 0
    behind = pa.Table.from_pylist([{"k": "a", "t": 3, "v": 9, "site": 0}], part(0).schema)
    replay.add(pa.concat_tables([part(1), behind]), part(2))
    found += replay.run(PLAN, AGG, shards=SHARDS, late=not late) + replay.finish(
        PLAN, AGG, shards=SHARDS, late=not late
    )
    told = [r for t in found if "late" in t.column_names for r in t["late"].to_pylist() if r is not None]
    assert told == ([] if late else [{"reason": "late", "row": behind.to_pylist()[0]}])
    assert replay.counted("late") == 1
    segments = [t.filter(t["late"].is_null()) if "late" in t.column_names else t for t in found]
    assert rows(out(segments)) == rows(pw.segments_local(PLAN, WHOLE, AGG))


@pytest.mark.slow
def test_other_shuffle_partitions(spark: SparkSession, tmp_path: Path) -> None:
    replay = Replay(spark, tmp_path / "stream")
    replay.add(part(0), part(1))
    with settings(spark, shuffle_partitions=2):
        found = replay.run(PLAN, AGG, shards=4)
    replay.add(part(2))
    with settings(spark, shuffle_partitions=5):
        found += replay.run(PLAN, AGG, shards=4) + replay.finish(PLAN, AGG, shards=4)
    assert rows(out(found)) == rows(pw.segments_local(PLAN, WHOLE, AGG))

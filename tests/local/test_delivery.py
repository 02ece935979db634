"""A delivery: when rows arrive, when they are processed, and when something comes out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import panewise as pw
from panewise.local.delivery import deliver, instants, punctuated
from panewise.local.stream import LocalStream

COUNT = {"n": "count(*)"}
TENS = pw.tumbling_windows(10)


def rows(*at: float, **more: list[object]) -> pa.Table:
    return pa.table({"t": pa.array(at, pa.float64()), **more})


def test_bursts_add_to_what_comes_anyway() -> None:
    at = instants(60, 2, np.random.default_rng(1), bursts=[(10, 5, 100), (40, 1, 50)])
    assert len(at) == 120 + 500 + 50
    assert (np.diff(at) >= 0).all()
    assert ((at >= 10) & (at < 15)).sum() >= 500
    assert at.max() < 60


def test_a_mark_comes_when_all_before_it_have_arrived_and_no_sooner_than_its_time() -> None:
    table, arrival = punctuated(rows(1, 9, 12, 25), "t", 10, [1, 17, 12, 25])
    marks = table.filter(table["mark"])
    assert marks["t"].to_pylist() == [np.nextafter(end, 0) for end in (10.0, 20.0, 30.0)]
    assert arrival.tolist() == [1, 17, 12, 25, 17, 20, 30]
    assert table["mark"].to_pylist() == [False] * 4 + [True] * 3


def test_marks_of_times_are_on_the_same_clock() -> None:
    times = pa.table({"t": pa.array([1_000_000, 61_000_000], pa.timestamp("us"))})
    table, arrival = punctuated(times, "t", "1 minute", [1, 61])
    assert table["t"].cast(pa.int64()).to_pylist() == [1_000_000, 61_000_000, 59_999_999, 119_999_999]
    assert arrival.tolist() == [1, 61, 60, 120]


def test_of_no_rows_there_are_no_marks() -> None:
    table, arrival = punctuated(rows(), "t", 10, [])
    assert len(table) == len(arrival) == 0


def finals(told: pa.Table) -> list[tuple[float, float, float]]:
    return [(row["segment"]["end"], row["clock"], row["latency"]) for row in told.to_pylist()]


def test_rows_arrive_at_their_own_time_or_later() -> None:
    plan = TENS.at("t", pw.slack(0))
    assert finals(deliver(plan, rows(1, 5, 10, 21), COUNT).results) == [(10, 10, 9), (20, 21, 11), (30, 21, 0)]
    late = deliver(plan, rows(1, 5, 10, 21), COUNT, delay=3).results
    assert finals(late) == [(10, 13, 9), (20, 24, 11), (30, 24, 0)]
    each = deliver(plan, rows(1, 5, 10, 21), COUNT, delay=[8, 0, 3, 0]).results
    assert finals(each) == [(10, 13, 8), (20, 21, 8), (30, 21, 0)]


def test_slack_is_timed_to_the_row_that_completes_a_window() -> None:
    at = np.arange(0, 100, 0.01)
    told = deliver(TENS.at("t", pw.slack(0.5)), rows(*at), COUNT).results
    clocks = told["clock"].to_pylist()
    assert clocks[:-1] == pytest.approx([10.5 + 10 * i for i in range(9)], abs=0.011)


def test_latency_is_that_of_the_key() -> None:
    table = rows(1, 4, 20, k=["a", "b", "a"])
    told = deliver(TENS.by("k").at("t", pw.slack(0)), table, COUNT).results.to_pylist()
    first = {row["k"]: row["latency"] for row in told if row["segment"]["end"] == 10}
    assert first == {"a": 19, "b": 16}


def test_marks_are_no_rows_of_a_window() -> None:
    table, arrival = punctuated(rows(19), "t", 10, [19])
    told = deliver(TENS.at("t", pw.in_band("mark")), table, COUNT, arrival=arrival - 15).results
    assert finals(told) == [(20, 5, 1)]


def test_prods_in_the_stream_are_answered_when_they_come() -> None:
    table = rows(1, 4, 90, 8, ask=[False, False, True, False])
    told = deliver(TENS.at("t", pw.slack(9)), table, COUNT, arrival=[11, 12, 13, 14], prods=pw.prods_in("ask"))
    early, final = told.results.to_pylist()
    assert (early["timing"], early["clock"], early["latency"], early["n"]) == ("early", 13, 2, 2)
    assert (final["timing"], final["clock"], final["latency"], final["n"]) == ("final", 14, 3, 3)


@pytest.mark.parametrize("per_key", [True, False])
def test_each_key_is_timed_by_the_promises_about_it(per_key: bool) -> None:
    table = rows(1, 2, 11, 12, k=["a", "b", "a", "b"], mark=[False, False, True, True])
    plan = TENS.by("k").at("t", pw.in_band("mark", per_key=per_key))
    told = deliver(plan, table, COUNT).results.to_pylist()
    assert {row["k"]: row["clock"] for row in told} == {"a": 11, "b": 12 if per_key else 11}


def test_a_slow_operator_is_behind_by_what_waits() -> None:
    told = deliver(TENS.at("t", pw.slack(0)), rows(*range(30)), COUNT, cost=2.0).results
    # row 10 is the eleventh, and each takes two seconds
    assert finals(told)[0] == (10, 22, 22)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"arrival": [1.0]}, r"`arrival` has 1 times for 2 rows"),
        ({"delay": [1.0]}, r"`delay` has 1 times for 2 rows"),
        ({"cost": -1.0}, r"`cost` \(-1.0\)"),
        ({"cost": float("nan")}, r"`cost` \(nan\)"),
        ({"prods": None}, r"`prods` \(None\)"),
    ],
)
def test_what_makes_no_delivery_is_refused(given: dict[str, object], error: str) -> None:
    with pytest.raises(pw.PanewiseError, match=error):
        deliver(TENS.at("t", pw.slack(0)), rows(1, 2), COUNT, **given)  # type: ignore[arg-type]  # wrong on purpose


def test_windows_of_rows_tell_of_no_arrivals() -> None:
    for plan in (pw.row_windows(2), pw.row_windows(2).agg(COUNT).then(pw.tumbling_windows(2))):
        agg = None if plan.following else COUNT
        with pytest.raises(pw.SpecError) as caught:
            deliver(plan.at("t", pw.slack(0)), rows(1, 2), agg)
        assert str(caught.value) == (
            "`plan` (row_windows): its windows are bounded by numbers of rows, which says nothing of when their rows "
            "arrive. Give one of times, or LocalStream(plan, prods=True), whose results have a latency."
        )


def test_rows_without_a_time_need_an_arrival() -> None:
    table = pa.table({"t": pa.array([1, None], pa.int64())})
    plan = TENS.at("t", pw.slack(0))
    with pytest.raises(pw.InputError, match=r"`arrival` \(None\): 1 rows have no t"):
        deliver(plan, table, COUNT)
    assert len(deliver(plan, table, COUNT, arrival=[1, 2]).results) == 1


PLANS = {
    "windows": pw.sliding_windows(10, 3).by("k"),
    "frames": pw.threshold_frames("v > 3", min_rows=2).by("k"),
    "windows of rows": pw.row_windows(5, 2).by("k"),
    "a plan over a plan": pw.threshold_frames("v > 3")
    .by("k")
    .agg(n="count(*)")
    .then(pw.tumbling_windows(20).agg(m="sum(n)")),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_shards_that_last_tell_the_same(plan: pw.Plan) -> None:
    rng = np.random.default_rng(3)
    table = pa.table(
        {"t": np.arange(200) + rng.integers(-5, 6, 200), "v": rng.integers(0, 9, 200), "k": rng.integers(0, 3, 200)}
    )
    told = []
    for lasting in (True, False):
        agg = None if plan.following else {"s": "sum(v)", "m": "median(v)"}
        stream = LocalStream(plan.at("t", pw.slack(3)), agg, shards=2, prods=True, lasting=lasting)
        found = [stream.feed(table.slice(i, 13), clock=i, prod={} if i % 2 else None) for i in range(0, 200, 13)]
        told.append(pa.concat_tables([*found, stream.finish()]))
        assert stream.counts["rows"] == 200
    assert len(told[0])
    assert told[0].equals(told[1])

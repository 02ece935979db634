"""Prods in one process: what is asked for, what is remembered, and what a delivery tells."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import panewise as pw
from panewise.local.delivery import deliver
from panewise.local.stream import LocalStream

SUM = {"total": "sum(v)"}


def rows(*given: tuple[int, int]) -> pa.Table:
    return pa.table(
        {"t": pa.array([t for t, _ in given], pa.int64()), "v": pa.array([v for _, v in given], pa.int64())}
    )


def test_a_stream_must_know_that_there_are_prods() -> None:
    stream = LocalStream(pw.tumbling_windows(10).at("t", pw.slack(0)), SUM)
    stream.feed(rows((1, 1)))
    with pytest.raises(pw.SpecError, match=r"`prod`.*`prods=True`"):
        stream.prod()


def test_keys_have_their_names() -> None:
    stream = LocalStream(pw.tumbling_windows(10).by("v").at("t", pw.slack(0)), prods=True)
    stream.feed(rows((1, 1)))
    with pytest.raises(pw.InputError, match=r"`prod` \('w'\)"):
        stream.prod(w=1)


def test_results_of_prods_have_their_own_names() -> None:
    stream = LocalStream(pw.tumbling_windows(10).at("t", pw.slack(0)), {"number": "sum(v)"}, prods=True)
    with pytest.raises(pw.SpecError, match=r"`agg` \('number'\)"):
        stream.feed(rows((1, 1)))


def test_early_answers_are_told_with_the_final_one() -> None:
    stream = LocalStream(pw.tumbling_windows(10).at("t", pw.slack(100)), {**SUM, "last": "last(v)"}, prods=True)
    stream.feed(rows((1, 6)), clock=10)
    stream.feed(clock=11, prod={})
    stream.feed(rows((2, 2)), clock=12, prod={"until": 10})
    stream.feed(rows((3, -2), (4, None)), clock=20)
    (told,) = stream.feed(final=True, clock=21).to_pylist()
    assert (told["total"], told["last"]) == (6, None)
    first, second = told["early"]
    assert (first["number"], first["seconds"]) == (0, 10.0)
    assert (second["number"], second["seconds"]) == (1, 9.0)
    assert first["accuracy"] == {"total": 1.0, "last": 0.0}
    assert second["accuracy"] == {"total": pytest.approx(1 - 2 / 6), "last": 0.0}


def test_an_uncertain_frame_that_never_comes_is_forgotten() -> None:
    stream = LocalStream(pw.threshold_frames("v > 0", min_rows=2).at("t", pw.slack(2)), SUM, prods=True)
    stream.feed(rows((1, 1), (3, 1)), prod={})
    before = stream.state_bytes
    (told,) = stream.feed(rows((2, 0)), prod={}).to_pylist() or [None]
    assert told is None
    found = stream.feed(rows((9, 0)))
    assert not len(found)
    assert stream.state_bytes < before


def test_prods_go_through_the_state() -> None:
    """Every micro-batch reads the state anew, so that numbers go on only if they are in it."""
    stream = LocalStream(pw.tumbling_windows(10).at("t", pw.slack(100)), SUM, prods=True, shards=2)
    stream.feed(rows((1, 6)))
    assert [stream.prod().column("number").to_pylist() for _ in range(3)] == [[0], [1], [2]]


def test_a_delivery_by_a_slow_operator() -> None:
    """Ten rows at once, one second each: a prod overtakes those that wait, and the final answer waits for all."""
    times = pa.array([s * 1_000_000 for s in range(10)] + [10_000_000], pa.timestamp("us"))
    table = pa.table({"t": times, "v": [1] * 11, "mark": [False] * 10 + [True]})
    plan = pw.tumbling_windows("10 seconds").at("t", pw.in_band("mark"))
    told = deliver(plan, table, {"n": "count(*)"}, arrival=[0.0] * 11, cost=1.0, prods=True, prod_at=[(4.5, None)])
    early, final = told.results.to_pylist()
    assert (early["timing"], early["clock"], early["n"]) == ("early", 4.5, 4)
    assert (final["timing"], final["clock"], final["n"]) == ("final", 11.0, 10)
    assert told.accuracies().to_pylist() == [{"number": 0, "seconds": 6.5, "latency": 11.0, "gain": 6.5 / 11, "n": 0.4}]


def test_a_prodder_is_as_far_off_as_it_is_early() -> None:
    at = np.arange(0, 400, 0.1)
    marks = np.arange(10, 401, 10)
    times = np.concatenate([at, marks - 1e-6])
    table = pa.table(
        {
            "t": pa.array((times * 1e6).astype(np.int64), pa.timestamp("us")),
            "mark": np.arange(len(times)) >= len(at),
        }
    )
    plan = pw.tumbling_windows("10 seconds").at("t", pw.in_band("mark"))
    for share in (0.1, 0.5):
        told = deliver(
            plan, table, {"n": "count(*)"}, arrival=times, prods=pw.prodder("10 seconds", share)
        ).accuracies()
        assert len(told) >= 39
        assert np.mean(told.column("n")) == pytest.approx(1 - share, abs=0.02)
        assert np.mean(told.column("seconds")) == pytest.approx(10 * share, abs=0.01)

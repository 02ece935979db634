"""Bursts set aside, in one process: what is kept, what is promised, what a slow operator gains by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import panewise as pw
from panewise.local.delivery import Delivered, deliver
from panewise.local.queue import Queue
from panewise.local.stream import LocalStream

SUM = {"total": "sum(v)"}
PLAN = pw.tumbling_windows(10).at("t", pw.in_band("mark"))


def rows(*given: int, mark: int | None = None) -> pa.Table:
    at = [*given, *([] if mark is None else [mark])]
    values = [1] * len(given) + [0] * (mark is not None)
    marks = [False] * len(given) + [True] * (mark is not None)
    return pa.table({"t": pa.array(at, pa.int64()), "v": pa.array(values, pa.int64()), "mark": pa.array(marks)})


def burst(**options: Any) -> LocalStream:
    """Three rows of the first window, prodded; of the next two, one is set aside."""
    stream = LocalStream(PLAN, SUM, prods=True, set_aside=pw.set_aside(2, **options))
    stream.feed(rows(1, 2, 3), prod={})
    stream.feed(rows(4, 12))
    return stream


def test_what_is_set_aside_is_counted() -> None:
    stream = burst()
    assert (stream.aside, stream.waiting) == (1, 0)
    assert stream.sets_aside(stream.read(rows(5, 15, mark=6))).tolist() == [True, False, False]
    stream.feed(rows(5))
    assert stream.aside == 2
    found = stream.finish().to_pylist()
    assert [row["total"] for row in found] == [5, 1]
    assert (stream.aside, stream.open) == (0, 0)


def test_promises_are_ranges_while_a_window_is_owed() -> None:
    """Windows 0 and 3 are owed: nothing ends up to 9, nor after 10 and before 40, nor after 40 and before 60."""
    stream = burst()
    stream.feed(rows(31, 32, 33), prod={})
    stream.feed(rows(34, mark=50))
    assert stream.aside == 2
    assert stream.passed == (-1, 9)
    assert stream.ranges == [(10, 39), (40, 59)]
    found = stream.feed(rows(61), aside=1)
    assert [row["segment"]["id"] for row in found.to_pylist()] == [0]
    assert stream.passed == (29, 39)
    assert stream.ranges == [(40, 59)]
    found = stream.feed(rows())
    assert [row["segment"]["id"] for row in found.to_pylist()] == [3]
    assert stream.passed == (49, 59)
    assert stream.ranges == []


def test_promises_are_those_of_all_shards() -> None:
    """What is owed of one key is promised by nobody."""
    plan = pw.tumbling_windows(10).by("v").at("t", pw.slack(0))
    stream = LocalStream(plan, prods=True, set_aside=pw.set_aside(2), shards=4)
    many = pa.table({"t": [1, 2, 3] * 4, "v": [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]})
    stream.feed(many, prod={"v": 1})
    stream.feed(pa.table({"t": [4, 5, 51, 52, 53, 54], "v": [1, 2, 0, 1, 2, 3]}))
    assert stream.aside == 1
    assert stream.passed == (-1, 9)
    assert stream.ranges == [(10, 59)]


@pytest.mark.parametrize("given", [None, pw.set_aside(100), pw.set_aside(1, at_most=1)])
def test_what_was_set_aside_is_not_lost_when_the_query_is_changed(given: Any) -> None:
    """The state of one stream goes on in another that sets aside nothing, or other rows."""
    stream, other = burst(), LocalStream(PLAN, SUM, prods=True, set_aside=given)
    stream.feed(rows(mark=20), aside=0)
    assert stream.aside == 1
    other.feed(rows())
    other._state = stream._state
    found = other.feed(rows(21, 22)).to_pylist()
    if given is None:
        assert [row["total"] for row in found] == [4]
        assert other.aside == 0
    found += other.finish().to_pylist()
    assert sorted(row["total"] for row in found) == [2, 4]
    assert other.aside == other.open == 0


def test_turns_are_counted_across_micro_batches() -> None:
    """One after every three new rows, though no micro-batch has three."""
    stream = burst(every=3)
    stream.feed(rows(5, 13))
    assert stream.aside == 2
    stream.feed(rows(14))
    assert stream.aside == 1


def test_a_lull_is_a_micro_batch_of_few_rows() -> None:
    stream = burst(lull=1)
    assert stream.aside == 1
    stream.feed(rows(5, 13))
    assert stream.aside == 2
    stream.feed(rows(6))
    assert stream.aside == 0


def test_values_that_reducers_keep_are_settled_too() -> None:
    plan = pw.sliding_windows(20, 10).at("t", pw.slack(0))
    agg = {"kinds": "count(distinct v)", "middle": "median(v)"}
    stream = LocalStream(plan, agg, prods=True, set_aside=pw.set_aside(1))
    table = pa.table({"t": [11, 12, 13, 14, 21, 45], "v": [5, 6, 7, 8, 9, 1]})
    found = stream.feed(table.slice(0, 2), prod={}).to_pylist()
    found += stream.feed(table.slice(2)).to_pylist()
    assert stream.aside == 3
    found += stream.finish().to_pylist()
    finals = [row for row in found if row["timing"] == "final"]
    plain = pw.segments_local(pw.sliding_windows(20, 10).at("t"), table, agg).to_pylist()
    assert sorted((row["segment"]["id"], row["kinds"], row["middle"]) for row in finals) == [
        (row["segment"]["id"], row["kinds"], row["middle"]) for row in plain
    ]


# ---- a slow operator


def served(queue: Queue, burst: list[bool], until: float = np.inf) -> tuple[int, int, float]:
    found = queue.serve(np.array(burst), until)
    return found.taken, found.low, found.clock


def test_rows_that_are_set_aside_leave_the_queue_at_once() -> None:
    queue = Queue(np.array([0.0, 0.0, 0.0, 0.0, 10.0]), 1.0, pw.set_aside(1, every=2))
    assert served(queue, [False, True, True, False]) == (4, 0, 2.0)
    assert queue.aside == 2
    # two new ones were processed: the turn of one; then nothing waits
    assert [served(queue, [False], until=5.0) for _ in range(3)] == [(0, 1, 3.0), (0, 1, 4.0), (0, 0, 5.0)]
    assert served(queue, [False]) == (1, 0, 11.0)
    assert not queue


def test_a_prod_comes_between() -> None:
    queue = Queue(np.array([0.0, 0.0, 3.0]), 1.0, pw.set_aside(1))
    assert served(queue, [False, False, False], until=1.5) == (1, 0, 1.5)
    assert served(queue, [True, False], until=1.7) == (1, 0, 1.7)
    assert served(queue, [False]) == (0, 1, 2.0)
    assert served(queue, [False], until=2.5) == (0, 0, 2.5)
    assert served(queue, [False]) == (1, 0, 4.0)


def test_no_more_are_set_aside_than_may_be() -> None:
    queue = Queue(np.zeros(5), 1.0, pw.set_aside(1, at_most=2))
    assert served(queue, [True, True, True, True, False]) == (3, 1, 1.0)
    assert served(queue, [True, False]) == (1, 1, 2.0)
    assert served(queue, [False]) == (1, 0, 3.0)
    assert queue.aside == 2


def delivered(set_aside: Any) -> Delivered:
    """Ten rows in a second, and one in each that follows; a row takes 0.4 s."""
    at = np.concatenate([np.linspace(0.1, 0.9, 10), np.arange(1.2, 9, 1)])
    marks = np.arange(1, 10.0)
    times = np.concatenate([at, marks])
    mark = np.arange(len(times)) >= len(at)
    micros = (times * 1e6).round().astype(np.int64) - mark
    table = pa.table({"t": pa.array(micros, pa.timestamp("us")), "mark": mark})
    plan = pw.tumbling_windows("1 second").at("t", pw.in_band("mark"))
    return deliver(
        plan, table, {"n": "count(*)"}, arrival=times, cost=0.4, set_aside=set_aside,
        prods=True, prod_at=[(1.05, None), (3.0, None)],
    )  # fmt: skip


def test_a_delivery_sets_a_burst_aside() -> None:
    """Two rows are processed by the prod, and all others leave the queue: the next window is on time."""
    finals = {}
    for name, given in (("without", None), ("with", pw.set_aside(1, every=100))):
        told = [row for row in delivered(given).results.to_pylist() if row["timing"] == "final"]
        finals[name] = {row["segment"]["id"]: (row["n"], round(row["clock"], 3)) for row in told}
    assert {w: n for w, (n, _) in finals["with"].items()} == {w: n for w, (n, _) in finals["without"].items()}
    assert finals["without"][0] == (10, 4.5)
    assert finals["without"][1][1] > 4.5
    assert finals["with"][1][1] == pytest.approx(2.4, abs=0.5)
    assert finals["with"][0][0] == 10
    assert finals["with"][0][1] > 4.5

"""Bursts set aside: final results never depend on it, others are on time, and promises are kept, in ranges too."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import panewise as pw
from panewise.kernel.windows import Grid
from panewise.local.stream import LocalStream
from properties.streams import AGG, VALUES
from properties.test_prods import bare, fewer, missing
from properties.test_window_ids import plan_of

NAMES = {"k": pa.int64(), "t": pa.int64(), "x": pa.float64(), "i": pa.int64()}


@st.composite
def bursts(draw: st.DrawFn) -> list[tuple[int, int, float | None, int]]:
    """Rows of few keys, mostly in order, many of them in one window."""
    key, near = st.sampled_from([0, 0, 0, 1, 2]), st.integers(0, draw(st.sampled_from([1, 4, 12])))
    values = (st.none() | st.integers(-9, 9).map(float), st.integers(-9, 9))
    rows = draw(st.lists(st.tuples(key, near, *values), min_size=draw(st.sampled_from([0, 20, 20])), max_size=40))
    drift = draw(st.sampled_from([0.5, 1, 2]))
    return [(k, t + int(drift * n), x, i) for n, (k, t, x, i) in enumerate(rows)]


asides = st.builds(
    pw.set_aside,
    st.integers(1, 3),
    every=st.sampled_from([1, 2, 7, 50]),
    at_most=st.sampled_from([1, 3, 100, 100]),
    lull=st.sampled_from([0, 0, 0, 1]),
)
PRODS = st.sampled_from([None, {}, {}, {"k": 1}]) | st.integers(0, 40).map(lambda until: {"until": until})


def cut(draw: st.DrawFn, rows: list[Any]) -> list[list[Any]]:
    """Small micro-batches, few of them empty."""
    found, place = [], 0
    while place < len(rows):
        size = draw(st.sampled_from([0, 1, 2, 3, 3, 5, 8]))
        found.append(rows[place : place + size])
        place += size
    return found


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table({name: pa.array([row[i] for row in rows], kind) for i, (name, kind) in enumerate(NAMES.items())})


def check_grammar(results: list[dict[str, Any]], passed: tuple[Any, Any], ranges: list[tuple[Any, Any]]) -> None:
    """No result lies in what was promised before it."""
    for row in results:
        start, end = row["segment"]["start"], row["segment"]["end"]
        assert passed[0] is None or start > passed[0]
        assert passed[1] is None or end > passed[1]
        assert not any(after < end <= until for after, until in ranges)


@fewer
@given(data=st.data())
def test_final_results_are_the_same(data: st.DataObject) -> None:
    """Whatever the order of arrival, rows that come too late among them; the state is read anew in each micro-batch."""
    slide = data.draw(st.integers(1, 12))
    size = data.draw(st.sampled_from([slide, 2 * slide, 4 * slide]) | st.integers(1, 20))
    origin, begins = data.draw(st.sampled_from([(0, False), (0, True), (3, True)]))
    grid = Grid(size, slide, origin, begins, data.draw(st.sampled_from([False, False, True])))
    rows = data.draw(bursts())
    late = data.draw(st.sampled_from(["generous", "consistent"]))
    punctuation = data.draw(
        st.sampled_from([pw.slack(n, late=late) for n in (0, 2, 5, 20)] + [pw.slack(rows=2), pw.ordered_per("k")])
    )
    plan, shards = plan_of(grid, punctuation), data.draw(st.sampled_from([1, 2, 4]))
    agg = data.draw(st.sampled_from([AGG, VALUES]))
    with_, without = (
        LocalStream(plan, agg, shards=shards, prods=True, set_aside=given) for given in (data.draw(asides), None)
    )
    batches = [table(some) for some in [[], *cut(data.draw, rows)]]
    prods = [data.draw(PRODS) for _ in batches]
    sent: tuple[list[dict], list[dict]] = ([], [])
    for batch, prod in zip(batches, prods, strict=True):
        passed, ranges = with_.passed, with_.ranges
        made, plain = (stream.feed(batch, prod=prod).to_pylist() for stream in (with_, without))
        check_grammar(made, passed, ranges)
        for found, told in zip(sent, (made, plain), strict=True):
            found += [bare(row, ids=True) for row in told if row["timing"] == "final"]
        assert not missing(*sent), "before its time"
        owed = missing(sent[1], sent[0])
        if not with_.aside:
            assert not owed
            early = [[bare(row, ids=True) for row in told if row["timing"] == "early"] for told in (made, plain)]
            assert not missing(*early)
            assert not missing(*reversed(early))
        assert with_.late == without.late
    passed, ranges = with_.passed, with_.ranges
    made = with_.finish().to_pylist()
    check_grammar(made, passed, ranges)
    ends = [bare(row, ids=True) for row in made], [bare(row, ids=True) for row in without.finish().to_pylist()]
    assert not missing(sent[0] + ends[0], sent[1] + ends[1])
    assert not missing(sent[1] + ends[1], sent[0] + ends[0])
    assert with_.aside == with_.open == 0 or grid.keep_empty

"""Windows by window-id: what a row belongs to, whatever the order of arrival."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import panewise as pw
from panewise.kernel import window_oracle
from panewise.kernel.bundle import load
from panewise.kernel.oracle import Row
from panewise.kernel.window_ids import Ends, extent, wids, windows
from panewise.kernel.windowbatch import merged, partials
from panewise.kernel.windows import Grid, row_grid
from panewise.local.runner import apply_local
from panewise.local.stream import LocalStream
from panewise.spec.frames import RowWindows
from properties.streams import AGG, CALLS

SIZES = st.integers(1, 30)
fewer = settings(max_examples=max(settings.default.max_examples * 3 // 10, 1))
"""A stream takes several times as long as a table."""


@st.composite
def grids(draw: st.DrawFn, real: bool = False) -> Grid:
    size, slide = draw(st.none() | SIZES), draw(SIZES)
    origin = draw(st.integers(-20, 20))
    begins = size is None or draw(st.booleans())
    keep_empty = size is not None and draw(st.sampled_from([False, False, True]))
    if not real:
        return Grid(size, slide, origin, begins, keep_empty)
    unit = draw(st.sampled_from([1.0, 0.1, 0.37, 1e-3, 1e6]))
    return Grid(None if size is None else size * unit, slide * unit, origin * unit, begins, keep_empty)


@given(grid=grids(), t=st.integers(-100, 100), w=st.integers(-120, 120))
def test_wids_and_extent_are_inverses(grid: Grid, t: int, w: int) -> None:
    start, end = grid.extent(w)
    first, last = grid.wids(t)
    exists = not grid.begins or w >= 0
    assert (first <= w <= last) == (start <= t < end and exists)
    assert (start, end) == window_oracle.extent(w, grid.range, grid.slide, grid.origin, grid.begins)
    if grid.range is not None and not grid.begins:
        ids = window_oracle.wids(t, int(grid.range), int(grid.slide), int(grid.origin))
        assert ids == list(range(first, last + 1))


@given(data=st.data(), w=st.integers(-120, 120))
def test_wids_and_extent_are_inverses_for_real_numbers(data: st.DataObject, w: int) -> None:
    grid = data.draw(grids(real=True))
    start, end = grid.extent(w)
    near = st.sampled_from([start, end, math.nextafter(start, -math.inf), math.nextafter(end, -math.inf)])
    t = data.draw(near | st.floats(-100 * grid.slide, 100 * grid.slide))
    first, last = grid.wids(t)
    assert (first <= w <= last) == (start <= t < end and (not grid.begins or w >= 0))


@given(data=st.data(), grid=grids(), near=st.tuples(st.integers(-100, 100), st.integers(-100, 100)))
def test_windows_between_two_instants_are_those_of_the_instants_there(
    data: st.DataObject, grid: Grid, near: tuple[int, int]
) -> None:
    first, last = sorted(near)
    found = windows(grid, first, last)
    held = [wids(grid, t) for t in range(first, last + 1)]
    if grid.range is None:
        # those of every instant go on, so the last of these is the first that holds the last instant
        assert set(found) == {ids[0] for ids in held if ids}
    else:
        assert set(found) == {w for ids in held for w in ids}
    if len(found) and grid.range is not None:
        w = data.draw(st.sampled_from(found))
        start, end = extent(grid, w)
        assert start <= last
        assert end > first


@given(size=SIZES, slide=SIZES, number=st.integers(1, 100), w=st.integers(0, 120), apart=st.booleans())
def test_wids_and_extent_are_inverses_for_numbers_of_rows(
    size: int, slide: int, number: int, w: int, apart: bool
) -> None:
    scheme = pw.row_windows(size, slide, partitioned=apart).scheme
    assert isinstance(scheme, RowWindows)
    start, end = extent(row_grid(scheme), w)
    assert (w in wids(row_grid(scheme), number)) == (start <= number < end)


@given(data=st.data(), size=SIZES, real=st.booleans())
def test_wids_and_extent_are_inverses_for_windows_that_rows_end(data: st.DataObject, size: int, real: bool) -> None:
    unit = data.draw(st.sampled_from([1.0, 0.1, 0.37, 1e-3, 1e6])) if real else 1
    ats = [n * unit for n in data.draw(st.lists(st.integers(-40, 40), min_size=1, max_size=12))]
    ends = Ends(size * unit, tuple(ats))
    for t in {*ats, data.draw(st.integers(-50, 50)) * unit}:
        for w in ends.ends:
            start, end = extent(ends, w)
            assert (w in wids(ends, t)) == (start < t <= end)
    # and they are the windows that are found
    rows = pa.table({"t": pa.array(ats, pa.float64() if real else pa.int64())})
    found = pw.segments_local(pw.slide_by_tuple_windows(size * unit).at("t"), rows).to_pylist()
    assert [row["segment"]["end"] for row in found] == windows(ends, min(ats), max(ats))
    assert [(row["segment"]["start"], row["segment"]["end"]) for row in found] == [
        extent(ends, row["segment"]["end"]) for row in found
    ]
    assert [row["rows"] for row in found] == [sum(row["segment"]["end"] in wids(ends, t) for t in ats) for row in found]


def test_the_row_of_the_example_is_in_three_windows() -> None:
    assert list(wids(Grid(60, 20), 211)) == [10, 11, 12]
    assert [extent(Grid(60, 20), w) for w in (10, 11, 12)] == [(160, 220), (180, 240), (200, 260)]


@given(grid=grids(), ws=st.lists(st.integers(-(2**62), 2**62), min_size=1), small=st.booleans())
def test_bounds_are_extents_as_far_as_numbers_go(grid: Grid, ws: list[int], small: bool) -> None:
    ids = [w % 1000 - 500 for w in ws] if small else ws
    start, end = grid.bounds(np.array(ids, np.int64))
    low, high = -(2**63), 2**63 - 1
    for w, s, e in zip(ids, start.tolist(), end.tolist(), strict=True):
        begin, stop = grid.extent(w)
        assert e == min(max(stop, low), high)
        assert s == min(max(begin, low), high) or not small


def plan_of(grid: Grid, punctuation: Any = None) -> pw.Plan:
    origin = grid.origin if grid.begins else None
    if grid.range is None:
        plan = pw.landmark_windows(grid.slide, origin=grid.origin)
    elif grid.range == grid.slide:
        plan = pw.tumbling_windows(grid.range, origin=origin, keep_empty=grid.keep_empty)
    else:
        plan = pw.sliding_windows(grid.range, grid.slide, origin=origin, keep_empty=grid.keep_empty)
    return plan.by("k").at("t", punctuation)


def without_free_origin(grid: Grid) -> Grid:
    """An origin that is not given is 0."""
    return grid if grid.begins else replace(grid, origin=0.0 if grid.real else 0)


Rows = list[tuple[int, Any, float | None, int | None]]
VALUES = st.none() | st.sampled_from([0.0, -0.0, 0.5, 4096.0, -4096.0, 3.25, math.nan])
WHOLES = st.none() | st.integers(-5, 5)


@st.composite
def streams(draw: st.DrawFn, grid: Grid) -> Rows:
    at = st.integers(-60, 60)
    if grid.real:
        at = at.map(lambda n: n * grid.slide / 4) | st.none()
    return draw(st.lists(st.tuples(st.integers(0, 2), at, VALUES, WHOLES), max_size=25))


def table(rows: Rows, real: bool) -> pa.Table:
    kinds = [pa.int64(), pa.float64() if real else pa.int64(), pa.float64(), pa.int64()]
    columns = zip(*rows, strict=True) if rows else [()] * 4
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=["k", "t", "x", "i"])


def expected(grid: Grid, rows: Rows) -> dict[tuple[int, int], tuple[Any, ...]]:
    found = {}
    ats = [t for _, t, _, _ in rows if t is not None and (not grid.begins or t >= grid.origin)]
    for key in {k for k, *_ in rows}:
        inputs = [
            Row(t, (), (), tuple(None if c.argument is None else x if c.argument == "x" else i for _, c in CALLS))
            for k, t, x, i in rows
            if k == key and t is not None
        ]
        for w in window_oracle.windows(
            inputs, grid.range, grid.slide, grid.origin, grid.begins, CALLS, max(ats, default=None), grid.keep_empty
        ):
            found[key, w.id] = (w.start, w.end, w.rows, w.aggregates)
    return found


def told(found: list[dict[str, Any]]) -> dict[tuple[int, int], tuple[Any, ...]]:
    made = {}
    for row in found:
        segment = row["segment"]
        assert (segment["bounds"], row["status"]) == ("[)", "final")
        assert (row["k"], segment["id"]) not in made
        made[row["k"], segment["id"]] = (segment["start"], segment["end"], row["rows"], tuple(row[n] for n in AGG))
    return made


def same(found: dict[Any, tuple[Any, ...]], wanted: dict[Any, tuple[Any, ...]]) -> bool:
    assert found.keys() == wanted.keys()
    for key, (start, end, rows, made) in found.items():
        assert (start, end, rows) == wanted[key][:3]
        for name, a, b in zip(AGG, made, wanted[key][3], strict=True):
            close = a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6))
            assert close, (key, name, a, b)
    return True


@given(data=st.data(), real=st.booleans())
def test_windows_in_memory_are_those_of_the_definition(data: st.DataObject, real: bool) -> None:
    grid = without_free_origin(data.draw(grids(real)))
    rows = data.draw(streams(grid))
    found = pw.segments_local(plan_of(grid), table(rows, real), AGG)
    assert same(told(found.to_pylist()), expected(grid, rows))


@given(data=st.data(), real=st.booleans(), shards=st.integers(1, 3))
def test_windows_do_not_depend_on_where_rows_lie(data: st.DataObject, real: bool, shards: int) -> None:
    """Tasks add up their own rows; what they send is merged in any order."""
    grid = without_free_origin(data.draw(grids(real)))
    rows = data.draw(streams(grid))
    plan = plan_of(grid)
    applied = apply_local(plan, CALLS, table(rows, real))
    present = applied.rows.filter(applied.rows.column("at").is_valid())
    dealt = present.append_column("shard", pa.array([k % shards for k in present.column("k0").to_pylist()], pa.int32()))
    places = sorted(data.draw(st.lists(st.integers(0, len(dealt)), max_size=3)))
    pieces = []
    for first, last in zip([0, *places], [*places, len(dealt)], strict=True):
        pieces += list(partials(applied.layout, dealt.slice(first, last - first).to_batches()))
    at = applied.layout.progress.numbers(present.column("at").combine_chunks())
    latest = at.max() if len(at) else None
    pieces = sorted(data.draw(st.permutations(pieces)), key=lambda piece: piece[0])
    assert all("panes" in load(data_)[0] for _, data_ in pieces)
    found = [row for b in merged(applied.layout, [(*p, latest) for p in pieces]) for row in b.to_pylist()]
    whole = told(pw.segments_local(plan, table(rows, real), AGG).to_pylist())
    assert same(told(found), whole)


def lateness(rows: Rows) -> float:
    worst, top = 0, -math.inf
    for _, t, _, _ in rows:
        if t is not None:
            worst, top = max(worst, top - t if top > t else 0), max(top, t)
    return worst


@fewer
@given(
    data=st.data(),
    real=st.booleans(),
    shards=st.sampled_from([1, 2, 4]),
    late=st.sampled_from(["generous", "consistent"]),
)
def test_a_stream_sends_the_windows_of_the_batch(data: st.DataObject, real: bool, shards: int, late: str) -> None:
    grid = without_free_origin(data.draw(grids(real)))
    rows = data.draw(streams(grid))
    slack = lateness(rows)
    plan = plan_of(grid, pw.slack(math.nextafter(slack, math.inf) if real else slack, late=late))
    stream = LocalStream(plan, AGG, shards=shards)
    found = stream.feed(table([], real)).to_pylist()
    places = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    for first, last in zip([0, *places], [*places, len(rows)], strict=True):
        found += stream.feed(table(rows[first:last], real)).to_pylist()
    found += stream.finish().to_pylist()
    assert {row["reason"] for row in stream.late} <= {"null_at", "before_origin"}
    assert stream.waiting == 0
    assert same(told(found), expected(grid, rows))


# ---- windows of rows, and windows that rows end


def feed(stream: LocalStream, rows: Rows, real: bool, data: st.DataObject) -> list[dict[str, Any]]:
    found = stream.feed(table([], real)).to_pylist()
    places = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    for first, last in zip([0, *places], [*places, len(rows)], strict=True):
        found += stream.feed(table(rows[first:last], real)).to_pylist()
    return found + stream.finish().to_pylist()


def as_rows(rows: Rows) -> list[tuple[int, Row]]:
    return [
        (k, Row(t, (), (), tuple(None if c.argument is None else x if c.argument == "x" else i for _, c in CALLS)))
        for k, t, x, i in rows
    ]


def tidy(rows: Rows) -> Rows:
    """NaN is null, and there is one zero: the order of rows that are tied asks."""
    return [(k, t, None if x is None or math.isnan(x) else x + 0.0, i) for k, t, x, i in rows]


def spread(rows: Rows) -> float:
    ats = [t for _, t, _, _ in rows if t is not None]
    return max(ats) - min(ats) if ats else 0


def by_bounds(found: list[dict[str, Any]]) -> dict[Any, tuple[Any, ...]]:
    made = {}
    for row in found:
        segment = row["segment"]
        key = (row["k"], segment["start"], segment["end"])
        assert key not in made
        made[key] = (segment["bounds"], segment["end"], row["rows"], tuple(row[n] for n in AGG))
    return made


@fewer
@given(data=st.data(), partitioned=st.booleans(), size=st.integers(1, 6), slide=st.integers(1, 6))
def test_windows_of_rows(data: st.DataObject, partitioned: bool, size: int, slide: int) -> None:
    rows = tidy(data.draw(streams(Grid(1, 1))))
    plan = pw.row_windows(size, slide, partitioned=partitioned).by("k")
    oracle = window_oracle.row_windows(as_rows(rows), size, slide, partitioned, CALLS)
    wanted = {(k, s.id): (s.start, s.end, s.rows, s.aggregates) for k, found in oracle.items() for s in found}
    assert same(told(pw.segments_local(plan.at("t"), table(rows, False), AGG).to_pylist()), wanted)
    stream = LocalStream(plan.at("t", pw.slack(spread(rows))), AGG, shards=data.draw(st.sampled_from([1, 2])))
    assert same(told(feed(stream, rows, False, data)), wanted)
    assert (stream.late, stream.waiting, stream.open) == ([], 0, 0)


@fewer
@given(data=st.data(), real=st.booleans(), every=st.integers(1, 4), numbered=st.booleans())
def test_windows_that_rows_end(data: st.DataObject, real: bool, every: int, numbered: bool) -> None:
    size = data.draw(st.integers(1, 40)) * (0.25 if real else 1)
    rows = data.draw(streams(Grid(1.0, 1.0) if real else Grid(1, 1)))
    plan = pw.slide_by_tuple_windows(size, every=every, numbered="i" if numbered else None).by("k")
    wanted = {}
    for key in {k for k, *_ in rows}:
        mine = [n for n, row in enumerate(rows) if row[0] == key]
        numbers = [rows[n][3] for n in mine] if numbered else None
        inputs = [as_rows(rows)[n][1] for n in mine]
        for s in window_oracle.tuple_windows(inputs, size, every, numbers, CALLS):
            wanted[key, s.start, s.end] = (s.bounds, s.end, s.rows, s.aggregates)
    found = pw.segments_local(plan.at("t"), table(rows, real), AGG).to_pylist()
    assert same(by_bounds(found), wanted)
    slack = math.nextafter(spread(rows), math.inf) if real else spread(rows)
    stream = LocalStream(plan.at("t", pw.slack(slack)), AGG, shards=data.draw(st.sampled_from([1, 2])))
    assert same(by_bounds(feed(stream, rows, real, data)), wanted)
    assert {row["reason"] for row in stream.late} <= {"null_at"}
    assert (stream.waiting, stream.open) == (0, 0)

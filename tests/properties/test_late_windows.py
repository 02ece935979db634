"""Rows that come later than promised: what they are missing from, and what they are counted as."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import panewise as pw
from panewise.kernel import window_oracle
from panewise.kernel.windows import Grid
from panewise.local.stream import LocalStream
from properties.streams import AGG, CALLS
from properties.test_prods import fewer
from properties.test_window_ids import VALUES, WHOLES, Rows, as_rows, plan_of, same, table, tidy, told

HOW = st.sampled_from(["generous", "generous", "consistent", "per key"])
IDS = range(-200, 200)
"""More windows than these rows are in."""


class Promises:
    """Up to where no more rows come: of all keys by slack, or of each by its own rows; both as micro-batches end."""

    def __init__(self, how: str, slack: float) -> None:
        self.how = how
        self.punctuation = pw.ordered_per("k") if how == "per key" else pw.slack(slack, late=how)
        self._slack = 0 if how == "per key" else slack
        self._tops: dict[Any, float] = {}

    def next_of(self, key: int) -> float:
        """The first instant that may still come."""
        return self._tops.get(self._owner(key), -math.inf) - self._slack

    def take(self, rows: Rows) -> None:
        for key, t, *_ in rows:
            if t is not None:
                owner = self._owner(key)
                self._tops[owner] = max(self._tops.get(owner, -math.inf), t)

    def _owner(self, key: int) -> Any:
        return key if self.how == "per key" else None


@st.composite
def promises(draw: st.DrawFn, unit: float = 1) -> Promises:
    return Promises(draw(HOW), draw(st.integers(0, 5)) * unit)


@st.composite
def streams(draw: st.DrawFn, unit: float = 1) -> Rows:
    """Rows that are early and late by turns, by some windows."""
    delayed = st.tuples(st.integers(0, 1), st.integers(0, 14), VALUES, WHOLES, st.integers(0, 19))
    rows = draw(st.lists(delayed, max_size=40) | st.lists(delayed, min_size=20, max_size=40))
    absent = isinstance(unit, float)
    return [
        (k, None if absent and none == 0 else (n - delay) * unit, x, i) for n, (k, delay, x, i, none) in enumerate(rows)
    ]


@st.composite
def grids(draw: st.DrawFn, unit: float = 1) -> Grid:
    """As short as the delays of rows."""
    lasting = draw(st.sampled_from([False, False, True]))
    size, slide = None if lasting else draw(st.integers(1, 12)), draw(st.integers(1, 6))
    begins = lasting or draw(st.booleans())
    keep_empty = not lasting and draw(st.sampled_from([False, False, True]))
    origin = draw(st.integers(-20, 4)) if begins else 0
    return Grid(None if size is None else size * unit, slide * unit, origin * unit, begins, keep_empty)


UNITS = st.sampled_from([1, 1, 0.25, 0.1])


def batches(data: st.DataObject, rows: Rows) -> Iterator[Rows]:
    """One row at a time, or several."""
    singly = range(1, max(len(rows), 2))
    places = sorted(data.draw(st.just(set(singly)) | st.sets(st.sampled_from(singly))))
    return (rows[first:last] for first, last in pairwise([0, *places, len(rows)]))


def fed(stream: LocalStream, rows: Rows, real: bool) -> list[dict[str, Any]]:
    return stream.feed(table(rows, real)).to_pylist()


def check_late(stream: LocalStream, wanted: list[tuple[str, Any]]) -> None:
    """Rows are given, each with its reason, and counted."""
    found = Counter((row["reason"], row["k"], row["t"], row["i"]) for row in stream.late)
    assert found == Counter((reason, k, t, i) for reason, (k, t, _, i) in wanted)
    by_reason = Counter(reason for reason, _ in wanted)
    counted = {name: stream.counts[name] for name in stream.counts if name not in ("rows", "segments", "parts")}
    assert counted == {name: by_reason[name] for name in counted}


def ids_of(grid: Grid, t: float) -> set[int]:
    """The windows that an instant belongs to, each asked by itself."""
    found = set()
    for w in IDS if not grid.begins else IDS[-IDS.start :]:
        start, end = window_oracle.extent(w, grid.range, grid.slide, grid.origin, grid.begins)
        if start <= t < end:
            found.add(w)
    return found


@fewer
@given(data=st.data(), unit=UNITS)
def test_rows_later_than_promised_are_missing_where_the_rule_says(data: st.DataObject, unit: float) -> None:
    """Consistent leaves a late row out of all its windows, generous out of those that are complete."""
    grid, rows, promised = data.draw(grids(unit)), data.draw(streams(unit)), data.draw(promises(unit))
    real = grid.real
    stream = LocalStream(plan_of(grid, promised.punctuation), {"total": "sum(i)"}, shards=2)
    found = fed(stream, [], real)
    late, members = [], []
    for batch in batches(data, rows):
        for row in batch:
            k, t = row[:2]
            if t is None or (grid.begins and t < grid.origin):
                late.append(("null_at" if t is None else "before_origin", row))
                continue
            soonest, mine = promised.next_of(k), ids_of(grid, t)
            complete = {w for w in mine if grid.edge(w + 1) <= soonest}
            open_ones = mine - complete
            if t < soonest and (promised.how == "consistent" or not open_ones):
                late.append(("late", row))
                continue
            if complete:
                late.append(("partly_late", row))
            members.append((k, open_ones))
        found += fed(stream, batch, real)
        promised.take(batch)
    found += stream.finish().to_pylist()
    totals = Counter((k, w) for k, open_ones in members for w in open_ones)
    if grid.range is None and totals:
        # those that go on do so as far as the latest row
        last = min(ids_of(grid, max(t for _, t, *_ in rows if t is not None)))
        totals = Counter({(k, w): n for (k, w), n in totals.items() if w <= last})
    assert Counter({(r["k"], r["segment"]["id"]): r["rows"] for r in found if r["rows"]}) == totals
    assert len(found) == len({(r["k"], r["segment"]["id"]) for r in found})
    check_late(stream, late)


@fewer
@given(data=st.data(), real=st.booleans(), every=st.integers(1, 3), numbered=st.booleans())
def test_late_rows_of_windows_that_rows_end(data: st.DataObject, real: bool, every: int, numbered: bool) -> None:
    """A late row ends no window, and has no rank; it is in those that end later, unless slack is consistent."""
    unit = 0.25 if real else 1
    rows, promised = data.draw(streams(unit)), data.draw(promises(unit))
    size = data.draw(st.integers(1, 15)) * unit
    plan = pw.slide_by_tuple_windows(size, every=every, numbered="i" if numbered else None).by("k")
    stream = LocalStream(plan.at("t", promised.punctuation), {"n": "count(*)"}, shards=2)
    found = fed(stream, [], real)
    late, members, on_time = [], [], []
    for batch in batches(data, rows):
        for row in batch:
            k, t, _, number = row
            if t is None:
                late.append(("null_at", row))
                continue
            soonest = promised.next_of(k)
            if t >= soonest:
                members.append((k, t, -math.inf))
                on_time.append((k, t, number))
            elif promised.how == "consistent" or t <= soonest - size:
                late.append(("late", row))
            else:
                # it counts in windows that end after what is complete
                members.append((k, t, soonest))
                sent = {end for key, end in ends_of(on_time, every, numbered) if key == k and end < soonest}
                ended_one = not numbered or (number is not None and number % every == 0)
                if ended_one or any(end - size < t <= end for end in sent):
                    late.append(("partly_late", row))
        found += fed(stream, batch, real)
        promised.take(batch)
    found += stream.finish().to_pylist()
    wanted = {
        (key, end): sum(k == key and end - size < t <= end and end >= after for k, t, after in members)
        for key, end in ends_of(on_time, every, numbered)
    }
    assert {(row["k"], row["segment"]["end"]): row["n"] for row in found} == wanted
    assert len(found) == len(wanted)
    check_late(stream, late)


def ends_of(rows: list[tuple[int, float, int | None]], every: int, numbered: bool) -> set[tuple[int, float]]:
    """The windows of rows that are in time: by their numbers, or by their ranks."""
    if numbered:
        return {(k, t) for k, t, number in rows if number is not None and number % every == 0}
    ends = set()
    for key in {k for k, *_ in rows}:
        ats = sorted(t for k, t, _ in rows if k == key)
        ends |= {(key, t) for t in ats[every - 1 :: every]}
    return ends


@fewer
@given(data=st.data(), partitioned=st.booleans(), size=st.integers(1, 6), slide=st.integers(1, 6))
def test_late_rows_are_in_no_window_of_rows(data: st.DataObject, partitioned: bool, size: int, slide: int) -> None:
    """Rows are numbered as if those had not come."""
    rows = tidy(data.draw(streams()))
    promised = data.draw(promises().filter(lambda some: some.how != "per key" or partitioned))
    plan = pw.row_windows(size, slide, partitioned=partitioned).by("k").at("t", promised.punctuation)
    stream = LocalStream(plan, AGG, shards=2 if partitioned else 1)
    found = fed(stream, [], False)
    late, kept = [], []
    for batch in batches(data, rows):
        for row in batch:
            if row[1] < promised.next_of(row[0]):
                late.append(("late", row))
            else:
                kept.append(row)
        found += fed(stream, batch, False)
        promised.take(batch)
    found += stream.finish().to_pylist()
    oracle = window_oracle.row_windows(as_rows(kept), size, slide, partitioned, CALLS)
    wanted = {(k, s.id): (s.start, s.end, s.rows, s.aggregates) for k, some in oracle.items() for s in some}
    assert same(told(found), wanted)
    check_late(stream, late)

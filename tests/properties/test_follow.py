"""Plans over plans: what a second plan makes of segments, against the definition; streams against batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import panewise as pw
from panewise.kernel import window_oracle
from panewise.kernel.follow import Follow
from panewise.local.stream import LocalStream

fewer = settings(max_examples=max(settings.default.max_examples // 2, 1))
KINDS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "whole": (pa.int64(), lambda n: n),
    "real": (pa.float64(), lambda n: n / 4),
    "time": (pa.timestamp("us"), lambda n: f"{n} seconds"),
    "zoned": (pa.timestamp("us", "UTC"), lambda n: f"{n} seconds"),
    "date": (pa.date32(), lambda n: f"{n} days"),
}
"""Of `at`: its type, and amounts in it."""
ORIGINS = {"whole": -3, "real": -0.75, "time": "1969-12-31 23:59:57", "zoned": "1969-12-31 23:59:57"}
ORIGINS |= {"date": "1969-12-29"}


def firsts(kind: str) -> list[pw.Plan]:
    of = KINDS[kind][1]
    return [
        pw.threshold_frames("v > 0"),
        pw.threshold_frames("v > 0", extent="held", min_rows=2),
        pw.threshold_frames("v > 0", extent="possible"),
        pw.threshold_frames("v > 0", gaps=True),
        pw.boundary_frames({"v": 2}),
        pw.session_frames(of(4)),
        pw.aggregate_frames("count(*)", reaches=2, overlap="saturated"),
        pw.tumbling_windows(of(5)),
        pw.sliding_windows(of(7), of(3)),
        pw.slide_by_tuple_windows(of(4)),
    ]


def seconds(kind: str) -> list[pw.Plan]:
    of = KINDS[kind][1]
    return [
        pw.tumbling_windows(of(6)),
        pw.sliding_windows(of(9), of(4)),
        pw.sliding_windows(of(3), of(7)),
        pw.tumbling_windows(of(5), origin=ORIGINS[kind]),
        pw.tumbling_windows(of(5), keep_empty=True),
        pw.threshold_frames("total > 1", extent="held"),
        pw.session_frames(of(6)),
        pw.slide_by_tuple_windows(of(5)),
        pw.session_frames(of(6)).at("end"),
    ]


FIRSTS = firsts("whole")
AGG = {"total": "sum(v)", "cell": "max(v)"}
LAST = {"n": "count(*)", "busy": "sum(duration)", "first": "min(start)", "last": "max(end)", "top": "max(total)"}
LAST |= {"head": "first(total)", "tail": "last(total)"}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    row = st.tuples(st.integers(0, 2), st.integers(-15, 30), st.integers(-2, 4))
    columns = zip(*draw(st.lists(row, min_size=1, max_size=25)), strict=True)
    return pa.table([pa.array(list(column), pa.int64()) for column in columns], names=["k", "t", "v"])


def flat(found: pa.Table) -> list[dict[str, Any]]:
    rows = found.to_pylist()
    return [row | inner for row, inner in zip(rows, [row.pop("segment") for row in rows], strict=True)]


def plain(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(flat(found), key=lambda row: tuple(map(repr, row.values())))


def meets(segment: dict[str, Any], start: float, end: float) -> bool:
    """Whether a segment has an instant, of whole numbers, in [start, end)."""
    low = segment["start"] + (segment["bounds"][0] == "(")
    high = segment["end"] - (segment["bounds"][1] == ")")
    return low <= high and low < end and high >= start


@given(
    rows=tables(), first=st.sampled_from(FIRSTS), size=st.integers(1, 9), slide=st.integers(1, 9), by_cell=st.booleans()
)
def test_segments_are_clipped_to_the_windows_that_they_meet(
    rows: pa.Table, first: pw.Plan, size: int, slide: int, by_cell: bool
) -> None:
    first = first.by("k").at("t")
    keys = ("k", "cell") if by_cell else ()
    both = first.agg(AGG).then(pw.sliding_windows(size, slide).by(*keys).agg(LAST))
    found = plain(pw.segments_local(both, rows))
    segments = flat(pw.segments_local(first, rows, AGG))
    low = min((s["start"] for s in segments), default=0) // slide - 2
    high = (max((s["end"] for s in segments), default=0) + size) // slide + 2
    wanted = []
    for key in {tuple(s[name] for name in keys) for s in segments}:
        mine = [s for s in segments if tuple(s[name] for name in keys) == key]
        for w in range(low, high):
            start, end = window_oracle.extent(w, size, slide)
            inside = [(s, max(s["start"], start), min(s["end"], end)) for s in mine if meets(s, start, end)]
            if inside:
                totals = [s["total"] for s, _, _ in inside if s["total"] is not None]
                # among segments that start together the least value is first, null before all others
                starts = [(s["start"], s["total"] is not None, s["total"] or 0, s["total"]) for s, _, _ in inside]
                made = {
                    "n": len(inside),
                    "busy": sum(b - a for _, a, b in inside),
                    "first": min(a for _, a, _ in inside),
                    "last": max(b for _, _, b in inside),
                    "top": max(totals, default=None),
                    "head": min(starts)[-1],
                    "tail": max(starts)[-1],
                }
                told = {"rows": len(inside), "status": "final", **made, "id": w, "start": start, "end": end}
                wanted.append({**dict(zip(keys, key, strict=True)), **told, "bounds": "[)"})
    assert found == sorted(wanted, key=lambda row: tuple(map(repr, row.values())))


def timed(rows: pa.Table, kind: str) -> pa.Table:
    """The same with `t` of another type, one second, day or quarter for each."""
    t = rows.column("t").to_numpy()
    scale = {"real": 0.25, "time": 1_000_000, "zoned": 1_000_000}.get(kind, 1)
    made = pa.array(t.astype("int32")) if kind == "date" else pa.array(t * scale)
    return rows.set_column(1, "t", made.cast(KINDS[kind][0]))


@pytest.mark.filterwarnings("error")
@fewer
@given(data=st.data(), ticks=tables(), kind=st.sampled_from(sorted(KINDS)))
def test_streams_find_what_batches_find(data: st.DataObject, ticks: pa.Table, kind: str) -> None:
    of, rows = KINDS[kind][1], timed(ticks, kind)
    first, second = (data.draw(st.sampled_from(plans(kind))) for plans in (firsts, seconds))
    second = second.by(*data.draw(st.sampled_from([(), ("k",), ("k", "cell")]))).agg(LAST)
    both = first.by("k").at("t").agg(AGG).then(second)
    if data.draw(st.booleans()):
        third = pw.tumbling_windows(of(10)).agg(most="max(n)", in_all="sum(busy)", f="first(n)", l="last(n)")
        both = both.then(third)
    places = data.draw(st.permutations(range(len(rows))))
    shuffled, at = rows.take(places), ticks.take(places).column("t").to_pylist()
    slack = max(max(at[: i + 1]) - t for i, t in enumerate(at))
    stream = LocalStream(replace(both, punctuation=pw.slack(of(slack))), shards=data.draw(st.sampled_from([1, 3])))
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4))), len(rows)]
    batches = [shuffled.slice(a, b - a) for a, b in pairwise(edges)]
    found = pa.concat_tables([*(stream.feed(batch) for batch in batches), stream.finish()])
    wanted = pw.segments_local(both, rows)
    assert found.schema.equals(wanted.schema)
    assert plain(found) == plain(wanted)
    assert stream.late == []


def test_lengths_of_time_are_seconds() -> None:
    day = pa.array([0, 86_400_000_000 // 2, 86_400_000_000], pa.timestamp("us"))
    plan = (
        pw.threshold_frames("v > 0", extent="held").at("t").then(pw.tumbling_windows("1 day").agg(busy="sum(duration)"))
    )
    found = pw.segments_local(plan, pa.table({"t": day, "v": [0, 1, 0]}))
    assert found.column("busy").to_pylist() == [43_200.0]
    dates = pa.table({"t": pa.array([0, 1, 4], pa.date32()), "v": [0, 1, 0]})
    days = (
        pw.threshold_frames("v > 0", extent="held")
        .at("t")
        .then(pw.tumbling_windows("2 days").agg(busy="sum(duration)"))
    )
    assert pw.segments_local(days, dates).column("busy").to_pylist() == [1, 2]
    assert math.isclose(sum(found.column("busy").to_pylist()), 43_200)


CHAINS = [
    pw.slide_by_tuple_windows("4 seconds")
    .at("t", pw.slack("0 seconds"))
    .agg(n="count(*)")
    .then(pw.session_frames("6 seconds").agg(in_all="sum(n)")),
    pw.sliding_windows("25 minutes", "10 minutes")
    .at("t", pw.in_band("mark"))
    .agg(n="count(*)")
    .then(pw.session_frames("1 hour").agg(in_all="sum(n)")),
]


@pytest.mark.parametrize("plan", CHAINS)
def test_where_nothing_or_everything_is_known_that_is_passed_on(plan: pw.Plan) -> None:
    t = pa.array([0, 2_000_000, 9_000_000, 7_200_000_000], pa.timestamp("us"))
    rows = pa.table({"t": t, "mark": [False] * 4})
    stream = LocalStream(plan)
    found = pa.concat_tables([stream.feed(rows), stream.finish()])
    assert plain(found) == plain(pw.segments_local(plan, rows))


@pytest.mark.parametrize(
    ("following", "instants"),
    [
        (pw.tumbling_windows(10), pa.array([-17, 0, 17, None, 2**62], pa.int64())),
        (pw.tumbling_windows(0.5), pa.array([-1.3, 0.0, 0.7, None, 1e300], pa.float64())),
        (pw.tumbling_windows("1 hour"), pa.array([-17, 17, None, 5_000_000_001], pa.timestamp("us", tz="UTC"))),
        (pw.tumbling_windows("7 days"), pa.array([-17, 17, None], pa.int32()).cast(pa.date32())),
        (pw.session_frames(gap=10), pa.array([-17, 17, None], pa.int64())),
    ],
)
def test_a_plan_in_between_passes_on_what_is_asked_for(following: pw.Plan, instants: pa.Array) -> None:
    """As it was said: the next plan's windows may end where none of its own do."""
    bounds = [(name, instants.type) for name in ("start", "end")]
    segment = pa.struct([("id", pa.int64()), *bounds, ("bounds", pa.string())])
    follow = Follow(following, pa.schema([("segment", segment), ("rows", pa.int64())]))
    passed = follow.asked_on(instants)
    back = passed if follow.grid is None else follow.asked_back(pa.chunked_array([passed]))
    assert back.equals(instants)

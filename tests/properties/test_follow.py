"""Plans over plans: what a second plan makes of segments, against the definition; streams against batches."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import panewise as pw
from panewise.kernel import window_oracle
from panewise.local.stream import LocalStream

fewer = settings(max_examples=max(settings.default.max_examples // 2, 1))
FIRSTS = [
    pw.threshold_frames("v > 0"),
    pw.threshold_frames("v > 0", extent="held", min_rows=2),
    pw.threshold_frames("v > 0", extent="possible"),
    pw.threshold_frames("v > 0", gaps=True),
    pw.boundary_frames({"v": 2}),
    pw.session_frames(4),
    pw.aggregate_frames("count(*)", reaches=2, overlap="saturated"),
    pw.tumbling_windows(5),
    pw.sliding_windows(7, 3),
    pw.slide_by_tuple_windows(4),
]
SECONDS = [
    pw.tumbling_windows(6),
    pw.sliding_windows(9, 4),
    pw.sliding_windows(3, 7),
    pw.tumbling_windows(5, origin=-3),
    pw.tumbling_windows(5, keep_empty=True),
    pw.threshold_frames("total > 1", extent="held"),
    pw.session_frames(6),
    pw.slide_by_tuple_windows(5),
    pw.session_frames(6).at("end"),
]
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


@fewer
@given(data=st.data(), rows=tables(), first=st.sampled_from(FIRSTS), second=st.sampled_from(SECONDS))
def test_streams_find_what_batches_find(data: st.DataObject, rows: pa.Table, first: pw.Plan, second: pw.Plan) -> None:
    second = second.by(*data.draw(st.sampled_from([(), ("k",), ("k", "cell")]))).agg(LAST)
    both = first.by("k").at("t").agg(AGG).then(second)
    if data.draw(st.booleans()):
        both = both.then(pw.tumbling_windows(10).agg(most="max(n)", in_all="sum(busy)", head="first(n)", tail="last(n)"))
    shuffled = rows.take(data.draw(st.permutations(range(len(rows)))))
    at = shuffled.column("t").to_pylist()
    slack = max(max(at[: i + 1]) - t for i, t in enumerate(at))
    stream = LocalStream(replace(both, punctuation=pw.slack(slack)), shards=data.draw(st.sampled_from([1, 3])))
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

"""What a fill waits for: how far segments are promised, and what that lets go of."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import panewise as pw
from panewise.kernel.bundle import load
from panewise.kernel.fillshard import FillShard
from panewise.kernel.oracle import Row
from panewise.kernel.shard import Shard
from panewise.local.fill_stream import LocalFill
from panewise.local.stream import LocalStream
from panewise.spec.fill import filling
from panewise.spec.frames import ChainFrames, TrendFrames
from panewise.spec.options import Chained, Limits
from panewise.spec.plan import PlanSpec
from properties.fills import (
    LABELS,
    SCHEMES,
    WHERE,
    Case,
    batches,
    chunk_bytes,
    feeds,
    few,
    framings,
    in_parts,
    live,
    made,
    marked,
    slack_of,
)
from properties.streams import null, plans
from properties.test_streams import blank, table, unlongest


def after(segment: dict) -> tuple[float, bool]:
    """Where a segment starts; an instant that is excluded is before all that follow it."""
    return segment["segment"]["start"], segment["segment"]["bounds"][0] == "("


@pytest.mark.parametrize("scheme", SCHEMES)
@few
@given(data=st.data())
def test_nothing_starts_before_it_was_promised_to(scheme: str, data: st.DataObject) -> None:
    """Nor is less promised than can be, where all that is open will be sent."""
    plan = unlongest(data.draw(plans(scheme)))
    _, arrived, real = data.draw(framings(plan))
    if data.draw(st.booleans()):
        plan = replace(plan, punctuation=slack_of(arrived, real))
        fed = batches(data.draw, arrived)
    else:
        per_key = data.draw(st.booleans())
        plan = replace(plan, punctuation=pw.in_band("mark", per_key=per_key))
        fed = marked(data.draw, arrived, per_key, Row(0, *blank(plan)))
    emit = data.draw(st.sampled_from(["final", "fragments", "updates"]))
    every = None if emit == "final" else data.draw(st.sampled_from([None, 1, 3]))
    stream = LocalStream(plan, emit=emit, fragment_every=every)
    stream.feed(table(plan, [], real))
    told, sent = [promises_of(stream)], []
    for rows, marks in fed:
        sent.append(stream.feed(table(plan, rows, real, marks)).to_pylist())
        told.append(promises_of(stream))
    sent.append(stream.finish().to_pylist())
    for step, (promised, until, beyond) in enumerate(told[:-1]):
        first: dict[int, tuple[float, bool]] = {}
        for segment in chain(*sent[step:]):
            first[segment["k"]] = min(after(segment), first.get(segment["k"], (math.inf, False)))
        for k, start in first.items():
            assert start > (promised.get(k, beyond), False)
        for k, promise in promised.items() if is_plain(plan) else ():
            assert promise == until[k] or first[k] in ((promise, True), (next_to(promise, real), False))
        assert all(now >= promised.get(k, beyond) for k, now in told[step + 1][0].items())


STARTED = {"against": "first", "starts": "s", "on_overlap": "continue", "extent": "held"}
STANDING = [
    # a run that is certain has ended the gap before it
    (pw.threshold_frames("s", gaps=True), "final", [(1, 0, False), (2, 0, True)], 1),
    # pieces of a run that may turn out too short
    (pw.threshold_frames("s", min_duration=5, max_rows=1), "final", [(1, 0, True), (2, 0, True)], 0),
    # what comes next reaches back to the last row
    (pw.threshold_frames("s", extent="possible"), "final", [(1, 0, False)], 1),
    (pw.delta_frames({"v": 1}, extent="possible", nulls="breaks"), "final", [(1, 0, True), (2, None, True)], 2),
    # the next part starts where the last one ended
    (pw.threshold_frames("s"), "fragments", [(1, 0, True), (2, 0, True)], 2),
    (pw.threshold_frames("s", extent="held"), "fragments", [(1, 0, True), (2, 0, True)], 9),
    (pw.delta_frames({"v": 1}), "fragments", [(1, 0, True), (2, 0, True)], 9),
    # a frame that is closed waits for one that began before it, and is still open
    (pw.delta_frames({"v": 3}, **STARTED), "final", [(1, 0, True), (2, 2, True), (3, -1, False)], 0),
    (pw.delta_frames({"v": 3}, **STARTED), "fragments", [(1, 0, True), (2, 2, True), (3, -1, False)], 1),
]
"""A scheme, what is sent, rows (`t`, `v`, `s`) up to 9, and how far no segment and no part to come starts."""


@pytest.mark.parametrize(("scheme", "emit", "rows", "expected"), STANDING)
def test_what_holds_a_promise_back(scheme: pw.Plan, emit: str, rows: list[tuple], expected: int) -> None:
    stream = LocalStream(scheme.by("k").at("t", pw.in_band("mark")), emit=emit)
    t, v, s = zip(*rows, (9, None, None), strict=True)
    marks = [False] * len(rows) + [True]
    if emit == "fragments":
        # all that is closed in one micro-batch is sent as a whole
        stream.feed(pa.table({"k": [0, 0], "t": [1, 1], "v": [v[0]] * 2, "s": [s[0]] * 2, "mark": [False, True]}))
        t, v, s, marks = t[1:], v[1:], s[1:], marks[1:]
    stream.feed(
        pa.table({"k": [0] * len(t), "t": t, "v": pa.array(v, pa.int64()), "s": pa.array(s, pa.bool_()), "mark": marks})
    )
    assert promises_of(stream)[0] == {0: expected}


def is_plain(plan: PlanSpec) -> bool:
    """Whether every frame that is open will be sent, and none reaches back."""
    scheme = plan.scheme
    chained = not isinstance(scheme, ChainFrames) or (scheme.closing == "exclude" and scheme.placement == Chained())
    free = scheme.limits == Limits() and scheme.schedule is None
    return free and chained and scheme.extent != "possible" and not isinstance(scheme, TrendFrames)


def next_to(at: float, real: bool) -> float:
    return math.nextafter(at, math.inf) if real else at + 1


def promises_of(stream: LocalStream) -> tuple[dict[int, float], dict[int, float], float]:
    """How far each key is promised, how far it has come, and how far all others have."""
    assert stream._layout is not None
    shard = Shard(stream._layout, 1, stream._state[0])
    named, promised = shard.promised()
    keys = named[0].to_pylist()
    both = (dict(zip(keys, numbers.tolist(), strict=True)) for numbers in (promised, shard._arrivals.until))
    return *both, shard.punctuator.until


def test_instants_that_become_one_when_they_are_moved() -> None:
    """Where real numbers are far apart, a segment that is still to come reaches rows at the very limit."""
    far = 2.0**55
    plan = pw.threshold_frames("c").at("t", pw.slack(0))
    framing, rows = pa.table({"t": [1.0], "c": [False]}), pa.table({"ts": [far]})
    stream = LocalFill(plan, filling((), "ts", shift=far, punctuation=pw.slack(0)), {"n": "count(*)"}, framing, rows)
    stream.feed(framing, rows, framing_until=1.0)
    assert stream.counts["rows_waiting"] == 1
    stream.feed(pa.table({"t": [2.0], "c": [True]}))
    assert stream.finish().column("n").to_pylist() == [1]


@few
@given(case=live(), data=st.data())
def test_progress_lets_go_of_rows_and_segments(case: Case, data: st.DataObject) -> None:
    """Rows that a segment to come can reach wait, and no chunk of others; segments wait that a row can enter."""
    emit = data.draw(st.sampled_from(["final", "fragments"]))
    case = case if emit == "final" else in_parts(case)
    per_key = bool(case.plan.keys) and data.draw(st.booleans())
    left = batches(data.draw, case.framing)
    if per_key:
        case = replace(case, plan=replace(case.plan, punctuation=pw.in_band("mark", per_key=True)))
        left = marked(data.draw, case.framing, True, Row(0, *blank(case.plan)))
    stream = made(case, data.draw, None, emit=emit, shards=1)
    size = data.draw(st.sampled_from([1, 500, 1500]))
    come: set[int] = set()
    with chunk_bytes(size):
        for framing, filled in feeds(data.draw, case, left, batches(data.draw, case.filling)):
            stream.feed(framing, filled)
            come |= set() if filled is None else set(filled.column("number").to_pylist())
            check_waiting(case, stream, [(k, row) for k, row in case.filling if row.tie[0] in come], size)


def check_waiting(case: Case, stream: LocalFill, come: list[tuple[int, Row]], size: int) -> None:
    shard = FillShard(stream._spec, stream._stores[0], stream._states[0])
    assert shard.framing is not None
    named, until = shard.framing.promised()
    keys = named[0].to_pylist() if named else [None] * len(until)
    promised = dict(zip(keys, until.tolist(), strict=True))
    nothing = shard._progress.nothing

    def limit(key: int | None) -> float:
        found = promised.get(key, shard.framing.punctuator.until)
        return found if found == nothing else found + case.moves[0]

    holds = WHERE[case.options.get("where")]
    fit = [(k, r) for k, r in come if holds(r) and not null(r.at) and math.isfinite(r.at)]
    limits = {r.tie[0]: limit(LABELS[k] if case.plan.keys else None) for k, r in fit}
    needed = {r.tie[0] for _, r in fit if r.at > limits[r.tie[0]]}
    near = {r.tie[0] for _, r in fit if r.at >= limits[r.tie[0]]} if case.real else needed
    tables = {chunk: load(data)[0]["chunk"] for chunk, data in stream._stores[0].items()}
    held = [row["number"] for chunk in tables if chunk[0] == "r" for row in tables[chunk].column("row").to_pylist()]
    assert needed <= set(held)
    assert size > 1 or set(held) <= near
    waiting = shard.filler._rows[0].index.to_pylist()
    assert {f"r0:{entry['chunk']}" for entry in waiting} == {chunk for chunk in tables if chunk[0] == "r"}
    assert stream.counts["rows_waiting"] == sum(entry["n"] for entry in waiting) <= len(held)
    slots = shard.filler._table.columns[0].to_pylist() if named else [None]
    for entry in waiting:
        gone = limit(slots[entry["slot"]])
        assert entry["most"] > gone or (case.real and entry["most"] == gone)
    for chunk in tables:
        if chunk[0] == "s":
            owners = np.asarray(tables[chunk].column("panewise slot"))
            assert (np.asarray(tables[chunk].column("panewise hi0")) > shard.filler.sides[0].until[owners]).all()

"""Fill: in memory or as streams, in any order and any pieces, each segment gets the rows within its bounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import panewise as pw
from panewise.kernel import chunks, matching
from panewise.kernel.fillshard import FillShard
from panewise.kernel.oracle import Row, fill
from panewise.kernel.shard import Shard
from panewise.local import fill as local
from panewise.local.fill_stream import LocalFill
from panewise.local.stream import LocalStream
from panewise.spec.fill import filling
from panewise.spec.plan import PlanSpec
from panewise.spec.punctuate import Punctuation
from properties.streams import AGG, BUILDERS, CALLS, null, optional, plans, same, with_inputs
from properties.test_streams import arrivals, blank, cut, lateness, table, unlongest

SCHEMES = sorted(BUILDERS)
fewer = settings(max_examples=max(settings.default.max_examples * 6 // 10, 1))
LABELS = (7, None, -1, 99)
"""The keys of rows: of up to three that have segments, and of one that has none."""
WHERE = {
    None: lambda row: True,
    "ok": lambda row: row.conditions[0] is True,
    "i > 0": lambda row: row.inputs[9] is not None and row.inputs[9] > 0,
}


@dataclass(frozen=True)
class Case:
    """Rows that draw segments and rows that fill them, both in the order in which they arrive."""

    plan: PlanSpec
    framing: list[tuple[int, Row]]
    filling: list[tuple[int, Row]]
    real: bool
    whole: bool
    """Whether the `at` of filling rows is an integer."""
    options: dict

    @property
    def how(self) -> dict:
        return {"at": "ts", "by": {"k": "h"} if self.plan.keys else None, **self.options}

    @property
    def moves(self) -> tuple[float, float]:
        """How far bounds are moved."""
        (before, after), shift = widths(self.options)
        return shift - before, shift + after

    def framed(self, rows: list[tuple[int, Row]] | None = None, marks: list[bool] | None = None) -> pa.Table:
        rows = self.framing if rows is None else rows
        keys = pa.array([LABELS[k] for k, _ in rows], pa.int32() if self.whole else pa.int64())
        return table(self.plan, rows, self.real, marks).set_column(0, "k", keys)

    def fills(self, rows: list[tuple[int, Row]] | None = None, marks: list[bool] | None = None) -> pa.Table:
        rows = self.filling if rows is None else rows
        return pa.table(
            {
                "h": pa.array([LABELS[k] for k, _ in rows], pa.int64()),
                "ts": pa.array([r.at for _, r in rows], pa.int64() if self.whole else pa.float64()),
                "x": pa.array([r.inputs[2] for _, r in rows], pa.float64()),
                "i": pa.array([r.inputs[9] for _, r in rows], pa.int32()),
                "ok": pa.array([r.conditions[0] for _, r in rows], pa.bool_()),
                "number": pa.array([r.tie[0] for _, r in rows], pa.int64()),
                "mark": pa.array(marks or [False] * len(rows), pa.bool_()),
            }
        )

    def local(self, agg: dict | None = AGG, **options: object) -> list[dict]:
        return pw.fill_local(self.plan, self.framed(), self.fills(), agg, **self.how, **options).to_pylist()

    def rows_of(self, segment: dict) -> list[Row]:
        """The rows that may fill a segment, wherever they lie."""
        holds = WHERE[self.options.get("where")]
        return [r for k, r in self.filling if holds(r) and (not self.plan.keys or LABELS[k] == segment["k"])]

    def expected(self, segments: list[dict], keep_empty: bool = False) -> list[dict]:
        """Segments with aggregates, by definition."""
        found = []
        for segment in segments:
            inside, aggregates = fill(interval(segment), self.rows_of(segment), CALLS, *widths(self.options))
            if inside or keep_empty:
                found.append(segment | dict(zip(AGG, aggregates, strict=True)))
        return found

    def pairs(self, segments: list[dict]) -> Counter:
        """Segments and rows that belong together, by definition."""
        return Counter(
            (*name(segment), row.tie[0])
            for segment in segments
            for row in fill(interval(segment), self.rows_of(segment), (), *widths(self.options))[0]
        )


def widths(options: dict) -> tuple[tuple[float, float], float]:
    before, after = options.get("widen") or (None, None)
    return (before or 0, after or 0), options.get("shift") or 0


def interval(segment: dict) -> tuple:
    return segment["segment"]["start"], segment["segment"]["end"], segment["segment"]["bounds"]


def name(segment: dict) -> tuple:
    return str(segment.get("k")), segment["segment"]["id"], segment.get("part", 0)


def pairs_in(rows: list[dict]) -> Counter:
    return Counter((*name(row), row["row"]["number"]) for row in rows)


def alike(found: list[dict], expected: list[dict], tolerance: float = 0.0) -> bool:
    """Whether both hold the same segments in any order; a standard deviation may differ a little more."""
    both = [sorted(rows, key=name) for rows in (found, expected)]
    spread = [[{"spread": row["spread"]} for row in rows] for rows in both]
    rest = [[{k: v for k, v in row.items() if k != "spread"} for row in rows] for rows in both]
    return same(*rest, tolerance) and same(*spread, tolerance and 1e-9)


def options(real: bool) -> st.SearchStrategy[dict]:
    sizes = st.integers(-3, 4)
    if real:
        sizes = st.integers(-6, 8).map(lambda n: n / 2) | st.sampled_from([0.1, -0.3, 2.0**55])
    named = {
        "widen": optional(st.tuples(optional(sizes), optional(sizes))),
        "shift": sizes,
        "where": st.sampled_from(sorted(filter(None, WHERE))),
    }
    return st.fixed_dictionaries({}, optional=named)


@st.composite
def cases(draw: st.DrawFn, max_size: int = 12) -> Case:
    """Any plan, with or without keys; rows that fill lie on the bounds of segments, or near them, or nowhere."""
    plan = draw(st.sampled_from(SCHEMES).flatmap(plans))
    plan = replace(plan, keys=("k",) if draw(st.integers(0, 4)) else ())
    keys, framing, real = draw(arrivals(plan))
    given = draw(options(real))
    whole = not real or draw(st.integers(0, 3)) == 0
    (before, after), shift = widths(given)
    known = [[r.at for r in rows if not null(r.at) and math.isfinite(r.at)] or [0] for rows in keys] + [[0]]
    offsets = optional(st.integers(-2, 2)) | st.just(0)
    if not whole:
        offsets |= st.sampled_from([0.5, -0.5, math.nan, math.inf])
    picked = draw(
        st.lists(
            st.tuples(
                st.integers(0, len(keys)),
                st.integers(0, 7),
                st.sampled_from([0, shift - before, shift + after]),
                offsets,
                optional(st.integers(-160, 160).map(lambda n: n / 8) | st.just(math.nan)),
                optional(st.integers(-50, 50)),
                optional(st.booleans()),
            ),
            max_size=max_size,
        )
    )
    rows = []
    for number, (k, place, moved, offset, x, i, ok) in enumerate(picked):
        at = None if offset is None else known[k][place % len(known[k])] + moved + offset
        if whole and at is not None:
            # as a real number it would be the nearest one
            at = int(float(at)) if real else int(at)
        rows.append((k, with_inputs(Row(at, (ok,), (), (), (number,)), x, i)))
    jitter = draw(st.sampled_from([0, 2, 100]))
    order = [(0 if null(r.at) else r.at) + draw(st.integers(0, jitter)) for _, r in rows]
    arrived = [rows[j] for j in sorted(range(len(rows)), key=lambda j: order[j])]
    return Case(plan, framing, arrived, real, whole, given)


# ---- tables in memory --------------------------------------------------------------------------------------------


@settings(max_examples=2 * settings.default.max_examples)
@given(case=cases(), keep_empty=st.booleans(), stored=st.booleans())
def test_segments_have_the_rows_within_their_bounds(case: Case, keep_empty: bool, stored: bool) -> None:
    segments = pw.segments_local(case.plan, case.framed()).replace_schema_metadata(None)
    framing = segments if stored else case.framed()
    found = pw.fill_local(case.plan, framing, case.fills(), AGG, **case.how, keep_empty=keep_empty).to_pylist()
    assert alike(found, case.expected(segments.to_pylist(), keep_empty), 1e-12)
    rows = pw.fill_local(case.plan, framing, case.fills(), **case.how).to_pylist()
    assert pairs_in(rows) == case.pairs(segments.to_pylist())


@fewer
@given(case=cases(), data=st.data())
def test_no_order_and_no_page_shows(case: Case, data: st.DataObject) -> None:
    x = data.draw(st.lists(st.integers(-(10**6), 10**6).map(lambda n: n / 1000), min_size=len(case.filling)))
    rows = [(k, with_inputs(r, x[j], r.inputs[9])) for j, (k, r) in enumerate(case.filling)]
    expected = replace(case, filling=rows).local()
    other = replace(case, filling=data.draw(st.permutations(rows)))
    sizes = [data.draw(st.integers(1, 6)) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        for piece, size in zip(("pages", "chunks"), sizes, strict=True):
            patch.setattr(local, piece, smaller(getattr(matching, piece), size))
        found = other.local()
        pairs = pairs_in(other.local(None))
    assert repr(found) == repr(expected)
    assert pairs == pairs_in(case.local(None))


def smaller(pieces: object, rows: int) -> object:
    """Pages or chunks of so many rows each."""

    def made(layout: object, batches: list[pa.RecordBatch]) -> Iterator:
        return pieces(layout, (b.slice(i, 1) for b in batches for i in range(len(b))), rows)

    return made


# ---- streams -----------------------------------------------------------------------------------------------------

Batch = tuple[list[tuple[int, Row]], list[bool]]
"""Rows of a micro-batch, and which of them are promises."""


@st.composite
def live(draw: st.DrawFn) -> Case:
    case = draw(cases())
    plan = unlongest(case.plan)
    return replace(case, plan=plan if case.plan.keys else replace(plan, keys=()))


def slack_of(rows: list[tuple[int, Row]], real: bool) -> Punctuation:
    late = lateness(rows)
    return pw.slack(math.nextafter(late, math.inf) if real else late)


def batches(draw: st.DrawFn, rows: list[tuple[int, Row]]) -> list[Batch]:
    return [(some, [False] * len(some)) for some in cut(draw, rows)]


def marked(draw: st.DrawFn, rows: list[tuple[int, Row]], real: bool, per_key: bool, blank_row: Row) -> list[Batch]:
    """Micro-batches, each with promises at its end that hold: about keys, or about all of them."""
    found = []
    pieces = cut(draw, rows)
    for i, piece in enumerate(pieces):
        later = [(k, r.at) for k, r in chain(*pieces[i + 1 :]) if not null(r.at) and math.isfinite(r.at)]
        promises = []
        for k in range(4) if per_key else [None]:
            ahead = [at for key, at in later if k is None or key == k]
            least = min(ahead, default=max((at for _, at in later), default=0))
            if draw(st.booleans()):
                before = math.nextafter(least, -math.inf) if real else least - 1
                promises.append((k or 0, replace(blank_row, at=before)))
        found.append((piece + promises, [False] * len(piece) + [True] * len(promises)))
    return found


@contextmanager
def chunk_bytes(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", size)
        yield


def feeds(draw: st.DrawFn, case: Case, left: list[Batch], right: list[Batch]) -> Iterator[tuple]:
    """Micro-batches of both sides: one of them may be far ahead of the other."""
    left, right = left.copy(), right.copy()
    while left or right:
        sides = draw(st.sampled_from([(True, False), (False, True), (True, True)])) if left and right else (True, True)
        framing = case.framed(*left.pop(0)) if sides[0] and left else None
        filled = case.fills(*right.pop(0)) if sides[1] and right else None
        yield framing, filled


def made(case: Case, draw: st.DrawFn, agg: dict | None = AGG, *, framing: object = None, **options: object) -> LocalFill:
    """A fill of streams whose slack covers how they arrive."""
    plan = replace(case.plan, punctuation=case.plan.punctuation or slack_of(case.framing, case.real))
    how = {"punctuation": slack_of(case.filling, case.real), **case.how}
    rows = case.framed()[:0] if framing is None else framing
    shards = draw(st.sampled_from([1, 2, 4]))
    return LocalFill(plan, filling(plan.keys, **how), agg, rows, case.fills()[:0], shards=shards, **options)


def run(case: Case, draw: st.DrawFn, stream: LocalFill, left: list[Batch], right: list[Batch]) -> list[dict]:
    """All that comes out; in the end nothing is late, and nothing waits."""
    found = []
    with chunk_bytes(draw(st.sampled_from([1, 200, 1000, 100_000]))):
        for framing, filled in feeds(draw, case, left, right):
            found += stream.feed(framing, filled).to_pylist()
        found += stream.finish().to_pylist()
    assert {row["reason"] for row in stream.late} <= {"null_at"}
    assert stream.counts["rows_waiting"] == stream.counts["segments_waiting"] == 0
    assert not any(stream._stores)
    return found


@settings(max_examples=settings.default.max_examples)
@given(case=live(), keep_empty=st.booleans(), data=st.data())
def test_streams_fill_as_tables_do(case: Case, keep_empty: bool, data: st.DataObject) -> None:
    stream = made(case, data.draw, keep_empty=keep_empty)
    found = run(case, data.draw, stream, batches(data.draw, case.framing), batches(data.draw, case.filling))
    assert alike(found, case.local(keep_empty=keep_empty))


@fewer
@given(case=live(), data=st.data())
def test_streams_match_the_rows_that_tables_do(case: Case, data: st.DataObject) -> None:
    stream = made(case, data.draw, None)
    found = run(case, data.draw, stream, batches(data.draw, case.framing), batches(data.draw, case.filling))
    assert pairs_in(found) == pairs_in(case.local(None))


@fewer
@given(case=live(), data=st.data())
def test_promises_of_filling_rows(case: Case, data: st.DataObject) -> None:
    """In-band punctuations that hold, of single keys or of all, on both sides."""
    marks = [bool(case.plan.keys) and data.draw(st.booleans()) for _ in range(2)]
    left, right = (pw.in_band("mark", per_key=per_key) for per_key in marks)
    case = replace(case, plan=replace(case.plan, punctuation=left), options={**case.options, "punctuation": right})
    of_framing = Row(0, *blank(case.plan))
    of_filling = Row(0, (None,), (), (None,) * len(AGG), (-1,))
    stream = made(case, data.draw)
    found = run(
        case,
        data.draw,
        stream,
        marked(data.draw, case.framing, case.real, marks[0], of_framing),
        marked(data.draw, case.filling, not case.whole, marks[1], of_filling),
    )
    del case.options["punctuation"]
    assert alike(found, case.local())


@fewer
@given(case=live(), data=st.data())
def test_parts_are_filled_by_themselves(case: Case, data: st.DataObject) -> None:
    every = data.draw(st.sampled_from([None, None, 1, 3]))
    stream = made(case, data.draw, keep_empty=True, emit="fragments", fragment_every=every)
    found = run(case, data.draw, stream, batches(data.draw, case.framing), batches(data.draw, case.filling))
    bare = [{k: v for k, v in row.items() if k not in AGG} for row in found]
    assert alike(found, case.expected(bare, keep_empty=True), 1e-12)
    if case.options.get("widen") is None:
        # progress alone may have met the minimum of a held frame that the end of the stream then cuts short
        scheme = case.plan.scheme
        unsure = 2 if scheme.extent != "observed" and scheme.limits.min_duration is not None else 0
        check_sums(case, found, case.local(keep_empty=True), unsure)


def check_sums(case: Case, found: list[dict], whole: list[dict], unsure: int) -> None:
    """What parts count and sum makes up what their segment does."""
    segments = {name(segment)[:2]: segment for segment in whole}
    last = Counter(name(segment)[0] for segment in whole)
    parts: dict[tuple, list[dict]] = {}
    for part in sorted(found, key=name):
        parts.setdefault(name(part)[:2], []).append(part)
    for (key, id_), of_segment in parts.items():
        if id_ >= last[key] - unsure:
            continue
        segment, end = segments[key, id_], of_segment[-1]
        if end["segment"]["end"] != segment["segment"]["end"] and case.plan.scheme.extent != "observed":
            continue
        for each in ("n", "there", "whole"):
            assert sum(part[each] or 0 for part in of_segment) == (segment[each] or 0)


@fewer
@given(case=cases(), keep_empty=st.booleans(), data=st.data())
def test_segments_that_were_found_before(case: Case, keep_empty: bool, data: st.DataObject) -> None:
    segments = pw.segments_local(case.plan, case.framed()).replace_schema_metadata(None)
    with chunk_bytes(data.draw(st.sampled_from([1, 1000, 100_000]))):
        stream = made(case, data.draw, framing=segments, keep_empty=keep_empty)
    found = run(case, data.draw, stream, [], batches(data.draw, case.filling))
    assert alike(found, case.local(keep_empty=keep_empty))


# ---- promises of segments, and what they let go ------------------------------------------------------------------


def after(segment: dict) -> tuple[float, bool]:
    """Where a segment starts; an instant that is excluded is before all that follow it."""
    return segment["segment"]["start"], segment["segment"]["bounds"][0] == "("


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=max(settings.default.max_examples * 3 // 10, 1))
@given(data=st.data())
def test_nothing_starts_before_it_was_promised_to(scheme: str, data: st.DataObject) -> None:
    plan = unlongest(data.draw(plans(scheme)))
    keys, arrived, real = data.draw(arrivals(plan))
    if data.draw(st.booleans()):
        plan = replace(plan, punctuation=slack_of(arrived, real))
        fed = batches(data.draw, arrived)
    else:
        per_key = data.draw(st.booleans())
        plan = replace(plan, punctuation=pw.in_band("mark", per_key=per_key))
        fed = marked(data.draw, arrived, real, per_key, Row(0, *blank(plan)))
    emit = data.draw(st.sampled_from(["final", "fragments", "updates"]))
    every = None if emit == "final" else data.draw(st.sampled_from([None, 1, 3]))
    stream = LocalStream(plan, emit=emit, fragment_every=every)
    stream.feed(table(plan, [], real))
    promised: dict[int, float] = {}
    beyond = -math.inf
    for given_ in [*(table(plan, rows, real, marks) for rows, marks in fed), None]:
        found = stream.feed(given_) if given_ is not None else stream.finish()
        for segment in found.to_pylist():
            assert after(segment) > (promised.get(segment["k"], beyond), False)
        before = promised, beyond
        promised, beyond = promises_of(stream)
        assert all(now >= before[0].get(k, before[1]) for k, now in promised.items())


def promises_of(stream: LocalStream) -> tuple[dict[int, float], float]:
    """How far each key is promised, and all others."""
    assert stream._layout is not None
    shard = Shard(stream._layout, 1, stream._state[0])
    named, until = shard.promised()
    return dict(zip(named[0].to_pylist(), until.tolist(), strict=True)), shard.punctuator.until


@fewer
@given(case=live(), data=st.data())
def test_rows_that_no_segment_can_reach_are_let_go(case: Case, data: st.DataObject) -> None:
    """With a chunk for each row, exactly those wait that lie beyond what is promised; with larger ones, some more."""
    size = data.draw(st.sampled_from([1, 1, 1000]))
    emit = data.draw(st.sampled_from(["final", "fragments"]))
    plan = replace(case.plan, punctuation=slack_of(case.framing, case.real))
    how = {**case.how, "punctuation": slack_of(case.filling, case.real)}
    stream = LocalFill(plan, filling(plan.keys, **how), AGG, case.framed()[:0], case.fills()[:0], emit=emit)
    come: list[tuple[int, Row]] = []
    left, right = batches(data.draw, case.framing), batches(data.draw, case.filling)
    holds = WHERE[case.options.get("where")]
    with chunk_bytes(size):
        for framing, filled in feeds(data.draw, case, left, right):
            stream.feed(framing, filled)
            numbers = [] if filled is None else filled.column("number").to_pylist()
            come += [
                (k, r)
                for k, r in case.filling
                if r.tie[0] in numbers and holds(r) and not null(r.at) and math.isfinite(r.at)
            ]
            needed, within = reachable(case, stream, come)
            waiting = stream.counts["rows_waiting"]
            assert waiting >= needed
            assert waiting <= within if size == 1 else (waiting == 0 or within)
            of_rows = [chunk for chunk in stream._stores[0] if chunk.startswith("r0:")]
            assert len(of_rows) == waiting if size == 1 else (waiting > 0) == (of_rows != [])


def reachable(case: Case, stream: LocalFill, come: list[tuple[int, Row]]) -> tuple[int, int]:
    """How many rows lie beyond the promise about their key, after widening; and how many there or on the edge."""
    shard = FillShard(stream._spec, stream._stores[0], stream._states[0])
    assert shard.framing is not None
    named, until = shard.framing.promised()
    keys = named[0].to_pylist() if named else [None] * len(until)
    promised = dict(zip(keys, until.tolist(), strict=True))
    beyond, nothing = shard.framing.punctuator.until, shard._progress.nothing
    limits = [promised.get(LABELS[k] if case.plan.keys else None, beyond) for k, _ in come]
    moved = [limit if limit == nothing else limit + case.moves[0] for limit in limits]
    ats = [row.at for _, row in come]
    beyond_it = sum(at > limit for at, limit in zip(ats, moved, strict=True))
    return beyond_it, sum(at >= limit for at, limit in zip(ats, moved, strict=True)) if case.real else beyond_it

"""Fill: in memory or as streams, in any order and any pieces, each segment gets the rows within its bounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import panewise as pw
from panewise.errors import DataError
from panewise.kernel import chunks, matching
from panewise.kernel.aggregates import Aggregation
from panewise.kernel.fill import Tallies
from panewise.kernel.fillshard import FillShard
from panewise.kernel.oracle import Row, fill
from panewise.kernel.shard import Shard
from panewise.local import fill as local
from panewise.local.fill_stream import LocalFill
from panewise.local.stream import LocalStream
from panewise.spec.fill import filling
from panewise.spec.frames import ChainFrames, TrendFrames
from panewise.spec.options import Chained, Limits
from panewise.spec.plan import PlanSpec
from panewise.spec.punctuate import Punctuation
from properties.streams import AGG, BUILDERS, CALLS, null, optional, plans, same, with_inputs
from properties.test_streams import arrivals, blank, lateness, table, unlongest

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


# ---- cases -------------------------------------------------------------------------------------------------------


def mostly(usual: st.SearchStrategy, *others: object) -> st.SearchStrategy:
    """The usual, and now and then something else: one value in eight."""
    return st.integers(0, 7).flatmap(lambda n: usual if n or not others else st.sampled_from(others))


def options(real: bool) -> st.SearchStrategy[dict]:
    sizes = st.integers(-2, 5)
    if real:
        sizes = mostly(st.integers(-4, 10).map(lambda n: n / 2), 0.1, -0.3, 2.0**55)
    named = {
        "widen": mostly(st.tuples(mostly(sizes, None), mostly(sizes, None)), None),
        "shift": sizes,
        "where": st.sampled_from(sorted(filter(None, WHERE))),
    }
    return st.fixed_dictionaries({}, optional=named)


def in_time(draw: st.DrawFn, rows: list[tuple[int, Row]]) -> list[tuple[int, Row]]:
    """Rows in an order of arrival that is that of `at`, or near it."""
    jitter = draw(st.sampled_from([0, 0, 2, 100]))
    order = [(0 if null(r.at) else r.at) + (jitter and draw(st.integers(0, jitter))) for _, r in rows]
    return [rows[j] for j in sorted(range(len(rows)), key=lambda j: order[j])]


@st.composite
def dense(draw: st.DrawFn, plan: PlanSpec) -> tuple[list[list[Row]], list[tuple[int, Row]], bool]:
    """As `arrivals`, with many rows, few nulls, and keys that move on together."""
    real, shift = draw(st.booleans()), draw(st.sampled_from([0, -7, 2**62]))
    scheme = plan.scheme
    picked = st.tuples(
        st.integers(0, 30),
        st.tuples(*[mostly(st.booleans(), None)] * len(scheme.conditions)),
        st.tuples(*[mostly(st.integers(-3, 6).map(float), None, math.nan)] * len(scheme.values)),
        st.integers(0, 2),
    )
    keys = []
    for rows in draw(st.lists(st.lists(picked, min_size=4, max_size=12), min_size=1, max_size=2)):
        made = [Row(at / 2 if real else at + shift, c, v, (), (tie,)) for at, c, v, tie in rows]
        keys.append([with_inputs(row, None, None) for row in made])
    return keys, in_time(draw, [(k, row) for k, rows in enumerate(keys) for row in rows]), real


def framings(plan: PlanSpec) -> st.SearchStrategy:
    return st.integers(0, 4).flatmap(lambda n: dense(plan) if n else arrivals(plan))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any plan, with or without keys; rows that fill lie on the bounds of segments, or near them, or nowhere."""
    plan = draw(st.sampled_from(SCHEMES).flatmap(plans))
    plan = replace(plan, keys=draw(mostly(st.just(("k",)), ())))
    keys, framing, real = draw(framings(plan))
    given = draw(options(real))
    whole = not real or draw(st.integers(0, 3)) == 0
    (before, after), shift = widths(given)
    known = [[r.at for r in rows if not null(r.at) and math.isfinite(r.at)] or [0] for rows in keys] + [[0]]
    offsets = st.integers(-2, 2) if whole else st.integers(-4, 4).map(lambda n: n / 2)
    picked = draw(
        st.lists(
            st.tuples(
                mostly(st.integers(0, len(keys) - 1), len(keys)),
                st.integers(0, 11),
                st.sampled_from([0, shift - before, shift + after]),
                mostly(offsets, None, *(() if whole else (math.nan, math.inf))),
                mostly(st.integers(-160, 160).map(lambda n: n / 8), None, math.nan),
                mostly(st.integers(-50, 50), None),
                mostly(st.just(True), None, False),
            ),
            min_size=draw(st.sampled_from([8, 8, 8, 0])),
            max_size=16,
        )
    )
    rows = []
    for number, (k, place, moved, offset, x, i, ok) in enumerate(picked):
        at = None if offset is None else known[k][place % len(known[k])] + moved + offset
        if whole and at is not None:
            # as a real number it would be the nearest one
            at = int(float(at)) if real else int(at)
        rows.append((k, with_inputs(Row(at, (ok,), (), (), (number,)), x, i)))
    return Case(plan, framing, in_time(draw, rows), real, whole, given)


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
        if data.draw(st.booleans()):
            patch.setattr(local, "Merger", InPieces)
        found = other.local()
        pairs = pairs_in(other.local(None))
    assert repr(found) == repr(expected)
    assert pairs == pairs_in(case.local(None))


class InPieces(matching.Merger):
    """Takes partial results one by one, sorted by segment, as they come out of a shuffle."""

    def __init__(self, layout: object, keys: tuple, schema: pa.Schema, unsorted: bool) -> None:
        super().__init__(layout, keys, schema)

    def run(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        whole = pa.Table.from_batches(batches).sort_by(matching.UID) if batches else pa.table({})
        return super().run(whole.to_batches(max_chunksize=1))


def smaller(pieces: object, rows: int) -> object:
    """Pages or chunks of so many rows each."""

    def made(layout: object, batches: list[pa.RecordBatch]) -> Iterator:
        return pieces(layout, (b.slice(i, 1) for b in batches for i in range(len(b))), rows)

    return made


def test_keys_that_do_not_fit_match_nothing() -> None:
    plan = pw.threshold_frames("c").by("k").at("t")
    for narrow, wide, other in (
        (pa.int32(), pa.int64(), 2**32 + 1),
        (pa.uint8(), pa.int16(), 257),
        (pa.int64(), pa.uint64(), 2**64 - 1),
        (pa.uint64(), pa.int64(), -1),
    ):
        keys = [1, None, 2**64 - 1 if narrow == pa.uint64() else 2]
        framing = pa.table({"k": pa.array(keys, narrow), "t": [1, 1, 1], "c": [True] * 3})
        rows = pa.table({"k": pa.array([1, other, None], wide), "t": [1, 1, 1]})
        found = pw.fill_local(plan, framing, rows, {"n": "count(*)"}, keep_empty=True).to_pylist()
        assert {row["k"]: row["n"] for row in found} == {1: 1, None: 1, keys[2]: 0}


@fewer
@given(data=st.data())
def test_what_is_added_up_in_any_order(data: st.DataObject) -> None:
    """Tallies of any pieces, merged in any order: what exact arithmetic gives, to the last digit but for stddev."""
    size = st.floats(1e-6, 1e6)
    x = optional(st.just(0.0) | size | size.map(lambda v: -v) | size.map(lambda v: 1e6 + v / 1e6))
    i = optional(st.integers(-50, 50) | st.integers(-(2**62), 2**62))
    rows = data.draw(st.lists(st.tuples(st.integers(0, 3), x, i), min_size=1, max_size=12))
    values, wholes = ([v for v in column if v is not None] for column in list(zip(*rows, strict=True))[1:])
    if not -(2**63) <= sum(wholes) < 2**63:
        with pytest.raises(DataError, match="beyond 64 bits"):
            tallied([rows])
        return
    found = tallied([rows])
    assert tallied(pieces_of(data.draw, data.draw(st.permutations(rows)))) == found
    mean = sum(map(Fraction, values)) / max(len(values), 1)
    squares = sum((Fraction(v) - mean) ** 2 for v in values)
    exact = {
        "n": len(rows),
        "there": len(values),
        "total": math.fsum(values) if values else None,
        "low": min(values, default=None),
        "high": max(values, default=None),
        "mean": math.fsum(values) / len(values) if values else None,
        "spread": math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else None,
        "head": min((at, v is not None, v) for at, v, _ in rows)[2],
        "tail": max((at, v is not None, v) for at, v, _ in rows)[2],
        "whole": sum(wholes) if wholes else None,
        "least": min(wholes, default=None),
    }
    spread = found.pop("spread"), exact.pop("spread")
    assert found == exact
    assert spread[0] == spread[1] or math.isclose(*spread, rel_tol=1e-12)


def tallied(pieces: list[list[tuple[int, float | None, int | None]]]) -> dict:
    """The aggregates over rows (`at`, x, i) that come in pieces."""
    kinds = {"x": pa.float64(), "i": pa.int64(), None: None}
    aggregation = Aggregation(CALLS, [kinds[call.argument] for _, call in CALLS])
    whole = Tallies.empty(1, len(CALLS))
    for rows in pieces:
        at, x, i = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
        columns = {"x": pa.array(x, pa.float64()), "i": pa.array(i, pa.int64()), None: None}
        inputs = aggregation.read([columns[call.argument] for _, call in CALLS], len(rows))
        piece = Tallies.empty(1, len(CALLS))
        ends = np.array([0]), np.array([len(rows)])
        piece.add(*ends, (aggregation.kinds, aggregation.lanes, *inputs), np.array(at, np.int64))
        whole.merge(np.array([0]), aggregation.kinds, piece)
    return {name: column[0].as_py() for (name, _), column in zip(CALLS, whole.results(aggregation), strict=True)}


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


def pieces_of(draw: st.DrawFn, rows: list) -> list[list]:
    """Rows in up to eight pieces, some of them empty."""
    places = sorted(draw(st.lists(st.integers(0, len(rows)), min_size=draw(st.sampled_from([4, 4, 0])), max_size=7)))
    return [rows[a:b] for a, b in pairwise([0, *places, len(rows)])]


def batches(draw: st.DrawFn, rows: list[tuple[int, Row]]) -> list[Batch]:
    return [(some, [False] * len(some)) for some in pieces_of(draw, rows)]


def marked(draw: st.DrawFn, rows: list[tuple[int, Row]], real: bool, per_key: bool, blank_row: Row) -> list[Batch]:
    """Micro-batches, each with promises at its end that hold: about keys, or about all of them."""
    found = []
    pieces = pieces_of(draw, rows)
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


def made(
    case: Case, draw: st.DrawFn, agg: dict | None = AGG, *, framing: pa.Table | None = None, **options: object
) -> LocalFill:
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
    """Nor is less promised than can be, where all that is open will be sent."""
    plan = unlongest(data.draw(plans(scheme)))
    _, arrived, real = data.draw(framings(plan))
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


def test_a_gap_that_is_over_holds_nothing_back() -> None:
    plan = pw.threshold_frames("c", gaps=True).by("k").at("t", pw.slack(0))
    stream = LocalStream(plan)
    stream.feed(pa.table({"k": [0, 0, 0], "t": [1, 2, 3], "c": [False, True, True]}))
    assert promises_of(stream) == ({0: 1}, {0: 2}, 2)


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

"""Segments and rows that fill them, for hypothesis; and streams of both, in micro-batches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import panewise as pw
from panewise.kernel import chunks
from panewise.kernel.oracle import Row, fill
from panewise.local.fill_stream import LocalFill
from panewise.spec.fill import Filling, filling
from panewise.spec.plan import PlanSpec
from panewise.spec.punctuate import Punctuation
from properties.streams import AGG, BUILDERS, CALLS, null, plans, same, with_inputs
from properties.test_streams import arrivals, lateness, table, unlongest

SCHEMES = sorted(BUILDERS)
fewer = settings(max_examples=max(settings.default.max_examples * 4 // 10, 1))
few = settings(max_examples=max(settings.default.max_examples * 25 // 100, 1))
"""A fill takes several times as long as a batch; so do as many properties of it."""
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
        (before, after), shift = widths(self.options, {})
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
            inside, aggregates = fill(interval(segment), self.rows_of(segment), CALLS, *widths(self.options, segment))
            if inside or keep_empty:
                found.append(segment | dict(zip(AGG, aggregates, strict=True)))
        return found

    def pairs(self, segments: list[dict]) -> Counter:
        """Segments and rows that belong together, by definition."""
        return Counter(
            (*name(segment), row.tie[0])
            for segment in segments
            for row in fill(interval(segment), self.rows_of(segment), (), *widths(self.options, segment))[0]
        )


def in_parts(case: Case) -> Case:
    """The same, widened only as parts can be."""
    before = (case.options.get("widen") or (None,))[0]
    if case.options.get("widen") is None:
        return case
    return replace(case, options=case.options | {"widen": (None if before is None else abs(before), None)})


def widths(options: dict, segment: dict) -> tuple[tuple[float, float], float]:
    before, after = options.get("widen") or (None, None)
    if segment.get("part", 0):
        before = None
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
    (before, after), shift = widths(given, {})
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


def just_below(at: float) -> float:
    """The last instant before it, of its own kind; one that a real number can be told by."""
    real = math.nextafter(at, -math.inf)
    return real if isinstance(at, float) else min(at - 1, int(real))


def marked(draw: st.DrawFn, rows: list[tuple[int, Row]], per_key: bool, blank_row: Row) -> list[Batch]:
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
                promises.append((k or 0, replace(blank_row, at=just_below(least))))
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


def filling_of(case: Case, **options: object) -> Filling:
    """How rows fill, with a slack that covers how they arrive."""
    return filling(case.plan.keys, **{"punctuation": slack_of(case.filling, case.real), **case.how, **options})


def made(
    case: Case, draw: st.DrawFn, agg: dict | None = AGG, given: Filling | None = None, **options: object
) -> LocalFill:
    plan = replace(case.plan, punctuation=case.plan.punctuation or slack_of(case.framing, case.real))
    types = {"framing": case.framed()[:0], "rows": case.fills()[:0], "shards": draw(st.sampled_from([1, 2, 4]))}
    return LocalFill(plan, given or filling_of(case), agg, **{**types, **options})


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

"""Streams and plans for hypothesis, and the bridge from the oracle's rows to the kernel's batches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence as Rows

import pyarrow as pa
from hypothesis import strategies as st

import panewise as pw
from panewise.errors import SpecError
from panewise.kernel.merge import Merger
from panewise.kernel.oracle import Row, Segment, oracle
from panewise.kernel.sequence import Layout, Sequence
from panewise.spec.aggregates import Aggregate, aggregates
from panewise.spec.plan import PlanSpec

AGG = {
    "n": "count(*)",
    "there": "count(x)",
    "total": "sum(x)",
    "low": "min(x)",
    "high": "max(x)",
    "mean": "avg(x)",
    "spread": "stddev(x)",
    "head": "first(x)",
    "tail": "last(x)",
    "whole": "sum(i)",
    "least": "min(i)",
    "variance": "variance(x)",
}
CALLS = aggregates(AGG)
VALUES = {
    "kinds": "count(distinct i)",
    "about": "approx_count_distinct(x)",
    "middle": "median(x)",
    "upper": "percentile(i, 0.8)",
    "near": "approx_percentile(x, 0.3)",
    "span": "conformance.schemes:Span(x)",
}
"""Aggregates that keep values: they take several times as long, so they have properties of their own."""


def with_inputs(row: Row, x: float | None, i: int | None) -> Row:
    given = tuple(None if call.argument is None else (x if call.argument == "x" else i) for _, call in CALLS)
    return Row(row.at, row.conditions, row.values, given, row.tie)


def optional(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | strategy


# ---- plans -------------------------------------------------------------------------------------------------------

limits = st.fixed_dictionaries(
    {},
    optional={
        "min_duration": st.integers(1, 6),
        "min_rows": st.integers(1, 4),
        "max_duration": st.integers(1, 9),
        "max_rows": st.integers(1, 5),
    },
)
extents = st.sampled_from([None, "observed", "held", "possible"])
nulls = st.sampled_from(["breaks", "invisible"])


@st.composite
def options(draw: st.DrawFn, missing: tuple[str, ...] = (), chain: bool = False) -> dict[str, object]:
    given: dict[str, object] = {"extent": draw(extents), "longest": draw(st.sampled_from([False, False, True]))}
    if draw(st.booleans()):
        given |= draw(limits)
    if missing:
        given["nulls"] = draw(nulls)
        if draw(st.booleans()):
            given |= {"expect_every": draw(st.integers(1, 3)), "missing": draw(st.sampled_from(missing))}
    if chain:
        given |= draw(
            st.sampled_from(
                [
                    {},
                    {"overlap": "saturated"},
                    {"starts": "s"},
                    {"starts": "s", "on_overlap": "drop"},
                    {"starts": "s", "on_overlap": "continue"},
                ]
            )
        )
        given["remainder"] = draw(st.booleans())
        given["strict"] = draw(st.booleans())
    return given


class Widening:
    """A custom scheme in plain Python: a frame breaks where a value is twice its first, or below zero."""

    values = ("v",)
    cells = 2

    @staticmethod
    def open(state, row):
        state[0] = row[0]
        return row[0] >= 0

    @staticmethod
    def update(state, row):
        state[1] = float(state[1]) + float(row[0])

    @staticmethod
    def close(state, row):
        return float(row[0]) >= 2 * float(state[0]) + 1 or state[1] > 9


TIES = st.sampled_from(["all", "all", "first", "last"])


@st.composite
def plans(draw: st.DrawFn, scheme: str, ties: st.SearchStrategy[str] = TIES) -> PlanSpec:
    """A scheme with any options that go together."""
    for _ in range(50):
        try:
            plan = BUILDERS[scheme](draw)
        except SpecError:
            continue
        return plan.at("t", tie_break=("b",), ties=draw(ties))
    return pw.session_frames(1).at("t")


def _threshold(draw: st.DrawFn) -> pw.Plan:
    given = draw(options(("breaks", "satisfies", "bridged")))
    return pw.threshold_frames("c", gaps=draw(st.booleans()), **given)


def _hysteresis(draw: st.DrawFn) -> pw.Plan:
    given = draw(options(("breaks", "satisfies", "bridged")))
    return pw.threshold_frames(open="c", close="d", gaps=draw(st.booleans()), **given)


def _delta(draw: st.DrawFn) -> pw.Plan:
    amounts = draw(st.sampled_from([{"v": 3}, {"v": 2, "w": 4}, {"v": 1}]))
    given = draw(options(("ignored", "breaks"), chain=True))
    against, closing = draw(st.sampled_from(["range", "first"])), draw(st.sampled_from(["exclude", "include"]))
    return pw.delta_frames(amounts, against=against, closing=closing, **given)


def _aggregate(draw: st.DrawFn) -> pw.Plan:
    call = draw(
        st.sampled_from(["sum(v)", "count(*)", "count(v)", "avg(v)", "min(v)", "max(v)", "range(v)", "stddev(v)"])
    )
    bound = draw(st.sampled_from(["reaches", "stays_below"]))
    given = draw(options(("ignored", "breaks"), chain=True))
    return pw.aggregate_frames(call, **{bound: draw(st.sampled_from([0, 2, 3, 4.5, -1]))}, **given)


def _boundary(draw: st.DrawFn) -> pw.Plan:
    cells = draw(st.sampled_from([{"v": 2}, {"v": 0.7, "w": 3}, {"v": [-1, 0, 2.5]}]))
    return pw.boundary_frames(cells, **draw(options(("ignored", "breaks"))))


def _trend(draw: st.DrawFn) -> pw.Plan:
    direction = draw(st.sampled_from(["rising", "falling", "steady"]))
    return pw.trend_frames("v", direction, **draw(options(("breaks", "bridged"))))


def _session(draw: st.DrawFn) -> pw.Plan:
    return pw.session_frames(draw(st.integers(1, 4)), **draw(options()))


def _custom(draw: st.DrawFn) -> pw.Plan:
    given = draw(options(("ignored", "breaks"), chain=True))
    for name in ("overlap", "starts", "on_overlap", "strict"):
        given.pop(name, None)
    return pw.custom_frames(Widening, closing=draw(st.sampled_from(["exclude", "include"])), **given)


BUILDERS = {
    "threshold": _threshold,
    "hysteresis": _hysteresis,
    "delta": _delta,
    "aggregate": _aggregate,
    "boundary": _boundary,
    "trend": _trend,
    "session": _session,
    "custom": _custom,
}

# ---- rows --------------------------------------------------------------------------------------------------------

numbers = st.integers(-3, 6).map(float) | st.sampled_from([0.5, -2.5, math.nan, 1e308, -1e308])


@st.composite
def streams(draw: st.DrawFn, plan: PlanSpec, max_size: int = 14, real: bool | None = None) -> list[Row]:
    """Rows of one key in any order: tied, null-ridden, before zero, few or none."""
    scheme = plan.scheme
    shift = draw(st.sampled_from([0, -7, -(2**62), 2**62]))
    ats = st.integers(0, 12)
    if real if real is not None else draw(st.booleans()):
        ats = ats.map(lambda t: t / 2) | st.sampled_from([math.inf, -math.inf, math.nan])
    else:
        ats = ats.map(lambda t: t + shift)
    row = st.builds(
        Row,
        at=ats,
        conditions=st.tuples(*[optional(st.booleans())] * len(scheme.conditions)),
        values=st.tuples(*[optional(numbers)] * len(scheme.values)),
        tie=st.tuples(st.integers(0, 2)) if plan.tie_break else st.just(()),
    )
    x = optional(st.integers(-20, 20).map(float) | st.just(math.nan))
    rows = draw(st.lists(st.tuples(row, x, optional(st.integers(-50, 50))), max_size=max_size))
    return [with_inputs(row, x, i) for row, x, i in rows]


# ---- running -----------------------------------------------------------------------------------------------------


def null(x: object) -> bool:
    return x is None or (isinstance(x, float) and math.isnan(x))


def sort_key(row: Row) -> tuple:
    parts = (*row.tie, *row.values, *row.conditions, *row.inputs)
    return (row.at, tuple((0, 0) if null(p) else (1, p) for p in parts))


def batch(rows: Rows[Row], key: int = 0) -> pa.RecordBatch:
    """Sorted rows of one key as the kernels take them."""
    ordered = sorted((r for r in rows if r.at is not None and math.isfinite(r.at)), key=sort_key)
    real = any(isinstance(r.at, float) for r in rows)
    columns = {
        "k0": pa.array([key] * len(ordered), pa.int64()),
        "at": pa.array([r.at for r in ordered], pa.float64() if real else pa.int64()),
    }
    width = len(rows[0].values) if rows else 0
    for v in range(width):
        columns[f"v{v}"] = pa.array([None if null(r.values[v]) else r.values[v] for r in ordered], pa.float64())
    for c in range(len(rows[0].conditions) if rows else 0):
        columns[f"c{c}"] = pa.array([r.conditions[c] for r in ordered], pa.bool_())
    if rows and rows[0].inputs:
        for a, (_, call) in enumerate(CALLS):
            if call.argument is not None:
                kind = pa.float64() if call.argument == "x" else pa.int64()
                columns[f"a{a}"] = pa.array([None if null(r.inputs[a]) else r.inputs[a] for r in ordered], kind)
    return pa.RecordBatch.from_pydict(columns)


def layout(plan: PlanSpec, real: bool, given: tuple[tuple[str, Aggregate], ...] | None = None) -> Layout:
    agg = CALLS if given is None else given
    keyed = PlanSpec(plan.scheme, ("k",), plan.time, plan.tie_break, plan.ties)
    types = {"x": pa.float64(), "i": pa.int64()}
    inputs = tuple(None if call.argument is None else types[call.argument] for _, call in agg)
    return Layout(keyed, agg, (pa.int64(),), pa.float64() if real else pa.int64(), inputs)


def kernel(plan: PlanSpec, keys: Rows[Rows[Row]], page_rows: int = 1000) -> list[list[dict]]:
    """What the kernel finds for several keys, key by key, in order of ids."""
    real = any(isinstance(r.at, float) for rows in keys for r in rows)
    batches = [batch(rows, key) for key, rows in enumerate(keys) if rows]
    found: list[list[dict]] = [[] for _ in keys]
    for out in Sequence(layout(plan, real), page_rows).run(b for b in batches if len(b)):
        for row in out.to_pylist():
            found[row.pop("k")].append(row)
    return found


def told(segment: Segment, gaps: bool) -> dict:
    """An oracle's segment as a result row."""
    row: dict = {
        "segment": {"id": segment.id, "start": segment.start, "end": segment.end, "bounds": segment.bounds},
        "rows": segment.rows,
        "status": segment.status,
    }
    if gaps:
        row["gap"] = segment.gap
    return row | dict(zip(AGG, segment.aggregates, strict=True))


def expected(plan: PlanSpec, rows: Rows[Row]) -> list[dict]:
    return [told(s, getattr(plan.scheme, "gaps", False)) for s in oracle(plan, rows, CALLS)]


def same(a: list[dict], b: list[dict], tolerance: float = 0.0) -> bool:
    if len(a) != len(b):
        return False
    return all(
        x.keys() == y.keys() and all(_close(x[k], y[k], tolerance) for k in x) for x, y in zip(a, b, strict=True)
    )


def _close(a: object, b: object, tolerance: float) -> bool:
    if null(a) or null(b):
        return null(a) and null(b)
    if isinstance(a, float) and isinstance(b, float) and tolerance:
        return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
    return a == b


def merged(plan: PlanSpec, rows: Rows[Row], cuts: Rows[int], by_pairs: bool) -> list[dict]:
    """What the merger finds for one key whose rows are cut where `at` changes; joined from the left, or in pairs."""
    real = any(isinstance(r.at, float) for r in rows)
    whole = batch(rows)
    made = layout(plan, real)
    if not len(whole):
        return []
    at = whole.column("at").to_pylist()
    places = sorted({0, len(at)} | {c for c in (c % len(at) for c in cuts) if c and at[c - 1] < at[c]})
    merger = Merger(made)
    parts = [merger.summary(whole.slice(a, b - a)) for a, b in itertools.pairwise(places)]
    while len(parts) > 1:
        if by_pairs:
            pairs = [merger.merge(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = pairs + parts[2 * len(pairs) :]
        else:
            parts = [merger.merge(parts[0], parts[1]), *parts[2:]]
    found = made.emitter.batch([pa.array([0])], merger.segments(parts[0])).to_pylist()
    for row in found:
        row.pop("k")
    return found

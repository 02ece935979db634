"""The definitions themselves: worked examples, uniqueness by enumeration, and every predicate on both answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from panewise.builders import (
    aggregate_frames,
    boundary_frames,
    custom_frames,
    delta_frames,
    session_frames,
    threshold_frames,
    trend_frames,
)
from panewise.errors import DataError
from panewise.kernel.oracle import (
    Row,
    Segment,
    Span,
    contains,
    covers,
    is_candidate,
    is_drained,
    is_maximal,
    is_minimal,
    is_saturated,
    oracle,
    possible,
)
from panewise.plan import Plan
from panewise.spec.aggregates import aggregates

quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
SEVEN_TENS = [10.0] * 7
TEMPERATURES = [30, 31, 33, 34, 30, 34, 33, 34, 35, 32]


def flags(*conditions: bool | None) -> list[Row]:
    """One row a step from 0, each with its condition."""
    return [Row(at, (condition,), ()) for at, condition in enumerate(conditions)]


def numbers(*values: float | None) -> list[Row]:
    """One row a step from 0, each with its value, which is also what is aggregated."""
    return [Row(at, (), (value,), (value,)) for at, value in enumerate(values)]


def intervals(segments: Sequence[Segment]) -> list[tuple[float, float]]:
    return [(s.start, s.end) for s in segments]


def told(segments: Sequence[Segment]) -> list[str]:
    """Segments as text: interval, rows, and what is unusual."""
    marks = {"remainder": " remainder", "final": ""}
    return [
        f"{s.bounds[0]}{s.start},{s.end}{s.bounds[1]} {s.rows}{marks[s.status]}{' gap' if s.gap else ''}"
        for s in segments
    ]


def subsets(spans: Sequence[Span]) -> Iterator[tuple[Span, ...]]:
    return (chosen for size in range(len(spans) + 1) for chosen in combinations(spans, size))


def runs_where(count: int, holds: Callable[[int, int], bool]) -> list[Span]:
    return [(i, j) for i in range(count) for j in range(i, count) if holds(i, j)]


# 1. Worked examples


def temperatures() -> list[Row]:
    return [Row(at, (value > 32,), ()) for at, value in enumerate(TEMPERATURES, 1)]


def test_temperature_above_32() -> None:
    assert told(oracle(threshold_frames("temperature > 32"), temperatures())) == ["[3,4] 2", "[6,9] 4"]


def test_the_longest_is_one_segment_with_id_0() -> None:
    (longest,) = oracle(threshold_frames("temperature > 32", longest=True), temperatures())
    assert (longest.id, longest.start, longest.end) == (0, 6, 9)


def test_rising_over_at_least_three_rows() -> None:
    rows = [Row(at, (), (value,)) for at, value in enumerate(TEMPERATURES, 1)]
    assert told(oracle(trend_frames("temperature", "rising", min_rows=3), rows)) == ["[1,4] 4", "[7,9] 3"]


@given(st.lists(st.integers(-30, 30), max_size=8, unique=True))
@quick
def test_boundary_frames_on_at_are_tumbling_windows_closed_on_the_right(times: list[int]) -> None:
    found = oracle(boundary_frames({"at": 10}, extent="observed"), [Row(t, (), (float(t),)) for t in times])
    windows: dict[int, list[int]] = {}
    for t in sorted(times):
        windows.setdefault(math.ceil(t / 10), []).append(t)
    assert intervals(found) == [(min(w), max(w)) for w in windows.values()]


# 2. Union closure: exactly one framing is maximal and covers


def assert_unique(candidates: list[Span], found: list[Segment]) -> None:
    fitting = [
        framing
        for framing in subsets(candidates)
        if all(is_maximal(frame, candidates) for frame in framing) and covers(framing, candidates)
    ]
    assert len(fitting) == 1
    assert [(s.start, s.end) for s in found] == sorted(fitting[0])
    assert all(a[1] < b[0] for a, b in pairwise(sorted(fitting[0])))


@given(st.lists(st.sampled_from([True, True, False, None]), max_size=7))
@example([True] * 5)
@quick
def test_exactly_one_threshold_framing(conditions: list[bool | None]) -> None:
    candidates = runs_where(len(conditions), lambda i, j: all(conditions[i : j + 1]))
    assume(len(candidates) <= 15)
    assert_unique(candidates, oracle(threshold_frames("c"), flags(*conditions)))


@given(st.lists(st.tuples(st.floats(-3, 3), st.sampled_from([0.5, 1.5])), max_size=7))
@example([(0.5, 0.5)] * 4 + [(1.0, 1.5), (1.5, 1.5)])
@quick
def test_exactly_one_boundary_framing(points: list[tuple[float, float]]) -> None:
    cells = [(math.ceil(x / 2), y > 1) for x, y in points]
    candidates = runs_where(len(points), lambda i, j: len(set(cells[i : j + 1])) == 1)
    assume(len(candidates) <= 15)
    plan = boundary_frames({"x": 2, "y": [1]}, extent="observed")
    assert_unique(candidates, oracle(plan, [Row(at, (), point) for at, point in enumerate(points)]))


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([False, False, True, None])), max_size=12))
@quick
def test_hysteresis_equals_the_operator_of_rule_8(conditions: list[tuple[bool, bool | None]]) -> None:
    expected: list[list[int]] = []
    inside = False
    for at, (opens, closes) in enumerate(conditions):
        if closes is not False:
            inside = False
        elif inside:
            expected[-1][1] = at
        elif opens:
            inside = True
            expected.append([at, at])
    rows = [Row(at, pair, ()) for at, pair in enumerate(conditions)]
    assert intervals(oracle(threshold_frames(open="o", close="c"), rows)) == [(a, b) for a, b in expected]


# 3. Chains: exactly one, while the literal conditions admit several


def partitions(count: int) -> Iterator[list[Span]]:
    """Every way to cut a stream into consecutive runs."""
    for size in range(count):
        for cuts in combinations(range(1, count), size):
            edges = (0, *cuts, count)
            yield [(a, b - 1) for a, b in pairwise(edges)]


def is_exclude_chain(partition: list[Span], count: int, breaks: Callable[[int, int], bool]) -> bool:
    """Each frame ends before the first row that breaks it, or is one row that breaks by itself."""

    def stops_after(i: int, j: int) -> bool:
        return breaks(i, j + 1) or (i == j and breaks(i, i))

    return all(
        (j == count - 1 or stops_after(i, j)) and not any(stops_after(i, k) for k in range(i, j)) for i, j in partition
    )


def is_include_chain(partition: list[Span], count: int, meets: Callable[[int, int], bool]) -> bool:
    """Each frame ends at the first row that meets the condition; what is left over at the end never does."""
    return all((j == count - 1 or meets(i, j)) and not any(meets(i, k) for k in range(i, j)) for i, j in partition)


Measure = Callable[[list[float]], float]
SPREAD: Measure = lambda values: max(values) - min(values)  # noqa: E731  # shorter, and as clear
small = st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=7)


@pytest.mark.parametrize(
    ("exclude", "include", "measure", "bound"),
    [
        (delta_frames({"v": 5}, extent="observed"), {"closing": "include"}, SPREAD, 5),
        (
            delta_frames({"v": 5}, against="first", extent="observed"),
            {"closing": "include", "against": "first"},
            lambda values: abs(values[-1] - values[0]),
            5,
        ),
        (aggregate_frames("sum(v)", stays_below=7, extent="observed"), "sum(v)", sum, 7),
        (aggregate_frames("avg(v)", stays_below=7, extent="observed"), "avg(v)", lambda vs: sum(vs) / len(vs), 7),
        (aggregate_frames("max(v)", stays_below=7, extent="observed"), "max(v)", max, 7),
    ],
    ids=["delta-range", "delta-first", "sum", "avg", "max"],
)
@given(values=small)
@settings(max_examples=30, deadline=None)
def test_exactly_one_chain(exclude: Plan, include: Any, measure: Measure, bound: float, values: list[float]) -> None:
    def passes(i: int, j: int) -> bool:
        return measure(values[i : j + 1]) >= bound

    rows, count = numbers(*values), len(values)
    (chain,) = [p for p in partitions(count) if is_exclude_chain(p, count, passes)]
    assert intervals(oracle(exclude, rows)) == chain
    minimal = (
        aggregate_frames(include, reaches=bound, extent="observed", remainder=True)
        if isinstance(include, str)
        else delta_frames({"v": bound}, extent="observed", remainder=True, **include)
    )
    (chain,) = [p for p in partitions(count) if is_include_chain(p, count, passes)]
    found = oracle(minimal, rows)
    assert intervals(found) == chain
    assert [s.status == "final" for s in found] == [passes(i, j) for i, j in chain]


def framings(candidates: list[Span], fits: Callable[[Span, Sequence[Span]], bool]) -> list[tuple[Span, ...]]:
    """The drained sets of fitting candidates that cover the candidates."""
    fitting = [frame for frame in candidates if fits(frame, candidates)]
    return [s for s in subsets(fitting) if covers(s, candidates) and is_drained(s, candidates)]


def test_sum_of_25_over_seven_tens_has_three_drained_minimal_framings_that_cover() -> None:
    reaching = runs_where(7, lambda i, j: sum(SEVEN_TENS[i : j + 1]) >= 25)
    assert framings(reaching, is_minimal) == [((0, 2), middle, (4, 6)) for middle in [(1, 3), (2, 4), (3, 5)]]
    assert framings(reaching, is_maximal) == [((0, 6),)]
    chain = oracle(aggregate_frames("sum(v)", reaches=25, extent="observed"), numbers(*SEVEN_TENS))
    assert intervals(chain) == [(0, 2), (3, 5)]
    assert not covers([(0, 2), (3, 5)], reaching)


def test_its_maximal_form_has_three_drained_framings_that_cover_too() -> None:
    below = runs_where(7, lambda i, j: sum(SEVEN_TENS[i : j + 1]) < 25)
    inner = [((1, 2), (3, 4)), ((2, 3), (3, 4)), ((2, 3), (4, 5))]
    assert framings(below, is_maximal) == [((0, 1), *pair, (5, 6)) for pair in inner]
    chain = oracle(aggregate_frames("sum(v)", stays_below=25, extent="observed"), numbers(*SEVEN_TENS))
    assert intervals(chain) == [(0, 1), (2, 3), (4, 5), (6, 6)]
    assert not is_maximal((6, 6), below)


@given(st.lists(st.integers(0, 9).map(float), max_size=8))
@quick
def test_saturated_frames_are_all_the_maximal_or_minimal_ones_of_a_monotone_scheme(values: list[float]) -> None:
    rows = numbers(*values)
    within = runs_where(len(values), lambda i, j: SPREAD(values[i : j + 1]) < 5)
    spans = intervals(oracle(delta_frames({"v": 5}, overlap="saturated", extent="observed"), rows))
    assert spans == [frame for frame in within if is_maximal(frame, within)]
    assert is_saturated(spans, within, is_maximal)  # type: ignore[arg-type]  # these times are positions
    reaching = runs_where(len(values), lambda i, j: sum(values[i : j + 1]) >= 12)
    spans = intervals(oracle(aggregate_frames("sum(v)", reaches=12, overlap="saturated", extent="observed"), rows))
    assert spans == [frame for frame in reaching if is_minimal(frame, reaching)]


# 4. Each predicate on both answers


def test_contains() -> None:
    assert contains((0, 3), (1, 3))
    assert not contains((0, 3), (0, 3))
    assert not contains((1, 3), (0, 3))
    assert not contains((0, 2), (1, 3))


def test_is_maximal_and_is_minimal() -> None:
    candidates = [(0, 2), (1, 1), (4, 4)]
    assert [is_maximal(c, candidates) for c in candidates] == [True, False, True]
    assert [is_minimal(c, candidates) for c in candidates] == [False, True, True]


def test_covers() -> None:
    assert covers([(0, 1), (2, 3)], [(1, 2)])
    assert not covers([(0, 1), (3, 3)], [(1, 2)])
    assert covers([], [])


def test_is_drained() -> None:
    assert is_drained([(0, 1), (2, 3)], [(0, 3)])
    assert not is_drained([(0, 1), (1, 2), (2, 3)], [(0, 3)])


def test_is_saturated() -> None:
    candidates = [(0, 1), (0, 2), (1, 3)]
    assert is_saturated([(0, 2), (1, 3)], candidates, is_maximal)
    assert not is_saturated([(0, 2)], candidates, is_maximal)
    assert is_saturated([(0, 1), (1, 3)], candidates, is_minimal)
    assert not is_saturated([(0, 2), (1, 3)], candidates, is_minimal)


def test_possible() -> None:
    assert possible(flags(True, True, True)) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]
    assert possible([]) == []


@pytest.mark.parametrize(
    ("plan", "yes", "no"),
    [
        (threshold_frames("c"), flags(True, True), flags(True, None)),
        (threshold_frames("c", expect_every=1), flags(True, True), [*flags(True), Row(2, (True,), ())]),
        (
            threshold_frames(open="o", close="c"),
            [Row(0, (True, False), ()), Row(1, (None, False), ())],
            [Row(0, (None, False), ()), Row(1, (True, False), ())],
        ),
        (boundary_frames({"v": 2}), numbers(0.5, 2), numbers(0, 0.5)),
        (boundary_frames({"v": [2]}), numbers(-99, 2), numbers(2, 2.5)),
        (trend_frames("v", "rising"), numbers(1, 2), numbers(1, 1)),
        (trend_frames("v", "falling"), numbers(2, 1), numbers(2)),
        (trend_frames("v", "steady"), numbers(1, 1), numbers(1, 2)),
        (session_frames(5), [Row(0, (), ()), Row(4, (), ())], [Row(0, (), ()), Row(5, (), ())]),
    ],
)
def test_is_candidate(plan: Plan, yes: list[Row], no: list[Row]) -> None:
    assert is_candidate(plan.scheme, yes)
    assert not is_candidate(plan.scheme, no)


# The rulings, one story each


class Pairs:
    """Opens on a positive value; the frame's values may not sum to 10 or more."""

    values = ("v",)
    cells = 1

    @staticmethod
    def open(state: Any, row: Any) -> bool:
        state[0] = row[0]
        return bool(row[0] > 0)

    @staticmethod
    def update(state: Any, row: Any) -> None:
        state[0] += row[0]

    @staticmethod
    def close(state: Any, row: Any) -> bool:
        return bool(state[0] >= 10)


def spaced(step: int, *conditions: Any) -> list[Row]:
    """Rows a step apart; "lost" ones never came."""
    return [Row(at * step, (c,), ()) for at, c in enumerate(conditions) if c != LOST]


T, F, LOST = True, False, "lost"
STARTS = [Row(at, (at in (0, 2, 5),), (10.0,)) for at in range(7)]


@pytest.mark.parametrize(
    ("plan", "rows", "expected"),
    [
        pytest.param(threshold_frames("c"), flags(T, None, T), ["[0,0] 1", "[2,2] 1"], id="5-null-breaks"),
        pytest.param(threshold_frames("c", nulls="invisible"), flags(T, None, T), ["[0,2] 2"], id="5-invisible"),
        pytest.param(delta_frames({"v": 5}, nulls="breaks"), numbers(1, None, 1), ["[0,1) 1", "[2,2] 1"], id="5-delta"),
        pytest.param(
            threshold_frames("c", min_duration=2, max_rows=2),
            flags(T, T, T, F, T, T),
            ["[0,1] 2", "[2,2] 1"],
            id="9-pieces",
        ),
        pytest.param(
            aggregate_frames("sum(v)", stays_below=25),
            numbers(10, 30, -10, 5),
            ["[0,1) 1", "[1,2) 1", "[2,3] 2"],
            id="10-alone",
        ),
        pytest.param(
            delta_frames({"v": 5}, expect_every=1, missing="breaks"),
            [Row(0, (), (1.0,)), Row(2, (), (1.0,)), Row(3, (), (1.0,))],
            ["[0,1) 1", "[2,4) 2"],
            id="10-missing",
        ),
        pytest.param(
            aggregate_frames("count(*)", reaches=1, min_duration=2),
            flags(F, F, F, F),
            ["[0,2) 2"],
            id="11-held-never-at-end",
        ),
        pytest.param(
            aggregate_frames("count(*)", reaches=1, min_duration=2, extent="observed"),
            flags(F, F, F, F),
            ["[0,2] 3"],
            id="11-observed",
        ),
        pytest.param(
            aggregate_frames("sum(v)", reaches=25, max_rows=2, remainder=True),
            numbers(10, 10, 10),
            ["[0,2) 2", "[2,2] 1 remainder"],
            id="12",
        ),
        pytest.param(delta_frames({"v": 5}, min_rows=2), numbers(1, 9, 9), ["[1,2] 2"], id="13"),
        pytest.param(
            aggregate_frames("sum(v)", reaches=25, starts="s", extent="observed"),
            STARTS,
            ["[0,1] 2", "[2,4] 3"],
            id="14-close",
        ),
        pytest.param(
            aggregate_frames("sum(v)", reaches=25, starts="s", on_overlap="drop", extent="observed", remainder=True),
            STARTS,
            ["[2,4] 3", "[5,6] 2 remainder"],
            id="14-drop",
        ),
        pytest.param(
            aggregate_frames("sum(v)", reaches=25, starts="s", on_overlap="continue", extent="observed"),
            STARTS,
            ["[0,2] 3", "[2,4] 3"],
            id="14-continue",
        ),
        pytest.param(
            aggregate_frames("sum(v)", reaches=25, overlap="saturated", max_rows=2, extent="observed"),
            numbers(10, 10, 30, 10),
            ["[0,1] 2", "[2,2] 1"],
            id="15-stopped-by-maximum",
        ),
        pytest.param(delta_frames({"v": 5}, strict=True), numbers(0, 5, 6), ["[0,2) 2", "[2,2] 1"], id="16-strict"),
        pytest.param(delta_frames({"v": 5}, against="first"), numbers(0, 4, -4), ["[0,2] 3"], id="16-first"),
        pytest.param(
            aggregate_frames("stddev(v)", reaches=0, extent="observed"), numbers(1, 1, 1), ["[0,1] 2"], id="16-stddev"
        ),
        pytest.param(threshold_frames("c", extent="held"), flags(F, T, T, F, T), ["[1,3) 2", "[4,4] 1"], id="17-held"),
        pytest.param(
            threshold_frames("c", extent="possible"), flags(T, F, T, T, F), ["[0,1) 1", "(1,4) 2"], id="17-possible"
        ),
        pytest.param(
            threshold_frames("c", extent="held", expect_every=10),
            spaced(10, T, T, LOST, T),
            ["[0,20) 2", "[30,40) 1"],
            id="17-held-missing",
        ),
        pytest.param(
            threshold_frames("c", expect_every=10, missing="satisfies", min_rows=4),
            spaced(10, T, LOST, T, LOST, F, T, LOST, F),
            ["[0,30] 2"],
            id="20-satisfies",
        ),
        pytest.param(
            threshold_frames("c", expect_every=10, missing="bridged", min_rows=3),
            spaced(10, T, LOST, T, LOST, F, T, LOST, F),
            ["[0,20] 2"],
            id="20-bridged",
        ),
        pytest.param(
            threshold_frames("c", expect_every=10),
            [Row(0, (T,), ()), Row(14, (T,), ()), Row(29, (T,), ())],
            ["[0,14] 2", "[29,29] 1"],
            id="20-half",
        ),
        pytest.param(
            threshold_frames("c", gaps=True, min_rows=2),
            flags(F, T, F, T, T, None),
            ["[0,3) 3 gap", "[3,5) 2", "[5,5] 1 gap"],
            id="21",
        ),
        pytest.param(threshold_frames("c", longest=True), flags(T, T, F, T, T), ["[0,1] 2"], id="23-earliest"),
        pytest.param(custom_frames(Pairs), numbers(-1, 6, 6, 1, -1), ["[1,2] 2", "[3,4] 2"], id="custom-exclude"),
        pytest.param(
            custom_frames(Pairs, closing="include", remainder=True),
            numbers(-1, 6, 6, -1, 1),
            ["[1,2] 2", "[4,4] 1 remainder"],
            id="custom-include",
        ),
        pytest.param(threshold_frames("c"), [], [], id="empty"),
        pytest.param(
            session_frames(2),
            [Row(2**62 + k, (), ()) for k in (3, 0, 1)],
            [f"[{2**62},{2**62 + 1}] 2", f"[{2**62 + 3},{2**62 + 3}] 1"],
            id="huge-integers",
        ),
    ],
)
def test_ruling(plan: Plan, rows: list[Row], expected: list[str]) -> None:
    assert told(oracle(plan, rows)) == expected
    assert told(oracle(plan, rows[::-1])) == expected
    never: Any = None
    nowhere = [Row(at, (None,) * 2, (None,) * 2) for at in (never, math.nan)]
    assert told(oracle(plan, [*nowhere, *rows])) == expected


def test_rules_1_and_3_ties() -> None:
    rows = [Row(1, (True,), (), (7,), (2,)), Row(1, (False,), (), (8,), (1,)), Row(1, (True,), (), (9,), (None,))]
    calls = aggregates({"a": "first(x)"})
    for ties, values in [("all", [9, 7]), ("first", [9]), ("last", [7])]:
        found = oracle(threshold_frames("c").at("at", tie_break="t", ties=ties), rows, calls)
        assert [s.aggregates for s in found] == [(v,) for v in values]
    with pytest.raises(DataError, match="`at` 1"):
        oracle(threshold_frames("c").at("at", ties="error"), rows)


def test_rule_25_invisible_rows_fill_their_neighbours_segments_within_bounds() -> None:
    values = [None, 1.0, None, 9.0, None]
    rows = [Row(at, (), (value,), (None, at, at)) for at, value in enumerate(values)]
    calls = aggregates({"n": "count(*)", "first": "first(x)", "last": "last(x)"})
    for extent, expected in [
        ("observed", [(1, 1, 1), (1, 3, 3)]),
        ("held", [(2, 1, 2), (1, 3, 3)]),
        ("possible", [(2, 1, 2), (2, 2, 3)]),
    ]:
        assert [s.aggregates for s in oracle(delta_frames({"v": 5}, extent=extent), rows, calls)] == expected


def test_rule_26_aggregates_skip_nulls_and_keep_integers() -> None:
    calls = aggregates({f: f"{f}(x)" for f in ("count", "sum", "avg", "min", "max", "stddev", "first", "last")})
    rows = [Row(at, (True,), (), (x,) * 8) for at, x in enumerate([None, 1, 4, math.nan])]
    (segment,) = oracle(threshold_frames("c"), rows, calls)
    assert segment.aggregates == (2, 5, 2.5, 1, 4, math.sqrt(4.5), None, None)
    assert isinstance(segment.aggregates[1], int)
    (segment,) = oracle(threshold_frames("c"), rows[:1], calls)
    assert segment.aggregates == (0, *[None] * 7)


def test_rule_26_an_overflowing_sum_is_an_error() -> None:
    calls = aggregates({"s": "sum(x)"})
    rows = [Row(0, (True,), (), (2**63 - 1,)), Row(1, (True,), (), (1,))]
    assert oracle(threshold_frames("c"), rows[:1], calls)[0].aggregates == (2**63 - 1,)
    with pytest.raises(DataError, match="beyond 64 bits"):
        oracle(threshold_frames("c"), rows, calls)

"""Each predicate on both answers, in Python and compiled, up to the ends of int64."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from panewise.kernel.spans import missing_between, span_at_least, span_more_than, span_no_shorter

LOW, HIGH = -(2**63), 2**63 - 1


@numba.njit
def at_least(a, b, d):
    return span_at_least(a, b, d)


@numba.njit
def more_than(a, b, d):
    return span_more_than(a, b, d)


@numba.njit
def no_shorter(a, b, c, d):
    return span_no_shorter(a, b, c, d)


@numba.njit
def missing(a, b, every):
    return missing_between(a, b, every)


@pytest.mark.parametrize(
    ("a", "b", "d", "least", "more"),
    [
        (0, 5, 5, True, False),
        (0, 5, 6, False, False),
        (0, 6, 5, True, True),
        (LOW, HIGH, HIGH, True, True),
        (LOW, LOW + 3, 4, False, False),
        (0.0, 0.5, 0.5, True, False),
        (-0.5, 0.25, 0.5, True, True),
        (0.0, 0.25, 0.5, False, False),
    ],
)
def test_spans(a, b, d, least: bool, more: bool) -> None:
    kind = np.float64 if isinstance(a, float) else np.int64
    a, b, d = kind(a), kind(b), kind(d)
    assert bool(at_least(a, b, d)) == bool(span_at_least(a, b, d)) == least
    assert bool(more_than(a, b, d)) == bool(span_more_than(a, b, d)) == more


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [((0, 5), (0, 5), True), ((0, 5), (1, 7), False), ((LOW, HIGH), (0, HIGH), True), ((0, HIGH), (LOW, HIGH), False)],
)
def test_no_shorter(first: tuple[int, int], second: tuple[int, int], answer: bool) -> None:
    given = [np.int64(x) for x in (*first, *second)]
    assert bool(no_shorter(*given)) == bool(span_no_shorter(*given)) == answer


@pytest.mark.parametrize(
    ("a", "b", "every", "count"),
    [(0, 20, 20, 0), (0, 29, 20, 0), (0, 30, 20, 1), (0, 49, 20, 1), (0, 50, 20, 2), (0, 0, 20, 0),
     (LOW, HIGH, HIGH, 1), (0.0, 0.29, 0.2, 0), (0.0, 0.75, 0.25, 2)],
)  # fmt: skip
def test_missing_readings(a, b, every, count: int) -> None:
    kind = np.float64 if isinstance(a, float) else np.int64
    a, b, every = kind(a), kind(b), kind(every)
    assert missing(a, b, every) == missing_between(a, b, every) == count

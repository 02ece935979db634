"""Arithmetic on `at` that is exact for every int64 and every float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

__all__ = ["later", "missing_between", "span_at_least", "span_more_than", "span_no_shorter"]

_MANY = 1 << 62
_LAST = (1 << 63) - 1


def _span(a: Any, b: Any) -> Any:
    return b - a if isinstance(b, float) else int(b) - int(a)


def span_at_least(a: Any, b: Any, d: Any) -> Any:
    """Whether b - a >= d, for a <= b; a difference of int64 may need 64 bits without a sign."""
    return _span(a, b) >= d


def span_more_than(a: Any, b: Any, d: Any) -> Any:
    """Whether b - a > d, for a <= b."""
    return _span(a, b) > d


def span_no_shorter(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Whether b - a >= d - c, for a <= b and c <= d."""
    return _span(a, b) >= _span(c, d)


def later(a: Any, d: Any) -> Any:
    """The instant a + d, or the last that an int64 holds."""
    return a + d if isinstance(a, float) else min(int(a) + int(d), _LAST)


def missing_between(a: Any, b: Any, every: Any) -> Any:
    """How many expected readings did not come between two rows: floor((b - a) / every + 1/2) - 1, never below 0."""
    gap = _span(a, b)
    if isinstance(gap, int):
        return max((2 * gap + int(every)) // (2 * int(every)) - 1, 0)
    return max(min(math.floor(gap / every + 0.5), _MANY) - 1, 0)


@overload(span_at_least)
def _compiled_span_at_least(a: Any, b: Any, d: Any) -> Any:
    def whole(a: Any, b: Any, d: Any) -> Any:
        return np.uint64(b) - np.uint64(a) >= np.uint64(d)

    def real(a: Any, b: Any, d: Any) -> Any:
        return b - a >= d

    return whole if isinstance(a, types.Integer) else real


@overload(span_more_than)
def _compiled_span_more_than(a: Any, b: Any, d: Any) -> Any:
    def whole(a: Any, b: Any, d: Any) -> Any:
        return np.uint64(b) - np.uint64(a) > np.uint64(d)

    def real(a: Any, b: Any, d: Any) -> Any:
        return b - a > d

    return whole if isinstance(a, types.Integer) else real


@overload(span_no_shorter)
def _compiled_span_no_shorter(a: Any, b: Any, c: Any, d: Any) -> Any:
    def whole(a: Any, b: Any, c: Any, d: Any) -> Any:
        return np.uint64(b) - np.uint64(a) >= np.uint64(d) - np.uint64(c)

    def real(a: Any, b: Any, c: Any, d: Any) -> Any:
        return b - a >= d - c

    return whole if isinstance(a, types.Integer) else real


@overload(later)
def _compiled_later(a: Any, d: Any) -> Any:
    def whole(a: Any, d: Any) -> Any:
        return a + d if a <= _LAST - d else _LAST

    def real(a: Any, d: Any) -> Any:
        return a + d

    return whole if isinstance(a, types.Integer) else real


@overload(missing_between)
def _compiled_missing_between(a: Any, b: Any, every: Any) -> Any:
    if isinstance(a, types.Integer):

        def whole(a: Any, b: Any, every: Any) -> Any:
            gap, step = np.uint64(b) - np.uint64(a), np.uint64(every)
            count, rest = gap // step, gap % step
            readings = np.int64(min(count, np.uint64(_MANY)))
            if rest >= step - rest:
                readings += 1
            return max(readings - 1, 0)

        return whole

    def real(a: Any, b: Any, every: Any) -> Any:
        readings = math.floor(min((b - a) / every + 0.5, float(_MANY)))
        return max(np.int64(readings) - 1, 0)

    return real

"""What a chain frame measures of its rows: moves of values, or an aggregate, against a bound."""

from __future__ import annotations

import math
from typing import Any

from panewise.kernel.compiled import compiled

__all__ = ["AVG", "COUNT", "DELTA_FIRST", "DELTA_RANGE", "MAX", "MIN", "RANGE", "STDDEV", "SUM", "add", "begin", "breaks", "passes"]

DELTA_RANGE, DELTA_FIRST, SUM, COUNT, AVG, MIN, MAX, RANGE, STDDEV = range(9)


@compiled
def begin(form: Any, state: Any, values: Any, i: Any) -> bool:
    """Start a measure with row i."""
    kind = form[0]
    width = values.shape[0]
    if kind == DELTA_RANGE:
        for d in range(width):
            state[d] = values[d, i]
            state[width + d] = values[d, i]
    elif kind == DELTA_FIRST:
        for d in range(width):
            state[d] = values[d, i]
            state[width + d] = 0.0
    elif kind == COUNT:
        state[0] = 1.0
    elif kind == AVG:
        state[0] = values[0, i]
        state[1] = 1.0
    elif kind == STDDEV:
        state[0] = 1.0
        state[1] = values[0, i]
        state[2] = 0.0
    else:
        state[0] = values[0, i]
        state[1] = values[0, i]
    return True


@compiled
def add(form: Any, state: Any, values: Any, i: Any) -> None:
    """Let the measure go on with row i."""
    kind = form[0]
    width = values.shape[0]
    if kind == DELTA_RANGE:
        for d in range(width):
            x = values[d, i]
            if x < state[d]:
                state[d] = x
            if x > state[width + d]:
                state[width + d] = x
    elif kind == DELTA_FIRST:
        for d in range(width):
            state[width + d] = abs(values[d, i] - state[d])
    elif kind == SUM:
        state[0] += values[0, i]
    elif kind == COUNT:
        state[0] += 1.0
    elif kind == AVG:
        state[0] += values[0, i]
        state[1] += 1.0
    elif kind == STDDEV:
        x = values[0, i]
        state[0] += 1.0
        d = x - state[1]
        state[1] += d / state[0]
        state[2] += d * (x - state[1])
    else:
        x = values[0, i]
        if x < state[0]:
            state[0] = x
        if x > state[1]:
            state[1] = x


@compiled
def passes(form: Any, state: Any, values: Any, i: Any) -> bool:
    """Whether the measure is at the bound (past it, if strict)."""
    kind, bounds, strict = form
    if kind == DELTA_RANGE or kind == DELTA_FIRST:  # noqa: PLR1714  # numba: no tuple membership
        width = len(bounds)
        for d in range(width):
            moved = state[width + d] - state[d] if kind == DELTA_RANGE else state[width + d]
            if moved > bounds[d] or (moved == bounds[d] and not strict):
                return True
        return False
    if kind == AVG:
        measure = state[0] / state[1]
    elif kind == MAX:
        measure = state[1]
    elif kind == RANGE:
        measure = state[1] - state[0]
    elif kind == STDDEV:
        if state[0] < 2.0:
            return False
        measure = math.sqrt(state[2] / (state[0] - 1.0))
    else:
        measure = state[0]
    return measure > bounds[0] or (measure == bounds[0] and not strict)


@compiled
def breaks(form: Any, state: Any, scratch: Any, values: Any, i: Any) -> bool:
    """Whether the measure with row i added passes; if not, the row is added."""
    scratch[:] = state
    add(form, scratch, values, i)
    if passes(form, scratch, values, i):
        return True
    state[:] = scratch
    return False

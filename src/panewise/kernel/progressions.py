"""What a chain frame measures of its rows: moves of values, or an aggregate, against a bound.

The state of frame f is row f of `states`. Views of it would cost more than the arithmetic, so functions take the whole
array and the row.
"""

from __future__ import annotations

import math
from typing import Any

from panewise.kernel.compiled import inlined

__all__ = [
    "AVG", "COUNT", "CUSTOM", "DELTA_FIRST", "DELTA_RANGE", "MAX", "MIN", "RANGE", "STDDEV", "SUM",
    "add", "begin", "breaks", "passes",
]  # fmt: skip

DELTA_RANGE, DELTA_FIRST, SUM, COUNT, AVG, MIN, MAX, RANGE, STDDEV, CUSTOM = range(10)


@inlined
def begin(kind: Any, states: Any, f: Any, values: Any, i: Any) -> bool:
    """Start a measure with row i."""
    if kind <= DELTA_FIRST:
        width = values.shape[0]
        for d in range(width):
            states[f, d] = values[d, i]
            states[f, width + d] = values[d, i] if kind == DELTA_RANGE else 0.0
    elif kind == COUNT:
        states[f, 0] = 1.0
    elif kind == STDDEV:
        states[f, 0] = 1.0
        states[f, 1] = values[0, i]
        states[f, 2] = 0.0
    else:
        states[f, 0] = values[0, i]
        states[f, 1] = 1.0 if kind == AVG else values[0, i]
    return True


@inlined
def add(kind: Any, states: Any, f: Any, values: Any, i: Any) -> None:
    """Let the measure go on with row i."""
    if kind <= DELTA_FIRST:
        width = values.shape[0]
        for d in range(width):
            x = values[d, i]
            if kind == DELTA_FIRST:
                states[f, width + d] = abs(x - states[f, d])
            else:
                states[f, d] = min(states[f, d], x)
                states[f, width + d] = max(states[f, width + d], x)
    elif kind == COUNT:
        states[f, 0] += 1.0
    elif kind == STDDEV:
        states[f, 0] += 1.0
        step = values[0, i] - states[f, 1]
        states[f, 1] += step / states[f, 0]
        states[f, 2] += step * (values[0, i] - states[f, 1])
    elif kind <= AVG:
        states[f, 0] += values[0, i]
        states[f, 1] += 1.0
    else:
        states[f, 0] = min(states[f, 0], values[0, i])
        states[f, 1] = max(states[f, 1], values[0, i])


@inlined
def passes(kind: Any, bounds: Any, strict: Any, states: Any, f: Any, values: Any, i: Any) -> bool:
    """Whether the measure is at the bound (past it, if strict); row i is the last that was added."""
    if kind <= DELTA_FIRST:
        width = len(bounds)
        for d in range(width):
            moved = states[f, width + d]
            if kind == DELTA_RANGE:
                moved -= states[f, d]
            if moved > bounds[d] or (moved == bounds[d] and not strict):
                return True
        return False
    measure = states[f, 0]
    if kind == AVG:
        measure /= states[f, 1]
    elif kind == MAX:
        measure = states[f, 1]
    elif kind == RANGE:
        measure = states[f, 1] - states[f, 0]
    elif kind == STDDEV:
        if states[f, 0] < 2.0:
            return False
        measure = math.sqrt(states[f, 2] / (states[f, 0] - 1.0))
    return measure > bounds[0] or (measure == bounds[0] and not strict)


@inlined
def breaks(kind: Any, bounds: Any, strict: Any, states: Any, f: Any, scratch: Any, values: Any, i: Any) -> bool:
    """Whether the measure with row i added passes; if not, the row is added."""
    for c in range(states.shape[1]):
        scratch[0, c] = states[f, c]
    add(kind, scratch, 0, values, i)
    if passes(kind, bounds, strict, scratch, 0, values, i):
        return True
    for c in range(states.shape[1]):
        states[f, c] = scratch[0, c]
    return False

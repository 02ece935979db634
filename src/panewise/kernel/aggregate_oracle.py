"""What aggregates over the rows of a segment are, executed literally."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from panewise.errors import DataError
from panewise.spec.aggregates import Aggregate

__all__ = ["Number", "aggregated", "measured"]

Number = int | float
_GROWTH = 1.01 / 0.99
"""Of the buckets of an approximate percentile."""


def _sum(values: Sequence[Number]) -> float:
    total = 0.0
    for value in values:
        total += value
    return total


def measured(function: str, values: Sequence[Number]) -> Number | None:
    """One function over known values; null where it is undefined."""
    if len(values) < (2 if function in ("stddev", "variance") else 1):
        return None
    match function:
        case "sum":
            return _sum(values)
        case "avg":
            return _sum(values) / len(values)
        case "stddev" | "variance":
            mean = squares = 0.0
            for n, value in enumerate(values, 1):
                step = value - mean
                mean += step / n
                squares += step * (value - mean)
            # beyond the largest number the recurrence has no answer
            variance = squares / (len(values) - 1) if squares >= 0 else math.nan
            return math.sqrt(variance) if function == "stddev" else variance
    return {"min": min(values), "max": max(values), "range": max(values) - min(values)}[function]


def _percentile(values: Sequence[Number], share: float) -> float | None:
    """Of n values in order, the one at share * (n - 1), or in proportion between its two neighbours."""
    if not values:
        return None
    ordered, place = sorted(map(float, values)), share * (len(values) - 1)
    low, high = math.floor(place), math.ceil(place)
    if low == high or ordered[low] == ordered[high]:
        return ordered[low]
    return (high - place) * ordered[low] + (place - low) * ordered[high]


def _approx_percentile(values: Sequence[Number], share: float) -> float | None:
    """The middle of the bucket that the value at share * (n - 1), rounded down, is in."""
    if not values:
        return None
    value = sorted(map(float, values))[math.floor(share * (len(values) - 1))]
    if abs(value) < np.finfo(float).tiny or math.isinf(value):
        return value if math.isinf(value) else 0.0
    number = math.ceil(math.log(abs(value)) / math.log(_GROWTH))
    return math.copysign(2 / (1 + _GROWTH) * _GROWTH**number, value)


def aggregated(aggregate: Aggregate, inputs: Sequence[Number | None]) -> Number | None:
    """An aggregate over what it reads of each row."""
    function, values = aggregate.function, [v for v in inputs if v is not None]
    if aggregate.custom is not None:
        user = aggregate.custom()
        state = user.init()
        for value in values:
            state = user.merge(state, user.update(user.init(), np.array([value])))
        result: Number | None = user.finish(state)
        return result
    match function:
        case "count":
            return len(inputs if aggregate.argument is None else values)
        case "count_distinct" | "approx_count_distinct":
            # of few values the sketch knows all
            return len(set(values))
        case "percentile":
            return _percentile(values, aggregate.share or 0.0)
        case "approx_percentile":
            return _approx_percentile(values, aggregate.share or 0.0)
        case "first" | "last":
            return inputs[0 if function == "first" else -1] if inputs else None
    if function != "sum" or not values or not all(isinstance(v, int) for v in values):
        return measured(function, values)
    total = 0
    for value in values:
        total += int(value)
        if not -(2**63) <= total < 2**63:
            raise DataError(f"`agg` ({aggregate}): {total} is beyond 64 bits. Sum it as a double.")
    return total

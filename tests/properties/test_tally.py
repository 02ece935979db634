"""Tallies: aggregates that do not depend on the order of rows."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panewise.errors import DataError
from panewise.kernel.aggregate_oracle import aggregated
from panewise.kernel.aggregates import Aggregation
from panewise.kernel.fill import Tallies
from panewise.spec.aggregates import aggregates
from properties.fills import fewer, pieces_of
from properties.streams import AGG, VALUES, optional

CALLS = aggregates({**AGG, **VALUES})


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
    exact["variance"] = None if exact["spread"] is None else exact["spread"] ** 2
    columns: dict = {"x": [x for _, x, _ in rows], "i": [i for _, _, i in rows]}
    exact |= {name: aggregated(call, columns[call.argument]) for name, call in CALLS if name not in exact}
    assert list(found) == [name for name, _ in CALLS]
    for name, value in found.items():
        nearly = name in ("spread", "variance", "near") and value is not None
        assert math.isclose(value, exact[name], rel_tol=1e-12) if nearly else value == exact[name], name


def tallied(pieces: list[list[tuple[int, float | None, int | None]]]) -> dict:
    """The aggregates over rows (`at`, x, i) that come in pieces."""
    kinds = {"x": pa.float64(), "i": pa.int64(), None: None}
    aggregation = Aggregation(CALLS, [kinds[call.argument] for _, call in CALLS])
    whole = Tallies.empty(1, aggregation)
    for rows in pieces:
        at, x, i = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
        columns = {"x": pa.array(x, pa.float64()), "i": pa.array(i, pa.int64()), None: None}
        inputs = aggregation.read([columns[call.argument] for _, call in CALLS], len(rows))
        piece = Tallies.empty(1, aggregation)
        ends = np.array([0]), np.array([len(rows)])
        piece.add(*ends, inputs, np.array(at, np.int64))
        whole.merge(np.array([0]), piece)
    return {name: column[0].as_py() for (name, _), column in zip(CALLS, whole.results(), strict=True)}

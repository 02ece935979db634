"""The check suite that every scheme passes by being registered: many keys at once, snapshots at any row, pickling."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panewise.kernel.operator import FRAMINGS, SegmentOperator
from panewise.kernel.sequence import Layout, Reader
from properties.streams import BUILDERS, batch, kernel, layout, plans, streams

SCHEMES = sorted(BUILDERS)


def operator(made: Layout) -> SegmentOperator:
    return SegmentOperator(made.plan.scheme, made.progress, made.aggregation)


def test_every_registered_scheme_is_tested() -> None:
    assert len(FRAMINGS) == len(BUILDERS)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data())
def test_keys_side_by_side_and_snapshots_anywhere(scheme: str, data: st.DataObject) -> None:
    """Each page holds a few rows of some keys; after each, the operator is replaced by one restored from a snapshot."""
    plan = data.draw(plans(scheme, ties=st.just("all")))
    real = data.draw(st.booleans())
    keys = data.draw(st.lists(streams(plan, real=real, max_size=8), min_size=1, max_size=4))
    batches = [batch(rows) if rows else None for rows in keys]
    made = layout(plan, any(isinstance(r.at, float) for rows in keys for r in rows))
    reader, runner = Reader(made), operator(made)
    position = [0] * len(keys)
    found: list[list[dict]] = [[] for _ in keys]
    over = [rows is None for rows in batches]
    while not all(over):
        chosen = [k for k, done in enumerate(over) if not done and data.draw(st.booleans())]
        if not chosen:
            continue
        pieces, ends = [], []
        for k in chosen:
            size = data.draw(st.integers(0, 3))
            piece = batches[k].slice(position[k], size)
            position[k] += len(piece)
            over[k] = position[k] == len(batches[k])
            pieces.append(piece)
            ends.append(over[k])
        rows = pa.concat_batches(pieces)
        offsets = np.cumsum([0, *map(len, pieces)])
        at = made.progress.numbers(rows.column("at"))
        page = reader.page(rows, at, offsets, np.array(chosen), np.array(ends))
        segments = runner.on_page(page)
        for row in made.emitter.batch([pa.array(chosen, pa.int64())], segments).to_pylist():
            found[row.pop("k")].append(row)
        snapshot = runner.snapshot()
        runner = operator(made)
        runner.restore(snapshot)
    assert found == [kernel(plan, [rows])[0] for rows in keys]


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data())
def test_plans_are_values(scheme: str, data: st.DataObject) -> None:
    plan = data.draw(plans(scheme))
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert hash(again) == hash(plan)

"""What a summary keeps, and what it refuses."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import panewise as pw
from panewise.errors import DataError
from panewise.kernel.merge import Merger, Summary
from panewise.kernel.sequence import Layout

ROWS = 5_000


def summaries(plan: pw.Plan, column: str, values: np.ndarray) -> tuple[Merger, Summary, Summary]:
    merger = Merger(Layout(plan.at("t"), (), (), pa.int64(), ()))
    rows = pa.RecordBatch.from_pydict({"at": np.arange(len(values)), column: values})
    half = len(values) // 2
    return merger, merger.summary(rows.slice(0, half)), merger.summary(rows.slice(half))


@pytest.mark.parametrize(
    ("plan", "column", "values", "kept"),
    [
        (pw.threshold_frames("c"), "c0", np.arange(ROWS) % 10 < 5, 8),
        (pw.threshold_frames("c"), "c0", np.arange(ROWS) > ROWS - 3, 8),
        (pw.boundary_frames({"v": 5}), "v0", (np.arange(ROWS) + 20) * 0.1, 64),
        (pw.threshold_frames("c"), "c0", np.full(ROWS, True), ROWS // 2),
        (pw.delta_frames({"v": 5}), "v0", np.arange(ROWS) * 1.0, ROWS // 2),
    ],
)
def test_runs_keep_their_heads(plan: pw.Plan, column: str, values: np.ndarray, kept: int) -> None:
    merger, left, right = summaries(plan, column, values)
    assert len(right.parts[0].rows) == kept
    whole = merger.segments(merger.merge(left, right))
    table = pa.table({"t": np.arange(ROWS), column[0]: values})
    wanted = pw.segments_local(plan.at("t"), table).column("segment").combine_chunks()
    assert whole.start.tolist() == wanted.field("start").to_pylist()
    assert whole.end.tolist() == wanted.field("end").to_pylist()
    assert whole.ids.tolist() == wanted.field("id").to_pylist()


def test_parts_must_not_overlap() -> None:
    merger, left, right = summaries(pw.threshold_frames("c"), "c0", np.full(10, True))
    with pytest.raises(DataError) as caught:
        merger.merge(right, left)
    assert str(caught.value) == (
        "Parts of a key overlap: one ends at 9, the next begins at 0. Shuffle and sort the rows of this key instead."
    )

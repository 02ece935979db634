"""Frames generalise windows: boundary frames on `at` itself are tumbling windows closed on the right."""

from __future__ import annotations

import math

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import panewise as pw


@given(st.lists(st.integers(-100, 100), max_size=40), st.integers(1, 20))
def test_boundary_frames_on_at_are_tumbling_windows(times: list[int], width: int) -> None:
    plan = pw.boundary_frames({"t": width}, extent="observed").at("t")
    found = pw.segments_local(plan, pa.table({"t": pa.array(times, pa.int64())}), {"total": "sum(t)"})
    windows: dict[int, list[int]] = {}
    for t in times:
        windows.setdefault(math.ceil(t / width), []).append(t)
    wanted = [
        {"id": i, "start": min(ts), "end": max(ts), "bounds": "[]"} for i, (_, ts) in enumerate(sorted(windows.items()))
    ]
    assert found.column("segment").to_pylist() == wanted
    assert found.column("total").to_pylist() == [sum(ts) for _, ts in sorted(windows.items())]

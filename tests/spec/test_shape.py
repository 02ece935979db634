from __future__ import annotations

from typing import Any

import pytest

from panewise.builders import (
    aggregate_frames,
    boundary_frames,
    custom_frames,
    delta_frames,
    session_frames,
    threshold_frames,
    trend_frames,
)
from panewise.plan import Plan
from panewise.spec.shape import SHAPES, shape


class Mine:
    values = ("speed",)
    cells = 1

    @staticmethod
    def open(state: Any, row: Any) -> bool:
        return True

    @staticmethod
    def update(state: Any, row: Any) -> None: ...

    @staticmethod
    def close(state: Any, row: Any) -> bool:
        return False


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (threshold_frames("p"), "separated"),
        (threshold_frames("p", min_rows=3), "separated"),
        (threshold_frames("p", nulls="invisible"), "separated"),
        (threshold_frames("p", missing="bridged", expect_every="20 s"), "separated"),
        (threshold_frames("p", missing="satisfies", expect_every="20 s"), "separated"),
        (threshold_frames("p", missing="breaks", expect_every="20 s"), "disjoint"),
        (threshold_frames("p", max_rows=3), "disjoint"),
        (threshold_frames("p", gaps=True, max_rows=3, expect_every="20 s"), "partitions"),
        (threshold_frames(open="p", close="q"), "separated"),
        (threshold_frames(open="p", close="q", max_duration="1 hour"), "disjoint"),
        (threshold_frames(open="p", close="q", gaps=True), "partitions"),
        (delta_frames({"x": 5}), "partitions"),
        (delta_frames({"x": 5}, max_rows=9), "partitions"),
        (delta_frames({"x": 5}, min_rows=3), "disjoint"),
        (delta_frames({"x": 5}, closing="include", min_rows=3), "partitions"),
        (delta_frames({"x": 5}, nulls="breaks"), "disjoint"),
        (delta_frames({"x": 5}, expect_every="20 s"), "partitions"),
        (delta_frames({"x": 5}, expect_every="20 s", missing="breaks"), "disjoint"),
        (delta_frames({"x": 5}, starts="p"), "disjoint"),
        (delta_frames({"x": 5}, starts="p", on_overlap="continue"), "overlapping"),
        (delta_frames({"x": 5}, overlap="saturated"), "overlapping"),
        (delta_frames({"x": 5}, longest=True), "disjoint"),
        (boundary_frames({"x": 5}), "partitions"),
        (boundary_frames({"x": 5}, min_rows=2), "disjoint"),
        (boundary_frames({"x": 5}, nulls="breaks"), "disjoint"),
        (aggregate_frames("sum(x)", reaches=25), "partitions"),
        (aggregate_frames("sum(x)", reaches=25, min_rows=2), "partitions"),
        (aggregate_frames("sum(x)", stays_below=25, min_rows=2), "disjoint"),
        (trend_frames("x", "rising"), "disjoint"),
        (session_frames("1 hour"), "disjoint"),
        (custom_frames(Mine), "disjoint"),
    ],
)
def test_shapes(plan: Plan, expected: str) -> None:
    assert shape(plan.scheme) == expected
    assert expected in SHAPES

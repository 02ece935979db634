"""Compile the kernels once, into numba's disk cache: `python -m panewise.kernel.warm`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from panewise.kernel.aggregates import Aggregation
from panewise.kernel.operator import SegmentOperator
from panewise.kernel.page import Page
from panewise.kernel.progress import progress_of
from panewise.spec.frames import DeltaFrames, Scheme, ThresholdFrames, Value

__all__ = ["warm"]


def warm() -> None:
    """Run one row through each operator, for whole and for real `at`."""
    schemes: list[tuple[Scheme, int, int]] = [
        (ThresholdFrames(condition="c"), 1, 0),
        (DeltaFrames(moves=((Value("v"), 1.0),)), 0, 1),
    ]
    for scheme, conditions, values in schemes:
        for arrow in (pa.int64(), pa.float64()):
            progress = progress_of("at", arrow)
            operator = SegmentOperator(scheme, progress, Aggregation((), ()))
            operator.on_page(
                Page(
                    at=np.zeros(1, progress.dtype),
                    conditions=np.ones((conditions, 1), np.uint8),
                    values=np.zeros((values, 1)),
                    floats=np.empty((0, 1)),
                    ints=np.empty((0, 1), np.int64),
                    valid=np.empty((0, 1), np.uint8),
                    offsets=np.array([0, 1]),
                    slots=np.zeros(1, np.int64),
                    ends=np.ones(1, bool),
                )
            )


if __name__ == "__main__":
    warm()

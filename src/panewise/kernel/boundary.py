"""Boundary frames: a run for every visit to a cell."""

from __future__ import annotations

import numpy as np

from panewise.kernel import runstate
from panewise.kernel import segmenting as sg
from panewise.kernel.framing import RunFraming, hide_nulls
from panewise.kernel.page import Array, Page
from panewise.spec.frames import BoundaryFrames

__all__ = ["boundary", "cells"]


def cells(values: Array, size: float | tuple[float, ...]) -> Array:
    """The cell of each value: ceil(v / width), or how many breakpoints lie below it; NaN stays NaN.

    >>> cells(np.array([-0.5, 0.0, 4.0, 4.1]), 4.0).tolist()
    [-0.0, 0.0, 1.0, 2.0]
    >>> cells(np.array([-1.0, 0.0, 0.5]), (0.0,)).tolist()
    [0.0, 0.0, 1.0]
    """
    if isinstance(size, tuple):
        found = np.searchsorted(np.asarray(size), values, side="left").astype(np.float64)
        found[np.isnan(values)] = np.nan
        return found
    return np.ceil(values / size)


def boundary(scheme: BoundaryFrames) -> RunFraming:
    """Neighbours split where any dimension's cell changes."""
    sizes = tuple(size for _, size in scheme.dimensions)

    def read(page: Page) -> tuple[Array, Array]:
        found = np.empty_like(page.values)
        for d, size in enumerate(sizes):
            found[d] = cells(page.values[d], size)
        return hide_nulls(found, np.full(len(page), sg.MEMBER, np.uint8), scheme.nulls), found

    return RunFraming(read, width=len(sizes), split=runstate.CELLS)

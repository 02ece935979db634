"""Trend frames: a run for every stretch that rises, falls or stays."""

from __future__ import annotations

import numpy as np

from panewise.kernel import runstate
from panewise.kernel import segmenting as sg
from panewise.kernel.framing import RunFraming, hide_nulls
from panewise.kernel.page import Array, Page
from panewise.spec.frames import TrendFrames

__all__ = ["trend"]


def trend(scheme: TrendFrames) -> RunFraming:
    """Neighbours split where the second does not go on in the direction; a single row is no trend."""

    def read(page: Page) -> tuple[Array, Array]:
        return hide_nulls(page.values, np.full(len(page), sg.MEMBER, np.uint8), scheme.nulls), page.values

    split = {"rising": runstate.RISING, "falling": runstate.FALLING, "steady": runstate.STEADY}[scheme.direction]
    return RunFraming(read, width=1, split=split, fewest=2)

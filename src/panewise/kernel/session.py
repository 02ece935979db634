"""Session frames: a run for every stretch without a gap."""

from __future__ import annotations

import numpy as np

from panewise.kernel import runstate
from panewise.kernel import segmenting as sg
from panewise.kernel.framing import RunFraming
from panewise.kernel.page import Array, Page
from panewise.spec.frames import SessionFrames

__all__ = ["session"]


def session(scheme: SessionFrames) -> RunFraming:
    """Neighbours split where they are a gap or more apart."""

    def read(page: Page) -> tuple[Array, Array]:
        return np.full(len(page), sg.MEMBER, np.uint8), page.values

    return RunFraming(read, split=runstate.APART, apart=scheme.gap)

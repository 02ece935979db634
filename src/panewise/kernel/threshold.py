"""Threshold frames, plain and with hysteresis: a row belongs, breaks, or goes along."""

from __future__ import annotations

from typing import Any

import numpy as np

from panewise.kernel import segmenting as sg
from panewise.kernel.compiled import compiled
from panewise.kernel.framing import RunFraming
from panewise.kernel.page import NULL, Array, Page, truths
from panewise.spec.frames import HysteresisFrames, ThresholdFrames

__all__ = ["hysteresis", "threshold"]


@compiled
def _named(conditions: Any, code: Any) -> Any:
    """The code of each; numpy's own look-up takes several times as long."""
    found = np.empty(len(conditions), np.uint8)
    for i in range(len(conditions)):
        found[i] = code[conditions[i]]
    return found


def threshold(scheme: ThresholdFrames) -> RunFraming:
    """Rows belong where the condition holds."""
    unknown = sg.INVISIBLE if scheme.nulls == "invisible" else sg.OUT
    code = np.array([sg.OUT, sg.MEMBER, unknown], np.uint8)

    def read(page: Page) -> tuple[Array, Array]:
        return _named(page.conditions[0], code), page.values

    return RunFraming(read, gaps=scheme.gaps)


def hysteresis(scheme: HysteresisFrames) -> RunFraming:
    """Rows open where `open` holds, break where `close` does, and otherwise go along."""
    unknown = sg.INVISIBLE if scheme.nulls == "invisible" else sg.OUT

    def read(page: Page) -> tuple[Array, Array]:
        opens, closes = truths(page.conditions, 0), page.conditions[1]
        code = np.where(opens, np.uint8(sg.MEMBER), np.uint8(sg.NEUTRAL))
        code[closes == 1] = sg.OUT
        code[closes == NULL] = unknown
        return code, page.values

    return RunFraming(read, gaps=scheme.gaps, local=False)

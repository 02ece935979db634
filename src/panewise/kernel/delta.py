"""Delta frames: rows until any value has moved by its amount."""

from __future__ import annotations

import numpy as np

from panewise.kernel import chains, progressions
from panewise.kernel import segmenting as sg
from panewise.kernel.framing import ChainFraming, Reader, hide_nulls
from panewise.kernel.page import Array, Page, truths
from panewise.spec.frames import ChainFrames, DeltaFrames

__all__ = ["chain_reader", "delta"]


def chain_reader(scheme: ChainFrames) -> Reader:
    """Every row may start a frame, or those where the start condition holds."""
    explicit = scheme.starts is not None

    def read(page: Page) -> tuple[Array, Array]:
        if explicit:
            code = np.where(truths(page.conditions, 0), np.uint8(sg.OPENING), np.uint8(sg.MEMBER))
        else:
            code = np.full(len(page), sg.OPENING, np.uint8)
        return hide_nulls(page.values, code, scheme.nulls), page.values

    return read


def delta(scheme: DeltaFrames) -> ChainFraming:
    """The measure is how far each value has moved, against the frame's range or its first value."""
    return ChainFraming(
        read=chain_reader(scheme),
        kind=progressions.DELTA_RANGE if scheme.against == "range" else progressions.DELTA_FIRST,
        bounds=tuple(amount for _, amount in scheme.moves),
        strict=scheme.strict,
        cells=2 * len(scheme.moves),
        operator=chains.chain_page,
    )

"""What is sent of a segment that is still open."""

from __future__ import annotations

from dataclasses import dataclass

from panewise.errors import SpecError
from panewise.spec.check import choice
from panewise.spec.duration import Amount, amount
from panewise.spec.frames import ChainFrames, Scheme
from panewise.spec.options import Starts

__all__ = ["FINAL", "MODES", "Emit", "emit", "sends_parts"]

MODES = ("final", "fragments", "updates")
"""Whole segments only; or parts that are certain, each once; or the segment so far, growing."""


@dataclass(frozen=True, slots=True)
class Emit:
    """When a segment is sent: whole, or in parts at most `every` so often."""

    mode: str = "final"
    every: Amount | None = None


FINAL = Emit()
"""What is sent if nothing else is said: each segment once, whole."""


def emit(mode: object = "final", every: object = None) -> Emit:
    """Check `emit` and `fragment_every`.

    >>> emit("fragments", "1 minute")
    Emit(mode='fragments', every=Duration(micros=60000000))
    """
    word = choice("emit", mode, MODES)
    step = None if every is None else amount("fragment_every", every)
    if step is not None and word == "final":
        raise SpecError(
            f'`fragment_every` ({step}) says how often parts are sent, and emit="final" sends none. '
            'Use emit="fragments" or "updates", or leave `fragment_every` out.'
        )
    return Emit(word, step)


def sends_parts(scheme: Scheme) -> bool:
    """Whether a scheme's segments can be certain before they are closed.

    A minimal frame is none before it is complete, and one that a new start may drop is none before it is closed.

    >>> from panewise.spec.frames import ThresholdFrames
    >>> sends_parts(ThresholdFrames(condition="speed < 30"))
    True
    """
    if not isinstance(scheme, ChainFrames):
        return True
    dropped = isinstance(scheme.placement, Starts) and scheme.placement.on_overlap == "drop"
    return scheme.closing == "exclude" and not dropped

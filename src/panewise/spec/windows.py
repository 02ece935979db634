"""Windows by window-id: the parameters of the classical windows, checked; what runs them is still to come."""

from __future__ import annotations

from dataclasses import dataclass

from panewise.errors import SpecError
from panewise.spec.duration import Amount, Duration, amount

__all__ = ["SlidingWindows", "sliding"]


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Window w covers m + (w + 1) * slide - range <= t < m + (w + 1) * slide."""

    range: Amount
    slide: Amount


def _size(value: Amount) -> float:
    return value.micros if isinstance(value, Duration) else value


def sliding(range: object = None, slide: object = None) -> SlidingWindows:
    """Check range and slide against each other; without a slide the windows tumble.

    >>> sliding("5 minutes", "1 minute").slide
    Duration(micros=60000000)
    """
    if range is None:
        raise SpecError(
            f"`slide` ({slide}) needs a `range`: it says how often a window ends, not how much it holds. "
            "Give the range; for windows without overlap give it the same length."
        )
    length = amount("range", range)
    step = length if slide is None else amount("slide", slide)
    if isinstance(length, Duration) != isinstance(step, Duration):
        raise SpecError(f"`slide` ({step}) and `range` ({length}) must be of one kind. Write both as `at` is measured.")
    if _size(step) > _size(length):
        raise SpecError(
            f"`slide` ({step}) can't be longer than `range` ({length}); rows between windows would belong to none. "
            "Use tumbling windows or a longer range."
        )
    return SlidingWindows(length, step)

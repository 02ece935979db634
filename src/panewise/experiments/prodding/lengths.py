"""The maximum of uniform values, asked for three seconds before the end of a slide, in streams of several lengths."""

from __future__ import annotations

import numpy as np

from panewise.experiments.prodding.part import Found, Line, Tell, finals
from panewise.experiments.prodding.streams import answers, stream, uniform
from panewise.local.delivery import instants
from panewise.spec.prod import prodder
from panewise.window_builders import sliding_windows

__all__ = ["by_length"]

_PUBLISHED = {1_000: ("99.0 %", "2.8 s"), 1_500: ("99.5 %", "3.0 s"), 2_000: ("98.1 %", "3.0 s")}
_RATES = {"18 rows/s": 18.0, "a row every 3 s": 1 / 3}

_DENSE = (
    "How many rows a second there were is not said. With 540 in a window, as in the experiment on aggressiveness, a "
    "maximum of values up to 999 is known to a fraction of a percent long before the end."
)
_SPARSE = (
    "A rate that was chosen after the published numbers were seen: errors of 0.5 to 2 % are those of windows of some "
    "ten rows. Of so few it is mostly chance which of the three streams comes off best."
)
_GAIN = "Asked 3 s before the end of a slide, at which the final answer comes: 3 s are gained by construction."


def by_length(quick: bool, tell: Tell) -> Found:
    """Accuracy and gain by length and rate."""
    plan, agg, found = sliding_windows("30 seconds", "10 seconds"), {"max": "max(v)"}, []
    cases = [(name, rate, seconds) for name, rate in _RATES.items() for seconds in _PUBLISHED]
    for done, (rows, rate, seconds) in enumerate(cases, 1):
        rng = np.random.default_rng(seconds)
        length = seconds // 10 if quick else seconds
        at = instants(length, rate, rng)
        given = stream(at, uniform(rng, len(at)), length, "10 seconds")
        asked, never = (answers(given, plan, agg, prods) for prods in (prodder("10 seconds", 0.3), True))
        accuracy, gain = _PUBLISHED[seconds]
        name, setting = "length of stream", f"max, 30 s every 10 s, asked at 7 s, {length:,} s, {rows}"
        found += [
            Line(name, setting, "mean accuracy", accuracy, (asked.mean("max"),), "%", _DENSE if rate > 1 else _SPARSE),
            Line(name, setting, "gain", gain, (asked.gain,), "s", _GAIN),
            finals(name, setting, asked, never),
        ]
        tell(done, len(cases))
    return Found(found)

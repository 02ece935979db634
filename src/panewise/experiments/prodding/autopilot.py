"""The autopilot: from half of the slide to an accuracy that is to be held, and again when the data change."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from panewise.experiments.prodding.part import Found, Line, Tell
from panewise.experiments.prodding.pictures import canvas
from panewise.experiments.prodding.streams import Stream, answers, stream, uniform
from panewise.kernel.page import Array
from panewise.plots.style import BLUE, RED
from panewise.spec.prod import prodder
from panewise.window_builders import tumbling_windows

__all__ = ["on_autopilot"]

_SLIDE, _RATE = 30, 18
_BEGIN, _HOLD = 0.5, 0.95
_DENSER = 4
"""How much denser rows come at the end of a slide, in the second half."""
_CLOSE = 0.02
"""Settled is a mean of ten windows that stays this near to what is to be held."""
_TEN = 10

_NOTE = (
    "Nothing was published. In the second half rows come late in each slide, four times as dense at its end, so that "
    "the same share of it loses four times as much. Settled: from there on the mean accuracy of any ten windows is "
    "within two points of 95 %."
)


def on_autopilot(quick: bool, tell: Tell) -> Found:
    """How long it takes to settle, and where."""
    windows = 40 if quick else 100
    given = _stream(windows)
    told = answers(
        given,
        tumbling_windows(f"{_SLIDE} seconds"),
        {"sum": "sum(v)"},
        prodder(f"{_SLIDE} seconds", _BEGIN, hold_accuracy=_HOLD),
    )
    ends = pc.struct_field(told.finals.column("segment"), "end").cast("int64").to_numpy()[told.of] / 1e6
    near = told.near.column("sum").to_numpy()
    # a final answer comes with the end of its window
    share = told.near.column("seconds").to_numpy() / _SLIDE
    change = windows * _SLIDE
    lines = []
    for name, half in (("from 50 %", ends <= change), ("after the data changed", ends > change)):
        setting = f"sum, {_SLIDE} s, 95 % to be held, {name}"
        settles, where = float(_settled(near[half])), 100 * share[half][-_TEN:].mean()
        held = 100 * near[half][_settled(near[half]) :].mean()
        lines += [
            Line("autopilot", setting, "settled after", "", (settles,), "windows", _NOTE),
            Line("autopilot", setting, "mean accuracy from there on", "", (held,), "%"),
            Line("autopilot", setting, "aggressiveness in the end", "", (where,), "%"),
        ]
    tell(1, 1)
    return Found(lines, {"prodding-autopilot": _picture(ends, near, share, change)})


def _stream(windows: int) -> Stream:
    rng = np.random.default_rng(50)
    half, each = windows * _SLIDE, _RATE * _SLIDE
    evenly = rng.random(half * _RATE) * half
    starts = half + np.repeat(np.arange(windows) * _SLIDE, each)
    late = starts + _SLIDE * rng.random(len(starts)) ** (1 / _DENSER)
    at = np.sort(np.concatenate([evenly, late]))
    return stream(at, uniform(rng, len(at)), 2 * half, f"{_SLIDE} seconds")


def _settled(near: Array) -> int:
    """After how many windows the mean of ten stays near to what is to be held."""
    means = np.convolve(near, np.full(_TEN, 1 / _TEN), "valid")
    off = np.flatnonzero(np.abs(means - _HOLD) > _CLOSE)
    return int(off[-1]) + 1 if len(off) else 0


def _picture(ends: Array, near: Array, share: Array, change: float) -> Figure:
    figure = canvas(520)
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(ends, near, color="#9ec1de", linestyle="", marker=".", markersize=4, label="one early answer")
    means = np.convolve(near, np.full(_TEN, 1 / _TEN), "valid")
    above.plot(ends[_TEN - 1 :], means, color=BLUE, linewidth=1.2, label="mean of ten")
    above.axhline(_HOLD, color=RED, linestyle=":", linewidth=1.1, label="to be held")
    below.plot(ends, share, color=BLUE, linewidth=1.2)
    above.set_ylabel("accuracy of the sum")
    below.set(xlabel="end of the window, s", ylabel="aggressiveness")
    below.set_ylim(bottom=0)
    for axes in (above, below):
        axes.axvline(change, color="#8a8a8a", linestyle="--", linewidth=0.9)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.grid(axis="y", color="#efefef", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.margins(x=0.01)
    below.annotate("the data change", (change, below.get_ylim()[1] * 0.9), xytext=(4, 0), textcoords="offset points")
    figure.legend(loc="outside upper right", ncols=3, frameon=False, borderpad=0)
    return figure

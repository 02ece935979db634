"""Bursts set aside: how long windows wait for their final results, with and without, beside early answers.

A slow operator takes 4 ms for a row: 250 in a second, where 100 come, but for bursts of 1,500 more in each of two
seconds. The maximum over five seconds, every second; whoever waits prods a quarter of a second after a window's end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure

from panewise.experiments.prodding.part import Found, Line, Tell
from panewise.experiments.prodding.pictures import canvas
from panewise.kernel.page import Array
from panewise.local.delivery import Delivered, deliver
from panewise.plots.style import BLUE, RED
from panewise.spec.aside import SetAside
from panewise.spec.prod import prodder
from panewise.spec.punctuate import in_band
from panewise.window_builders import sliding_windows

__all__ = ["set_aside"]

_RATE, _MORE, _COST = 100, 1_500, 0.004
"""Rows in a second; how many more in a burst; how long the operator takes for one."""
_RANGE, _BURST = 5, 2
"""Seconds of a window, and of a burst."""
_ON_TIME = 0.25
"""A final result so long after the end of its window, or sooner, is on time: before anybody prods."""
_MICROS = 1_000_000
_NOTE = (
    "Of the published prototype only the shape is known, and it dropped what it set aside; here every row is processed "
    "in the end, so that final answers of bursts come later, and are exact. Late: more than a quarter of a second "
    "after the end of the window, which is when somebody prods."
)


@dataclass(frozen=True)
class _Run:
    """A delivery: the ends of its windows, how long after them final results came, and early answers; accuracies."""

    end: Array
    wait: Array
    early_end: Array
    early_wait: Array
    near: Array

    @property
    def late(self) -> Array:
        """Which windows somebody had to wait for."""
        return self.wait > _ON_TIME


def set_aside(quick: bool, tell: Tell) -> Found:
    """How many windows are late, with and without, and the wait of each; a `quick` run has one burst and not three."""
    starts, length = ([20], 60) if quick else ([20, 60, 100], 150)
    rows, arrival = _bursts(starts, length)
    plan = sliding_windows(f"{_RANGE} seconds", "1 second").at("t", in_band("mark"))
    prods, runs, lines = prodder("1 second", -_ON_TIME), {}, []
    for done, (name, aside) in enumerate((("not set aside", None), ("set aside", SetAside(rows=600))), 1):
        told = deliver(plan, rows, {"top": "max(v)"}, arrival=arrival, cost=_COST, prods=prods, set_aside=aside)
        runs[name] = _run(told, length)
        lines += _lines(name, runs[name], starts)
        tell(done, 2)
    return Found(lines, {"prodding-set-aside": _picture(runs, starts)})


def _bursts(starts: list[int], length: int) -> tuple[pa.Table, Array]:
    """Rows in order of time, with a mark for each second that is over; and when each arrives, which is at once."""
    random = np.random.default_rng(5)
    at = [random.uniform(0, length, length * _RATE)]
    at += [random.uniform(start, start + _BURST, _MORE * _BURST) for start in starts]
    times = np.concatenate([*at, np.arange(1, length + 1)])
    marked = np.arange(len(times)) >= len(times) - length
    value = np.where(marked, 0.0, random.uniform(0, 1_000, len(times)))
    order = np.argsort(times, kind="stable")
    times, marked, value = times[order], marked[order], value[order]
    micros = (times * _MICROS).astype(np.int64) - marked
    return pa.table({"t": pa.array(micros, pa.timestamp("us")), "v": value, "mark": marked}), times


def _run(told: Delivered, length: int) -> _Run:
    """Windows that the end of the stream does not close."""
    results = told.results
    end = np.asarray(pc.struct_field(results.column("segment"), "end").cast(pa.int64()).to_numpy()) / _MICROS
    wait = np.asarray(results.column("clock").to_numpy()) - end
    final = np.asarray(pc.equal(results.column("timing"), "final").to_numpy())
    finals, early = np.flatnonzero(final & (end <= length)), np.flatnonzero(~final & (end <= length))
    finals = finals[np.argsort(end[finals], kind="stable")]
    near = np.asarray(told.accuracies().column("top").to_numpy())
    return _Run(end[finals], wait[finals], end[early], wait[early], near)


def _lines(name: str, run: _Run, starts: list[int]) -> list[Line]:
    """A row of a burst is in windows that end up to their length after it."""
    inside = np.any([(run.end > start) & (run.end < start + _BURST + _RANGE) for start in starts], axis=0)
    late, early = int((run.late & ~inside).sum()), len(np.unique(run.early_end))
    setting = f"max, {_RANGE} s every 1 s, bursts {name}, {len(run.end)} windows"
    found: list[tuple[str, str, float, str]] = [
        ("late windows", "", float(run.late.sum()), "windows"),
        ("late windows after a burst", "none, with set-aside", float(late), "windows"),
        ("mean wait, windows of bursts", "", float(run.wait[inside].mean()), "s"),
        ("mean wait, other windows", "", float(run.wait[~inside].mean()), "s"),
        ("longest wait, other windows", "", float(run.wait[~inside].max()), "s"),
        ("windows with an early answer", "far fewer, with set-aside", float(early), "windows"),
        ("mean accuracy of early answers", "", 100 * float(run.near.mean()), "%"),
    ]
    return [Line("set aside", setting, of, told, (ours,), unit, _NOTE) for of, told, ours, unit in found]


def _picture(runs: dict[str, _Run], starts: list[int]) -> Figure:
    """How long after the end of each window results came; bursts are shaded."""
    figure = canvas(620)
    titles = ("not set aside: what follows a burst waits", "bursts set aside: what follows is on time")
    panels = figure.subplots(2, 1, sharex=True, sharey=True)
    for axes, title, run in zip(panels, titles, runs.values(), strict=True):
        for i, start in enumerate(starts):
            axes.axvspan(start, start + _BURST, color="#fde3c2", linewidth=0, label="burst" if i == 0 else None)
        axes.plot(run.end, run.wait, color=RED, marker="o", markersize=2.5, linewidth=0.9, label="final answer")
        axes.plot(
            run.early_end, run.early_wait, color=BLUE, linestyle="", marker=".", markersize=3, label="early answer"
        )
        axes.set_ylabel("after the window's end, s")
        axes.set_title(title, loc="left", fontsize=8, fontweight="bold", pad=4)
        axes.grid(axis="y", color="#efefef", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.margins(x=0.01)
    panels[1].set_xlabel("end of the window, s")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=3, frameon=False, borderpad=0)
    return figure

"""Bursts set aside: how long windows wait for their final results, with and without, beside early answers.

A slow operator takes 4 ms for a row: 250 in a second, where 100 come, but for bursts of 1,500 more in each of two
seconds. The maximum over five seconds, every second; whoever waits prods a quarter of a second after a window's end.
`python -m panewise.experiments.set_aside FOLDER` prints the table, and draws the picture into the folder.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.kernel.page import Array
from panewise.local.delivery import Delivered, deliver
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


def set_aside(out: Path, quick: bool = False) -> list[dict[str, Any]]:
    """The table, and `set-aside.png` in the folder `out`; a `quick` run has one burst and not three."""
    starts, length = ([20], 60) if quick else ([20, 60, 100], 150)
    rows, arrival = _bursts(starts, length)
    plan = sliding_windows(f"{_RANGE} seconds", "1 second").at("t", in_band("mark"))
    prods, runs = prodder("1 second", -_ON_TIME), {}
    for name, aside in (("without", None), ("with", SetAside(rows=600))):
        told = deliver(plan, rows, {"top": "max(v)"}, arrival=arrival, cost=_COST, prods=prods, set_aside=aside)
        runs[name] = _run(told, length)
    _draw(out / "set-aside.png", runs, starts)
    return [_told(name, run, starts) for name, run in runs.items()]


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


def _told(name: str, run: _Run, starts: list[int]) -> dict[str, Any]:
    """A row of the table; a row of a burst is in windows that end up to their length after it."""
    inside = np.any([(run.end > start) & (run.end < start + _BURST + _RANGE) for start in starts], axis=0)
    waits = {"of bursts": run.wait[inside], "of others": run.wait[~inside]}
    return {
        "set aside": name,
        "windows": len(run.end),
        "late": int(run.late.sum()),
        "late, of others": int((run.late & ~inside).sum()),
        **{f"mean wait {which}, s": round(float(some.mean()), 2) for which, some in waits.items()},
        **{f"longest wait {which}, s": round(float(some.max()), 2) for which, some in waits.items()},
        "windows with early answers": len(np.unique(run.early_end)),
        "early answers": len(run.early_end),
        "their mean accuracy, %": round(100 * float(run.near.mean()), 2),
    }


def _draw(path: Path, runs: dict[str, _Run], starts: list[int]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(2, 1, figsize=(8, 5.5), sharex=True, sharey=True, layout="constrained")
    titles = {
        "without": "Without: what follows a burst waits",
        "with": "Bursts set aside: what follows is on time",
    }
    for axes, (name, run) in zip(panels, runs.items(), strict=True):
        for i, start in enumerate(starts):
            axes.axvspan(start, start + _BURST, color="0.85", label="burst" if i == 0 else None)
        axes.plot(run.early_end, run.early_wait, ".", color="tab:orange", markersize=3, label="early answers")
        axes.plot(run.end, run.wait, "o-", color="tab:blue", markersize=3, linewidth=1, label="final results")
        axes.set(ylabel="after the window's end, s", title=titles[name])
        axes.grid(alpha=0.3)
    panels[0].legend(loc="upper right")
    panels[1].set_xlabel("end of the window, s")
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    for name, *told in zip(*(row.items() for row in set_aside(Path(sys.argv[1]))), strict=True):
        print(name[0], name[1], *(value for _, value in told), sep=" | ")

"""One pass against buffering: windows of a fixed range, ever shorter slides, the time relative to a scan.

Max over windows of 1,000 rows; the slide goes from the whole range to a thousandth of it. One pass adds each row to its
pane, and panes to windows. Buffering keeps the rows, and adds up those of each window when it is complete. Both add
with the same compiled loops, from the same columns to the same results; a scan adds every row once.
`python experiments/one_pass.py [picture.png]` prints the table and draws the picture.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import track

from panewise.kernel.aggregates import Aggregation, Inputs
from panewise.kernel.fill import Tallies
from panewise.kernel.windowing import WindowOperator
from panewise.kernel.windows import Grid
from panewise.spec.aggregates import aggregates

ROWS, RANGE = 2_000_000, 1_000
SLIDES = (1_000, 500, 200, 100, 50, 20, 10, 5, 2, 1)
AGGREGATION = Aggregation(aggregates({"top": "max(v)"}), [pa.float64()])
Rows = tuple[np.ndarray, Inputs]


def rows_of(values: np.ndarray) -> Rows:
    """The numbers of rows, and what is read of them."""
    return np.arange(len(values)), AGGREGATION.read([pa.array(values)], len(values))


def scan(rows: Rows) -> np.ndarray:
    """Add every row once."""
    numbers, inputs = rows
    tally = Tallies.empty(1, AGGREGATION)
    tally.own(np.zeros(len(numbers), np.int64), inputs, numbers)
    return np.asarray(tally.results()[0])


def one_pass(rows: Rows, slide: int) -> np.ndarray:
    """The max of each window: rows into panes, panes into windows."""
    numbers, inputs = rows
    operator = WindowOperator(Grid(RANGE, slide, 0, True), AGGREGATION)
    operator.take(np.zeros(len(numbers), np.int64), numbers, inputs, 1)
    found = operator.release(np.array([np.iinfo(np.int64).max // 4]))
    return np.asarray(AGGREGATION.results(found.ff, found.fi)[0])


def buffered(rows: Rows, slide: int) -> np.ndarray:
    """The same: rows are kept until a window is complete, and added up then."""
    numbers, inputs = rows
    end = np.arange(slide, len(numbers) + RANGE, slide)
    first, last = (np.searchsorted(numbers, bound) for bound in (end - RANGE, end))
    tallies = Tallies.empty(len(end), AGGREGATION)
    tallies.add(first, last, inputs, numbers)
    return np.asarray(tallies.results()[0])


def best(run: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    """The shortest of some runs, in seconds, and what came of it."""
    shortest = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        made = run()
        shortest = min(shortest, time.perf_counter() - began)
    return shortest, made


def main() -> int:
    """Measure, print and draw."""
    rows = rows_of(np.random.default_rng(11).random(ROWS))
    few = rows_of(np.arange(10.0))
    # compiled before anything is timed
    scan(few), buffered(few, 1), one_pass(few, 1)
    base, _ = best(lambda: scan(rows))
    told = []
    for slide in track(SLIDES, "measuring", console=Console(stderr=True), transient=True):
        ours, a = best(lambda s=slide: one_pass(rows, s))
        theirs, b = best(lambda s=slide: buffered(rows, s), 1 if slide < 10 else 3)
        if not np.array_equal(a, b):
            print(f"slide {slide}: the two do not find the same", file=sys.stderr)
            return 1
        told.append((slide, ours / base, theirs / base))
    print("| range / slide | one pass, times a scan | buffered, times a scan | buffered / one pass |")
    print("|---:|---:|---:|---:|")
    for slide, ours, theirs in told:
        print(f"| {RANGE // slide:,} | {ours:,.1f} | {theirs:,.1f} | {theirs / ours:,.1f} |")
    if len(sys.argv) > 1:
        draw(sys.argv[1], told)
    return 0


def draw(path: str, told: list[tuple[int, float, float]]) -> None:
    """Both against range / slide."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    ratios = [RANGE / slide for slide, _, _ in told]
    axes.loglog(ratios, [theirs for _, _, theirs in told], marker="s", label="buffering")
    axes.loglog(ratios, [ours for _, ours, _ in told], marker="o", label="window-ids, one pass")
    axes.axhline(1, color="grey", linestyle="--", label="a scan")
    axes.set(xlabel="range / slide", ylabel="time, times a scan", title=f"max over {RANGE:,} of {ROWS:,} rows")
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())

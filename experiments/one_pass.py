"""One pass against buffering: windows of a fixed range, ever shorter slides, the time relative to a scan.

Max over windows of 1,000 rows; the slide goes from the whole range to a thousandth of it. One pass adds each row to its
pane, and panes to windows. Buffering keeps the rows of a window and goes over them for each window, compiled as well.
A scan goes over all rows once. `python experiments/one_pass.py [picture.png]` prints the table and draws the picture.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numba
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import track

import panewise as pw

ROWS, RANGE = 2_000_000, 1_000
SLIDES = (1_000, 500, 200, 100, 50, 20, 10, 5, 2, 1)


@numba.njit
def scan(values: Any) -> float:
    """Go over all rows once."""
    top = -np.inf
    for value in values:
        top = max(top, value)
    return top


@numba.njit
def buffered(values: Any, size: int, slide: int) -> Any:
    """The max of each window, whose rows are kept until it is full, and gone over then; the last ones are not full."""
    count = (len(values) + size - 1) // slide
    found = np.empty(count)
    for w in range(count):
        end = (w + 1) * slide
        top = -np.inf
        for i in range(max(end - size, 0), min(end, len(values))):
            top = max(top, values[i])
        found[w] = top
    return found


def one_pass(rows: pa.Table, slide: int) -> np.ndarray:
    """The same by window-ids."""
    plan = pw.sliding_windows(RANGE, slide, origin=0).at("n")
    found = pw.segments_local(plan, rows, {"top": "max(v)"})
    return np.asarray(found.column("top").to_numpy())


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
    values = np.random.default_rng(11).random(ROWS)
    rows = pa.table({"n": np.arange(ROWS), "v": values})
    # compiled before anything is timed
    scan(values[:10]), buffered(values[:10], 3, 2), one_pass(rows.slice(0, 10), 1)
    base, _ = best(lambda: scan(values))
    told = []
    for slide in track(SLIDES, "measuring", console=Console(stderr=True), transient=True):
        ours, a = best(lambda s=slide: one_pass(rows, s))
        theirs, b = best(lambda s=slide: buffered(values, RANGE, s), 1 if slide < 10 else 3)
        if not np.array_equal(a, b):
            print(f"slide {slide}: the two do not find the same", file=sys.stderr)
            return 1
        told.append((slide, ours / base, theirs / base))
    print("| range / slide | one pass, times a scan | buffered, times a scan | buffered / one pass |")
    print("|---:|---:|---:|---:|")
    for slide, ours, theirs in told:
        print(f"| {RANGE // slide:,} | {ours:,.1f} | {theirs:,.1f} | {theirs / ours:,.2f} |")
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

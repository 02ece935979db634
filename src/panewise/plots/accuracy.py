"""A picture of how near early answers were to their final ones."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Union

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from panewise.errors import InputError
from panewise.plots.axis import WIDE, axis_of
from panewise.plots.segments import ticks
from panewise.plots.style import BLUE, DOTS, RED, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_accuracy"]

_HIGH = 240  # pixels
_POINT = "#9ec1de"


def draw_accuracy(accuracies: pa.Table, path: Union[str, os.PathLike[str]], *, title: str | None = None) -> None:
    """Draw what `pw.accuracies` gives: a panel for each aggregate, over the ends of segments.

    Each early answer is a point; the lines are the mean and the worst so far.

    ::

        draw_accuracy(pw.accuracies(spark.read.parquet("out/results")).toArrow(), "accuracy.png")
    """
    if "segment" not in accuracies.column_names or "seconds" not in accuracies.column_names:
        raise InputError("`accuracies` does not tell how near early answers were. Give pw.accuracies(...).toArrow().")
    place = accuracies.column_names.index("gain") if "gain" in accuracies.column_names else 0
    names = accuracies.column_names[place + 1 :]
    if not len(accuracies) or not names:
        raise InputError("`accuracies` holds no early answer of an aggregate: there is nothing to draw. Prod first.")
    ends = pc.struct_field(accuracies.column("segment").combine_chunks(), "end")
    axis = axis_of("segment", "end", ends.type)
    x = axis.places(pa.chunked_array([ends]))
    order = np.argsort(x, kind="stable")
    with mpl.rc_context(STYLE):
        high = (_HIGH * len(names) + 30 + 35 * bool(title)) / DOTS
        figure = Figure(figsize=(WIDE / DOTS, high), layout="constrained")
        stack = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
        for panel, name in zip(stack, names, strict=True):
            _panel(panel, x[order], np.asarray(accuracies.column(name).to_numpy(), np.float64)[order], name)
        ticks(stack[-1], "end of the segment", axis)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=10)
        figure.savefig(path)


def _panel(panel: Axes, x: np.ndarray, near: np.ndarray, name: str) -> None:
    known = ~np.isnan(near)
    x, near = x[known], near[known]
    mean = np.cumsum(near) / np.arange(1, len(near) + 1)
    panel.plot(x, near, ".", color=_POINT, markersize=3, zorder=2, label="one early answer")
    panel.plot(x, mean, color=BLUE, linewidth=1.4, zorder=4, label="mean so far")
    panel.plot(x, np.minimum.accumulate(near), color=RED, linewidth=1.0, zorder=3, label="worst so far")
    panel.set_title(name, loc="left", fontsize=8, fontweight="bold", pad=4)
    panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    panel.grid(axis="y", color="#efefef", linewidth=0.6, zorder=0)
    panel.set_ylabel("accuracy")
    panel.legend(frameon=False, fontsize=7, ncols=3, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.3)

"""Lines in panels side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from panewise.plots.axis import WIDE
from panewise.plots.style import BLUE, DOTS, ORANGE, RED

__all__ = ["Panel", "Points", "canvas", "lines"]

Points = Sequence[tuple[float, float]]

_AGGREGATES: dict[str, dict[str, Any]] = {
    "avg": {"color": BLUE, "marker": "o"},
    "max": {"color": "#3f8f8a", "marker": "s"},
    "sum": {"color": RED, "marker": "^"},
    "count": {"color": ORANGE, "marker": "v", "linestyle": "--", "markerfacecolor": "white"},
}
_OTHERS: list[dict[str, Any]] = [
    {"color": colour, "marker": mark, "linestyle": line}
    for colour, mark in ((BLUE, "o"), (RED, "s"))
    for line in ("-", "--")
]
_PANEL = 290  # pixels


@dataclass(frozen=True)
class Panel:
    """A title, a line for each name, and what was published of it."""

    title: str
    ours: Mapping[str, Points]
    published: Mapping[str, Points] = field(default_factory=dict)


def canvas(high: int) -> Figure:
    """A picture, so many pixels high."""
    return Figure(figsize=(WIDE / DOTS, high / DOTS), layout="constrained")


def lines(panels: Sequence[Panel], x: str, y: str, columns: int = 2, low: float | None = None) -> Figure:
    """Panels with one scale, and one legend; with one panel, in it."""
    down = -(-len(panels) // columns)
    figure = canvas(down * _PANEL + 90)
    grid = figure.subplots(down, columns, sharex=True, sharey=True, squeeze=False)
    entries: dict[str, Line2D] = {}
    for place, (axes, panel) in enumerate(zip(grid.flat, panels, strict=True)):
        entries |= _draw(axes, panel)
        axes.set_title(panel.title, loc="left", fontsize=8, fontweight="bold", pad=4)
        axes.grid(axis="y", color="#efefef", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_xticks(sorted({at for points in panel.ours.values() for at, _ in points}))
        if place >= len(panels) - columns:
            axes.set_xlabel(x)
        if place % columns == 0:
            axes.set_ylabel(y)
    if low is not None:
        grid[0, 0].set_ylim(bottom=low)
    look: dict[str, Any] = {"handles": list(entries.values()), "frameon": False, "borderpad": 0}
    if len(panels) == 1:
        grid[0, 0].legend(loc="upper left", **look)
    else:
        figure.legend(loc="outside upper right", ncols=len(entries), **look)
    return figure


def _draw(axes: Axes, panel: Panel) -> dict[str, Line2D]:
    """The lines of a panel; for the legend, one of each name."""
    entries: dict[str, Line2D] = {}
    looks = {name: _AGGREGATES.get(name, other) for name, other in zip(panel.ours, _OTHERS, strict=False)}
    for name, points in panel.ours.items():
        (entries[name],) = axes.plot(
            *zip(*points, strict=True), linewidth=1.1, markersize=3.5, label=name, **looks[name]
        )
    for name, points in panel.published.items():
        axes.plot(*zip(*points, strict=True), "x", color=looks[name]["color"], markersize=6, zorder=4)
        entries["published"] = Line2D([], [], color="#6f6f6f", marker="x", linestyle="", label="published")
    return entries

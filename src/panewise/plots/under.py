"""Rows that fill segments, in a panel below the series that the segments were found in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.ticker import MaxNLocator

from panewise.errors import InputError
from panewise.plots.axis import WIDE, Axis, axis_of, is_number, line, of_key, points, with_columns
from panewise.spec.duration import Amount, size

__all__ = ["FILLING", "REACH", "Under"]

FILLING, REACH = "#2a7f62", "#dfeee8"
"""The colours of rows that fill, and of where they are taken from, if that is not the segment itself."""

_OTHER = "#b9c4c0"
_LINE_HIGH, _TICKS_HIGH = 130, 75  # pixels
_LONG, _FEW = 10, 200  # times the usual step between rows; rows that can be told apart


@dataclass(frozen=True)
class Under:
    """Rows that fill segments: `value` as a line, or a tick for each row where there is none.

    Their key columns are called as those of the segments. `reach` is how far from the start of a segment its rows
    begin, and from its end they end.
    """

    rows: pa.Table
    at: str
    value: str | None = None
    label: str = ""
    title: str = ""
    reach: tuple[Amount, Amount] = (0, 0)

    @property
    def high(self) -> int:
        """How many pixels the panel is high."""
        return _TICKS_HIGH if self.value is None else _LINE_HIGH

    @property
    def moves(self) -> bool:
        """Whether rows are taken from elsewhere than the segment itself."""
        return any(size(amount) for amount in self.reach)

    def checked(self, by: list[str], axis: Axis) -> Under:
        """With the columns that matter, if they fit."""
        rows = with_columns("under", self.rows, by, [self.at, *([] if self.value is None else [self.value])])
        kind = rows.schema.field(self.at).type
        if axis_of("under", self.at, kind).timed != axis.timed:
            raise InputError(
                f"`under` has an `at` ({self.at!r}) of type {kind}, unlike the series. Give the same type."
            )
        if self.value is not None and not is_number(rows.schema.field(self.value).type):
            kind = rows.schema.field(self.value).type
            raise InputError(f"`under` has a value ({self.value!r}) of type {kind}, which is no number. Cast it.")
        return replace(self, rows=rows)

    def draw(self, panel: Axes, own: Mapping[str, Any], segments: pa.Table, axis: Axis) -> None:
        """Draw the rows of one key, strong where they fill one of its segments."""
        first, last = self._reached(segments, axis)
        if self.moves:
            _shade(panel, first, last)
        rows = of_key(self.rows, own)
        if self.value is None:
            x = np.sort(axis.places(rows[self.at]))
            fills = _within(x, first, last)
            _ticks(panel, x[~fills], _OTHER)
            _ticks(panel, x[fills], FILLING)
            panel.set_yticks([])
            panel.set_ylim(0, 1)
        else:
            x, y = _seen(panel, *points(rows, self.at, self.value, axis))
            for colour, shown in ((_OTHER, y), (FILLING, np.where(_within(x, first, last), y, np.nan))):
                line(panel, x, shown, colour)
                if len(x) < _FEW:
                    panel.plot(x, shown, color=colour, linestyle="", marker=".", markersize=3, zorder=3)
            panel.set_ylabel(self.label)
            panel.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 2.5, 5, 10]))
            panel.grid(axis="y", color="#efefef", linewidth=0.6, zorder=0)
            panel.set_axisbelow(True)
            panel.margins(y=0.12)
        panel.set_title(self.title, loc="left", fontsize=7, color="#6f6f6f", pad=2)

    def _reached(self, segments: pa.Table, axis: Axis) -> tuple[np.ndarray, np.ndarray]:
        """From where to where the rows of each segment are taken; a segment that is emptied takes none."""
        ends = (axis.places(pc.struct_field(segments["segment"], name)) for name in ("start", "end"))
        first, last = (end + axis.length(amount) for end, amount in zip(ends, self.reach, strict=True))
        return first[first <= last], last[first <= last]


def _seen(panel: Axes, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points in view, with a break wherever none comes for much longer than usual: events are no readings."""
    left, right = panel.get_xlim()
    x, y = x[(left <= x) & (x <= right)], y[(left <= x) & (x <= right)]
    steps = np.diff(x)
    usual = np.median(steps[steps > 0]) if (steps > 0).any() else 0.0
    long = np.flatnonzero(steps > _LONG * usual)
    return np.insert(x, long + 1, x[long] + steps[long] / 2), np.insert(y, long + 1, np.nan)


def _within(x: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Whether each place lies in an interval; they may overlap."""
    begun = np.searchsorted(np.sort(first), x, side="right")
    ended = np.searchsorted(np.sort(last), x, side="left")
    return np.asarray(begun > ended, bool)


def _shade(panel: Axes, first: np.ndarray, last: np.ndarray) -> None:
    corners = [[(a, 0), (a, 1), (b, 1), (b, 0)] for a, b in zip(first, last, strict=True)]
    place = panel.get_xaxis_transform()
    panel.add_collection(PolyCollection(corners, transform=place, facecolor=REACH, zorder=0.5), autolim=False)


def _ticks(panel: Axes, x: np.ndarray, colour: str) -> None:
    """A tick for each row, no more than one for each pixel."""
    left, right = panel.get_xlim()
    x = x[(left <= x) & (x <= right)]
    _, seen = np.unique(np.floor((x - left) / (right - left) * WIDE), return_index=True)
    high = {FILLING: 4, _OTHER: 3}[colour]
    panel.vlines(x[seen], 0.15, 0.85, color=colour, linewidth=0.96, snap=True, zorder=high)

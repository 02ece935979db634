"""A series with its segments shaded, one panel for each key, and what fills them below it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any, Union

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from panewise.errors import InputError, did_you_mean
from panewise.plots.axis import WIDE, Axis, axis_of, is_number, line, of_key, points, with_columns
from panewise.plots.style import BLUE, DOTS, GREY, ORANGE, RED, STYLE
from panewise.plots.under import FILLING, REACH, Under

__all__ = ["COLOURS", "PANELS", "Key", "draw", "ticks"]

Key = Union[str, Sequence[str], Mapping[str, Any]]
"""The key column, or several; or a mapping from key columns to the value, or the list of values, to show."""

PANELS = 8
"""The most keys in one picture."""

COLOURS = {"final": "#fbcf96", "partial": "#fef3e4", "remainder": "#ffffff", "gap": "#eef1f3"}
"""The shade of a segment: by status, and of a gap."""

_LABELS = {"final": "segment", "partial": "segment so far", "remainder": "remainder", "gap": "gap"}
_LIGHTER = "#fde3c2"
_HIGH = 220  # pixels


def draw(
    series: pa.Table,
    segments: pa.Table,
    *,
    key: Key,
    at: str,
    value: str,
    path: Union[str, os.PathLike[str]],
    threshold: float | None = None,
    title: str | None = None,
    under: Sequence[Under] = (),
) -> None:
    """Draw `value` over `at` with the segments found in it, 1100 pixels wide, as PNG, SVG or PDF by the path's ending.

    Rows that fill the segments come `under` it, in panels of their own.

    ::

        draw(reports, found, key={"router": ["r0001", "r0007"]}, at="rpt_time", value="drop_pct",
             path="loss.png", threshold=0.3)
    """
    by = [key] if isinstance(key, str) else list(key)
    series = with_columns("series", series, by, [at, value])
    segments = with_columns("segments", segments, by, ["segment", "status"], ["gap"])
    axis = axis_of("at", at, series.schema.field(at).type)
    _check(series.schema.field(value), segments.schema.field("segment"), axis)
    under = [each.checked(by, axis) for each in under]
    keys = _keys(series, by, key)
    with mpl.rc_context(STYLE):
        heights = [_HIGH, *(each.high for each in under)] * len(keys)
        high = (sum(heights) + 30 + 35 * bool(title) + 25 * bool(under)) / DOTS
        figure = Figure(figsize=(WIDE / DOTS, high), layout="constrained")
        stack = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        panels = stack.reshape(len(keys), -1)
        shown = [points(of_key(series, own), at, value, axis) for own in keys]
        _limits(stack[0], [x for x, _ in shown])
        shades: set[str] = set()
        for (panel, *below), own, (x, y) in zip(panels, keys, shown, strict=True):
            found = of_key(segments, own)
            shades |= _shade(panel, found, axis)
            line(panel, x, y, BLUE)
            if threshold is not None:
                panel.axhline(threshold, color=RED, linestyle=":", linewidth=1.1, zorder=4)
            name = " · ".join(f"{column} {item}" for column, item in own.items())
            panel.set_title(name, loc="left", fontsize=8, fontweight="bold", pad=4)
            panel.set_ylabel(value)
            panel.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
            panel.grid(axis="y", color="#efefef", linewidth=0.6, zorder=0)
            panel.set_axisbelow(True)
            panel.margins(y=0.08)
            for lower, rows in zip(below, under, strict=True):
                _shade(lower, found, axis)
                rows.draw(lower, own, found, axis)
        ticks(stack[-1], at, axis)
        entries = _entries(value, shades, threshold, under)
        look: dict[str, Any] = {"ncols": len(entries), "frameon": False, "borderpad": 0, "borderaxespad": 0.3}
        look |= {"handlelength": 1.6, "columnspacing": 1.4}
        if under:
            figure.align_ylabels(stack)
            # longer than what is left beside the name of a key
            figure.legend(handles=entries, loc="outside lower right" if title else "outside upper right", **look)
        else:
            stack[0].legend(handles=entries, loc="lower right", bbox_to_anchor=(1, 1), **look)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=10)
        figure.savefig(path)


def _check(value: pa.Field, segment: pa.Field, axis: Axis) -> None:
    if not is_number(value.type):
        raise InputError(f"`value` ({value.name!r}) is of type {value.type}, and must be a number. Cast it.")
    fields = {f.name: f.type for f in segment.type} if pa.types.is_struct(segment.type) else {}
    if not {"start", "end"} <= fields.keys():
        raise InputError(
            f"`segments` has a column 'segment' of type {segment.type}, without start and end. Give a result."
        )
    for name in ("start", "end"):
        if axis_of("segments", f"segment.{name}", fields[name]).timed != axis.timed:
            raise InputError(
                f"`segments` has a segment.{name} of type {fields[name]}, unlike `at`. Give the same type."
            )


def _keys(series: pa.Table, by: list[str], key: Key) -> list[dict[str, Any]]:
    """The keys to show, in order."""
    if isinstance(key, Mapping):
        for column, wanted in key.items():
            items = list(wanted) if isinstance(wanted, (list, tuple, set, frozenset)) else [wanted]
            try:
                choice = pa.array(items, series.schema.field(column).type)
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise InputError(
                    f"`key[{column}]` ({wanted!r}) is no value of that column: {error}. Cast it."
                ) from error
            series = series.filter(pc.is_in(series[column], value_set=choice))
    if series.num_rows == 0:
        raise InputError(f"`key` ({key!r}) leaves no rows of `series`. Choose keys that occur in it.")
    if not by:
        return [{}]
    keys = series.group_by(by).aggregate([]).sort_by([(column, "ascending") for column in by])
    if keys.num_rows > PANELS:
        pick = {column: keys[column][:2].to_pylist() for column in by}
        raise InputError(
            f"`key` ({key!r}) gives {keys.num_rows} panels; a picture holds at most {PANELS}. "
            f"Choose some, such as {pick!r}."
        )
    return [{column: row[column] for column in by} for row in keys.to_pylist()]


def _limits(panel: Axes, places: list[np.ndarray]) -> None:
    every = np.concatenate(places)
    if len(every) == 0:
        raise InputError("`at` is null in every row of `series`. Give a column that orders the rows.")
    low, high = float(every.min()), float(every.max())
    room = 0.005 * (high - low) or 0.5
    panel.set_xlim(low - room, high + room)


def _shade(panel: Axes, segments: pa.Table, axis: Axis) -> set[str]:
    """Shade each segment from start to end, at least two pixels wide, neighbours in turn; the kinds that occur."""
    status = segments["status"].cast(pa.string()).to_numpy()
    if "gap" in segments.column_names:
        status = np.where(segments["gap"].fill_null(False).to_numpy(), "gap", status)
    for unknown in set(status) - COLOURS.keys():
        raise InputError(
            f"`segments` has a status {unknown!r}, which has no shade. {did_you_mean(str(unknown), COLOURS)}"
        )
    start, end = (axis.places(pc.struct_field(segments["segment"], name)) for name in ("start", "end"))
    left, right = panel.get_xlim()
    least = 2 * (right - left) / WIDE
    place = panel.get_xaxis_transform()
    for kind in set(status):
        spans = sorted(zip(start[status == kind], end[status == kind], strict=True))
        lighter, until, corners, colours = False, -np.inf, [], []
        for a, b in spans:
            lighter, until = a <= until and not lighter, b
            room = max(0.0, least - (b - a)) / 2
            corners.append([(a - room, 0), (a - room, 1), (b + room, 1), (b + room, 0)])
            colours.append(_LIGHTER if lighter and kind == "final" else COLOURS[kind])
        panel.add_collection(
            PolyCollection(corners, transform=place, zorder=1, **{**_fill(kind), "facecolor": colours}), autolim=False
        )
    return set(status)


def _fill(kind: str) -> dict[str, Any]:
    return {
        "facecolor": COLOURS[kind],
        "edgecolor": GREY if kind == "gap" else ORANGE,
        "linewidth": 0.5,
        "linestyle": "--" if kind == "partial" else "-",
        "hatch": "////" if kind == "remainder" else None,
    }


def ticks(panel: Axes, at: str, axis: Axis) -> None:
    """Name the axis of `at`, and its places."""
    panel.set_xlabel(at if axis.zone is None else f"{at} ({axis.zone})")
    if axis.timed:
        zone = UTC if axis.zone is None else pa.lib.string_to_tzinfo(axis.zone)
        places = AutoDateLocator(tz=zone, minticks=5, maxticks=12)  # type: ignore[no-untyped-call]  # matplotlib has no types
        panel.xaxis.set_major_locator(places)
        panel.xaxis.set_major_formatter(ConciseDateFormatter(places, tz=zone))  # type: ignore[no-untyped-call]  # matplotlib has no types


def _entries(
    value: str, shades: set[str], threshold: float | None, under: Sequence[Under]
) -> list[Union[Line2D, Patch]]:
    entries: list[Union[Line2D, Patch]] = [Line2D([], [], color=BLUE, linewidth=1, label=value)]
    if threshold is not None:
        entries.append(Line2D([], [], color=RED, linestyle=":", linewidth=1.1, label=f"threshold {threshold:g}"))
    entries += [Patch(label=label, **_fill(kind)) for kind, label in _LABELS.items() if kind in shades]
    if under:
        entries.append(Line2D([], [], color=FILLING, linewidth=1, label="rows that fill"))
    if any(each.moves for each in under):
        entries.append(Patch(label="their reach", facecolor=REACH))
    return entries

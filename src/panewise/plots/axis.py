"""Where values of `at` lie in a picture, and the rows of a table that belong to a panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes

from panewise.errors import InputError, did_you_mean
from panewise.plots.thin import thin
from panewise.spec.duration import Amount, Duration, size

__all__ = ["WIDE", "Axis", "axis_of", "is_number", "line", "of_key", "points", "with_columns"]

WIDE = 1100
"""How many pixels a picture is wide."""

_DAY = 86_400_000_000  # microseconds


@dataclass(frozen=True, slots=True)
class Axis:
    """How values of `at` become places on the axis: matplotlib's days for times, else the number itself."""

    timed: bool
    zone: str | None = None

    def places(self, values: pa.ChunkedArray) -> np.ndarray:
        """Where these lie; a null lies nowhere."""
        if not self.timed:
            return _floats(values)
        since = values.to_numpy() - np.datetime64(mpl.rcParams["date.epoch"])
        return np.asarray(since / np.timedelta64(1, "D"), np.float64)

    def length(self, amount: Amount) -> float:
        """How long an amount is on the axis."""
        if size(amount) and isinstance(amount, Duration) != self.timed:
            kind = "a time" if self.timed else "a number"
            raise InputError(f"`reach` ({amount}) does not measure an `at` that is {kind}. Give one that does.")
        return size(amount) / _DAY if self.timed else size(amount)


def axis_of(argument: str, name: str, kind: pa.DataType) -> Axis:
    """The axis of a column."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return Axis(True, kind.tz if pa.types.is_timestamp(kind) else None)
    if is_number(kind):
        return Axis(False)
    raise InputError(
        f"`{argument}` ({name!r}) is of type {kind}, and must be a timestamp, a date or a number. Cast it."
    )


def is_number(kind: pa.DataType) -> bool:
    """Whether values of a type can be drawn as a line."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _floats(values: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(), np.float64)


def with_columns(name: str, table: pa.Table, by: list[str], needed: list[str], extra: Sequence[str] = ()) -> pa.Table:
    """The columns that matter, keys as plain values."""
    for column in [*by, *needed]:
        if column not in table.column_names:
            raise InputError(f"`{name}` has no column {column!r}. {did_you_mean(column, table.column_names)}")
    table = table.select(list(dict.fromkeys([*by, *needed, *(c for c in extra if c in table.column_names)])))
    for column in by:
        kind = table.schema.field(column).type
        if pa.types.is_dictionary(kind):
            table = table.set_column(table.column_names.index(column), column, table[column].cast(kind.value_type))
    return table


def of_key(table: pa.Table, own: Mapping[str, Any]) -> pa.Table:
    """The rows of one key."""
    for column, item in own.items():
        values = table[column]
        table = table.filter(pc.is_null(values) if item is None else pc.equal(values, pa.scalar(item, values.type)))
    return table


def points(series: pa.Table, at: str, value: str, axis: Axis) -> tuple[np.ndarray, np.ndarray]:
    """Where a series lies, in order."""
    x, y = axis.places(series[at]), _floats(series[value])
    x, y = x[np.isfinite(x)], y[np.isfinite(x)]
    if np.any(np.diff(x) < 0):
        order = np.argsort(x, kind="stable")
        x, y = x[order], y[order]
    return x, np.where(np.isfinite(y), y, np.nan)


def line(panel: Axes, x: np.ndarray, y: np.ndarray, colour: str) -> None:
    """Draw a line, with no more points than can be seen, and a dot where one has no neighbour."""
    x, y = thin(x, y, WIDE)
    panel.plot(x, y, color=colour, linewidth=0.8, solid_joinstyle="round", zorder=3)
    nothing = np.isnan(np.concatenate([[np.nan], y, [np.nan]]))
    alone = ~nothing[1:-1] & nothing[:-2] & nothing[2:]
    panel.plot(x[alone], y[alone], color=colour, linestyle="", marker=".", markersize=2, zorder=3)

"""Pages: rows in order, as columns, with where each key's rows begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["NULL", "Page", "in_one", "numbers", "truths"]

NULL = 2
"""A condition is 0 (false), 1 (true) or 2 (null)."""

Array = npt.NDArray[Any]


def in_one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece; `combine_chunks` would copy even a single one."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def numbers(column: pa.Array) -> Array:
    """The values of an array of numbers, without a copy; where one is null, whatever stands there.

    >>> len(numbers(pa.array([1.5, None])))
    2
    """
    kind = np.dtype(column.type.to_pandas_dtype())
    held = column.buffers()[1]
    return np.frombuffer(held, kind, len(column), column.offset * kind.itemsize) if held else np.empty(0, kind)


@dataclass(frozen=True)
class Page:
    """Rows of several keys, sorted by key, then in the order of the definitions.

    Group g is rows offsets[g] to offsets[g + 1]; its key lives in slot slots[g] of the operator's state, and its
    stream ends with the page if ends[g].
    """

    at: Array
    """int64 or float64 [n], never null."""
    conditions: Array
    """uint8 [C, n]: 0, 1 or NULL."""
    values: Array
    """float64 [V, n]; NaN is null."""
    floats: Array
    """float64 [*, n], what aggregates read."""
    ints: Array
    """int64 [*, n], what aggregates read."""
    valid: Array
    """uint8 [A, n]: whether the aggregate's input is there."""
    offsets: Array
    slots: Array
    ends: Array
    told: Array | None = None
    """bool [groups]: whether something was promised: no further row of the key comes at or before `until`."""
    until: Array | None = None
    soonest: Array | None = None
    """The first instant after `until`."""
    columns: tuple[pa.Array, ...] = ()
    """What reducers read."""

    def __len__(self) -> int:
        return len(self.at)


def truths(conditions: Array, i: int) -> Array:
    """Where condition i is true."""
    return np.asarray(conditions[i] == 1)

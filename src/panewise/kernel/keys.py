"""Keys of several columns as dense numbers, and rows in the order of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel.compiled import compiled
from panewise.kernel.page import Array

__all__ = ["codes", "grouped"]


def codes(columns: Sequence[pa.Array], rows: int) -> tuple[Array, Array]:
    """A number for each row, equal where all columns are, counted from 0 as they first appear; and those first rows.

    >>> codes([pa.array(["a", "b", "a", None])], 4)
    (array([0, 1, 0, 2]), array([0, 1, 3]))
    """
    found = np.zeros(rows, np.int64)
    count = min(rows, 1)
    for i, column in enumerate(columns):
        more, size = _dense(column)
        found, count = (more, size) if i == 0 else _dense(pa.array(found * size + more))
    return found, _firsts(found, count)


def _dense(column: pa.Array) -> tuple[Array, int]:
    encoded = column.dictionary_encode(null_encoding="encode")
    return np.array(encoded.indices.to_numpy(zero_copy_only=False), np.int64), len(encoded.dictionary)


@compiled
def _firsts(found: Any, count: Any) -> Any:
    """The first row of each number; numbers are given as they appear."""
    firsts = np.empty(count, np.int64)
    seen = 0
    for i in range(len(found)):
        if found[i] == seen:
            firsts[seen] = i
            seen += 1
    return firsts


@compiled
def grouped(ranks: Any, count: Any) -> Any:
    """Rows in order of their ranks 0 to count, equal ones as they stand; and where each rank begins."""
    offsets = np.zeros(count + 1, np.int64)
    for i in range(len(ranks)):
        offsets[ranks[i] + 1] += 1
    for k in range(count):
        offsets[k + 1] += offsets[k]
    to = offsets[:-1].copy()
    order = np.empty(len(ranks), np.int64)
    for i in range(len(ranks)):
        order[to[ranks[i]]] = i
        to[ranks[i]] += 1
    return order, offsets

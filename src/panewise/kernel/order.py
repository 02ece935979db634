"""Rows of many keys in the order of the definitions (ruling 1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.kernel.compiled import compiled
from panewise.kernel.keys import grouped_some
from panewise.kernel.page import Array

__all__ = ["is_sorted", "settled_ties", "sort_indices", "sortable"]


@compiled
def is_sorted(at: Any) -> bool:
    """Whether no number is below the one before."""
    for i in range(1, len(at)):
        if at[i] < at[i - 1]:
            return False
    return True


@compiled
def _out_of_order(at: Any, slots: Any, order: Any) -> bool:
    for i in range(1, len(order)):
        a, b = order[i - 1], order[i]
        if slots[a] == slots[b] and at[a] > at[b]:
            return True
    return False


@compiled
def _tied(at: Any, slots: Any, order: Any) -> Any:
    """Where rows stand that share key and `at` with a neighbour."""
    n = len(order)
    tied = np.zeros(n, np.bool_)
    for i in range(1, n):
        a, b = order[i - 1], order[i]
        if slots[a] == slots[b] and at[a] == at[b]:
            tied[i - 1] = True
            tied[i] = True
    return tied


def sort_indices(slots: Array, count: int, at: Array, rows: pa.Table, places: Array) -> Array:
    """The order of the rows in these places by slot, `at`, and then every column of `rows`, nulls first.

    Rows mostly come in order and seldom tie, so only what does not is sorted.
    """
    order: Array = grouped_some(slots, count, places)
    if _out_of_order(at, slots, order):
        order = places[np.lexsort((at[places], slots[places]))]
    return settled_ties(order, slots, at, rows)


def settled_ties(order: Array, slots: Array, at: Array, rows: pa.Table) -> Array:
    """The order of rows that are in order by slot and `at`: those that tie, by every column of `rows`."""
    tied = np.flatnonzero(_tied(at, slots, order))
    if len(tied) and rows.num_columns:
        some = order[tied]
        columns = {"slot": pa.array(slots[some]), "at": pa.array(at[some])}
        picked = rows.take(pa.array(some))
        columns |= {f"c{i}": picked.column(i) for i in range(rows.num_columns)}
        table = sortable(pa.table(columns))
        keys = [(name, "ascending", "at_start") for name in table.column_names]
        order[tied] = some[np.asarray(pc.sort_indices(table, sort_keys=keys))]
    return order


def sortable(rows: pa.Table) -> pa.Table:
    """The same rows with booleans as numbers, which Arrow sorts."""
    return pa.table(
        {
            name: c.cast(pa.uint8()) if pa.types.is_boolean(c.type) else c
            for name, c in zip(rows.column_names, rows.columns, strict=True)
        }
    )

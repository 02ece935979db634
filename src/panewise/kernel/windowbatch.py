"""Windows of what is stored: each task adds its rows to panes, wherever they lie; panes of a key are merged, then sent.

Rows come as batches under fixed names: keys k0, ..., `at` (or the `number` of the row, where windows are of so many
rows), v0 where numbers say which rows end a window, what aggregates read a0, ..., and the `shard` of the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.kernel.bundle import dump, load
from panewise.kernel.fill import Tallies
from panewise.kernel.keys import KeyTable, codes
from panewise.kernel.order import sortable
from panewise.kernel.page import Array, in_one
from panewise.kernel.sequence import Layout
from panewise.kernel.tuples import TupleOperator
from panewise.kernel.windowing import WindowOperator
from panewise.kernel.windows import Grid, grid_of, row_grid
from panewise.spec.aggregates import input_columns
from panewise.spec.frames import RowWindows, TupleWindows, Windows

__all__ = ["merged", "partials", "windows_of"]

_HELD = 1 << 18
"""How many panes a task holds before it sends them: more take memory, fewer are sent more often."""
_ROWS = 1 << 17
"""How many rows are gathered before they are added."""
_SENT = 1 << 16
"""About how many windows are sent at a time."""


class _Panes:
    """Rows, or panes of other tasks, by key and pane."""

    def __init__(self, layout: Layout) -> None:
        self._layout, self.aggregation = layout, layout.aggregation
        scheme = layout.plan.scheme
        self.grid: Grid | None = None
        if isinstance(scheme, Windows):
            self.grid = grid_of(scheme, layout.progress)
        elif isinstance(scheme, RowWindows):
            self.grid = row_grid(scheme)
        self._names, self._inputs = [f"k{i}" for i in range(len(layout.key_types))], input_columns(layout.agg)
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        scheme, self.table = self._layout.plan.scheme, KeyTable(self._layout.key_types)
        self.operator: WindowOperator | TupleOperator
        if isinstance(scheme, TupleWindows):
            self.operator = TupleOperator(scheme, self._layout.progress, self.aggregation)
        else:
            assert self.grid is not None
            self.operator = WindowOperator(self.grid, self.aggregation)

    def slots(self, rows: pa.Table) -> Array:
        """The slot of each row's key."""
        return self.table.slots([in_one(rows.column(name)) for name in self._names], len(rows))

    def take(self, rows: pa.Table) -> tuple[pa.Table, Array]:
        """Add rows; those that count, and their slots."""
        if "number" in rows.column_names:
            at = np.array(in_one(rows.column("number")).to_numpy(), np.int64)
        else:
            at = self._layout.progress.numbers(in_one(rows.column("at")))
        if self.grid is not None and self.grid.begins and len(at) and at.min() < self.grid.origin:
            kept = at >= self.grid.origin
            rows, at = rows.filter(pa.array(kept)), at[kept]
        slots, inputs = self.slots(rows), self.aggregation.inputs(self._inputs, rows)
        if isinstance(self.operator, TupleOperator):
            numbers = None
            if "v0" in rows.column_names:
                numbers = np.asarray(in_one(rows.column("v0")).to_numpy(zero_copy_only=False), np.float64)
            self.operator.take(slots, at, inputs, len(self.table), numbers)
        else:
            self.operator.take(slots, at, inputs, len(self.table), self._layout.ranks(rows, at))
        return rows, slots

    def merge(self, panes: pa.Table) -> None:
        """Add panes of another task."""
        named = {name: panes.column(name) for name in Tallies.names(self.aggregation)}
        tallies = Tallies.read(named, self.aggregation)
        places, rows, marks = (np.asarray(panes.column(name).to_numpy()) for name in ("pane", "rows", "marks"))
        self.operator.merge(self.slots(panes), places, rows, marks, tallies, len(self.table))

    def sent(self, latest: Any) -> Iterator[pa.RecordBatch]:
        """All windows; those that begin at the origin go on to that of the latest row."""
        last: Any = np.iinfo(np.int64).max // 4
        if self.grid is None:
            last = self._layout.progress.everything
        elif self.grid.goes_on:
            last = self.grid.last_of(latest)
        emitter = self._layout.emitter
        for found in self.operator.released(np.full(len(self.table), last)):
            for first in range(0, len(found), _SENT):
                yield emitter.batch(self.table.columns, found.slice(first, _SENT))


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    some: list[pa.RecordBatch] = []
    for batch in batches:
        some.append(batch)
        if sum(map(len, some)) >= _ROWS:
            yield pa.Table.from_batches(some)
            some = []
    if some:
        yield pa.Table.from_batches(some)


def partials(layout: Layout, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
    """The panes of some rows, by shard."""
    panes, shards = _Panes(layout), np.empty(0, np.int64)
    for rows in _gathered(batches):
        kept, slots = panes.take(rows)
        grown = np.zeros(len(panes.table), np.int64)
        grown[: len(shards)] = shards
        grown[slots] = kept.column("shard").to_numpy()
        shards = grown
        if len(panes.operator) >= _HELD:
            yield from _dealt(layout, panes, shards)
            panes.clear()
            shards = np.empty(0, np.int64)
    yield from _dealt(layout, panes, shards)


def _dealt(layout: Layout, panes: _Panes, shards: Array) -> Iterator[tuple[int, bytes]]:
    owners, places, rows, marks, tallies = panes.operator.entries
    if not len(owners):
        return
    mine = shards[owners]
    order = np.argsort(mine, kind="stable")
    edges = np.concatenate([[0], np.flatnonzero(np.diff(mine[order])) + 1, [len(order)]])
    for first, last in pairwise(edges):
        some = order[first:last]
        keys = {f"k{i}": key.take(pa.array(owners[some])) for i, key in enumerate(panes.table.columns)}
        counts = {"pane": places, "rows": rows, "marks": marks}
        cells = {**{name: pa.array(held[some]) for name, held in counts.items()}, **tallies.of(some).columns()}
        yield int(mine[some[0]]), dump({"panes": pa.table({**keys, **cells})}, {})


def merged(layout: Layout, found: Iterable[tuple[int, bytes, Any]]) -> Iterator[pa.RecordBatch]:
    """Windows from the panes of all tasks, which come shard by shard, each with the latest `at` of all rows."""
    for _, some in groupby(found, key=lambda piece: piece[0]):
        panes, latest = _Panes(layout), None
        for _, data, latest in some:  # noqa: B007  # it is the same in all
            panes.merge(load(data)[0]["panes"])
        yield from panes.sent(latest)


def _numbered(windows: RowWindows, rows: pa.Table) -> pa.Table:
    """Rows with their numbers, in order: of each key, or of all."""
    keys = [name for name in rows.column_names if name.startswith("k")]
    order = ["at", *(name for name in rows.column_names if name.startswith("b"))]
    names = [*keys, *order] if windows.partitioned else [*order, *keys]
    names += [name for name in rows.column_names if name not in names and not name.startswith("s")]
    sorted_by = [(name, "ascending", "at_start") for name in names]
    rows = rows.take(pc.sort_indices(sortable(rows.select(names)), sort_keys=sorted_by)).combine_chunks()
    numbers = np.arange(1, len(rows) + 1)
    if windows.partitioned and keys:
        found, firsts = codes([in_one(rows.column(name)) for name in keys], len(rows))
        numbers -= firsts[found]
    return rows.append_column("number", pa.array(numbers))


def windows_of(layout: Layout, rows: pa.Table) -> pa.Table:
    """The windows of rows in memory."""
    panes, schema, scheme = _Panes(layout), layout.emitter.schema, layout.plan.scheme
    if not len(rows):
        return schema.empty_table()
    if isinstance(scheme, RowWindows):
        rows = _numbered(scheme, rows)
    for first in range(0, len(rows), _ROWS):
        panes.take(rows.slice(first, _ROWS).combine_chunks())
    at = layout.progress.numbers(in_one(rows.column("at")))
    found = pa.Table.from_batches(panes.sent(at.max()), schema)
    keys = layout.plan.keys
    if not keys:
        return found
    # keys in their order, as those of frames
    ordered = [(name, "ascending", "at_start") for name in keys]
    return found.take(pc.sort_indices(sortable(found.select(keys)), sort_keys=ordered))

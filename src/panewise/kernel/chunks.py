"""What waits in a fill, in chunks of state: rows that a segment may still claim, segments that rows may still enter.

A micro-batch reads and writes only the chunks that it touches. What is in each is told by an index, which is part of
the shard's one state value.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel.bundle import dump, load
from panewise.kernel.page import Array

__all__ = ["BESIDE", "CHUNK_BYTES", "SegmentChunks", "Store", "WaitingRows"]

Store = MutableMapping[str, bytes]
"""Where chunks lie, by name."""

CHUNK_BYTES = 100_000
"""About how large a chunk is: less makes many, more is read and written for little."""

BESIDE = "panewise "
"""How the names begin of what stands beside the columns of segments: nobody else gives such names."""


class _Chunks:
    """Numbered chunks under one name, each a table, with an index of them as a table of its own."""

    def __init__(self, store: Store, name: str, index: pa.Table, number: int = 0) -> None:
        self._store, self._name, self.index, self.number = store, name, index, number

    @property
    def size(self) -> int:
        """About how many bytes of state they are."""
        return int(self._column("bytes").sum())

    def _put(self, number: int, table: pa.Table) -> int:
        """How many bytes it is."""
        self._store[f"{self._name}{number}"] = data = dump({"chunk": table.combine_chunks()}, {}, compressed=True)
        return len(data)

    def _get(self, number: int) -> pa.Table:
        return load(self._store[f"{self._name}{number}"])[0]["chunk"]

    def _remove(self, number: int) -> None:
        del self._store[f"{self._name}{number}"]
        self._keep(self._column("chunk") != number)

    def _keep(self, kept: Array) -> None:
        self.index = self.index.filter(pa.array(kept))

    def _noted(self, told: Sequence[Any]) -> None:
        """Add to the index; it stays in one piece, or each look at it would gather as many as there were chunks."""
        arrays = [pa.array(column, field.type) for column, field in zip(told, self.index.schema, strict=True)]
        more = pa.Table.from_arrays(arrays, schema=self.index.schema)
        self.index = pa.concat_tables([self.index, more]).combine_chunks()

    def _column(self, name: str) -> Array:
        return np.asarray(self.index.column(name).to_numpy())

    def _next(self) -> int:
        self.number += 1
        return self.number


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    """A table in pieces of about the size of a chunk."""
    count = max(1, round(table.nbytes / CHUNK_BYTES))
    size = -(-len(table) // count)
    for first in range(0, len(table), size):
        yield table.slice(first, size)


def _beyond(rows: pa.Table, limit: Array) -> pa.Table:
    """The rows beyond the limit of their slot."""
    slots, at = (np.asarray(rows.column(name).to_numpy()) for name in ("slot", "number"))
    return rows.filter(pa.array(at > limit[slots]))


class WaitingRows(_Chunks):
    """Rows by slot and `at`; the index says of each chunk which slots it holds, how much of each, and between when."""

    @staticmethod
    def empty(dtype: Any) -> pa.Table:
        """The index of no rows."""
        at = pa.float64() if dtype == np.float64 else pa.int64()
        whole = ("chunk", "bytes", "slot", "n")
        fields = [*((name, pa.int64()) for name in whole), ("least", at), ("most", at)]
        return pa.schema(fields).empty_table()

    def __len__(self) -> int:
        return int(self._column("n").sum())

    def add(self, rows: pa.Table, slots: Array, at: Array, limit: Array) -> None:
        """Keep rows, sorted by slot and `at`, which are beyond the limit of their slot and told beside them."""
        table = rows.append_column("slot", pa.array(slots)).append_column("number", pa.array(at))
        table = self._with_tail(table, limit)
        for piece in _pieces(table):
            self._write(piece)

    def _with_tail(self, table: pa.Table, limit: Array) -> pa.Table:
        """The rows, and those of the last chunk that still wait, if both are small."""
        numbers = self._column("chunk")
        if not len(numbers):
            return table
        tail = int(numbers.max())
        old = _beyond(self._get(tail), limit)
        if old.nbytes + table.nbytes > CHUNK_BYTES:
            return table
        self._remove(tail)
        # whether a column may be null differs between micro-batches of one query
        return pa.concat_tables([old, table], promote_options="default").sort_by(
            [("slot", "ascending"), ("number", "ascending")]
        )

    def _write(self, piece: pa.Table) -> None:
        number = self._next()
        size = self._put(number, piece)
        slots, at = (np.asarray(piece.column(name).to_numpy()) for name in ("slot", "number"))
        starts = np.concatenate([[0], np.flatnonzero(np.diff(slots)) + 1])
        ends = np.append(starts[1:], len(slots))
        share = size * (ends - starts) // len(slots)
        told = [np.full(len(starts), number), share, slots[starts], ends - starts, at[starts], at[ends - 1]]
        self._noted(told)

    def within(self, slots: Array, lo: Array, hi: Array, count: int) -> Iterator[pa.Table]:
        """The rows of each chunk that may hold some within [lo, hi] of these slots, sorted by slot and `at`."""
        if not len(self.index) or not len(slots):
            return
        dtype = lo.dtype
        top, bottom = (np.inf, -np.inf) if dtype == np.float64 else (np.iinfo(dtype).max, np.iinfo(dtype).min)
        first, last = np.full(count, top, dtype), np.full(count, bottom, dtype)
        np.minimum.at(first, slots, lo)
        np.maximum.at(last, slots, hi)
        owner = self._column("slot")
        meets = (self._column("least") <= last[owner]) & (self._column("most") >= first[owner])
        for number in np.unique(self._column("chunk")[meets]):
            yield self._get(int(number))

    def let_go(self, limit: Array) -> None:
        """Forget the rows at or before the limit of their slot; a chunk is written anew once half of it is gone."""
        if not len(self.index):
            return
        numbers, counts = self._column("chunk"), self._column("n")
        gone = self._column("most") <= limit[self._column("slot")]
        if not gone.any():
            return
        chunks, inverse = np.unique(numbers, return_inverse=True)
        rows, lost = (np.bincount(inverse, weights=w) for w in (counts, counts * gone))
        for number, had, gave in zip(chunks, rows, lost, strict=True):
            if gave == had:
                self._remove(int(number))
            elif 2 * gave >= had:
                kept = _beyond(self._get(int(number)), limit)
                self._remove(int(number))
                self._write(kept)
        # of a chunk that stays whole, what is gone is not looked for again
        self._keep(self._column("most") > limit[self._column("slot")])


class SegmentChunks(_Chunks):
    """Segments; the index says of each chunk how many it holds, and per source between when rows may enter them.

    `due` is when the first of a chunk is complete, if all sources come that far.
    """

    @staticmethod
    def empty(dtype: Any, sides: int) -> pa.Table:
        """The index of no segments."""
        at = pa.float64() if dtype == np.float64 else pa.int64()
        fields = [("chunk", pa.int64()), ("bytes", pa.int64()), ("n", pa.int64()), ("due", at)]
        fields += [(f"{name}{i}", at) for i in range(sides) for name in ("least", "most")]
        return pa.schema(fields).empty_table()

    def __len__(self) -> int:
        return int(self._column("n").sum())

    def add(self, table: pa.Table, lo: Sequence[Array], hi: Sequence[Array]) -> None:
        """Keep segments; `table` holds lo0, hi0, ... beside their columns."""
        order = np.argsort(np.min(np.stack(lo), axis=0), kind="stable")
        table = table.take(pa.array(order))
        numbers = self._column("chunk")
        if len(numbers):
            tail = int(numbers.max())
            old = self._get(tail)
            if old.nbytes + table.nbytes <= CHUNK_BYTES:
                self._remove(tail)
                table = pa.concat_tables([old, table], promote_options="default")
        for piece in _pieces(table):
            self.write(self._next(), piece)

    def write(self, number: int, piece: pa.Table) -> None:
        """A chunk as it now is."""
        size = self._put(number, piece)
        sides = (self.index.num_columns - 4) // 2
        names = [f"{BESIDE}{name}{i}" for i in range(sides) for name in ("lo", "hi")]
        columns = [np.asarray(piece.column(name).to_numpy()) for name in names]
        due = np.max(np.stack(columns[1::2]), axis=0).min()
        told = [number, size, len(piece), due]
        for lo, hi in zip(columns[::2], columns[1::2], strict=True):
            told += [lo.min(), hi.max()]
        self._noted([[value] for value in told])

    def touched(self, spans: Sequence[tuple[Any, Any] | None], until: Any) -> Iterator[tuple[int, pa.Table]]:
        """The chunks that rows of some source may enter, by their first and last `at`, or that may be complete.

        Each is taken out: `write` puts it back.
        """
        if not len(self.index):
            return
        hit = self._column("due") <= until
        for i, span in enumerate(spans):
            if span is not None:
                hit |= (self._column(f"least{i}") <= span[1]) & (self._column(f"most{i}") >= span[0])
        for number in self._column("chunk")[hit]:
            table = self._get(int(number))
            self._remove(int(number))
            yield int(number), table

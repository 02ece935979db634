"""Rows of a table and segments, as pieces that meet: pages of rows, chunks of segments, and what comes of each pair.

Both are dealt to shards by key. A page is sorted by key and `at`. What a page adds to a segment is a partial result;
`Merger` adds those of one segment together, and gives one row for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel.bundle import dump, load
from panewise.kernel.fill import FillLayout, Tallies, located, pairs, reach, sorted_rows, together
from panewise.kernel.keys import codes
from panewise.kernel.page import Array
from panewise.kernel.tally import N_CELLS

__all__ = ["FLOATS", "INTS", "UID", "Merger", "Piece", "chunks", "filled", "gathered_by_shard", "matched", "pages"]

PIECE_ROWS = 1 << 20
PIECE_BYTES = 1 << 26
"""How much is gathered before it is dealt: less makes small pieces, more takes memory."""

UID, FLOATS, INTS = "panewise uid", "panewise floats", "panewise ints"
_LO, _HI, _KEY = "panewise lo", "panewise hi", "panewise key"
"""What stands beside the columns of segments, under names that nobody else gives."""

Piece = tuple[int, bytes, Any, Any]
"""A shard, the piece as bytes, and the first and last instant that it concerns."""


def _gathered(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    some: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        if not len(batch):
            continue
        some.append(batch)
        count, size = count + len(batch), size + batch.nbytes
        if count >= rows or size >= PIECE_BYTES:
            yield pa.Table.from_batches(some)
            some, count, size = [], 0, 0
    if some:
        yield pa.Table.from_batches(some)


def _dealt(table: pa.Table, shards: pa.ChunkedArray, order: Array) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each shard, in this order, which has shards one after another."""
    table, owners = table.take(pa.array(order)), np.asarray(shards.to_numpy())[order]
    edges = np.concatenate([[0], np.flatnonzero(np.diff(owners)) + 1, [len(owners)]])
    for first, last in pairwise(edges):
        yield int(owners[first]), table.slice(first, last - first)


def pages(layout: FillLayout, batches: Iterable[pa.RecordBatch], rows: int = PIECE_ROWS) -> Iterator[Piece]:
    """Rows (shard, k0.., at, a0.., row) as pages."""
    names = [f"k{i}" for i in range(len(layout.key_types))]
    for table in _gathered(batches, rows):
        keys = [table.column(name).combine_chunks() for name in names]
        found, firsts = codes(keys, len(table))
        at = layout.progress.numbers(table.column("at").combine_chunks())
        shards = table.column("shard")
        rank = np.empty(len(firsts), np.int64)
        rank[np.argsort(np.asarray(shards.to_numpy())[firsts], kind="stable")] = np.arange(len(firsts))
        slots = rank[found]
        order, _ = sorted_rows(slots, at, len(firsts))
        order = np.arange(len(table)) if order is None else order
        table = table.drop_columns(["shard"]).append_column("slot", pa.array(slots))
        for shard, part in _dealt(table, shards, order):
            mine = np.asarray(part.column("slot").to_numpy())
            edges = np.concatenate([[0], np.flatnonzero(np.diff(mine)) + 1])
            heads = {name: part.column(name).take(pa.array(edges)) for name in names}
            counted = pa.table({**heads, "n": pa.array(np.diff(np.append(edges, len(part))))})
            ats = layout.progress.numbers(part.column("at").combine_chunks())
            page = {"keys": counted, "rows": part.drop_columns([*names, "slot"]).combine_chunks()}
            yield shard, dump(page, {}), ats.min(), ats.max()


def chunks(layout: FillLayout, batches: Iterable[pa.RecordBatch], rows: int = PIECE_ROWS // 16) -> Iterator[Piece]:
    """Segments (first their shard, keys and uid, then all their columns) as chunks; emptied ones reach nowhere."""
    names = [*_keys(layout), UID]
    for table in _gathered(batches, rows):
        shards, table = table.column(0), table.remove_column(0).combine_chunks()
        table = table.rename_columns([*names, *table.column_names[len(names) :]])
        lo, hi = reach(layout, table.column("segment").combine_chunks())
        table = table.append_column(_LO, pa.array(lo)).append_column(_HI, pa.array(hi))
        for shard, part in _dealt(table, shards, np.lexsort((lo, np.asarray(shards.to_numpy())))):
            first = np.asarray(part.column(_LO).to_numpy()).min()
            last = max(first, np.asarray(part.column(_HI).to_numpy()).max())
            yield shard, dump({"segments": part.combine_chunks()}, {}), first, last


def gathered_by_shard(batches: Iterable[pa.RecordBatch], rows: int = PIECE_ROWS // 16) -> Iterator[tuple[int, bytes]]:
    """Segments (first their shard, then all their columns) as pages of a shard each."""
    for table in _gathered(batches, rows):
        shards = table.column(0)
        order = np.argsort(np.asarray(shards.to_numpy()), kind="stable")
        for shard, part in _dealt(table.remove_column(0).combine_chunks(), shards, order):
            yield shard, dump({"segments": part.combine_chunks()}, {})


def _keys(layout: FillLayout) -> list[str]:
    return [f"{_KEY}{i}" for i in range(len(layout.key_types))]


def _met(layout: FillLayout, chunk: bytes, page: bytes) -> tuple[pa.Table, pa.Table, Array, Array]:
    """Segments, rows, and which rows each segment takes."""
    segments, page_tables = load(chunk)[0]["segments"], load(page)[0]
    keys, rows = page_tables["keys"], page_tables["rows"]
    of_rows = [keys.column(i).combine_chunks() for i in range(len(layout.key_types))]
    of_segments = [segments.column(name).combine_chunks() for name in _keys(layout)]
    mine, theirs, count = together(of_rows, of_segments, len(keys), len(segments))
    lengths = np.zeros(count, np.int64)
    lengths[mine] = keys.column("n").to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    at = layout.progress.numbers(rows.column("at").combine_chunks())
    lo, hi = (np.asarray(segments.column(name).to_numpy()) for name in (_LO, _HI))
    return segments, rows, *located(theirs, lo, hi, offsets, at)


def _own(layout: FillLayout, segments: pa.Table, keep: tuple[str, ...] = ()) -> pa.Table:
    """The columns that the segments came with."""
    return segments.drop_columns([*_keys(layout), _LO, _HI, *(() if UID in keep else (UID,))])


def matched(layout: FillLayout, chunk: bytes, page: bytes) -> pa.Table | None:
    """Each row of the page with each segment that it lies in: the segment's columns, and `row`."""
    segments, rows, first, last = _met(layout, chunk, page)
    owner, taken = pairs(first, last)
    if not len(owner):
        return None
    return _own(layout, segments).take(pa.array(owner)).append_column("row", rows.column("row").take(pa.array(taken)))


def filled(layout: FillLayout, chunk: bytes, page: bytes | None) -> pa.Table | None:
    """What the page adds to each segment that it meets; no page adds nothing to all."""
    aggregates = len(layout.agg)
    if page is None:
        segments = load(chunk)[0]["segments"]
        return _partials(_own(layout, segments, (UID,)), Tallies.empty(len(segments), aggregates))
    segments, rows, first, last = _met(layout, chunk, page)
    some = np.flatnonzero(last > first)
    if not len(some):
        return None
    tallies = Tallies.empty(len(some), aggregates)
    at = layout.progress.numbers(rows.column("at").combine_chunks())
    tallies.add(first[some], last[some], layout.inputs(rows), at)
    return _partials(_own(layout, segments, (UID,)).take(pa.array(some)), tallies)


def _partials(segments: pa.Table, tallies: Tallies) -> pa.Table:
    for name, cells in ((FLOATS, tallies.floats), (INTS, tallies.ints)):
        width = cells.shape[1] * N_CELLS
        offsets = pa.array(np.arange(len(cells) + 1) * width, pa.int32())
        segments = segments.append_column(name, pa.ListArray.from_arrays(offsets, pa.array(cells.reshape(-1))))
    return segments


def _tallies(table: pa.Table, aggregates: int) -> Tallies:
    cells = [table.column(name).combine_chunks().flatten() for name in (FLOATS, INTS)]
    shape = (len(table), aggregates, N_CELLS)
    floats, ints = (np.array(flat.to_numpy(zero_copy_only=False)).reshape(shape) for flat in cells)
    return Tallies(floats, ints)


class Merger:
    """Partial results sorted by segment, batch after batch, into one row for each segment."""

    def __init__(self, layout: FillLayout, keys: Sequence[str], schema: pa.Schema, unsorted: bool = False) -> None:
        self._layout, self._keys, self._schema, self._unsorted = layout, keys, schema, unsorted
        self._aggregation = layout.aggregation

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All partial results in, all segments out."""
        held: pa.Table | None = None
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        for table in [self._whole(tables)] if self._unsorted else tables:
            if table is None or not len(table):
                continue
            joined = table if held is None else pa.concat_tables([held, table])
            merged, last = self._merged(joined.combine_chunks())
            held = last
            if merged is not None:
                yield from self._finished(merged)
        if held is not None:
            yield from self._finished(held)

    def _merged(self, table: pa.Table) -> tuple[pa.Table | None, pa.Table]:
        """The segments that are complete, and the last one, which may go on."""
        found, starts = codes(self._identity(table), len(table))
        tallies = Tallies.empty(len(starts), len(self._layout.agg))
        tallies.merge(found, self._aggregation.kinds, _tallies(table, len(self._layout.agg)))
        merged = _partials(table.take(pa.array(starts)).drop_columns([FLOATS, INTS]), tallies)
        complete = merged.slice(0, len(merged) - 1)
        return complete if len(complete) else None, merged.slice(len(merged) - 1)

    def _finished(self, merged: pa.Table) -> Iterator[pa.RecordBatch]:
        results = _tallies(merged, len(self._layout.agg)).results(self._aggregation)
        own = merged.drop_columns([UID, FLOATS, INTS])
        columns = [column.combine_chunks() for column in own.columns]
        arrays = [a.cast(f.type) for a, f in zip([*columns, *results], self._schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _identity(self, table: pa.Table) -> list[pa.Array]:
        """What tells segments apart."""
        segment = table.column("segment").combine_chunks()
        named = [table.column(name).combine_chunks() for name in (UID, *self._keys)]
        return [*named, segment.field("id"), segment.field("start")]

    def _whole(self, tables: Iterable[pa.Table]) -> pa.Table | None:
        """All partial results at once, sorted: those of one micro-batch."""
        gathered = [table for table in tables if len(table)]
        if not gathered:
            return None
        table = pa.concat_tables(gathered).sort_by(UID).combine_chunks()
        return table.take(pa.array(np.argsort(codes(self._identity(table), len(table))[0], kind="stable")))

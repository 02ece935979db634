"""Rows of a table and segments, as pieces that meet: pages of rows, chunks of segments, and what comes of each pair.

Both are dealt to shards by key. A page is sorted by key and `at`. What a page adds to a segment is a partial result;
`Merger` adds those of one segment together, and gives one row for each. Where all segments of a chunk are at hand
while rows come, `Taker` needs no pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel.bundle import dump, load
from panewise.kernel.compiled import compiled
from panewise.kernel.fill import FillLayout, Tallies, furthest, located, pairs, reach, sorted_rows, together
from panewise.kernel.keys import codes, slots_of
from panewise.kernel.page import Array, in_one

__all__ = [
    "UID", "Merger", "Piece", "Taker",
    "chunks", "filled", "gathered_by_shard", "matched", "opened", "pages", "reaching",
]  # fmt: skip

PIECE_ROWS = 1 << 20
PIECE_BYTES = 1 << 26
"""How much is gathered before it is dealt: less makes small pieces, more takes memory."""

UID = "panewise uid"
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
    for gathered in _gathered(batches, rows):
        shards, table = gathered.column(0), reaching(layout, gathered.remove_column(0))
        lo = np.asarray(table.column(_LO).to_numpy())
        for shard, part in _dealt(table, shards, np.lexsort((lo, np.asarray(shards.to_numpy())))):
            first = np.asarray(part.column(_LO).to_numpy()).min()
            last = max(first, np.asarray(part.column(_HI).to_numpy()).max())
            yield shard, dump({"segments": part.combine_chunks()}, {}), first, last


def reaching(layout: FillLayout, segments: pa.Table) -> pa.Table:
    """Segments (first their keys and uid, then all their columns) with how far they reach."""
    names = [*_keys(layout), UID]
    table = segments.combine_chunks().rename_columns([*names, *segments.column_names[len(names) :]])
    lo, hi = reach(layout, table)
    return table.append_column(_LO, pa.array(lo)).append_column(_HI, pa.array(hi))


def gathered_by_shard(batches: Iterable[pa.RecordBatch], rows: int = PIECE_ROWS // 16) -> Iterator[tuple[int, bytes]]:
    """Segments (first their shard, then all their columns) as pages of a shard each."""
    for table in _gathered(batches, rows):
        shards = table.column(0)
        order = np.argsort(np.asarray(shards.to_numpy()), kind="stable")
        for shard, part in _dealt(table.remove_column(0).combine_chunks(), shards, order):
            yield shard, dump({"segments": part.combine_chunks()}, {})


def opened(chunk: bytes) -> pa.Table:
    """The segments of a chunk."""
    return load(chunk)[0]["segments"]


def _keys(layout: FillLayout) -> list[str]:
    return [f"{_KEY}{i}" for i in range(len(layout.key_types))]


def _met(layout: FillLayout, chunk: bytes, page: bytes) -> tuple[pa.Table, pa.Table, Array, Array]:
    """Segments, rows, and which rows each segment takes."""
    segments, page_tables = opened(chunk), load(page)[0]
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


def filled(layout: FillLayout, chunk: bytes, page: bytes | None) -> bytes | None:
    """What the page adds to each segment that it meets; no page adds nothing to all."""
    aggregation = layout.aggregation
    if page is None:
        segments = opened(chunk)
        return partial(layout, segments, Tallies.empty(len(segments), aggregation))
    segments, rows, first, last = _met(layout, chunk, page)
    some = np.flatnonzero(last > first)
    if not len(some):
        return None
    tallies = Tallies.empty(len(some), aggregation)
    at = layout.progress.numbers(rows.column("at").combine_chunks())
    tallies.add(first[some], last[some], layout.inputs(rows), at)
    return partial(layout, segments.take(pa.array(some)), tallies)


def partial(layout: FillLayout, segments: pa.Table, tallies: Tallies) -> bytes:
    """A partial result: segments of a chunk and their tallies."""
    tables = {"segments": _own(layout, segments, (UID,)), "tallies": pa.table(tallies.columns())}
    return dump({name: table.combine_chunks() for name, table in tables.items()}, {}, compressed=True)


@compiled
def _in_order(slots: Any, lo: Any) -> Any:
    """Whether segments stand by key, and those of a key by where they begin."""
    for i in range(1, len(slots)):
        if slots[i] < slots[i - 1] or (slots[i] == slots[i - 1] and lo[i] < lo[i - 1]):
            return False
    return True


class Taker:
    """Chunks of segments that take rows in whatever order they come."""

    def __init__(self, layout: FillLayout, given: Sequence[tuple[int, pa.Table]]) -> None:
        """`given` are shards and segments that `reaching` made, or `opened` from a chunk."""
        self._layout = layout
        self._shards, self._chunks = zip(*given, strict=True)
        self._keys = [
            pa.concat_arrays([piece for chunk in self._chunks for piece in chunk.column(name).chunks])
            for name in _keys(layout)
        ]
        lo, hi = (np.concatenate([chunk.column(name).to_numpy() for chunk in self._chunks]) for name in (_LO, _HI))
        slots, firsts = codes(self._keys, len(lo))
        self._keys = [key.take(pa.array(firsts)) for key in self._keys]
        self._edges = np.concatenate([[0], np.cumsum(np.bincount(slots, minlength=1))])
        self._order, owners = np.arange(len(lo)), slots
        if not _in_order(slots, lo):
            self._order = np.lexsort((lo, slots))
            lo, hi, owners = lo[self._order], hi[self._order], slots[self._order]
        self._bounds = (lo, hi, furthest(hi, self._edges))
        self.may_repeat = bool(((lo[1:] == lo[:-1]) & (owners[1:] == owners[:-1])).any())
        self._tallies = Tallies.empty(len(lo), layout.aggregation)
        self._taken = np.zeros(len(lo), np.bool_)
        self.first, self.last = lo.min(), hi.max()

    def take(self, rows: pa.Table) -> None:
        """Rows (k0.., at, a0..) that have an `at`."""
        at = self._layout.progress.numbers(in_one(rows.column("at")))
        keys = [in_one(rows.column(f"k{i}")).cast(key.type) for i, key in enumerate(self._keys)]
        mine = slots_of(self._keys, keys, len(self._edges) - 1, len(rows))
        self._tallies.take((mine, at, self._layout.inputs(rows)), self._edges, self._bounds, self._taken)

    def partials(self, keep_empty: bool = False) -> Iterator[tuple[int, bytes]]:
        """What the rows add to segments, by shard; with `keep_empty` to all of them, be it nothing."""
        place = np.empty(len(self._order), np.int64)
        place[self._order] = np.arange(len(place))
        end = 0
        for shard, chunk in zip(self._shards, self._chunks, strict=True):
            end += len(chunk)
            mine = place[end - len(chunk) : end]
            some = np.arange(len(chunk)) if keep_empty else np.flatnonzero(self._taken[mine])
            if len(some):
                yield shard, partial(self._layout, chunk.take(pa.array(some)), self._tallies.of(mine[some]))


class Merger:
    """Partial results of the segments of some shards, in any order, into one row for each segment."""

    def __init__(self, layout: FillLayout, keys: Sequence[str], schema: pa.Schema) -> None:
        self._layout, self._keys, self._schema = layout, keys, schema
        self._aggregation = layout.aggregation

    def run(self, partials: Iterable[tuple[int, bytes]]) -> Iterator[pa.RecordBatch]:
        """All partial results in, all segments out."""
        held: dict[int, list[tuple[pa.Table, Tallies]]] = {}
        for shard, data in partials:
            tables = load(data)[0]
            cells = tables["tallies"]
            tallies = Tallies.read({name: cells.column(name) for name in cells.column_names}, self._aggregation)
            some = held.setdefault(shard, [])
            some.append((tables["segments"], tallies))
            # what is merged takes no more room than the segments do
            if sum(len(each) for each, _ in some[1:]) > len(some[0][0]) + PIECE_ROWS // 16:
                some[:] = [self._merged(some)]
        for shard in sorted(held):
            segments, tallies = self._merged(held.pop(shard))
            order = np.argsort(segments.column(UID).to_numpy(), kind="stable")
            segments, tallies = segments.take(pa.array(order)), tallies.of(order)
            columns = [column.combine_chunks() for column in segments.drop_columns([UID]).columns]
            columns += tallies.results()
            arrays = [a.cast(f.type) for a, f in zip(columns, self._schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _merged(self, some: list[tuple[pa.Table, Tallies]]) -> tuple[pa.Table, Tallies]:
        if len(some) == 1:
            return some[0]
        # whether a column may be null differs between partial results
        segments = pa.concat_tables([each for each, _ in some], promote_options="default").combine_chunks()
        found, firsts = self._told_apart(segments)
        tallies = Tallies.joined([each for _, each in some])
        if len(firsts) == len(found):
            return segments, tallies
        # few are in several partial results: those where rows of two tasks meet
        again = np.ones(len(found), bool)
        again[firsts] = False
        kept = tallies.of(firsts)
        kept.merge(found[again], tallies.of(again))
        return segments.take(pa.array(firsts)), kept

    def _told_apart(self, segments: pa.Table) -> tuple[Array, Array]:
        """A number for each segment, the same for the same one, and where each comes first."""
        segment = in_one(segments.column("segment"))
        named = [in_one(segments.column(name)) for name in self._keys]
        named = [segment.field("id"), segment.field("start"), *named]
        uid = in_one(segments.column(UID))
        found, firsts = codes([uid], len(segments))
        first = pa.array(firsts[found])
        if all(column.equals(column.take(first)) for column in named):
            return found, firsts
        # uids of different segments may be the same
        return codes([uid, *named], len(segments))

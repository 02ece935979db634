"""What tasks do for frames of what is stored: frame the rows that they have, and join parts by shard; or deal rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from panewise.kernel.bundle import dump, load
from panewise.kernel.compiled import compiled
from panewise.kernel.framer import Framer
from panewise.kernel.intime import InTime
from panewise.kernel.joiner import Joiner
from panewise.kernel.keys import grouped, hashed
from panewise.kernel.operator import Segments
from panewise.kernel.page import in_one
from panewise.kernel.parts import Parts, found_in
from panewise.kernel.progress import Progress
from panewise.kernel.sequence import Layout
from panewise.spark.worker import settle

__all__ = ["DEALT", "EVERY", "PARTS", "FrameTask"]

PARTS, DEALT, EVERY = ("shard", "parts", "found"), ("shard", "page", "rows"), "every"
_ROWS = 1 << 17
"""How many rows are gathered before they are framed."""
_DEALT = 1 << 19
"""How many rows are dealt at a time."""
_HELD = 1 << 18
"""How many parts a task holds before it sends them."""
_HEADS = 1 << 22
"""How many rows heads have before a task sends its parts."""
_FOUND, _OF_EACH = 1 << 20, 16
"""How many segments a task holds before it sends them with its parts, if there are so many of each part."""
_FEW = 8
"""Where parts have fewer rows, there is little in framing them first."""
_SENT = 1 << 16
"""How many segments are sent at a time."""
_BACKWARD = 32
"""Where time goes back more often than once in so many rows, rows are in no order, and a pass over sorted ones is
cheaper."""
Piece = tuple[object, pa.Table, bool]
"""Rows, where they are from, and whether the last instant has no more of them in what comes next."""
Sent = tuple[int, bytes | None, bytes | None]
"""A shard, its parts without what is found, and that; neither, where rows are in no order."""
Dumped = tuple[int, pa.Buffer | None, pa.Buffer | None]
"""The same, as it comes."""


@dataclass(frozen=True)
class FrameTask:
    """The stages of a plan, by so many shards; with `certain` order all parts can be joined, and there is no other.

    Where keys are `few`, a shard has all keys, and some of what is found: it is dealt evenly, if it is known how many
    `tasks` there are.
    """

    layout: Layout
    shards: int
    certain: bool = False
    few: bool = False
    tasks: int = 1

    def frame(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows as Spark has them, with their `source`, as parts."""
        return self.made(_by_source(batches))

    def made(self, tables: Iterable[Piece], earliest: bool = False) -> Iterator[pa.RecordBatch]:
        """Rows of sources as parts."""
        pages = _pages(tables, self.layout.progress)
        for shard, parts, found in self._framed(Framer(self.layout, earliest), pages):
            columns = [pa.array([shard], pa.int32()), pa.array([parts], pa.binary()), pa.array([found], pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, names=list(PARTS))
        settle("frame")

    def _framed(self, framer: Framer, pages: Iterable[tuple[bool, pa.Table]]) -> Iterator[Sent]:
        rows, place = 0, _task()
        for cut, table in pages:
            if cut:
                framer.cut()
                continue
            page = table.combine_chunks()
            framer.take(page)
            rows += len(page)
            full = len(framer) >= _HELD
            hopeless = framer.backward * _BACKWARD > rows or (full and rows < _FEW * len(framer))
            if hopeless and not self.certain:
                # rows in no order, or of too many keys: all of them go the other way
                yield from ((shard, None, None) for shard in range(self.shards))
                return
            many = framer.kept >= max(_FOUND, _OF_EACH * len(framer))
            if full or many or framer.held >= _HEADS:
                yield from self._dumped(framer, place)
                framer.clear()
                place += self.tasks
        yield from self._dumped(framer, place)

    def _dumped(self, framer: Framer, place: int) -> Iterator[Sent]:
        """All parts, by shard; if each has all keys, one has what is found, in turn."""
        for shard, parts in framer.parts(1 if self.few else self.shards):
            told, found = parts.dump()
            if not self.few:
                yield shard, told, found
                continue
            yield from ((i, told, found if i == place % self.shards else None) for i in range(self.shards))

    def deal(self, number: int, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        """The rows that a task of this number reads, by shard, so many at a time."""
        for i, page in enumerate(_gathered(tables)):
            keys = [in_one(page.column(f"k{j}")) for j in range(len(self.layout.key_types))]
            order, edges = grouped(hashed(keys, len(page)) % self.shards, self.shards)
            dealt, places = page.take(pa.array(order)), edges.tolist()
            some = [(shard, a, b) for shard, (a, b) in enumerate(pairwise(places)) if a < b]
            columns = [
                pa.array([shard for shard, _, _ in some], pa.int32()),
                pa.array([(number << 32) + i] * len(some), pa.int64()),
                pa.array([dump({"rows": dealt.slice(a, b - a)}, {}, compressed=True) for _, a, b in some], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=list(DEALT))
        settle("deal")

    def pass_dealt(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What was dealt, by shard and in order, as segments."""
        for _, some in groupby(_dumps(batch.select(["shard", "rows"]) for batch in batches), key=itemgetter(0)):
            yield from self._passed(load(rows)[0]["rows"] for _, rows, _ in some)
        settle("pass")

    def pass_once(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows of some keys, in order of time, as segments."""
        return self._passed(pa.Table.from_batches([batch]) for batch in batches)

    def _passed(self, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        one = InTime(self.layout)
        for cut, page in _pages(((0, table, False) for table in tables), self.layout.progress):
            if not cut:
                one.take(page.combine_chunks())
                yield from self._sent(one.found())
        one.finish()
        yield from self._sent(one.found())

    def _sent(self, found: Iterable[tuple[list[pa.Array], Segments]]) -> Iterator[pa.RecordBatch]:
        for keys, segments in found:
            for first in range(0, len(segments), _SENT):
                yield self.layout.emitter.plain(keys, segments.slice(first, _SENT))

    def join(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Parts as segments."""
        for shard, joiner, found in self._joined(_dumps(batches)):
            if joiner is None:
                # all rows go the other way; there must be one
                assert not self.certain
                continue
            bad = joiner.join()
            if self.certain and len(bad):
                raise RuntimeError("Rows are not as the statistics of their row groups say. Write the files anew.")
            held = ((place, found_in(data)) for place, data in enumerate(found) if data is not None)
            segments = joiner.segments(held, made=not self.few or not shard)
            yield from self._sent((joiner.keys, some) for some in segments)
        settle("join")

    def name(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The keys whose parts can't be joined; or `every`."""
        names = [EVERY, *(f"k{i}" for i in range(len(self.layout.key_types)))]
        # left out here, and not by Spark, which would then compute the parts twice
        dumps = _dumps(batch.select(["shard", "parts"]) for batch in batches)
        for _, joiner, _ in self._joined(row for row in dumps if not self.few or not row[0]):
            if joiner is None:
                nobody = [pa.nulls(1, kind) for kind in self.layout.key_types]
                yield pa.RecordBatch.from_arrays([pa.array([True]), *nobody], names=names)
                continue
            bad = joiner.join()
            if len(bad):
                named = [column.take(pa.array(bad)) for column in joiner.keys]
                yield pa.RecordBatch.from_arrays([pa.array(np.zeros(len(bad), bool)), *named], names=names)

    def _joined(self, dumps: Iterable[Dumped]) -> Iterator[tuple[int, Joiner | None, list[pa.Buffer | None]]]:
        """Who joins the parts of each shard, and what they have found; None where rows are in no order."""
        for shard, some in groupby(dumps, key=itemgetter(0)):
            given = list(some)
            if any(parts is None for _, parts, _ in given):
                yield shard, None, []
                continue
            joiner = Joiner(self.layout)
            for _, parts, _ in given:
                joiner.add(Parts.load(parts))
            yield shard, joiner, [found for _, _, found in given]


def _dumps(batches: Iterable[pa.RecordBatch]) -> Iterator[Dumped]:
    """What was sent, as it lies in the batches."""
    for batch in batches:
        shards, *others = batch.columns
        for i, shard in enumerate(shards.to_pylist()):
            parts, found = (column[i].as_buffer() for column in [*others, pa.nulls(len(batch), pa.binary())][:2])
            yield shard, parts, found


def _gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """So many rows at a time."""
    held, count = list[pa.Table](), 0
    for table in tables:
        held.append(table)
        count += len(table)
        if count >= _DEALT:
            yield pa.concat_tables(held).combine_chunks()
            held, count = [], 0
    if count:
        yield pa.concat_tables(held).combine_chunks()


def _by_source(batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
    """Rows, and where they are from."""
    for batch in batches:
        sources = batch.column("source").to_numpy()
        rows = pa.Table.from_batches([batch]).drop_columns(["source"])
        edges = np.concatenate([[0], np.flatnonzero(np.diff(sources)) + 1, [len(batch)]])
        for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if first < last:
                yield sources[first], rows.slice(first, last - first), False


def _pages(tables: Iterable[Piece], progress: Progress) -> Iterator[tuple[bool, pa.Table]]:
    """Rows, and before those of another source a word of it; an `at` that comes several times is in one page."""
    before, held, count, wanted = None, list[pa.Table](), 0, _ROWS
    for source, table, over in tables:
        if source != before:
            if held:
                yield False, pa.concat_tables(held)
            held, count, wanted = [], 0, _ROWS
            before = source
            yield True, pa.table({})
        held.append(table)
        count += len(table)
        if count >= wanted:
            whole = pa.concat_tables(held)
            end = count
            if not over:
                whole = whole.combine_chunks()
                end = int(_before_last(progress.numbers(in_one(whole.column("at")))))
            if end:
                yield False, whole.slice(0, end)
            held, count = [whole.slice(end)] if end < count else [], count - end
            # an `at` of very many rows is not looked through again for each few more
            wanted = _ROWS if end else 2 * count
    if held:
        yield False, pa.concat_tables(held)


@compiled
def _before_last(at: Any) -> Any:
    """How many come before those that are the last.

    >>> _before_last(np.array([1, 2, 2])), _before_last(np.array([2, 2]))
    (1, 0)
    """
    end = len(at) - 1
    while end and at[end - 1] == at[-1]:
        end -= 1
    return end


def _task() -> int:
    """The number of this task."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()

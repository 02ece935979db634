"""Pack: what a task reads of a stream becomes pages, one for each shard whose keys occur, and what it saw of progress.

Elements come as batches under fixed names: `kind`, `shard`, keys k0, ..., `at`, then what orders and what is read
(b, v, c, a), source columns s0, ..., and `row`, the row as it was, where late rows are wanted. Without a `kind` all of
them are rows; these may come without a `shard`, which then is told by their keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.kernel.bundle import dump
from panewise.kernel.dealing import shards_of
from panewise.kernel.fill import FillLayout
from panewise.kernel.keys import codes, grouped
from panewise.kernel.page import Array, in_one
from panewise.kernel.punctuate import Seen, is_per_key, source_columns
from panewise.kernel.sequence import Layout
from panewise.spec.punctuate import Passed

__all__ = [
    "EARLY",
    "FINAL",
    "OTHER",
    "PAGE_ROWS",
    "PROD",
    "PROMISE",
    "PROMISE_OF_KEY",
    "ROW",
    "TICK",
    "UNSURE",
    "Packer",
]

ROW, PROMISE, PROMISE_OF_KEY, FINAL, TICK, OTHER, PROD, EARLY, UNSURE = range(9)
"""Kinds of elements: a row; no more rows up to its `at`, of any key, or of its own; no more at all; the clock; a row
that is not wanted, and only says how far its source has come; a request for what ends up to its `at`, of the keys that
it names; a row that is there for the answer to it only, and one that may never come otherwise."""

PAGE_ROWS = 1 << 19
"""How many rows are gathered before they are dealt: fewer make small pages, more take memory."""


class Packer:
    """Deals the elements of one task to shards."""

    def __init__(
        self, layout: Layout | FillLayout, shards: int, page_rows: int = PAGE_ROWS, side: int | None = None
    ) -> None:
        self._layout, self._shards, self._page_rows = layout, shards, page_rows
        # which of several inputs it is
        self._label = {} if side is None else {"side": side}
        self._progress = layout.progress
        self._seen = Seen(self._progress)
        self._noticed = False
        self._keys = [f"k{i}" for i in range(len(layout.key_types))]
        self._sources = [f"s{i}" for i in range(len(source_columns(layout.plan)))]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
        """All elements in; pages with their shards out."""
        gathered: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            if len(batch):
                gathered.append(batch)
                rows += len(batch)
            if rows >= self._page_rows:
                yield from self._deal(pa.Table.from_batches(gathered))
                gathered, rows = [], 0
        if rows:
            yield from self._deal(pa.Table.from_batches(gathered))
        if self._noticed:
            page = dump(self._seen.tables, {"seen": self._seen.facts(), **self._label})
            yield from ((shard, page) for shard in range(self._shards))

    def _deal(self, elements: pa.Table) -> Iterator[tuple[int, bytes]]:
        self._noticed = True
        kinds = None
        if "kind" in elements.column_names:
            kinds = np.asarray(elements.column("kind").to_numpy())
            elements = elements.drop_columns(["kind"])
        if kinds is not None and kinds.any():
            self._control(elements, kinds)
            named = np.flatnonzero(kinds == PROMISE_OF_KEY)
            if len(named):
                about = elements.take(pa.array(named)).select(["shard", *self._keys, "at"])
                yield from self._pages(about, "promises")
            for kind, name in ((EARLY, "early"), (UNSURE, "unsure")):
                if (kinds == kind).any():
                    mine = elements.filter(pa.array(kinds == kind)).drop_columns(["clock", *self._sources])
                    mine = mine.combine_chunks()
                    self._seen.foresee(name, self._progress.numbers(in_one(mine.column("at"))))
                    yield from self._pages(mine, name)
            if (kinds == OTHER).any():
                yield from self._passed(elements.filter(pa.array(kinds == OTHER)).combine_chunks())
            elements = elements.filter(pa.array(kinds == ROW))
        if len(elements):
            yield from self._pages(self._noted(elements.combine_chunks()), "rows")

    def _control(self, elements: pa.Table, kinds: Array) -> None:
        self._seen.final = self._seen.final or bool((kinds == FINAL).any())
        promises = elements.filter(pa.array(kinds == PROMISE))
        promises = promises.filter(promises.column("at").is_valid())
        passed = isinstance(self._layout.plan.punctuation, Passed)
        sources = [promises.column(name).combine_chunks() for name in self._sources] if passed else []
        self._seen.promise(self._progress.numbers(promises.column("at").combine_chunks()), sources)
        if (kinds == PROD).any():
            self._seen.ask(elements.filter(pa.array(kinds == PROD)).select([*self._keys, "at"]))
        if (kinds == TICK).any():
            ticks = elements.column("clock").filter(pa.array(kinds == TICK)).drop_null()
            self._seen.clock = max([self._seen.clock, *ticks.to_pylist()])

    def _passed(self, others: pa.Table) -> Iterator[tuple[int, bytes]]:
        """Take note of how far rows have come that are not wanted; where keys are in order, they promise for theirs."""
        self._noted(others)
        known = others.filter(pc.is_valid(others.column("at"))).select(["shard", *self._keys, "at"])
        if is_per_key(self._layout.plan) and len(known):
            before = self._progress.below(self._progress.numbers(known.column("at").combine_chunks()))
            about = known.drop_columns(["at"]).append_column("at", self._progress.bounds(before))
            yield from self._pages(about, "promises")

    def _noted(self, rows: pa.Table) -> pa.Table:
        """The rows, with note taken of how far they have come."""
        present = rows.filter(pc.is_valid(rows.column("at"))) if rows.column("at").null_count else rows
        sources = [present.column(name).combine_chunks() for name in self._sources]
        at = self._progress.numbers(present.column("at").combine_chunks())
        self._seen.rows(self._layout.plan, at, sources)
        return rows.drop_columns(["clock"]) if "clock" in rows.column_names else rows

    def _pages(self, rows: pa.Table, what: str) -> Iterator[tuple[int, bytes]]:
        """Rows by shard, and by key within: keys with their number of rows, then the rows."""
        keys = [rows.column(name).combine_chunks() for name in self._keys]
        found, firsts = codes(keys, len(rows))
        heads = [key.take(pa.array(firsts)) for key in keys]
        if "shard" in rows.column_names:
            shards = np.asarray(rows.column("shard").to_numpy())[firsts]
            rows = rows.drop_columns(["shard"])
        else:
            shards = shards_of(heads, len(firsts), self._shards)
        by_shard = np.argsort(shards, kind="stable")
        rank = np.empty(len(firsts), np.int64)
        rank[by_shard] = np.arange(len(firsts))
        order, offsets = grouped(rank[found], len(firsts))
        ordered = rows.drop_columns(self._keys).take(pa.array(order))
        named = {name: head.take(pa.array(by_shard)) for name, head in zip(self._keys, heads, strict=True)}
        table = pa.table({**named, "n": pa.array(np.diff(offsets))})
        shards = shards[by_shard]
        edges = np.concatenate([[0], np.flatnonzero(np.diff(shards)) + 1, [len(shards)]])
        for first, last in pairwise(edges):
            begin, end = int(offsets[first]), int(offsets[last])
            page = {"keys": table.slice(first, last - first), what: ordered.slice(begin, end - begin)}
            yield int(shards[first]), dump(page, self._label, compressed=True)

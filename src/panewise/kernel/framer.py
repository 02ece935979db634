"""What a task finds in the rows that it has: each key's, part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel.compiled import compiled
from panewise.kernel.keys import KeyTable, grouped, hashed
from panewise.kernel.operator import SegmentOperator, Segments, Snapshot
from panewise.kernel.order import settled_ties
from panewise.kernel.page import Array, in_one
from panewise.kernel.parts import Found, Parts, all_of, as_columns, at_places, counted, mark, none_of, ranges, some_of
from panewise.kernel.rivals import rivals_of
from panewise.kernel.sequence import Layout, Reader

__all__ = ["Framer"]

_MARKS = 4
"""How many there are, where standings are compared."""


@compiled
def _dealt(owners: Any, at: Any, part: Any, last: Any, known: Any) -> Any:
    """Which rows go together: a key goes on with the part that it has, and begins another where time goes back.

    The group of each row, and of each group its part, how many rows it has, and its first row; the keys of new parts;
    parts in which an `at` of an earlier page comes again; whether one comes again within this page; how often time
    went back; and whether rows of several groups are mixed.
    """
    rows = len(owners)
    # of half the size they stay in a core's caches
    found = np.empty(rows, np.int32)
    group = np.full(len(part), -1, np.int64)
    # with room for all: no array may change hands in this loop
    slots, begun, tied = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int64)
    sizes, firsts = np.empty(rows, np.int64), np.empty(rows, np.int64)
    count, new, across = 0, 0, 0
    ties, backward, mixed, before = False, 0, False, 0
    for i in range(rows):
        k, t = owners[i], at[i]
        p, g = part[k], group[k]
        if p < 0 or t < last[k]:
            backward += p >= 0
            begun[new] = k
            part[k] = p = known + new
            g = -1
            new += 1
        elif t == last[k]:
            if g >= 0:
                ties = True
            else:
                tied[across] = p
                across += 1
        if g < 0:
            slots[count], sizes[count], firsts[count] = p, 0, i
            group[k] = g = count
            count += 1
        last[k] = t
        found[i] = g
        sizes[g] += 1
        mixed |= g < before
        before = g
    return found, slots[:count], sizes[:count], firsts[:count], begun[:new], tied[:across], ties, backward, mixed


@compiled
def _placed(groups: Any, offsets: Any, at: Any) -> Any:
    """Rows by their groups, each of which begins at its offset, as they stand; and their `at`."""
    to, order, times = offsets[:-1].copy(), np.empty(len(at), np.int32), np.empty_like(at)
    for i in range(len(at)):
        place = to[groups[i]]
        order[place], times[place] = i, at[i]
        to[groups[i]] = place + 1
    return order, times


class Framer:
    """What a task finds in its rows."""

    def __init__(self, layout: Layout, earliest: bool = False) -> None:
        """Where no other task has earlier rows, the first part of a key needs no head."""
        self._layout, self._progress, self._reader = layout, layout.progress, Reader(layout)
        self.clear()
        self._earliest = earliest

    def clear(self) -> None:
        """Forget all."""
        layout, self._earliest = self._layout, False
        # the longest is known at the end only: until then every segment is kept
        scheme = replace(layout.plan.scheme, longest=False)
        self._operator = SegmentOperator(scheme, self._progress, layout.aggregation)
        self._rivals = rivals_of(scheme)
        self.forgets = self._operator.forgets or self._rivals is not None
        """Whether there are rows after which nothing before them matters: a head goes on until it has seen some."""
        self._table = KeyTable(layout.key_types)
        self.backward = 0
        """How often time went back."""
        self._part = np.empty(0, np.int64)
        """The part that each key goes on with, or -1; and its last `at`."""
        self._last = np.empty(0, self._progress.dtype)
        none = np.empty(0, np.int64)
        self._owner, self._seen, self._pieces = none, none, none
        self._first_at, self._last_at = (np.empty(0, self._progress.dtype) for _ in range(2))
        self._headed, self._sure, self._broken, self._signed = (np.empty(0, bool) for _ in range(4))
        self._heads: list[tuple[Array, pa.Table]] = []
        self.held = 0
        """How many rows heads have."""
        self._noted: list[list[tuple[Array, Snapshot]]] = []
        self._found: list[Found] = []
        self.kept = 0
        """How many segments there are."""

    def __len__(self) -> int:
        return len(self._owner)

    @property
    def always_joins(self) -> bool:
        """Whether parts that do not overlap can be joined, whatever is in them."""
        return self._operator.forgets and self._rivals is None

    def cut(self) -> None:
        """What comes now is not known to follow what has come."""
        self._part[:] = -1

    def take(self, rows: pa.Table) -> None:
        """Take rows; those of a key are in order, or the key begins a new part."""
        at = self._progress.numbers(in_one(rows.column("at")))
        keys = [in_one(rows.column(f"k{i}")) for i in range(len(self._layout.key_types))]
        owners = self._table.slots(keys, len(rows))
        more = len(self._table) - len(self._part)
        self._part = np.append(self._part, np.full(more, -1))
        self._last = np.append(self._last, np.zeros(more, self._progress.dtype))
        before = len(self._part) - more
        groups, mine, sizes, firsts, begun, tied, ties, backward, mixed = _dealt(
            owners, at, self._part, self._last, len(self)
        )
        self.backward += int(backward)
        self._begin(begun)
        if self._earliest and more:
            # keys that are new
            known = len(self) - len(begun)
            first = known + np.unique(begun, return_index=True)[1]
            first = first[self._owner[first] >= before]
            self._pieces[first], self._headed[first], self._sure[first] = 1, True, True
        self._broken[tied] = True
        fresh = self._seen[mine] == 0
        self._first_at[mine[fresh]] = at[firsts[fresh]]
        if self._operator.takes_mixed and not (ties or backward) and self._headed[mine].all():
            self._last_at[mine] = self._last[self._owner[mine]]
            self._take_mixed(rows, at, groups, mine)
            self._seen[mine] += sizes
            return
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        order, times = _placed(groups, offsets, at) if mixed else (np.arange(len(at), dtype=np.int32), at)
        if ties:
            others = rows.drop_columns([name for name in rows.column_names if name == "at" or name[0] in "ks"])
            order = settled_ties(order, groups, at, others)
        starts, ends = offsets[:-1], offsets[1:]
        self._last_at[mine] = times[ends - 1]
        rows = rows.drop_columns([name for name in rows.column_names if name[0] in "kbs"])
        read = self._reader.sorted(rows, order) if mixed or ties else self._reader.standing(rows)
        self._pass(rows, order, read, times, mine, starts, ends)

    def _take_mixed(self, rows: pa.Table, at: Array, groups: Array, slots: Array) -> None:
        """Let rows through the operator as they stand: each goes on with what its part has under way."""
        read = self._reader.standing(rows)
        page = self._reader.page(read, at, np.zeros(len(slots) + 1, np.int64), slots, np.zeros(len(slots), bool))
        self._keep(self._operator.on_mixed(page, groups), slots)

    def _begin(self, owners: Array) -> None:
        more = len(owners)
        self._owner = np.append(self._owner, owners)
        self._seen, self._pieces = (np.append(a, np.zeros(more, np.int64)) for a in (self._seen, self._pieces))
        none = np.zeros(more, self._progress.dtype)
        self._first_at, self._last_at = np.append(self._first_at, none), np.append(self._last_at, none)
        flags = (self._headed, self._sure, self._broken, self._signed)
        self._headed, self._sure, self._broken, self._signed = (np.append(a, np.zeros(more, bool)) for a in flags)

    def _pass(
        self, rows: pa.Table, order: Array, read: pa.RecordBatch, at: Array, slots: Array, place: Array, ends: Array
    ) -> None:
        """Let `read`, from `place` to `ends` of each slot, through the operator: heads by marks, all else at once."""
        place = place.copy()
        while len(slots):
            left = ends - place
            heads = ~self._headed[slots]
            count = np.where(heads, np.minimum(left, mark(self._pieces[slots]) - self._seen[slots]), left)
            if heads.any():
                index = order[ranges(place[heads], count[heads])]
                self._heads.append((np.repeat(slots[heads], count[heads]), rows.take(pa.array(index))))
                self.held += len(index)
            self._frame(read, at, slots, place, count, heads)
            place += count
            self._seen[slots] += count
            self._note(slots[~self._headed[slots]])
            more = place < ends
            slots, place, ends = slots[more], place[more], ends[more]

    def _frame(self, read: pa.RecordBatch, at: Array, slots: Array, place: Array, count: Array, heads: Array) -> None:
        if count.sum() < len(at):
            index = ranges(place, count)
            read, at = read.take(pa.array(index)), at[index]
        offsets = np.concatenate([[0], np.cumsum(count)])
        page = self._reader.page(read, at, offsets, slots, np.zeros(len(slots), bool))
        found = self._operator.on_page(page)
        if self._rivals is not None:
            values = page.values[0]
            if heads.any():
                self._rivals.follow(values, offsets, slots, heads)
            if self._rivals.sums and (values < 0).any():
                self._signed[slots[np.searchsorted(offsets, np.flatnonzero(values < 0), "right") - 1]] = True
        self._keep(found, slots)

    def _keep(self, found: Segments, slots: Array) -> None:
        """Keep what has been found in these slots."""
        owners = slots[found.group]
        # what a head finds before its first mark is found again
        kept = self._pieces[owners] > 0
        if kept.any():
            found, owners = (found, owners) if kept.all() else (found.of(kept), owners[kept])
            self._found.append(as_columns(found, owners, self._pieces[owners]))
            self.kept += len(found)

    def _note(self, slots: Array) -> None:
        """Slots that have a head yet: it ends where the past is forgotten; else, at a mark, the standing is noted."""
        at_mark = self._seen[slots] == mark(self._pieces[slots])
        if self.forgets:
            known = self._operator if self._rivals is None else self._rivals
            over = known.forgotten(slots)
            lost = np.zeros(len(slots), bool) if self._rivals is None else self._rivals.lost(slots)
            if self._rivals is not None and self._rivals.sums:
                # some never come together, such as those of equal values
                lost |= self._pieces[slots] >= _MARKS - 1
            self._sure[slots[over]] = self._headed[slots[over]] = True
            self._pieces[slots[over | (at_mark & ~lost)]] += 1
            at_mark &= lost
        slots = slots[at_mark]
        for number in np.unique(self._pieces[slots]):
            mine = slots[self._pieces[slots] == number]
            while len(self._noted) <= number:
                self._noted.append([(slots[:0], self._operator.standing_of(slots[:0]))])
            self._noted[number].append((mine, self._operator.standing_of(mine)))
        self._pieces[slots] += 1
        self._headed[slots] = self._pieces[slots] >= _MARKS

    def parts(self, shards: int) -> Iterator[tuple[int, Parts]]:
        """All parts, by the shard of their keys, of so many."""
        keys = pa.table({f"k{i}": key for i, key in enumerate(self._table.columns)})
        of_part = (hashed(self._table.columns, len(self._table)) % shards)[self._owner]
        head, heads = self._head()
        found = all_of(self._found) if self._found else none_of(self._operator, self._reader)
        by_shard, edges = grouped(of_part[found["group"]], shards)
        for number in np.unique(of_part).tolist():
            mine = at_places(found, by_shard[edges[number] : edges[number + 1]])
            yield number, self._chosen(np.flatnonzero(of_part == number), keys, head, heads, mine)

    def _head(self) -> tuple[pa.Table, Array]:
        """The rows of all heads, by slot; and where each begins."""
        if not self._heads:
            return self._reader_empty(), np.zeros(len(self) + 1, np.int64)
        owners = np.concatenate([owners for owners, _ in self._heads])
        order, offsets = grouped(owners, len(self))
        return pa.concat_tables([rows for _, rows in self._heads]).take(pa.array(order)).combine_chunks(), offsets

    def _reader_empty(self) -> pa.Table:
        return pa.Table.from_batches([self._reader.empty()])

    def _chosen(self, mine: Array, keys: pa.Table, head: pa.Table, offsets: Array, found: Found) -> Parts:
        places = np.full(len(self), -1)
        places[mine] = np.arange(len(mine))
        counts = np.diff(offsets)[mine]
        found["group"] = places[found["group"]].astype(np.int32)
        noted = []
        for some in self._noted:
            standings = [_renamed(whose, standing, places) for whose, standing in some]
            noted.append(_together(standings))
        return Parts(
            keys.take(pa.array(self._owner[mine])) if keys.num_columns else pa.table({"none": pa.nulls(len(mine))}),
            self._first_at[mine], self._last_at[mine], self._pieces[mine], self._sure[mine],
            self._seen[mine] == counts, self._broken[mine], self._signed[mine],
            head.take(pa.array(ranges(offsets[:-1][mine], counts))), counts,
            tuple(noted), found, self._operator.snapshot_of(mine), counted(found, len(mine)),
        )  # fmt: skip


def _renamed(whose: Array, standing: Snapshot, places: Array) -> tuple[Array, Snapshot]:
    """The standings of those parts that have a place."""
    chosen = np.flatnonzero(places[whose] >= 0)
    return places[whose[chosen]], some_of(standing, chosen)


def _together(several: Sequence[tuple[Array, Snapshot]]) -> tuple[Array, Snapshot]:
    """Standings of several, one after another."""
    found: dict[str, list[Array]] = {}
    before = 0
    for whose, standing in several:
        for name, array in standing.items():
            found.setdefault(name, []).append(array + before if name.endswith("_owners") else array)
        before += len(whose)
    return np.concatenate([whose for whose, _ in several]), {name: np.concatenate(a) for name, a in found.items()}

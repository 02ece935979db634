"""Framing where rows lie: a task frames what it has of each key, part by part; parts are joined by key afterwards.

A part is a stretch of one key's rows, in order, that one task has seen. It is framed as if the stream began with it.
What its first rows, its head, have found is not kept but the rows are: joined to what comes before it, the head is
framed again, from the true state, until the operator stands where it stood when the part was framed. From there on
all that the part has found holds, and so does the state that it ended with. Runs that neighbours alone decide stand
the same as soon as one begins after another row; of all others the standing is noted at a few marks, and compared. So
what is joined is exactly what one pass finds. A key whose parts overlap, or whose standings do not meet within the
head, is named, and left to a pass over its sorted rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel.bundle import as_arrays, as_table, dump, load
from panewise.kernel.compiled import compiled
from panewise.kernel.keys import KeyTable, grouped, hashed
from panewise.kernel.operator import SegmentOperator, Segments, Snapshot
from panewise.kernel.order import settled_ties
from panewise.kernel.page import Array, in_one
from panewise.kernel.sequence import Layout, Reader

__all__ = ["Framer", "Joiner", "Parts"]

_FIRST, _FACTOR = 8, 8
"""Marks are at rows 8, 64, 512, ...: heads are short, and marks are few."""
_MARKS = 4
"""How many there are, where standings are compared; else a head goes on until the past is forgotten."""
_FOUND = ("start", "end", "rows", "ff", "fi")
Found = dict[str, Array]
"""Segments as columns: `group`, `piece` (how many marks had been passed), and what is told of them."""


def _mark(number: Any) -> Any:
    """The row before which a piece ends."""
    return _FIRST * _FACTOR**number


@compiled
def _dealt(owners: Any, at: Any, part: Any, last: Any, known: Any) -> Any:
    """Which rows go together: a key goes on with the part that it has, and begins another where time goes back.

    The group of each row and the part of each group; the keys of new parts; parts in which an `at` of an earlier page
    comes again; whether one comes again within this page; and how often time went back.
    """
    rows = len(owners)
    found = np.empty(rows, np.int64)
    group = np.full(len(part), -1, np.int64)
    # with room for all: no array may change hands in this loop
    slots, begun, tied = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int64)
    count, new, across = 0, 0, 0
    ties, backward = False, 0
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
            slots[count] = p
            group[k] = g = count
            count += 1
        last[k] = t
        found[i] = g
    return found, slots[:count], begun[:new], tied[:across], ties, backward


@compiled
def _ranges(first: Any, count: Any) -> Any:
    """The numbers of all these ranges."""
    found = np.empty(count.sum(), np.int64)
    n = 0
    for i in range(len(first)):
        for j in range(count[i]):
            found[n] = first[i] + j
            n += 1
    return found


def _columns(found: Segments, group: Array, piece: Array) -> Found:
    """Segments in as few bytes as will do: they are most of what is sent."""
    small = {"group": group.astype(np.int32), "piece": piece.astype(np.int8), "flags": found.flags.astype(np.int8)}
    return small | {name: np.ascontiguousarray(getattr(found, name)) for name in _FOUND}


def _at(found: Found, places: Array) -> Found:
    return {name: array[places] for name, array in found.items()}


def _all(found: Sequence[Found]) -> Found:
    return {name: np.concatenate([each[name] for each in found]) for name in found[0]}


def _same(a: Snapshot, b: Snapshot) -> Array:
    """For which slots two standings are the same."""
    same = np.ones(len(a["numbers"]), bool)
    for name in a:
        if not name.startswith(("carried", "held")):
            same &= _equal(a[name], b[name])
    for kind in ("carried", "held"):
        if f"{kind}_owners" not in a:
            continue
        mine, theirs = a[f"{kind}_owners"], b[f"{kind}_owners"]
        count, other = (np.bincount(owners, minlength=len(same)) for owners in (mine, theirs))
        same &= count == other
        here, there = same[mine], same[theirs]
        for name in a:
            if name.startswith(f"{kind}_") and name != f"{kind}_owners":
                np.logical_and.at(same, mine[here], _equal(a[name][here], b[name][there]))
    return same


def _equal(a: Array, b: Array) -> Array:
    """Which rows of two arrays are equal; NaN is itself."""
    alike = a == b
    if a.dtype.kind == "f":
        alike |= np.isnan(a) & np.isnan(b)
    return np.asarray(alike.all(axis=tuple(range(1, alike.ndim))))


@dataclass(frozen=True)
class Parts:
    """Parts, as columns; what belongs to one says by its place which."""

    keys: pa.Table
    """k0, ... of each part."""
    first: Array
    last: Array
    """The `at` of its first and of its last row."""
    pieces: Array
    """How many marks it has passed while its head lasted."""
    sure: Array
    """Whether the past is forgotten at the end of its head."""
    whole: Array
    """Whether its head is all of it."""
    broken: Array
    """Whether its order is not known."""
    head: pa.Table
    """The rows of heads, by part."""
    heads: Array
    """How many each has."""
    noted: tuple[tuple[Array, Snapshot], ...]
    """At each mark, standings and whose they are."""
    found: Found
    """Behind the first mark; `group` is the part."""
    state: Snapshot
    """At the end."""

    def __len__(self) -> int:
        return len(self.first)

    def dump(self) -> tuple[bytes, bytes]:
        """As bytes: all but what is found, which says what can be joined; and what is found."""
        arrays = {name: getattr(self, name) for name in ("first", "last", "pieces", "sure", "whole", "broken", "heads")}
        arrays |= {f"state_{name}": array for name, array in self.state.items()}
        for i, (whose, standing) in enumerate(self.noted):
            arrays[f"whose{i}"] = whose
            arrays |= {f"noted{i}_{name}": array for name, array in standing.items()}
        plain = {name: array.view(np.uint8) if array.dtype == bool else array for name, array in arrays.items()}
        tables = {"keys": self.keys, "head": self.head, "arrays": as_table(plain)}
        facts = {"marks": len(self.noted), "rows": len(self)}
        return dump(tables, facts, compressed=True), dump({"found": as_table(self.found)}, {}, compressed=True)

    @classmethod
    def load(cls, data: bytes, found: bytes | None = None) -> Parts:
        """The inverse of `dump`; without what is found, if it is not given."""
        tables, facts = load(data)
        arrays = as_arrays(tables["arrays"])

        def of(prefix: str) -> dict[str, Array]:
            return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

        flags = {name: arrays[name].view(bool) for name in ("sure", "whole", "broken")}
        own = {name: arrays[name] for name in ("first", "last", "pieces", "heads")}
        noted = tuple((arrays[f"whose{i}"], of(f"noted{i}_")) for i in range(facts["marks"]))
        known = {} if found is None else as_arrays(load(found)[0]["found"])
        return cls(tables["keys"], head=tables["head"], noted=noted, found=known, state=of("state_"), **own, **flags)


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
        self._marks = 64 if self._operator.forgets else _MARKS
        self._table = KeyTable(layout.key_types)
        self.backward = 0
        """How often time went back."""
        self._part = np.empty(0, np.int64)
        """The part that each key goes on with, or -1; and its last `at`."""
        self._last = np.empty(0, self._progress.dtype)
        none = np.empty(0, np.int64)
        self._owner, self._seen, self._pieces = none, none, none
        self._first_at, self._last_at = (np.empty(0, self._progress.dtype) for _ in range(2))
        self._headed, self._sure, self._broken = (np.empty(0, bool) for _ in range(3))
        self._heads: list[tuple[Array, pa.Table]] = []
        self._noted: list[list[tuple[Array, Snapshot]]] = []
        self._found: list[Found] = []

    def __len__(self) -> int:
        return len(self._owner)

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
        groups, mine, begun, tied, ties, backward = _dealt(owners, at, self._part, self._last, len(self))
        self.backward += int(backward)
        self._begin(begun)
        if self._earliest and more:
            # keys that are new
            known = len(self) - len(begun)
            first = known + np.unique(begun, return_index=True)[1]
            first = first[self._owner[first] >= before]
            self._pieces[first], self._headed[first], self._sure[first] = 1, True, True
        self._broken[tied] = True
        order, offsets = grouped(groups, len(mine))
        if ties:
            others = rows.drop_columns([name for name in rows.column_names if name == "at" or name[0] in "ks"])
            order = settled_ties(order, groups, at, others)
        starts, ends, at = offsets[:-1], offsets[1:], at[order]
        fresh = self._seen[mine] == 0
        self._first_at[mine[fresh]] = at[starts[fresh]]
        self._last_at[mine] = at[ends - 1]
        read = rows.drop_columns([name for name in rows.column_names if name[0] in "kbs"]).take(pa.array(order))
        self._pass(read.combine_chunks(), at, mine, starts, ends)

    def _begin(self, owners: Array) -> None:
        more = len(owners)
        self._owner = np.append(self._owner, owners)
        self._seen, self._pieces = (np.append(a, np.zeros(more, np.int64)) for a in (self._seen, self._pieces))
        none = np.zeros(more, self._progress.dtype)
        self._first_at, self._last_at = np.append(self._first_at, none), np.append(self._last_at, none)
        flags = (self._headed, self._sure, self._broken)
        self._headed, self._sure, self._broken = (np.append(a, np.zeros(more, bool)) for a in flags)

    def _pass(self, rows: pa.Table, at: Array, slots: Array, place: Array, ends: Array) -> None:
        """Let rows `place` to `ends` of each slot through the operator: heads from mark to mark, all else at once."""
        place = place.copy()
        while len(slots):
            left = ends - place
            count = np.where(
                self._headed[slots], left, np.minimum(left, _mark(self._pieces[slots]) - self._seen[slots])
            )
            self._frame(rows, at, slots, place, count)
            place += count
            self._seen[slots] += count
            unheaded = slots[~self._headed[slots]]
            self._note(unheaded[self._seen[unheaded] == _mark(self._pieces[unheaded])])
            more = place < ends
            slots, place, ends = slots[more], place[more], ends[more]

    def _frame(self, rows: pa.Table, at: Array, slots: Array, place: Array, count: Array) -> None:
        if count.sum() < len(at):
            index = _ranges(place, count)
            rows, at = rows.take(pa.array(index)), at[index]
        offsets = np.concatenate([[0], np.cumsum(count)])
        batch = rows.combine_chunks().to_batches()[0]
        page = self._reader.page(batch, at, offsets, slots, np.zeros(len(slots), bool))
        found = self._operator.on_page(page)
        heads = ~self._headed[slots]
        if heads.any():
            index = _ranges(offsets[:-1][heads], count[heads])
            self._heads.append((np.repeat(slots[heads], count[heads]), rows.take(pa.array(index))))
        owners = slots[found.group]
        # what a head finds before its first mark is found again
        kept = self._pieces[owners] > 0
        if kept.any():
            found, owners = (found, owners) if kept.all() else (found.of(kept), owners[kept])
            self._found.append(_columns(found, owners, self._pieces[owners]))

    def _note(self, slots: Array) -> None:
        """Slots at a mark: the past is forgotten, or the standing is noted."""
        if not len(slots):
            return
        if self._operator.forgets:
            self._pieces[slots] += 1
            over = slots[self._operator.forgotten(slots)]
            self._sure[over] = self._headed[over] = True
            return
        for number in np.unique(self._pieces[slots]):
            mine = slots[self._pieces[slots] == number]
            while len(self._noted) <= number:
                self._noted.append([])
            self._noted[number].append((mine, self._operator.standing_of(mine)))
        self._pieces[slots] += 1
        self._headed[slots] = self._pieces[slots] == self._marks

    def parts(self, shards: int) -> Iterator[tuple[int, Parts]]:
        """All parts, by the shard of their keys, of so many."""
        keys = pa.table({f"k{i}": key for i, key in enumerate(self._table.columns)})
        of_part = (hashed(self._table.columns, len(self._table)) % shards)[self._owner]
        head, heads = self._head()
        found = _all(self._found) if self._found else _none(self._operator, self._reader)
        by_shard, edges = grouped(of_part[found["group"]], shards)
        for number in np.unique(of_part).tolist():
            mine = _at(found, by_shard[edges[number] : edges[number + 1]])
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
            self._seen[mine] == counts, self._broken[mine],
            head.take(pa.array(_ranges(offsets[:-1][mine], counts))), counts,
            tuple(noted), found, self._operator.snapshot_of(mine),
        )  # fmt: skip


def _renamed(whose: Array, standing: Snapshot, places: Array) -> tuple[Array, Snapshot]:
    """The standings of those parts that have a place."""
    chosen = np.flatnonzero(places[whose] >= 0)
    return places[whose[chosen]], _some(standing, chosen)


def _some(standing: Snapshot, chosen: Array) -> Snapshot:
    """The standings of some."""
    found, count = {}, len(standing["numbers"])
    place = np.full(count, -1)
    place[chosen] = np.arange(len(chosen))
    for name, array in standing.items():
        kind = next((kind for kind in ("carried", "held") if name.startswith(f"{kind}_")), None)
        if kind is None:
            found[name] = array[chosen]
            continue
        owners = standing[f"{kind}_owners"]
        mine = np.flatnonzero(place[owners] >= 0)
        mine = mine[np.argsort(place[owners[mine]], kind="stable")]
        found[name] = place[owners[mine]] if name.endswith("_owners") else array[mine]
    return found


def _together(several: Sequence[tuple[Array, Snapshot]]) -> tuple[Array, Snapshot]:
    """Standings of several, one after another."""
    found: dict[str, list[Array]] = {}
    before = 0
    for whose, standing in several:
        for name, array in standing.items():
            found.setdefault(name, []).append(array + before if name.endswith("_owners") else array)
        before += len(whose)
    return np.concatenate([whose for whose, _ in several]), {name: np.concatenate(a) for name, a in found.items()}


class Joiner:
    """Joins the parts of some keys."""

    def __init__(self, layout: Layout) -> None:
        self._layout, self._reader = layout, Reader(layout)
        scheme = replace(layout.plan.scheme, longest=False)
        self._operator = SegmentOperator(scheme, layout.progress, layout.aggregation)
        self._table = KeyTable(layout.key_types)
        self._given: list[tuple[Parts, Array]] = []
        self._out: list[Found] = []
        self._check = False

    def add(self, parts: Parts) -> None:
        """Take parts of a task."""
        names = [f"k{i}" for i in range(len(self._layout.key_types))]
        self._given.append((parts, self._table.slots([in_one(parts.keys.column(n)) for n in names], len(parts))))

    def run(self, check: bool = False) -> tuple[list[pa.Array], Segments, Array]:
        """Keys; all segments, with their ids; and of which keys there are none here, because they can't be joined.

        To `check` what can be joined, no segments are made.
        """
        self._check = check
        if not self._given:
            return self._table.columns, self._operator.on_page(self._reader.nothing()), np.empty(0, np.int64)
        count = len(self._table)
        owner = np.concatenate([owners for _, owners in self._given])
        task = np.repeat(np.arange(len(self._given)), [len(parts) for parts, _ in self._given])
        place = np.concatenate([np.arange(len(parts)) for parts, _ in self._given])
        first, last, broken = (
            np.concatenate([getattr(parts, name) for parts, _ in self._given]) for name in ("first", "last", "broken")
        )
        order = np.lexsort((first, owner))
        owner, task, place, first, last = owner[order], task[order], place[order], first[order], last[order]
        bad = np.zeros(count, bool)
        bad[owner[broken[order]]] = True
        overlap = (owner[1:] == owner[:-1]) & (last[:-1] >= first[1:])
        # what is said to be the first must be
        headless = np.concatenate([parts.heads for parts, _ in self._given])[order] == 0
        overlap |= (owner[1:] == owner[:-1]) & headless[1:]
        bad[owner[1:][overlap]] = True
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        rank = np.arange(len(owner)) - np.repeat(starts, np.diff(np.append(starts, len(owner))))
        for number in range(int(rank.max(initial=-1)) + 1):
            now = np.flatnonzero((rank == number) & ~bad[owner])
            for t in np.unique(task[now]):
                mine = now[task[now] == t]
                missed = self._follow(self._given[t][0], place[mine], owner[mine])
                bad[missed] = True
        good = np.flatnonzero(~bad)
        none = np.empty(0, self._layout.progress.dtype)
        page = self._reader.page(
            self._reader.empty(), none, np.zeros(len(good) + 1, np.int64), good, np.ones(len(good), bool)
        )
        self._send(self._operator.on_page(page), good)
        return self._table.columns, self._numbered(bad), np.flatnonzero(bad)

    def _send(self, found: Segments, owners: Array) -> None:
        if len(found) and not self._check:
            group = owners[found.group]
            self._out.append(_columns(found, group, np.zeros(len(group))))

    def _follow(self, parts: Parts, which: Array, owners: Array) -> Array:
        """Let parts follow what has come of their keys; of which keys that can't be done."""
        begins = np.cumsum(parts.heads) - parts.heads
        single = parts.sure | (parts.whole & ~np.isin(np.arange(len(parts)), _noted_at_all(parts)))
        done, piece, missed = np.zeros(len(which), np.int64), 0, []
        while len(which):
            heads = parts.heads[which]
            upto = np.where(single[which], heads, np.minimum(heads, _mark(piece)))
            self._frame(parts, owners, begins[which] + done, upto - done)
            # at the end of a head that forgets the past, the part stands as it stood
            ready = parts.sure[which].copy()
            met = np.where(ready, parts.pieces[which] - 1, piece)
            if piece < len(parts.noted):
                whose, standing = parts.noted[piece]
                at = np.full(len(parts), -1)
                at[whose] = np.arange(len(whose))
                compared = np.flatnonzero(at[which] >= 0)
                mine = self._operator.standing_of(owners[compared])
                ready[compared[_same(mine, _some(standing, at[which[compared]]))]] = True
            self._jump(parts, which[ready], owners[ready], met[ready])
            over = upto == heads
            missed.append(owners[over & ~ready & ~parts.whole[which]])
            stays = ~ready & ~over
            which, owners, done, piece = which[stays], owners[stays], upto[stays], piece + 1
        return np.concatenate([np.empty(0, np.int64), *missed])

    def _frame(self, parts: Parts, owners: Array, begin: Array, count: Array) -> None:
        rows = parts.head.take(pa.array(_ranges(begin, count))).combine_chunks()
        batch = rows.to_batches()[0] if len(rows) else self._reader.empty()
        at = (
            self._layout.progress.numbers(batch.column("at")) if len(rows) else np.empty(0, self._layout.progress.dtype)
        )
        offsets = np.concatenate([[0], np.cumsum(count)])
        page = self._reader.page(batch, at, offsets, owners, np.zeros(len(owners), bool))
        self._send(self._operator.on_page(page), owners)

    def _jump(self, parts: Parts, which: Array, owners: Array, met: Array) -> None:
        """Go on where parts ended; what they found behind the mark at which they met holds."""
        if not len(which):
            return
        self._operator.overwrite(owners, _some(parts.state, which))
        if self._check:
            return
        behind = np.full(len(parts), np.iinfo(np.int64).max)
        behind[which] = met
        owner = np.full(len(parts), -1)
        owner[which] = owners
        found = parts.found
        holds = found["piece"] > behind[found["group"]]
        found = found if holds.all() else _at(found, np.flatnonzero(holds))
        if len(found["group"]):
            self._out.append({**found, "group": owner[found["group"]].astype(np.int32)})

    def _numbered(self, bad: Array) -> Segments:
        found = _all(self._out) if self._out else _none(self._operator, self._reader)
        order, _ = grouped(found["group"], len(bad))
        if bad.any():
            order = order[~bad[found["group"][order]]]
        found = _at(found, order)
        group = found["group"]
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        sizes = np.diff(np.append(starts, len(group)))
        ids = np.arange(len(group)) - np.repeat(starts, sizes)
        if self._layout.plan.scheme.longest and len(group):
            found = _at(found, _longest(found, starts, sizes))
            ids = np.zeros(len(starts), np.int64)
        none = np.zeros(len(ids), np.int64)
        told = {name: found[name] for name in _FOUND}
        return Segments(found["group"], flags=found["flags"], ids=ids, part=none, **told)


def _none(operator: SegmentOperator, reader: Reader) -> Found:
    nobody = np.empty(0, np.int64)
    return _columns(operator.on_page(reader.nothing()), nobody, nobody)


def _noted_at_all(parts: Parts) -> Array:
    return np.concatenate([np.empty(0, np.int64), *(whose for whose, _ in parts.noted)])


def _longest(found: Found, starts: Array, sizes: Array) -> Array:
    """The longest segment of each key; of several, that with most rows, and then the first."""
    # durations of integers beyond 2^63 wrap into the right unsigned number
    length = found["end"] - found["start"]
    length = length.view(np.uint64) if length.dtype == np.int64 else length
    order = np.lexsort((-np.arange(len(length)), found["rows"], length, found["group"]))
    return order[starts + sizes - 1]

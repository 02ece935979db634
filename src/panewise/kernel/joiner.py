"""Parts of keys, joined to what one pass over all of their rows finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel.keys import KeyTable, grouped
from panewise.kernel.operator import SegmentOperator, Segments, Snapshot
from panewise.kernel.page import Array, in_one
from panewise.kernel.parts import FOUND, Found, Parts, all_of, as_columns, at_places, mark, none_of, ranges, some_of
from panewise.kernel.sequence import Layout, Reader

__all__ = ["Joiner"]


class Joiner:
    """Joins the parts of some keys.

    Of keys that have very many segments, several may do that: each joins all parts, has what some of them have found,
    and is told how many the others have; what nobody has found yet, because it begins in one part and ends in another,
    the `first` of them tells.
    """

    def __init__(self, layout: Layout, first: bool = True) -> None:
        self._layout, self._reader, self._first = layout, Reader(layout), first
        scheme = replace(layout.plan.scheme, longest=False)
        self._operator = SegmentOperator(scheme, layout.progress, layout.aggregation)
        self._table = KeyTable(layout.key_types)
        self._given: list[tuple[Parts, Array]] = []
        self._out: list[Found] = []
        self._absent: list[tuple[int, Array]] = []
        """How many segments of each key others have, and before which of ours."""
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
        first, last, broken, sure, signed = (
            np.concatenate([getattr(parts, name) for parts, _ in self._given])
            for name in ("first", "last", "broken", "sure", "signed")
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
        if signed.any():
            before = np.cumsum(signed[order]) - signed[order]
            before -= np.repeat(before[starts], np.diff(np.append(starts, len(owner))))
            bad[owner[sure[order] & (before > 0)]] = True
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
        if not len(found) or self._check:
            return
        group = owners[found.group]
        if self._first:
            self._out.append(as_columns(found, group, np.zeros(len(group))))
        else:
            self._leave(np.bincount(group, minlength=len(self._table)))

    def _leave(self, counts: Array) -> None:
        self._absent.append((len(self._out), counts))

    def _follow(self, parts: Parts, which: Array, owners: Array) -> Array:
        """Let parts follow what has come of their keys; of which keys that can't be done."""
        begins = np.cumsum(parts.heads) - parts.heads
        single = parts.sure | (parts.whole & ~np.isin(np.arange(len(parts)), _noted_at_all(parts)))
        done, piece, missed = np.zeros(len(which), np.int64), 0, []
        while len(which):
            heads = parts.heads[which]
            upto = np.where(single[which], heads, np.minimum(heads, mark(piece)))
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
                ready[compared[_same(mine, some_of(standing, at[which[compared]]))]] = True
            self._jump(parts, which[ready], owners[ready], met[ready])
            over = upto == heads
            missed.append(owners[over & ~ready & ~parts.whole[which]])
            stays = ~ready & ~over
            which, owners, done, piece = which[stays], owners[stays], upto[stays], piece + 1
        return np.concatenate([np.empty(0, np.int64), *missed])

    def _frame(self, parts: Parts, owners: Array, begin: Array, count: Array) -> None:
        rows = parts.head.take(pa.array(ranges(begin, count))).combine_chunks()
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
        self._operator.overwrite(owners, some_of(parts.state, which))
        if self._check:
            return
        if not parts.found and parts.counts is not None:
            counts = np.zeros(len(self._table), np.int64)
            held = np.arange(parts.counts.shape[1]) > met[:, None]
            np.add.at(counts, owners, np.where(held, parts.counts[which], 0).sum(axis=1))
            self._leave(counts)
            return
        behind = np.full(len(parts), np.iinfo(np.int64).max)
        behind[which] = met
        owner = np.full(len(parts), -1)
        owner[which] = owners
        found = parts.found
        holds = found["piece"] > behind[found["group"]]
        found = found if holds.all() else at_places(found, np.flatnonzero(holds))
        if len(found["group"]):
            self._out.append({**found, "group": owner[found["group"]].astype(np.int32)})

    def _numbered(self, bad: Array) -> Segments:
        found = all_of(self._out) if self._out else none_of(self._operator, self._reader)
        order, _ = grouped(found["group"], len(bad))
        if bad.any():
            order = order[~bad[found["group"][order]]]
        found = at_places(found, order)
        group = found["group"]
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        sizes = np.diff(np.append(starts, len(group)))
        ids = np.arange(len(group)) - np.repeat(starts, sizes)
        if self._absent:
            ids += self._before()[np.repeat(np.arange(len(self._out)), self._lengths())[order], group]
        if self._layout.plan.scheme.longest and len(group):
            found = at_places(found, _longest(found, starts, sizes))
            ids = np.zeros(len(starts), np.int64)
        none = np.zeros(len(ids), np.int64)
        told: dict[str, Any] = {name: found[name] for name in FOUND}
        return Segments(found["group"], flags=found["flags"], ids=ids, part=none, **told)

    def _before(self) -> Array:
        """How many segments of each key others have before each of `_out`."""
        counts = np.zeros((len(self._out) + 1, len(self._table)), np.int64)
        for place, some in self._absent:
            counts[place] += some
        return np.cumsum(counts, axis=0)

    def _lengths(self) -> list[int]:
        return [len(each["group"]) for each in self._out]


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


def _noted_at_all(parts: Parts) -> Array:
    return np.concatenate([np.empty(0, np.int64), *(whose for whose, _ in parts.noted)])


def _longest(found: Found, starts: Array, sizes: Array) -> Array:
    """The longest segment of each key; of several, that with most rows, and then the first."""
    # durations of integers beyond 2^63 wrap into the right unsigned number
    length = found["end"] - found["start"]
    length = length.view(np.uint64) if length.dtype == np.int64 else length
    order = np.lexsort((-np.arange(len(length)), found["rows"], length, found["group"]))
    return np.asarray(order[starts + sizes - 1])

"""Parts of keys, joined to what one pass over all of their rows finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel.compiled import compiled
from panewise.kernel.keys import KeyTable
from panewise.kernel.operator import SegmentOperator, Segments, Snapshot, joined
from panewise.kernel.page import Array, in_one
from panewise.kernel.parts import FOUND, Found, Parts, at_places, mark, ranges, some_of
from panewise.kernel.sequence import Layout, Reader

__all__ = ["Joiner"]


class Joiner:
    """Joins the parts of some keys.

    Parts come without what they have found: joined, they say how much of it holds, and under which ids, so that it may
    come afterwards, bit by bit, or to somebody else. What begins in one part and ends in another nobody has found: it
    is made here.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout, self._reader = layout, Reader(layout)
        scheme = replace(layout.plan.scheme, longest=False)
        self._operator = SegmentOperator(scheme, layout.progress, layout.aggregation)
        self._table = KeyTable(layout.key_types)
        self._given: list[tuple[Parts, Array]] = []
        self._made: list[Segments] = []
        self._next = np.empty(0, np.int64)
        """The id of the next segment of each key."""
        self._bad = np.empty(0, bool)
        """Which keys can't be joined."""
        self._behind: list[Array] = []
        """Of each part: what it has found behind this mark holds."""
        self._from: list[Array] = []
        """And has ids from this one on."""

    def add(self, parts: Parts) -> None:
        """Take parts of a task."""
        names = [f"k{i}" for i in range(len(self._layout.key_types))]
        self._given.append((parts, self._table.slots([in_one(parts.keys.column(n)) for n in names], len(parts))))

    @property
    def keys(self) -> list[pa.Array]:
        """All of them, as columns."""
        return self._table.columns

    def join(self) -> Array:
        """Join what was added; which keys can't be joined, so that there are no segments of them here."""
        self._next, self._bad = np.zeros(len(self._table), np.int64), np.zeros(len(self._table), bool)
        self._behind = [np.full(len(parts), np.iinfo(np.int64).max) for parts, _ in self._given]
        self._from = [np.zeros(len(parts), np.int64) for parts, _ in self._given]
        if not self._given:
            return np.empty(0, np.int64)
        owner = np.concatenate([owners for _, owners in self._given])
        task = np.repeat(np.arange(len(self._given)), [len(parts) for parts, _ in self._given])
        place = np.concatenate([np.arange(len(parts)) for parts, _ in self._given])
        first, last, broken, sure, signed = (
            np.concatenate([getattr(parts, name) for parts, _ in self._given])
            for name in ("first", "last", "broken", "sure", "signed")
        )
        order = np.lexsort((first, owner))
        owner, task, place, first, last = owner[order], task[order], place[order], first[order], last[order]
        bad = self._bad
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
                missed = self._follow(int(t), place[mine], owner[mine])
                bad[missed] = True
        good = np.flatnonzero(~bad)
        none = np.empty(0, self._layout.progress.dtype)
        page = self._reader.page(
            self._reader.empty(), none, np.zeros(len(good) + 1, np.int64), good, np.ones(len(good), bool)
        )
        self._make(self._operator.on_page(page), good)
        return np.flatnonzero(bad)

    def segments(self, found: Iterable[tuple[int, Found]], made: bool = True) -> Iterator[Segments]:
        """Those of keys that are joined, by key: what parts have found, each with its place among those added.

        And what they have not, if it is to be `made` here.
        """
        some = chain(self._made if made else (), (self._held(place, each) for place, each in found))
        alive = (each.of(~self._bad[each.group]) if self._bad.any() else each for each in some)
        if not self._layout.plan.scheme.longest:
            yield from alive
            return
        best: Segments | None = None
        for each in alive:
            best = _longest(each if best is None else joined([best, each]))
        if best is not None:
            yield replace(best, ids=np.zeros(len(best), np.int64))

    def _held(self, place: int, found: Found) -> Segments:
        """What holds of what parts have found."""
        behind, ids, owners = self._behind[place], self._from[place], self._given[place][1]
        holds = found["piece"] > behind[found["group"]]
        found = found if holds.all() else at_places(found, np.flatnonzero(holds))
        part = found["group"]
        told: dict[str, Any] = {name: found[name] for name in FOUND}
        none = np.zeros(len(part), np.int64)
        numbered = ids[part] + _ranks(part, len(behind))
        return Segments(owners[part], flags=found["flags"], ids=numbered, part=none, **told)

    def _make(self, found: Segments, owners: Array) -> None:
        """Keep what nobody has found yet."""
        if not len(found):
            return
        group = owners[found.group]
        ids = self._next[group] + _ranks(group, len(self._next))
        self._next += np.bincount(group, minlength=len(self._next))
        self._made.append(replace(found, group=group, ids=ids, part=np.zeros(len(group), np.int64)))

    def _follow(self, place: int, which: Array, owners: Array) -> Array:
        """Let parts follow what has come of their keys; of which keys that can't be done."""
        parts = self._given[place][0]
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
            self._jump(place, which[ready], owners[ready], met[ready])
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
        self._make(self._operator.on_page(page), owners)

    def _jump(self, place: int, which: Array, owners: Array, met: Array) -> None:
        """Go on where parts ended; what they found behind the mark at which they met holds."""
        if not len(which):
            return
        parts = self._given[place][0]
        self._operator.overwrite(owners, some_of(parts.state, which))
        self._behind[place][which], self._from[place][which] = met, self._next[owners]
        held = np.arange(parts.counts.shape[1]) > met[:, None]
        self._next[owners] += np.where(held, parts.counts[which], 0).sum(axis=1)


@compiled
def _ranks(group: Any, count: Any) -> Any:
    """How many of its group come before each."""
    seen, found = np.zeros(count, np.int64), np.empty(len(group), np.int64)
    for i in range(len(group)):
        found[i] = seen[group[i]]
        seen[group[i]] += 1
    return found


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


def _longest(found: Segments) -> Segments:
    """The longest segment of each key; of several, that with most rows, and then the first."""
    # durations of integers beyond 2^63 wrap into the right unsigned number
    length = found.end - found.start
    length = length.view(np.uint64) if length.dtype == np.int64 else length
    order = np.lexsort((-found.ids, found.rows, length, found.group))
    return found.at(order[np.flatnonzero(np.diff(found.group[order], append=-1))])

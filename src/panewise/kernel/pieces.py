"""What segments under way keep for reducers: rows cut into pieces wherever one of them begins or ends.

The rows of a segment are consecutive rows of its key, so a fold knows them by two numbers: how many there are, and the
place of the last one. Neighbouring pieces become one as soon as no segment tells them apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from panewise.kernel.bundle import dump, load
from panewise.kernel.page import Array, Page
from panewise.kernel.reducers import Reducer, over_runs, reduced

__all__ = ["Pieces", "Spans"]

_PLACES = 1 << 40
"""More rows than a slot will ever see: the places of a slot are a stretch of so many."""


class Spans:
    """Runs of rows, by the places of the first and of the one after the last."""

    def __init__(self, folds: Array) -> None:
        """From int64 [n, 2]: how many rows, and the place of the last; a run without rows is 0 to 0."""
        some = folds[:, 0] > 0
        self.first = np.where(some, folds[:, 1] - folds[:, 0] + 1, 0)
        self.end = np.where(some, folds[:, 1] + 1, 0)

    def edges(self) -> Array:
        """Where any of them begins or ends."""
        some = self.end > self.first
        return np.unique(np.concatenate([self.first[some], self.end[some]]))

    def cover(self, edges: Array) -> Array:
        """Whether what follows each edge, up to the next one, lies in any of them."""
        some = self.end > self.first
        change = np.zeros(len(edges), np.int64)
        np.add.at(change, np.searchsorted(edges, self.first[some]), 1)
        np.add.at(change, np.searchsorted(edges, self.end[some]), -1)
        return np.cumsum(change) > 0


class Pieces:
    """The pieces of all keys, by place."""

    def __init__(self, reducers: Sequence[Reducer]) -> None:
        self._reducers = reducers
        self._seen = np.zeros(0, np.int64)
        """How many rows of each slot have come."""
        self._firsts = np.zeros(0, np.int64)
        self._states = [pa.array([], reducer.state) for reducer in reducers]

    def places(self, page: Page) -> Array:
        """The place of each row of a page, to be cut later; those of a slot follow one another, from page to page."""
        lengths, slots = np.diff(page.offsets), page.slots
        room = int(slots.max()) + 1 if len(slots) else 0
        if room > len(self._seen):
            self._seen = np.concatenate([self._seen, np.zeros(room - len(self._seen), np.int64)])
        # several groups of a page may take turns in one slot
        order = np.argsort(slots, kind="stable")
        so_far = np.cumsum(lengths[order]) - lengths[order]
        firsts = np.flatnonzero(np.diff(slots[order], prepend=-1))
        begin = np.empty(len(slots), np.int64)
        begin[order] = so_far - np.repeat(so_far[firsts], np.diff(np.append(firsts, len(slots))))
        begin += slots * _PLACES + self._seen[slots]
        np.add.at(self._seen, slots, lengths)
        return np.repeat(begin - page.offsets[:-1], lengths) + np.arange(len(page))

    def cut(self, page: Page, places: Array, sent: Spans, live: Spans) -> list[pa.Array]:
        """Add the rows of a page to the pieces, give the states of what is sent, and keep those of what lives on."""
        kept_edges = live.edges()
        edges = np.unique(np.concatenate([sent.edges(), kept_edges]))
        lives = live.cover(edges)
        covered = sent.cover(edges) | lives
        firsts, number = edges[covered], np.cumsum(covered) - 1
        first, end = _runs(sent, firsts)
        kept = lives[covered]
        # what no living segment tells apart has the same edge below it
        onto = np.searchsorted(kept_edges, firsts[kept], side="right")
        begins = np.flatnonzero(np.diff(onto, prepend=-1))
        owner = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(onto))))
        rows, of_rows = _within(places, edges, covered, number)
        old, of_old = _within(self._firsts, edges, covered, number)
        found, states = [], []
        for reducer, column, held in zip(self._reducers, page.columns, self._states, strict=True):
            made = reduced(reducer, of_rows, column.take(pa.array(rows)), len(firsts))
            if len(old):
                both = pa.concat_arrays([made, held.take(pa.array(old))])
                made = reducer.merge(np.concatenate([np.arange(len(firsts)), of_old]), both, len(firsts))
            found.append(over_runs(reducer, made, first, end))
            rest = made.filter(pa.array(kept))
            states.append(rest if len(begins) == len(rest) else reducer.merge(owner, rest, len(begins)))
        self._firsts, self._states = firsts[kept][begins], states
        return found

    def state(self) -> dict[str, Array]:
        """All of it, as named arrays."""
        table = pa.table([pa.array(self._firsts), *self._states], [f"r{i}" for i in range(len(self._states) + 1)])
        return {"piece_seen": self._seen, "pieces": np.frombuffer(dump({"pieces": table}, {}), np.uint8)}

    def standing(self, found: dict[str, Array]) -> None:
        """Tell all places in the snapshot of a single key from its last row on, whatever came before."""
        seen = int(self._seen[0]) if len(self._seen) else 0
        for name in ("fi", "carried_3", "held_4"):
            if name in found:
                span = found[name][..., -1, :]
                span[..., 1] = np.where(span[..., 0] > 0, span[..., 1] - seen, 0)
        before, self._firsts = self._firsts, self._firsts - seen
        found |= {**self.state(), "piece_seen": np.zeros(1, np.int64)}
        self._firsts = before

    def resume(self, arrays: dict[str, Array]) -> None:
        """Go on from there."""
        self._seen = arrays["piece_seen"]
        table = load(arrays["pieces"].tobytes())[0]["pieces"].combine_chunks()
        firsts, *states = (column.combine_chunks() for column in table.columns)
        self._firsts, self._states = np.array(firsts.to_numpy()), states


def _within(places: Array, edges: Array, covered: Array, number: Array) -> tuple[Array, Array]:
    """Which places lie in a stretch that is covered, and the number of it among those."""
    cell = np.searchsorted(edges, places, side="right") - 1
    inside = np.flatnonzero((cell >= 0) & (covered[cell] if len(edges) else False))
    return inside, number[cell[inside]]


def _runs(spans: Spans, firsts: Array) -> tuple[Array, Array]:
    """The covered stretches of each span: all between its first and its end are, so they are neighbours."""
    first, end = np.searchsorted(firsts, spans.first), np.searchsorted(firsts, spans.end)
    none = spans.end == spans.first
    return np.where(none, 0, first), np.where(none, 0, end)

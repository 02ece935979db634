"""Summaries of parts, and how neighbours join.

A part is a stretch of one key's rows. It is framed as if the stream began with it; at a few rows the operator's
standing is noted. Joined to what comes before it, its head is framed again from the true state until the standing at
one of those rows is the same: from there on all that the part has found holds. Runs meet at the first row that is in
none, chains at the first start that they share; where they never meet, the whole part is framed again. So a part of
runs keeps only the rows of its head, a part of chains all of them. Exact, always: the same segments as one pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from panewise.errors import DataError
from panewise.kernel.operator import SegmentOperator, Segments, Snapshot, joined
from panewise.kernel.page import Array
from panewise.kernel.sequence import Layout, Reader, tied

__all__ = ["Merger", "Part", "Summary"]

FIRST_MARK, MARK_FACTOR = 8, 8
"""Standings are noted at rows 8, 64, 512, ...: heads are short, and notes are few."""


@dataclass(frozen=True)
class Part:
    """Rows of one stretch, the segments found in them piece by piece, and the standing after each piece."""

    rows: pa.RecordBatch
    """Those that may have to be framed again."""
    marks: tuple[int, ...]
    """Piece i ends before row marks[i]."""
    found: tuple[Segments, ...]
    standings: tuple[Snapshot, ...]
    state: Snapshot
    """The operator's state after the last row."""


@dataclass(frozen=True)
class Summary:
    """Adjacent parts of one key, joined: each is right given those before it."""

    parts: tuple[Part, ...]
    first_at: Array
    last_at: Array


def _same(a: Snapshot, b: Snapshot) -> bool:
    return a.keys() == b.keys() and all(
        np.array_equal(a[name], b[name], equal_nan=a[name].dtype.kind == "f") for name in a
    )


class Merger:
    """Makes and joins summaries for one plan."""

    def __init__(self, layout: Layout) -> None:
        # the longest is known at the end only: until then every segment is kept
        scheme = replace(layout.plan.scheme, longest=False)
        self._layout = layout
        self._progress, self._reader = layout.progress, Reader(layout)
        self._operator = SegmentOperator(scheme, self._progress, layout.aggregation)
        self._nothing = self._operator.snapshot()

    def summary(self, rows: pa.RecordBatch) -> Summary:
        """Frame one stretch of rows, in order, as if the stream began with it."""
        rows = self._without_ties(rows)
        marks = [FIRST_MARK]
        while marks[-1] < len(rows):
            marks.append(marks[-1] * MARK_FACTOR)
        marks[-1] = len(rows)
        at = self._progress.numbers(rows.column("at"))
        part = self._framed(Part(rows, tuple(marks), (), (), self._nothing), self._nothing)
        return Summary((self._headed(part),), at[:1], at[-1:])

    def _headed(self, part: Part) -> Part:
        """The part with just the rows that a neighbour may need: up to the first mark where the past is forgotten."""
        for mark, standing in zip(part.marks, part.standings, strict=True):
            if self._operator.has_forgotten(standing):
                return replace(part, rows=part.rows.take(np.arange(mark)))
        return part

    def _without_ties(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that count; parts never share an `at`, so each settles its own ties."""
        plan = self._layout.plan
        if plan.ties == "all":
            return rows
        at = self._progress.numbers(rows.column("at"))
        repeats = at[1:] == at[:-1]
        if plan.ties == "error" and repeats.any():
            raise tied(plan, at[1:][repeats][:1], self._progress)
        kept = np.ones(len(at), bool)
        (kept[1:] if plan.ties == "first" else kept[:-1])[:] = ~repeats
        return rows.filter(pa.array(kept))

    def merge(self, left: Summary, right: Summary) -> Summary:
        """Join two neighbours."""
        if not left.last_at[0] < right.first_at[0]:
            raise DataError(
                f"Parts of a key overlap: one ends at {left.last_at[0]}, the next begins at {right.first_at[0]}. "
                "Shuffle and sort the rows of this key instead."
            )
        parts = list(left.parts)
        state = left.parts[-1].state
        for i, part in enumerate(right.parts):
            repaired = self._framed(part, state)
            parts.append(repaired)
            if _same(self._standing(repaired.state), self._standing(part.state)):
                parts += right.parts[i + 1 :]
                break
            state = repaired.state
        return Summary(tuple(parts), left.first_at, right.last_at)

    def segments(self, summary: Summary) -> Segments:
        """All segments of a finished key, with their ids."""
        self._operator.restore(summary.parts[-1].state)
        last = self._operator.on_page(self._reader.last_page(0))
        found = joined([*(piece for part in summary.parts for piece in part.found), last])
        if self._layout.plan.scheme.longest and len(found):
            # durations of integers beyond 2^63 wrap into the right unsigned number
            length = found.end - found.start
            length = length.view(np.uint64) if length.dtype == np.int64 else length
            best = int(np.lexsort((-np.arange(len(found)), found.rows, length))[-1])
            found = found.slice(best, 1)
        return replace(found, ids=np.arange(len(found)), group=np.zeros(len(found), np.int64))

    def _standing(self, state: Snapshot) -> Snapshot:
        self._operator.restore(state)
        return self._operator.standing()

    def _framed(self, part: Part, state: Snapshot) -> Part:
        """The part, framed from a state; what it found before is kept from the first mark with the same standing."""
        self._operator.restore(state)
        found, standings = [], []
        for i, piece in enumerate(self._pieces(part)):
            found.append(piece)
            standings.append(self._operator.standing())
            if i < len(part.standings) and _same(standings[i], part.standings[i]):
                found += part.found[i + 1 :]
                standings += part.standings[i + 1 :]
                return replace(part, found=tuple(found), standings=tuple(standings), state=part.state)
        return replace(part, found=tuple(found), standings=tuple(standings), state=self._operator.snapshot())

    def _pieces(self, part: Part) -> Iterator[Segments]:
        one, going = np.zeros(1, np.int64), np.zeros(1, bool)
        for start, end in zip((0, *part.marks), part.marks, strict=False):
            rows = part.rows.slice(start, end - start)
            at = self._progress.numbers(rows.column("at"))
            yield self._operator.on_page(self._reader.page(rows, at, np.array([0, len(rows)]), one, going))

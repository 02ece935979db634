"""One input of a shard: what has been promised of it, of all keys and of each, and which rows break a promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel.page import Array
from panewise.kernel.progress import Progress
from panewise.kernel.punctuate import Punctuator, is_per_key, source_columns
from panewise.spec.punctuate import Ordered

__all__ = ["REASONS", "Arrivals"]

REASONS = ("late", "after_idle", "null_at", "before_origin")
"""Why a row counts nowhere: progress had passed it, so had it after its source was left out, no `at`, an `at` before
the first window."""


def _as_promised(until: Array) -> Array:
    return until


class Arrivals:
    """How far an input has come: `until` holds a promise for each slot, never less than that for all."""

    def __init__(self, spec: Ordered, progress: Progress) -> None:
        self._progress = progress
        self.punctuator = Punctuator(spec, progress)
        self.until = np.empty(0, progress.dtype)
        self.origin: Any = None
        """Where the first window begins, if there is nothing before it."""
        self.closed: Callable[[Array], Array] = _as_promised
        """Up to which instant a row comes too late for anything, for each promise."""
        self._per_key = is_per_key(spec)
        self._sources = [f"s{i}" for i in range(len(source_columns(spec)))]

    @property
    def behind(self) -> Any:
        """How far the key furthest behind has come, where each is in order by itself; None, if none is known."""
        known = self.until[self.until > self._progress.nothing] if self._per_key else self.until[:0]
        return known.min() if len(known) else None

    def grow(self, slots: int) -> None:
        """Make room for new keys, of which no more is known than of all."""
        more = np.full(slots - len(self.until), self.punctuator.until, self._progress.dtype)
        self.until = np.concatenate([self.until, more])

    def without_late(
        self, rows: pa.Table, slots: Array, before: Any, counts: dict[str, int]
    ) -> tuple[pa.Table, Array, pa.Table | None]:
        """The rows that keep every promise; those that do not are counted, and kept aside where they are wanted."""
        absent = np.asarray(rows.column("at").is_null().to_numpy()) if rows.column("at").null_count else None
        bad = np.zeros(len(rows), bool) if absent is None else absent.copy()
        reason = np.full(len(rows), REASONS.index("null_at"), np.int8)
        if self.origin is not None:
            early = (self.numbers(rows, absent) < self.origin) & ~bad
            reason[early] = REASONS.index("before_origin")
            bad |= early
        until = np.maximum(self.until[slots], before)
        if (until > self._progress.nothing).any():
            at = self.numbers(rows, absent)
            late = (at <= self.closed(until)) & (until > self._progress.nothing) & ~bad
            if late.any():
                reason[late] = REASONS.index("late")
                if self._sources:
                    sources = [rows.column(name).combine_chunks() for name in self._sources]
                    reason[late & self.punctuator.was_idle(sources)] = REASONS.index("after_idle")
                bad |= late
        kept = rows.drop_columns(self._sources) if self._sources else rows
        if not bad.any():
            return kept, slots, None
        told = reason[bad]
        for i, name in enumerate(REASONS):
            counts[name] += int((told == i).sum())
        aside = None
        if "row" in rows.column_names:
            aside = pa.table({"reason": pa.array(REASONS).take(pa.array(told)), "row": rows.column("row").filter(bad)})
        return kept.filter(pa.array(~bad)), slots[~bad], aside

    def numbers(self, rows: pa.Table, absent: Array | None = None) -> Array:
        """`at` as numbers."""
        column = rows.column("at").combine_chunks()
        if absent is None or not absent.any():
            return self._progress.numbers(column)
        found = np.full(len(rows), self._progress.nothing, self._progress.dtype)
        found[~absent] = self._progress.numbers(column.drop_null())
        return found

    def promise(self, promises: pa.Table, slots: Array) -> None:
        """Move single keys on, as punctuations about them say."""
        present = np.asarray(promises.column("at").is_valid().to_numpy())
        at = self._progress.numbers(promises.column("at").drop_null().combine_chunks())
        finite = np.isfinite(at)
        np.maximum.at(self.until, slots[present][finite], at[finite])

    def advance(self, slots: Array, at: Array) -> None:
        """Move keys on as their own rows say, where each is in order by itself; and all as the whole input has come."""
        if self._per_key and len(at):
            highest = self.until.copy()
            np.maximum.at(highest, slots, self._progress.below(at))
            self.until = highest
        np.maximum(self.until, self.punctuator.until, out=self.until)

"""One input of a shard: what has been promised of it, of all keys and of each, and which rows break a promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel.compiled import compiled
from panewise.kernel.page import Array, in_one
from panewise.kernel.progress import Progress
from panewise.kernel.punctuate import Punctuator, is_per_key, source_columns
from panewise.spec.punctuate import Ordered

__all__ = ["REASONS", "Arrivals"]

REASONS = ("late", "after_idle", "null_at", "before_origin", "partly_late")
"""Why a row counts nowhere: progress had passed it, so had it after its source was left out, no `at`, an `at` before
the first window. Or, the last, why it counts in some of its windows only: the others were complete."""
_PARTLY = REASONS.index("partly_late")


@compiled
def _passed(at: Any, slots: Any, until: Any, least: Any, nothing: Any) -> Any:
    """The places of rows that promises have passed: those of their slots, or `least`, which is one for all.

    >>> _passed(np.array([1, 2, 3]), np.array([0, 1, 1]), np.array([0, 1]), 2, -1)
    array([0, 1])
    """
    found, count = np.empty(len(at), np.int64), 0
    for i in range(len(at)):
        bound = max(until[slots[i]], least)
        found[count] = i
        count += at[i] <= bound and bound > nothing
    return found[:count]


def _as_promised(until: Array) -> Array:
    return until


def _nothing(rows: pa.Table, which: Array, slots: Array, at: Array, until: Array) -> Array:
    return np.zeros(len(which), bool)


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
        self.missed: Callable[[pa.Table, Array, Array, Array, Array], Array] = _nothing
        """Which rows come too late for something, of those in these places: with their slots, `at` and promises."""
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

    def passed(self, at: Array, slots: Array, least: Any = None) -> Array:
        """The places of rows that promises have passed, or one of all up to `least`."""
        exact = self._progress.dtype
        nothing = exact(self._progress.nothing)
        found: Array = _passed(at, slots, self.until, nothing if least is None else exact(least), nothing)
        return found

    def without_late(
        self, rows: pa.Table, slots: Array, before: Any, counts: dict[str, int]
    ) -> tuple[pa.Table, Array, pa.Table | None]:
        """The rows that are not too late for everything; those that are too late are counted, and given if wanted."""
        absent = np.asarray(rows.column("at").is_null().to_numpy()) if rows.column("at").null_count else None
        at = self.numbers(rows, absent)
        behind = self.passed(at, slots, before)
        kept = rows.drop_columns(self._sources) if self._sources else rows
        if absent is None and self.origin is None and not len(behind):
            return kept, slots, None
        reason = np.full(len(rows), -1, np.int8)
        if absent is not None:
            reason[absent] = REASONS.index("null_at")
        if self.origin is not None:
            reason[(at < self.origin) & (reason < 0)] = REASONS.index("before_origin")
        behind = behind[reason[behind] < 0]
        if len(behind):
            until = np.maximum(self.until[slots[behind]], before)
            reason[behind] = self._judged(rows, behind, slots[behind], at[behind], until)
        told = reason >= 0
        if not told.any():
            return kept, slots, None
        for name, count in zip(REASONS, np.bincount(reason[told], minlength=len(REASONS)), strict=True):
            counts[name] += int(count)
        aside = None
        if "row" in rows.column_names:
            names = pa.array(REASONS).take(pa.array(reason[told]))
            aside = pa.table({"reason": names, "row": rows.column("row").filter(told)})
        stays = ~told | (reason == _PARTLY)
        if stays.all():
            return kept, slots, aside
        return kept.filter(pa.array(stays)), slots[stays], aside

    def _judged(self, rows: pa.Table, behind: Array, slots: Array, at: Array, until: Array) -> Array:
        """The reasons of rows that are behind their promises; -1 where one is in time for all that it belongs to."""
        found = np.full(len(behind), -1, np.int8)
        late = at <= self.closed(until)
        found[late] = REASONS.index("late")
        if self._sources and late.any():
            sources = [in_one(rows.column(name)).take(pa.array(behind)) for name in self._sources]
            found[late & self.punctuator.was_idle(sources)] = REASONS.index("after_idle")
        some = np.flatnonzero(~late)
        if len(some):
            found[some[self.missed(rows, behind[some], slots[some], at[some], until[some])]] = _PARTLY
        return found

    def numbers(self, rows: pa.Table, absent: Array | None = None) -> Array:
        """`at` as numbers."""
        column = in_one(rows.column("at"))
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

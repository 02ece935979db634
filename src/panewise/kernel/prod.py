"""Prods: which of what is open they ask for, when a clock asks, and what is told of the answers.

An early answer is the definition applied to the rows that have come so far. It changes nothing: what was asked stays
open, and its final answer comes when it would have come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.errors import SpecError
from panewise.kernel.keys import slots_of
from panewise.kernel.ledger import Learned, early_type
from panewise.kernel.page import Array, in_one
from panewise.kernel.progress import Progress
from panewise.kernel.sqltypes import zone_of
from panewise.kernel.windows import instant
from panewise.spec.prod import Prodder

__all__ = [
    "ARRIVED",
    "Asked",
    "Schedule",
    "answer_schema",
    "answers",
    "check_answers",
    "phase_of",
    "without_told",
]

_SECOND = 1_000_000
TOLD = ("timing", "number", "certain", "latency", "early")
ARRIVED = "panewise arrived"
"""The column of when a row arrived, in microseconds; and of the first arrival of each segment."""
_NEVER = -1
_RECENT = 0.3
"""How much the latest answers count, against all before them."""
_STEP = 2.0
"""By how much an autopilot moves at once, at most."""


class Asked:
    """What prods (k0.., at; what is null is any) ask for, of so many keys."""

    def __init__(self, progress: Progress, prods: pa.Table, keys: Sequence[pa.Array], count: int) -> None:
        self._keys, self._names = keys, [in_one(prods.column(f"k{i}")) for i in range(len(keys))]
        known = in_one(prods.column("at"))
        self.until = np.full(len(prods), progress.everything, progress.dtype)
        """Up to where each asks."""
        self.until[np.asarray(known.is_valid().to_numpy(zero_copy_only=False))] = progress.numbers(known.drop_null())
        # those that name one key of all are looked up together
        whole = np.full(len(prods), bool(keys))
        for name in self._names:
            whole &= np.asarray(name.is_valid().to_numpy(zero_copy_only=False))
        places = np.flatnonzero(whole)
        self._slots = np.full(len(prods), -1)
        if len(places):
            named = [name.take(pa.array(places)) for name in self._names]
            self._slots[places] = slots_of(list(keys), named, count, len(places))

    @classmethod
    def everything(cls, progress: Progress) -> Asked:
        """One that asks for all."""
        return cls(progress, pa.table({"at": pa.nulls(1, progress.type)}), (), 0)

    def of(self, slots: Array, ends: Array) -> Iterator[tuple[int, Array]]:
        """For each prod, which of these segments it asks for."""
        order = np.argsort(slots, kind="stable") if (self._slots >= 0).any() else slots
        for i, until in enumerate(self.until):
            if self._slots[i] >= 0:
                first, last = (np.searchsorted(slots, self._slots[i], side, sorter=order) for side in ("left", "right"))
                mine = np.sort(order[first:last])
            else:
                mine = np.flatnonzero(self._among(i)[slots]) if self._keys else np.arange(len(slots))
            yield i, mine[ends[mine] <= until]

    def _among(self, i: int) -> Array:
        """The keys that a prod asks for."""
        found = np.ones(len(self._keys[0]), bool)
        for key, name in zip(self._keys, self._names, strict=True):
            if name[i].is_valid:
                found &= np.asarray(pc.fill_null(pc.equal(key, name[i]), False).to_numpy(zero_copy_only=False))
        return found


def phase_of(spec: Prodder, progress: Progress) -> int:
    """Where one of the slides begins, in microseconds: the last one that does so by the epoch."""
    if spec.origin is None or progress.unit != "micros":
        return 0
    return -int(-instant(spec.origin, progress) % spec.every.micros)


class Schedule:
    """A prodder: says, tick by tick, when it is time to ask; an autopilot, where it holds an accuracy."""

    def __init__(self, spec: Prodder, progress: Progress) -> None:
        self._spec, self._progress = spec, progress
        self.aggressiveness = spec.aggressiveness
        self.asked = _NEVER
        """The last slide that was asked for, counted from the one that begins with the phase."""
        self.reached: int | None = None
        """Up to where it has asked, in microseconds, if it says so; and how aggressive it was then."""
        self.share = spec.aggressiveness
        self._began: int | None = None
        self._slope: float | None = None
        """How much accuracy is lost, for all of a slide before its end."""
        self._zone = None if spec.zone is None else zone_of(spec.zone)
        self._phase = phase_of(spec, progress)

    def tick(self, clock: int) -> pa.Array | None:
        """Up to where to ask now, as an `at`, or null for all that is open; None if it is not yet time."""
        every, clock = self._spec.every.micros, clock + self._offset(clock) - self._phase
        slide = int((clock + round((self.aggressiveness or 0.0) * every)) // every)
        first, due, skipped = self.asked == _NEVER, slide > self.asked, slide > self.asked + 1
        self.asked = max(self.asked, slide)
        if first or not due:
            return None
        progress = self._progress
        if self.aggressiveness is None or progress.unit != "micros":
            return pa.nulls(1, progress.type)
        self.reached, self.share = slide * every + self._phase, self.aggressiveness
        # what ended in slides that were left out was not asked for
        self._began = self.reached - every if self._began is None or skipped else self._began
        return progress.bounds(np.array([self.reached], progress.dtype))

    def _offset(self, clock: int) -> int:
        """What a clock on the wall is ahead of the time, where `at` is the time on one."""
        if self._zone is None:
            return 0
        ahead = datetime.fromtimestamp(clock / _SECOND, self._zone).utcoffset()
        return 0 if ahead is None else round(ahead.total_seconds() * _SECOND)

    def asked_for(self, end: Array, reached: int | None) -> Array:
        """Whether what ends then was asked for before its end, by the time it had asked up to `reached`."""
        if reached is None or self._began is None:
            return np.zeros(len(end), bool)
        every = self._spec.every.micros
        ahead = max(round((self.share or 0.0) * every), 1)
        return np.asarray((end > self._began) & (end <= reached) & ((reached - end) % every < ahead))

    def in_time(self, end: Array, known: bool) -> Array:
        """Whether it asked before the end of what ends then; where that is not `known`, in the slide of the end."""
        if self.reached is None:
            return np.ones(len(end), bool)
        share = (self.share or 0.0) if known else 1.0
        return np.asarray(end > self.reached - round(share * self._spec.every.micros))

    @property
    def has_learned(self) -> bool:
        """Whether an autopilot has moved by what it saw."""
        return self._slope is not None

    def learn(self, learned: Learned) -> None:
        """Move on, so that the aggregate that does worst has the accuracy that is to be held.

        Near the end of a slide, what is lost grows with the time before it; so what was lost for all of a slide is
        followed, the more recent the more, and the share is what loses as much as may be.
        """
        hold, (low, high) = self._spec.hold_accuracy, self._spec.bounds
        mine = learned.share > 0
        if hold is None or self.aggressiveness is None or not mine.any() or not learned.accuracy.shape[1]:
            return
        known = ~np.isnan(learned.accuracy[mine])
        count = known.sum(axis=0)
        if not count.any():
            return
        lost = np.where(known, 1 - learned.accuracy[mine], 0).sum(axis=0)[count > 0] / count[count > 0]
        slope = float(lost.max() / learned.share[mine].mean())
        self._slope = slope if self._slope is None else self._slope + _RECENT * (slope - self._slope)
        wanted = (1 - hold) / self._slope if self._slope > 0 else high
        step = min(max(wanted / self.aggressiveness, 1 / _STEP), _STEP)
        self.aggressiveness = min(max(self.aggressiveness * step, low), high)

    def facts(self) -> dict[str, Any]:
        """What to keep, as JSON takes it."""
        told = {"reached": self.reached, "began": self._began, "share_then": self.share}
        told |= {"asked": self.asked, "every": self._spec.every.micros}
        return {"share": self.aggressiveness, "slope": self._slope, **told}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Go on from `facts`; what a person has changed since holds."""
        every = self._spec.every.micros
        # slides of another length are others
        if facts.get("every", every) == every:
            self.asked = facts["asked"]
        self.reached, self._began = facts.get("reached"), facts.get("began")
        if self._spec.hold_accuracy is not None and facts["share"] is not None:
            low, high = self._spec.bounds
            self.aggressiveness, self._slope = min(max(facts["share"], low), high), facts["slope"]
            self.share = facts.get("share_then", self.aggressiveness)


def check_answers(names: Iterable[str]) -> None:
    """Refuse names that are those of what is told of answers."""
    for name in names:
        if name in TOLD:
            raise SpecError(
                f"`agg` ({name!r}) can't name a result: {', '.join(TOLD)} tell of prods. Choose another name."
            )


def answer_schema(schema: pa.Schema, aggregates: int) -> pa.Schema:
    """Of results, and what is told of each.

    Early or final, of how many, certain or not, how long after the first row, how good early ones were.
    """
    fields = list(schema)
    place = len(fields) - aggregates
    kinds = (pa.string(), pa.int64(), pa.bool_(), pa.float64(), early_type(pa.schema(fields[place:])))
    told = zip(TOLD, kinds, strict=True)
    return pa.schema([*fields[:place], *(pa.field(name, kind) for name, kind in told), *fields[place:]])


def answers(found: pa.RecordBatch, schema: pa.Schema, told: Sequence[pa.Array]) -> pa.RecordBatch:
    """Results with what is told of each."""
    named = dict(zip(TOLD, told, strict=True))
    names = found.schema.names
    columns = [found.column(field.name) if field.name in names else named[field.name] for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def without_told(found: pa.Table, timing: str, certain: bool = True) -> pa.Table:
    """Without what is told of them: the early results that are certain, or those that are not, or the final ones."""
    mine = pc.and_(pc.equal(found.column("timing"), timing), pc.equal(found.column("certain"), certain))
    return found.filter(mine).drop_columns(list(TOLD))

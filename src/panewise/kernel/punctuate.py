"""Punctuation: what a stream has promised so far, worked out from what was seen of it. Nobody else guesses.

Progress `t` says: no more rows with `at` <= t. It is the same in every shard, because what it is worked out from (the
`Seen` of each task) goes to all of them; only promises about single keys are a shard's own. All of it acts at the end
of the micro-batch that brings it, so that no row is late for the sake of its neighbours in one batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel.keys import codes
from panewise.kernel.page import Array
from panewise.kernel.progress import Progress
from panewise.spec.punctuate import External, InBand, Ordered, OrderedPer, Passed, Scheduled, SlackRows, SlackTime

__all__ = ["ENDED", "KIND", "SHARD", "Punctuator", "Seen", "heeds_rows", "is_per_key", "source_columns"]

SHARD, ENDED = "panewise shard", "panewise ended"
"""Columns of progress that a plan passes on: where it comes from, and whether nothing more does."""
KIND = "panewise kind"
"""The column that says what else a plan passes on is: prods, and segments for the answers to them only."""

_NEVER = -1
"""On the clock: not yet."""

_TOLD = 100
"""Of how many sources it is told how far they are: a report is no place for more."""


def is_per_key(plan: Ordered) -> bool:
    """Whether each key is a source in order by itself, so that its own rows say how far it has come."""
    given = plan.punctuation
    return isinstance(given, OrderedPer) and set(given.sources) == set(plan.keys)


def heeds_rows(plan: Ordered) -> bool:
    """Whether rows say how far their stream has come; else only punctuations do."""
    return not isinstance(plan.punctuation, (InBand, External))


def source_columns(plan: Ordered) -> tuple[str, ...]:
    """The columns that name a row's source, where progress is worked out per source."""
    match plan.punctuation:
        case SlackTime(per=columns):
            return columns
        case OrderedPer(sources=columns) if not is_per_key(plan):
            return columns
        case Passed(shards=shards) if shards:
            return (SHARD,)
    return ()


@dataclass
class Seen:
    """What one task saw in one micro-batch that says something about progress."""

    progress: Progress
    top: Array = field(default_factory=lambda: np.empty(0))
    """The largest `at`, or the n + 1 largest."""
    until: Any = None
    """The latest promise about all keys."""
    clock: int = _NEVER
    """The latest tick, in microseconds."""
    final: bool = False
    latest: Any = None
    """The largest `at`."""
    sources: pa.Table | None = None
    """Source columns s0, ... and `at`: the largest of each."""
    prods: pa.Table | None = None
    """Keys k0, ... and `at`: what is asked for."""
    early: dict[str, Any] = field(default_factory=dict)
    """The largest `at` of rows that are there for early answers only, by what they are."""

    def facts(self) -> dict[str, Any]:
        """All but the sources, as JSON takes it."""
        return {
            "top": self.top.tolist(),
            "until": None if self.until is None else self.until.item(),
            "clock": self.clock,
            "final": self.final,
            "latest": None if self.latest is None else self.latest.item(),
            "early": {name: at.item() for name, at in self.early.items()},
        }

    @classmethod
    def read(cls, progress: Progress, facts: dict[str, Any], tables: Mapping[str, pa.Table]) -> Seen:
        """The inverse of `facts` and `tables`."""
        until = None if facts["until"] is None else progress.dtype(facts["until"])
        top = np.asarray(facts["top"], progress.dtype)
        latest = None if facts["latest"] is None else progress.dtype(facts["latest"])
        early = {name: progress.dtype(at) for name, at in facts["early"].items()}
        told = (tables.get("sources"), tables.get("prods"), early)
        return cls(progress, top, until, facts["clock"], facts["final"], latest, *told)

    @property
    def tables(self) -> dict[str, pa.Table]:
        """The rest."""
        given = {"sources": self.sources, "prods": self.prods}
        return {name: table for name, table in given.items() if table is not None}

    def ask(self, prods: pa.Table) -> None:
        """Take note of prods."""
        self.prods = prods if self.prods is None else pa.concat_tables([self.prods, prods])

    def foresee(self, what: str, at: Array) -> None:
        """Take note of rows that are there for early answers only."""
        self.early[what] = max(self.early.get(what, at[0]), at.max())

    def rows(self, plan: Ordered, at: Array, sources: Sequence[pa.Array]) -> None:
        """Take note of rows: their `at`, and where they come from."""
        if not len(at):
            return
        self.latest = at.max() if self.latest is None else max(self.latest, at.max())
        match plan.punctuation:
            case SlackRows(rows=n):
                self.top = _largest(np.concatenate([self.top.astype(at.dtype), at]), n + 1)
            case SlackTime() | Scheduled():
                self.top = _largest(np.concatenate([self.top.astype(at.dtype), at.max(keepdims=True)]), 1)
        if sources and not isinstance(plan.punctuation, Passed):
            named = {f"s{i}": column for i, column in enumerate(sources)}
            self._hear(pa.table({**named, "at": pa.array(at)}))

    def _hear(self, told: pa.Table) -> None:
        self.sources = _latest(told if self.sources is None else pa.concat_tables([self.sources, told]))

    def promise(self, at: Array, sources: Sequence[pa.Array] = ()) -> None:
        """Take note of punctuations about all keys, of one source each; what is no number promises nothing."""
        finite = np.isfinite(at)
        at = at[finite]
        if not len(at):
            return
        if sources:
            named = {f"s{i}": column.filter(pa.array(finite)) for i, column in enumerate(sources)}
            self._hear(pa.table({**named, "at": pa.array(at)}))
            return
        latest = at.max()
        self.until = latest if self.until is None else max(self.until, latest)


def _largest(at: Array, n: int) -> Array:
    return np.sort(np.partition(at, len(at) - n)[len(at) - n :] if len(at) > n else at)


def _latest(table: pa.Table) -> pa.Table:
    """One row a source: the largest `at`."""
    named = [column.combine_chunks() for column in table.columns[:-1]]
    found, firsts = codes(named, len(table))
    at = np.asarray(table.column("at").to_numpy())
    largest = at[firsts].copy()
    np.maximum.at(largest, found, at)
    sources = {f"s{i}": column.take(pa.array(firsts)) for i, column in enumerate(named)}
    return pa.table({**sources, "at": pa.array(largest)})


class Punctuator:
    """The promises about a whole stream: fed with what tasks saw, it says how far the stream has come."""

    def __init__(self, plan: Ordered, progress: Progress) -> None:
        self._spec, self._progress = plan.punctuation, progress
        self._named = list(source_columns(plan))
        self.until = progress.nothing
        self.final = False
        self.latest = progress.nothing
        """The largest `at` of any row."""
        self.clock = self._awake = self._begun = _NEVER
        self._top = np.empty(0, progress.dtype)
        self.sources: pa.Table | None = None
        """Source columns, `at` (the clock of each), `heard` (when, while awake), `idle`."""

    def take(self, seen: Iterable[Seen], watermark: Any = None) -> None:
        """Learn what the tasks of a micro-batch saw, and move progress on."""
        promised = [self.until]
        fresh = []
        before = self.clock
        for task in seen:
            self.clock = max(self.clock, task.clock)
            self.final = self.final or task.final
            self._top = np.concatenate([self._top, task.top])
            if task.latest is not None:
                self.latest = max(self.latest, task.latest)
            if task.until is not None:
                promised.append(task.until)
            if task.sources is not None:
                fresh.append(task.sources)
        self._wake(before)
        if self._begun == _NEVER:
            self._begun = self._awake
        if watermark is not None:
            promised.append(watermark)
        self._hear(fresh)
        worked_out = self._worked_out()
        if worked_out is not None:
            promised.append(worked_out)
        self.until = self._progress.everything if self.final else max(promised)

    def _wake(self, before: int) -> None:
        """Move the time awake on: by the clock, but a stop is no silence, so in one micro-batch not by much."""
        if before == _NEVER:
            self._awake = self.clock
        elif isinstance(self._spec, OrderedPer) and self._spec.idle_after is not None:
            self._awake += min(self.clock - before, self._spec.idle_after.micros // 2)

    def _hear(self, fresh: list[pa.Table]) -> None:
        """Set the clocks of sources."""
        if not fresh and self.sources is None:
            return
        known = self.sources
        if fresh:
            new = pa.concat_tables(fresh)
            names = new.column_names[:-1]
            both = new if known is None else pa.concat_tables([known.select([*names, "at"]), new])
            latest = _latest(both)
            heard = np.full(len(latest), self._awake, np.int64)
            if known is not None:
                heard[: len(known)] = known.column("heard").to_numpy()
                spoke = codes([c.combine_chunks() for c in both.select(names).columns], len(both))[0][len(known) :]
                heard[spoke] = self._awake
            known = latest.append_column("heard", pa.array(heard))
        assert known is not None
        heard = np.array(known.column("heard").to_numpy())
        # a source that was heard before the clock started counts from when it did
        heard[heard == _NEVER] = self._awake
        idle = np.zeros(len(known), bool)
        if isinstance(self._spec, OrderedPer) and self._spec.idle_after is not None and self.clock != _NEVER:
            idle = self._awake - heard >= self._spec.idle_after.micros
        plain = known.select([name for name in known.column_names if name not in ("heard", "idle")])
        self.sources = plain.append_column("heard", pa.array(heard)).append_column("idle", pa.array(idle))

    def _worked_out(self) -> Any:
        """The promise that follows from what was seen, or None."""
        progress, spec = self._progress, self._spec
        match spec:
            case SlackRows(rows=n):
                self._top = _largest(self._top, n + 1)
                return progress.below(self._top[0]) if len(self._top) > n else None
            case SlackTime(amount=amount):
                if spec.per:
                    clocks = self._clocks(spec.ahead_limit)
                    self._top = clocks.max(keepdims=True) if len(clocks) else self._top[:0]
                return self._behind(progress.amount("slack", amount))
            case Scheduled(give_up_after=amount):
                return self._behind(progress.amount("give_up_after", amount))
            case OrderedPer():
                if self.sources is None or self._awaits(spec):
                    return None
                clocks = self._clocks(spec.ahead_limit)
                active = clocks[~np.asarray(self.sources.column("idle"))]
                return progress.below(active.min()) if len(active) else None
            case Passed(shards=shards):
                # those of which nothing is known yet may still send anything
                if self.sources is None or len(self.sources) < shards:
                    return None
                return np.asarray(self.sources.column("at").to_numpy()).min()
        return None

    def _behind(self, amount: float | int) -> Any:
        self._top = _largest(self._top, 1)
        return self._progress.below(self._progress.earlier(self._top, amount))[0] if len(self._top) else None

    def _awaits(self, spec: OrderedPer) -> bool:
        """Whether some of the expected sources were never heard, and may still be."""
        if spec.expect is None or self.sources is None or len(self.sources) >= spec.expect:
            return False
        if spec.idle_after is None or self.clock == _NEVER:
            return True
        return self._awake - self._begun < spec.idle_after.micros

    def _clocks(self, limit: Any) -> Array:
        """The clocks of the sources, none further than the limit ahead of the lower median of those not idle."""
        if self.sources is None:
            return np.empty(0, self._progress.dtype)
        clocks = np.array(self.sources.column("at").to_numpy())
        if limit is not None and len(clocks):
            active = clocks[~np.asarray(self.sources.column("idle"))]
            # one alone can't be ahead of itself, so then the silent ones count too
            heard = np.sort(active if len(active) > 1 else clocks)
            median = heard[(len(heard) - 1) // 2]
            clocks = np.minimum(clocks, self._progress.later(median, self._progress.amount("ahead_limit", limit)))
        return clocks

    def was_idle(self, columns: Sequence[pa.Array]) -> Array:
        """Which rows come from a source that progress has left out, by their source columns."""
        rows = len(columns[0])
        if self.sources is None:
            return np.zeros(rows, bool)
        spec, idle = self._spec, np.asarray(self.sources.column("idle"))
        # of the expected sources those never heard were waited for, and then left out as well
        unheard = False
        if isinstance(spec, OrderedPer) and spec.expect is not None and len(idle) < spec.expect:
            unheard = not self._awaits(spec)
        if not unheard and not idle.any():
            return np.zeros(rows, bool)
        known = [self.sources.column(i).combine_chunks() for i in range(len(columns))]
        both = [pa.concat_arrays([a, b]) for a, b in zip(known, columns, strict=True)]
        found = codes(both, len(idle) + rows)[0][len(idle) :]
        return np.append(idle, unheard)[np.minimum(found, len(idle))]

    def told(self) -> str:
        """The sources that are furthest behind, idle ones last, and how far each has come, as JSON."""
        if self.sources is None:
            return "[]"
        behind = self.sources.sort_by([("idle", "ascending"), ("at", "ascending")]).slice(0, _TOLD)
        named = [behind.column(name).to_pylist() for name in behind.column_names if name.startswith("s")]
        ats = [self._progress.written(at) for at in behind.column("at").to_pylist()]
        told = zip(zip(*named, strict=True), ats, behind.column("idle").to_pylist(), strict=True)
        return json.dumps([{"source": ", ".join(map(str, key)), "at": at, "idle": idle} for key, at, idle in told])

    def facts(self) -> dict[str, Any]:
        """All state but the sources, as JSON takes it."""
        return {
            "until": _json(self.until),
            "final": self.final,
            "latest": _json(self.latest),
            "clock": self.clock,
            "awake": self._awake,
            "begun": self._begun,
            "top": self._top.tolist(),
            "named": self._named,
        }

    def restore(self, facts: dict[str, Any], sources: pa.Table | None) -> None:
        """Go on from `facts` and `sources`."""
        self.until = self._progress.dtype(facts["until"])
        self.final, self.clock, self._begun = facts["final"], facts["clock"], facts["begun"]
        self.latest = self._progress.dtype(facts.get("latest", self._progress.nothing))
        # version 1 took a stop for silence
        self._awake = facts.get("awake", self.clock)
        self._top = np.asarray(facts["top"], self._progress.dtype)
        # those of other columns are other sources; version 1 did not say which they are
        self.sources = sources if facts.get("named", self._named) == self._named else None


def _json(number: Any) -> Any:
    return number.item() if hasattr(number, "item") else number

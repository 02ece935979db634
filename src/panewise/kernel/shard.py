"""A shard of a stream: some of the keys, with everything that happens to their rows, and its state as bytes.

In one micro-batch: rows that break a promise are set aside and counted; the others wait until progress has passed
them; what it has passed goes, in order, through the segment operator, which is also told how far each key has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel import segmenting as sg
from panewise.kernel.arrivals import REASONS, Arrivals
from panewise.kernel.aside import AsideOperator
from panewise.kernel.bundle import as_arrays, as_table, load
from panewise.kernel.compiled import compiled
from panewise.kernel.keys import KeyTable
from panewise.kernel.order import sort_indices
from panewise.kernel.page import Array
from panewise.kernel.prod import ARRIVED
from panewise.kernel.prodding import Fresh, Prodding, among, certain_of, joined
from panewise.kernel.punctuate import Punctuator, Seen
from panewise.kernel.sequence import Layout, Reader, tied
from panewise.kernel.spans import missing_between, span_at_least
from panewise.kernel.state import check_fingerprint, fingerprint, pack_state, unpack_state
from panewise.spec.punctuate import Scheduled

__all__ = ["ASKED", "PUNCTUATION", "REASONS", "TOTALS", "Outcome", "Shard"]

PUNCTUATION = "punctuation"
"""What progress that is passed on is called."""
ASKED = "asked"
"""And the prods beside it."""

TOTALS = ("rows", *REASONS, "segments", "parts", "keys_found")
"""What is counted from the first micro-batch on: rows, late ones by reason, segments, parts, keys with a segment."""


@dataclass(frozen=True)
class Outcome:
    """What came of a micro-batch."""

    segments: pa.Table | None
    late: pa.Table | None
    """`reason` and `row`."""
    counts: dict[str, int]
    """rows, a count for every reason, segments, parts; as of now: segments open, rows waiting and set aside, keys."""
    asked: pa.Table | None = None
    """The prods that were due: keys k0, ... and `at`."""
    answered: Array | None = None
    """Of each of them, whether there was an answer."""


@compiled
def _contiguous(at: Any, slots: Any, every: Any, reach: Any, last: Any, known: Any, until: Any) -> None:
    """Move each key's progress along rows (sorted) that follow one another so that no reading fits between them."""
    for i in range(len(at)):
        k = slots[i]
        if not known[k] or at[i] < last[k]:
            continue
        if missing_between(last[k], at[i], every) == 0 and not span_at_least(last[k], at[i], reach):
            last[k] = at[i]
            if at[i] > until[k]:
                until[k] = at[i]


class Shard:
    """The keys of one shard; `batch` takes a micro-batch, `state` gives what to keep."""

    def __init__(self, layout: Layout, shards: int = 1, state: bytes | None = None) -> None:
        stored = None if state is None else unpack_state(state)
        if stored is not None and layout.arrives != stored[1].get("arrives", False):
            # what was not kept from the beginning is not known; what was is kept
            layout = replace(layout, arrives=not layout.arrives)
        self._layout, self._progress = layout, layout.progress
        self._fingerprint = fingerprint(layout, shards)
        self._operator, self._reader, self._emitter = self._made(layout), Reader(layout), layout.emitter
        self._arrivals = Arrivals(layout.plan, self._progress)
        self.totals = dict.fromkeys(TOTALS, 0)
        schedule = layout.plan.scheme.schedule
        self._every = None
        if isinstance(layout.plan.punctuation, Scheduled) and schedule is not None:
            self._every = every = self._progress.amount("expect_every", schedule.every)
            # two readings that enclose a third are at least so far apart
            slop = 0 if schedule.jitter is None else self._progress.amount("jitter", schedule.jitter)
            self._reach = 2 * (every - slop)
        self._table = KeyTable(layout.key_types)
        self._last = np.empty(0, self._progress.dtype)
        self._waiting: pa.Table | None = None
        self.prodding = None if layout.prods is None else Prodding(layout)
        if stored is not None:
            self._restore(*stored)

    def _made(self, layout: Layout) -> Any:
        return layout.operator

    def _kept(self) -> dict[str, Array]:
        """What else there is to keep."""
        return {}

    def _resume(self, arrays: dict[str, Array]) -> None:
        """Take out what else was kept."""

    @property
    def punctuator(self) -> Punctuator:
        """How far the stream has come."""
        return self._arrivals.punctuator

    @property
    def aside(self) -> AsideOperator | None:
        """What sets the rows of bursts aside, if they are."""
        return self._operator if isinstance(self._operator, AsideOperator) else None

    @property
    def behind(self) -> Any:
        """How far the key furthest behind has come, where each is in order by itself; None, if none is known."""
        return self._arrivals.behind

    def promised(self) -> tuple[list[pa.Array], Array]:
        """Keys, and for each an instant at or before which no segment or part to come starts."""
        return self._table.columns, self._operator.promise(self._arrivals.until, self._progress)

    def passed(self, ends: bool = False) -> Any:
        """An instant at or before which no segment to come starts, or ends, of any key, be it unseen yet."""
        known = self._operator.promise(self._arrivals.until, self._progress, ends)
        unseen = self._operator.promise_of_new(self.punctuator.until, self._progress, ends)
        return min(unseen, known.min()) if len(known) else unseen

    def passed_on(self, number: int) -> pa.Table:
        """The same of starts and of ends, as a row; null where nothing is known, or nothing more comes."""
        progress, found = self._emitter.progress, {}
        for name, ends in (("start", False), ("end", True)):
            until = self.passed(ends)
            known = progress.nothing < until < progress.everything
            bound = progress.bounds(np.array([until], progress.dtype)) if known else pa.nulls(1, progress.type)
            found[name] = bound
        return pa.table({**found, "shard": pa.array([number], pa.int32()), "ended": pa.array([self.punctuator.final])})

    # ---- state

    def state(self) -> bytes:
        """All that the next micro-batch needs."""
        until = self._arrivals.until
        arrays = {**self._operator.state(len(until)), **self._kept(), "until": until, "last": self._last}
        tables = {"arrays": as_table(arrays)}
        if self._table.columns:
            tables["keys"] = pa.table({f"k{i}": key for i, key in enumerate(self._table.columns)})
        if self._waiting is not None and len(self._waiting):
            tables["waiting"] = self._waiting
        if self.aside is not None and self.aside.aside:
            tables["aside"] = self.aside.rows
        if self.punctuator.sources is not None:
            tables["sources"] = self.punctuator.sources
        facts: dict[str, Any] = {"plan": self._fingerprint, "progress": self.punctuator.facts(), "totals": self.totals}
        if self._layout.arrives:
            facts["arrives"] = True
        if self.prodding is not None:
            facts["prods"], tables["early"] = self.prodding.facts(), self.prodding.ledger.held
        return pack_state(tables, facts)

    def _restore(self, tables: dict[str, pa.Table], facts: dict[str, Any]) -> None:
        check_fingerprint(facts["plan"], self._fingerprint)
        arrays = as_arrays(tables["arrays"])
        self._arrivals.until, self._last = arrays.pop("until"), arrays.pop("last")
        self._resume(arrays)
        self._operator.resume(arrays)
        self._table.size = len(self._last)
        if "keys" in tables:
            self._table.restore([column.combine_chunks() for column in tables["keys"].columns])
        self._waiting = tables.get("waiting")
        if self.aside is not None:
            self.aside.rows = tables.get("aside")
        self.punctuator.restore(facts["progress"], tables.get("sources"))
        self.totals |= facts["totals"]
        # prods may be asked for, or not, at any time
        if self.prodding is not None and "prods" in facts:
            self.prodding.restore(facts["prods"], tables.get("early"))

    # ---- a micro-batch

    def batch(self, pages: Iterable[bytes], watermark: Any = None, now: int = -1) -> Outcome:
        """Take the pages of a micro-batch, in any order, and give what became of them.

        `now` is the time in microseconds, as long as no clock has ticked among the rows; a prodder waits for its clock.
        """
        seen, rows, promises, early, unsure = [], [], [], [], []
        for data in pages:
            tables, facts = load(data)
            if "seen" in facts:
                seen.append(Seen.read(self._progress, facts["seen"], tables))
            elif "rows" in tables:
                rows.append((tables["keys"], tables["rows"]))
            elif "early" in tables:
                early.append((tables["keys"], tables["early"]))
            elif "unsure" in tables:
                unsure.append((tables["keys"], tables["unsure"]))
            else:
                promises.append((tables["keys"], tables["promises"]))
        before = self.punctuator.until
        table, slots = self._gather(rows)
        counts = {"rows": 0 if table is None else len(table), **dict.fromkeys(REASONS, 0)}
        late = None
        if table is not None:
            table, slots, late = self._arrivals.without_late(table, slots, before, counts)
        self.punctuator.take(seen, watermark)
        about, of = self._gather(promises)
        if about is not None:
            self._arrivals.promise(about, of)
        clock = self.punctuator.clock if self.punctuator.clock >= 0 else now
        found = self._advance(self._arrived(table, clock), slots)
        asked = answered = None
        if self.prodding is not None:
            asked = self.prodding.due(seen, self.punctuator.clock)
            more = []
            for name, (others, of) in zip(("early", "unsure"), map(self._gather, (early, unsure)), strict=True):
                latest = max((task.early[name] for task in seen if name in task.early), default=self._progress.nothing)
                more.append((self._arrived(others, clock), of, latest))
            segments, answered = self._answers(self.prodding, found, asked, more, clock)
        else:
            made = [self._emitter.batch(self._table.columns, found)] if len(found) else []
            segments = pa.Table.from_batches(made).select(self._layout.schema.names) if made else None
        partial = (found.flags & sg.PARTIAL_FLAG) != 0
        counts |= {
            "segments": int((~partial).sum()),
            "parts": int(partial.sum()),
            "open": self._operator.open,
            "waiting": 0 if self._waiting is None else len(self._waiting),
            "aside": 0 if self.aside is None else self.aside.aside,
            "keys": len(self._table),
        }
        first = {"keys_found": self._first_found(found, partial)}
        for name in TOTALS:
            self.totals[name] += {**counts, **first}[name]
        return Outcome(segments, late, counts, asked, answered)

    # ---- prods

    def _arrived(self, rows: pa.Table | None, clock: int) -> pa.Table | None:
        """Rows with the time, where it is kept when segments were first heard of; a plan before has told it already."""
        if rows is None or not self._layout.arrives or ARRIVED in rows.column_names:
            return rows
        return rows.append_column(ARRIVED, pa.array(np.full(len(rows), clock), mask=np.full(len(rows), clock < 0)))

    def _answers(
        self, prodding: Prodding, found: Any, asked: pa.Table | None, more: Sequence[Fresh], clock: int
    ) -> tuple[pa.Table | None, Array | None]:
        """Final answers, then early ones: what has just become final needs no other; and which prods were answered.

        `more` are rows that are there for early answers only: those that are certain, and those that are not.
        """
        keys, made, answered = self._table.columns, [], None
        if len(found):
            made.append(prodding.finals(found, keys, clock))
        if asked is not None:
            open_ones, certain = self._early(*joined(more))
            if more[1][2] > self._progress.nothing:
                certain &= among(open_ones, self._early(*more[0])[0])
            some, answered = prodding.early(asked, open_ones, certain, keys, len(self._table), clock)
            made += [] if some is None else [some]
        if len(prodding.ledger.held):
            passed = self._operator.promise(self._arrivals.until, self._progress)
            prodding.forget(passed, bool(self.punctuator.final))
        return (pa.Table.from_batches(made) if made else None), answered

    def _early(self, fresh: pa.Table | None, slots: Array, latest: Any) -> tuple[Any, Array]:
        """The segments of rows so far, as if they ended at `latest`, less those sent; which are certain. No change."""
        operator, arrivals, punctuator, count = self._operator, self._arrivals, self.punctuator, len(self._table)
        state = {name: array.copy() for name, array in operator.state(count).items()}
        kept = {name: array.copy() for name, array in self._kept().items()}
        waiting, until, last = self._waiting, arrivals.until, self._last
        told = (punctuator.until, punctuator.final, punctuator.latest)
        certain = self._certain(state)
        # as if this were the end of the stream
        everything = self._progress.everything
        arrivals.until, self._last = np.full(count, everything, self._progress.dtype), last.copy()
        punctuator.until, punctuator.final = everything, True
        punctuator.latest = max(punctuator.latest, latest)
        try:
            found = self._advance(fresh, slots)
        finally:
            operator.resume(state)
            self._resume(kept)
            self._waiting, arrivals.until, self._last = waiting, until, last
            punctuator.until, punctuator.final, punctuator.latest = told
        return found, certain(found)

    def _certain(self, state: Mapping[str, Array]) -> Callable[[Any], Array]:
        """Which segments are certain to come, of those under way."""
        return certain_of(self._layout, self._reader, state, self._arrivals.until)

    def _first_found(self, found: Any, partial: Array) -> int:
        """Of how many keys the first segment is among these."""
        return int((~partial & (found.ids == 0)).sum())

    def _gather(self, pages: list[tuple[pa.Table, pa.Table]]) -> tuple[pa.Table | None, Array]:
        """All rows of the pages, and the slot of each; new keys get new slots."""
        if not pages:
            return None, np.empty(0, np.int64)
        keys = pa.concat_tables([keys for keys, _ in pages])
        named = [keys.column(i).combine_chunks() for i in range(len(self._table.columns))]
        slots = self._table.slots(named, len(keys))
        self._arrivals.grow(len(self._table))
        nothing = np.full(len(self._table) - len(self._last), self._progress.nothing, self._progress.dtype)
        self._last = np.concatenate([self._last, nothing])
        rows = pa.concat_tables([rows for _, rows in pages])
        return rows, np.repeat(slots, np.asarray(keys.column("n").to_numpy()))

    def _advance(self, fresh: pa.Table | None, slots: Array) -> Any:
        """Let go of what progress has passed, and tell the operator how far each key has come."""
        rows, slots, at = self._released(fresh, slots)
        count = len(self._table)
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(slots, minlength=count), out=offsets[1:])
        ends = np.full(count, self.punctuator.final)
        reached = self._arrivals.until
        told = reached > self._progress.nothing
        batch = rows.combine_chunks().to_batches()[0] if rows is not None and len(rows) else self._reader.empty()
        soonest = self._progress.above(reached)
        page = self._reader.page(batch, at, offsets, np.arange(count), ends, (told, reached, soonest))
        return self._operator.on_page(page)

    def _released(self, fresh: pa.Table | None, slots: Array) -> tuple[pa.Table | None, Array, Array]:
        """The rows that progress has passed by now, in order; the others wait."""
        rows, slots, at = self._with_waiting(fresh, slots)
        self._arrivals.advance(slots, at)
        if self._every is not None and len(at):
            self._follow(slots, at, self._every)
        released = self._arrivals.passed(at, slots)
        self._waiting = None
        if rows is not None and len(released) < len(at):
            stays = np.ones(len(at), bool)
            stays[released] = False
            self._waiting = rows.filter(pa.array(stays)).append_column("slot", pa.array(slots[stays]))
        if rows is None:
            return None, slots, at
        order = self._without_ties(self._order(rows, slots, at, released), slots, at)
        rows, slots, at = rows.take(pa.array(order)), slots[order], at[order]
        if self._every is not None:
            np.maximum.at(self._last, slots, at)
        return rows, slots, at

    def _with_waiting(self, fresh: pa.Table | None, slots: Array) -> tuple[pa.Table | None, Array, Array]:
        """The rows of this micro-batch and those that wait since earlier ones."""
        waiting = self._waiting
        if waiting is not None:
            owners = np.asarray(waiting.column("slot").to_numpy())
            waiting = waiting.drop_columns(["slot"])
            if fresh is None:
                fresh, slots = waiting, owners
            else:
                # whether a column may be null differs between micro-batches of one query
                fresh = pa.concat_tables([waiting, fresh], promote_options="default")
                slots = np.concatenate([owners, slots])
        if fresh is None:
            return None, slots, np.empty(0, self._progress.dtype)
        # a row that is not late by now never will be: nobody will ask how it was
        fresh = fresh.drop_columns(["row"]) if "row" in fresh.column_names else fresh
        return fresh, slots.astype(np.int64), self._arrivals.numbers(fresh)

    def _follow(self, slots: Array, at: Array, every: Any) -> None:
        """Move keys on along readings that follow one another, which nothing can lie between."""
        order = np.lexsort((at, slots))
        known = self._last > self._progress.nothing
        # a key whose first row progress has passed is known from there on
        passed = at <= self._arrivals.until[slots]
        first = self._last.copy()
        np.maximum.at(first, slots[passed], at[passed])
        known |= first > self._progress.nothing
        until = self._arrivals.until.copy()
        exact = self._progress.dtype
        _contiguous(at[order], slots[order], exact(every), exact(self._reach), first, known, until)
        self._arrivals.until = until

    def _order(self, rows: pa.Table, slots: Array, at: Array, places: Array) -> Array:
        """The order of the rows in these places."""
        return sort_indices(slots, len(self._table), at, rows.drop_columns(["at"]), places)

    def _without_ties(self, order: Array, slots: Array, at: Array) -> Array:
        ties = self._layout.plan.ties
        if ties == "all" or len(order) < 2:
            return order
        same = (slots[order][1:] == slots[order][:-1]) & (at[order][1:] == at[order][:-1])
        if not same.any():
            return order
        if ties == "error":
            row = order[int(np.flatnonzero(same)[0])]
            plan = self._layout.plan
            named = zip(plan.keys, self._table.columns, strict=True)
            where = ", ".join(f"{name}={key[int(slots[row])].as_py()!r}" for name, key in named)
            raise tied(plan, at[row : row + 1], self._progress, where)
        kept = np.ones(len(order), bool)
        if ties == "first":
            kept[1:] = ~same
        else:
            kept[:-1] = ~same
        return order[kept]

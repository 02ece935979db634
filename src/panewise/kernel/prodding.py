"""Early answers of a shard: what is due, what is answered, and what becomes of the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.kernel import segmenting as sg
from panewise.kernel.answers import figures_of
from panewise.kernel.ledger import Learned, Ledger
from panewise.kernel.ledger import joined as joined_lessons
from panewise.kernel.operator import SegmentOperator, Segments
from panewise.kernel.order import sortable
from panewise.kernel.page import Array
from panewise.kernel.prod import ARRIVED, Asked, Schedule, answers
from panewise.kernel.punctuate import Seen
from panewise.kernel.sequence import Layout, Reader
from panewise.spec.emit import Emit
from panewise.spec.frames import ChainFrames, RowWindows, Windows, WindowScheme

__all__ = ["Fresh", "Prodding", "among", "certain_of", "joined"]

_SECOND = 1_000_000

Fresh = tuple[pa.Table | None, Array, Any]
"""Rows, if there are any, the slot of each, and the largest `at` of such rows in all shards."""


class Prodding:
    """What a shard knows of prods."""

    def __init__(self, layout: Layout) -> None:
        assert layout.prods is not None
        self._layout, self._progress, self._emitter = layout, layout.progress, layout.emitter
        names = [name for name, _ in layout.agg]
        outputs = pa.schema([self._emitter.schema.field(name) for name in names])
        windows = isinstance(layout.plan.scheme, WindowScheme)
        self.ledger = Ledger(outputs, self._emitter.progress, layout.prods.accuracy, windows)
        spec = layout.prods.prodder
        self.schedule = None if spec is None else Schedule(spec, self._progress)
        self._share = np.empty(0)
        self._reached: int | None = None
        """Up to where the prodder had asked before this micro-batch."""
        self.counts = {"prods": 0}
        self.answered: Segments | None = None
        """What the latest prods were answered with, if it was anything."""

    def due(self, seen: Sequence[Seen], clock: int) -> pa.Table | None:
        """What is asked for now: k0.., at, in the same order in all shards; what the prodder asks for is the last."""
        given = _in_order([task.prods for task in seen if task.prods is not None])
        asked = [] if given is None else [given]
        self._reached = None if self.schedule is None else self.schedule.reached
        self._share = np.full(sum(map(len, asked)), np.nan)
        if self.schedule is not None and clock >= 0:
            until = self.schedule.tick(clock)
            if until is not None:
                types = self._layout.key_types
                keys = {f"k{i}": pa.nulls(1, kind) for i, kind in enumerate(types)}
                asked.append(pa.table({**keys, "at": until}))
                self._share = np.append(self._share, self.schedule.aggressiveness or np.nan)
        found = pa.concat_tables(asked, promote_options="default") if asked else None
        self.counts["prods"] += 0 if found is None else len(found)
        return found

    def finals(self, found: Segments, keys: Sequence[pa.Array], clock: int) -> pa.RecordBatch:
        """Final answers, with what is told of the early ones."""
        made, count = self._emitter.batch(keys, found), len(found)
        latency = self._latency(made, clock)
        # an update is not the last word on what early answers were about; a fragment is
        settled, last, values, ago = None, found, self._values(made), latency
        if self._layout.emit.mode == "updates":
            settled = (found.flags & sg.PARTIAL_FLAG) == 0
            last, ago = found.of(settled), latency[settled]
            values = [each.filter(pa.array(settled)) for each in values]
        about = self.ledger.about(last.group, last.start, last.ids)
        met, learned = self.ledger.match(about, values, clock, ago)
        learned = self._with_missed(learned, last, met)
        if settled is not None:
            met = met.take(pa.array(np.cumsum(settled) - 1, mask=~settled))
        if self.schedule is not None:
            self.schedule.learn(learned)
        told = [pa.repeat("final", count), pa.nulls(count, pa.int64()), pa.array(np.ones(count, bool))]
        told.append(pa.array(latency, mask=np.isnan(latency)))
        return answers(made, self._layout.schema, [*told, met])

    def _with_missed(self, learned: Learned, last: Segments, met: pa.Array) -> Learned:
        """And of windows that the prodder asked for before any of their rows had come: nothing was right of these."""
        if self.schedule is None or not isinstance(self._layout.plan.scheme, Windows):
            return learned
        missed = self.schedule.asked_for(last.end, self._reached)
        # an answer after the end, whose share is 0, was none when it was asked for
        missed[np.asarray(pc.list_parent_indices(met))[learned.share != 0]] = False
        count = int(missed.sum())
        share = self.schedule.share or np.nan
        return joined_lessons(learned, Learned(np.full(count, share), np.zeros((count, len(self._layout.agg)))))

    def _latency(self, made: pa.RecordBatch, clock: int) -> Array:
        """Seconds since the first row of each segment arrived; NaN where that is not known."""
        if not self._layout.arrives or clock < 0:
            return np.full(len(made), np.nan)
        first = made.column(ARRIVED).cast(pa.float64()).to_numpy(zero_copy_only=False)
        return np.asarray((clock - first) / _SECOND, np.float64)

    def early(
        self, prods: pa.Table, found: Segments, certain: Array, keys: Sequence[pa.Array], slots: int, clock: int
    ) -> tuple[pa.RecordBatch | None, Array]:
        """Early answers: those of all that is open that are asked for; and which prods have one."""
        asked = Asked(self._progress, prods, keys, slots)
        if isinstance(self._layout.plan.scheme, RowWindows):
            # windows end with numbers of rows, which nobody asks by
            asked.until[:] = self._emitter.progress.everything
        assert self._layout.prods is not None
        if self._layout.prods.passes:
            asked = Asked.everything(self._emitter.progress)
        wanted, answered, share = np.zeros(len(found), bool), np.zeros(len(prods), bool), np.full(len(found), np.nan)
        in_time = self._in_time(found.end)
        for i, mine in asked.of(found.group, found.end):
            answered[i] = len(mine) > 0
            # an answer to several counts for none of them
            share[mine] = np.where(wanted[mine], np.nan, self._share[i] * in_time[mine])
            wanted[mine] = True
        self.answered = None
        if not wanted.any():
            return None, answered
        group, start, which = self.ledger.about(found.group, found.start, found.ids)
        about = (group[wanted], start[wanted], which[wanted])
        found, certain, share = found.of(wanted), certain[wanted], share[wanted]
        self.answered = found
        # on a grid an id says which window it is, whether or not it comes
        named = np.ones_like(certain) if isinstance(self._layout.plan.scheme, Windows) else certain
        made = self._emitter.batch(keys, replace(found, flags=found.flags | sg.PARTIAL_FLAG), named)
        number = np.zeros(len(found), np.int64)
        if not self._layout.prods.passes:
            number = self.ledger.put(about, self._values(made), clock, share)
        schema, latency = self._layout.schema, self._latency(made, clock)
        told = [pa.repeat("early", len(found)), pa.array(number), pa.array(certain)]
        told += [pa.array(latency, mask=np.isnan(latency)), pa.nulls(len(found), schema.field("early").type)]
        return answers(made, schema, told), answered

    def _in_time(self, end: Array) -> Array:
        """Of which of these the prodder's answer is an early one, and no repetition of what has ended."""
        scheme = self._layout.plan.scheme
        if self.schedule is None or isinstance(scheme, RowWindows):
            return np.ones(len(end), bool)
        return self.schedule.in_time(end, isinstance(scheme, Windows))

    def _values(self, made: pa.RecordBatch) -> list[pa.Array]:
        return [made.column(name) for name, _ in self._layout.agg]

    def forget(self, passed: Array, final: bool) -> None:
        """Let go of early answers whose final ones can't come any more."""
        if final:
            self.ledger.held = self.ledger.held.slice(0, 0)
        elif not isinstance(self._layout.plan.scheme, RowWindows):
            # windows that rows end by rank, or over frames, may never come either
            self.ledger.forget(passed)

    def figures(self, answered: Array | None) -> dict[str, Any]:
        """What is known from the first micro-batch on, and which prods of this one were answered."""
        share = None if self.schedule is None else self.schedule.aggressiveness
        moved = self.schedule is not None and self.schedule.has_learned
        facts = {**self.counts, **self.ledger.facts(), "aggressiveness": share, "has_learned": moved}
        return figures_of(facts, [name for name, _ in self._layout.agg], answered)

    def facts(self) -> dict[str, Any]:
        """All but what is held, as JSON takes it."""
        schedule = None if self.schedule is None else self.schedule.facts()
        return {"counts": self.counts, "schedule": schedule, **self.ledger.facts()}

    def restore(self, facts: Mapping[str, Any], held: pa.Table | None) -> None:
        """Go on from `facts` and what was held."""
        self.counts |= facts["counts"]
        if self.schedule is not None and facts["schedule"] is not None:
            self.schedule.restore(facts["schedule"])
        self.ledger.restore(facts, held)


def _in_order(asked: Sequence[pa.Table]) -> pa.Table | None:
    """Prods of several tasks, whose pages come to each shard in an order of its own."""
    if not asked:
        return None
    found = pa.concat_tables(asked, promote_options="default")
    if len(found) == 1:
        return found
    by = [(name, "ascending", "at_start") for name in found.column_names]
    return found.take(pc.sort_indices(sortable(found), sort_keys=by)).combine_chunks()


def joined(parts: Sequence[Fresh]) -> Fresh:
    """All of some rows."""
    tables = [rows for rows, *_ in parts if rows is not None]
    slots, latest = np.concatenate([of for _, of, _ in parts]), max(at for *_, at in parts)
    return (pa.concat_tables(tables, promote_options="default") if tables else None), slots, latest


def among(found: Segments, others: Segments) -> Array:
    """Which segments are among others, by their slots and starts."""
    known = set(zip(others.group.tolist(), others.start.tolist(), strict=True))
    return _known(found, known)


def _known(found: Segments, known: set[tuple[Any, Any]]) -> Array:
    named = zip(found.group.tolist(), found.start.tolist(), strict=True)
    return np.fromiter((each in known for each in named), bool, len(found))


def certain_of(layout: Layout, reader: Reader, state: Mapping[str, Array], reached: Array) -> Callable[[Any], Array]:
    """Which frames are certain to come: of those under way, the ones that a part could be sent of.

    No part is sent of minimal frames: of these it is what would come if nothing but the rows passed so far did.
    """
    scheme, progress, count = layout.plan.scheme, layout.progress, len(reached)
    minimal = isinstance(scheme, ChainFrames) and scheme.closing == "include"
    operator = SegmentOperator(scheme, progress, layout.aggregation, Emit("final" if minimal else "updates"))
    operator.restore(dict(state))
    promised = (reached > progress.nothing, reached, progress.above(reached))
    offsets, ends = np.zeros(count + 1, np.int64), np.full(count, minimal)
    none = np.empty(0, progress.dtype)
    sure = operator.on_page(reader.page(reader.empty(), none, offsets, np.arange(count), ends, promised))
    sure = sure.of((sure.flags & sg.REMAINDER_FLAG) == 0)
    known = set(zip(sure.group.tolist(), sure.start.tolist(), strict=True))
    # a gap goes up to a run that is not decided yet, or on through it: it comes in any case
    gaps = (state["carried_1"][:, 1] & sg.GAP_FLAG) != 0
    known |= set(zip(state["carried_owners"][gaps].tolist(), state["carried_0"][gaps, 0].tolist(), strict=True))
    return lambda found: _known(found, known) | (found.part > 0)

"""Early answers of a shard: what is due, what is answered, and what becomes of the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel import segmenting as sg
from panewise.kernel.operator import Segments
from panewise.kernel.page import Array
from panewise.kernel.prod import Ledger, Schedule, answers, asked_of
from panewise.kernel.punctuate import Seen
from panewise.kernel.sequence import Layout
from panewise.spec.frames import RowWindows, WindowScheme

__all__ = ["PRODDED", "Prodding"]

PRODDED = ("prods", "unanswered", "early", "matched")
"""What is counted: prods, those that found nothing to answer, early answers, and those whose final ones came."""


class Prodding:
    """What a shard knows of prods."""

    def __init__(self, layout: Layout) -> None:
        assert layout.prods is not None
        self._layout, self._progress, self._emitter = layout, layout.progress, layout.emitter
        names = [name for name, _ in layout.agg]
        outputs = pa.schema([self._emitter.schema.field(name) for name in names])
        self.ledger = Ledger(outputs, self._emitter.progress)
        spec = layout.prods.prodder
        self._schedule = None if spec is None else Schedule(spec, self._progress)
        self.counts = dict.fromkeys(PRODDED, 0)
        self.answered: Segments | None = None
        """What the latest prods were answered with, if it was anything."""

    def due(self, seen: Sequence[Seen], clock: int) -> pa.Table | None:
        """What is asked for now: k0.., at."""
        asked = [task.prods for task in seen if task.prods is not None]
        if self._schedule is not None and clock >= 0:
            until = self._schedule.tick(clock)
            if until is not None:
                types = self._layout.key_types
                keys = {f"k{i}": pa.nulls(1, kind) for i, kind in enumerate(types)}
                asked.append(pa.table({**keys, "at": until}))
        found = pa.concat_tables(asked, promote_options="default") if asked else None
        self.counts["prods"] += 0 if found is None else len(found)
        return found

    def finals(self, found: Segments, keys: Sequence[pa.Array], clock: int) -> pa.RecordBatch:
        """Final answers, with what is told of the early ones."""
        made, count = self._emitter.batch(keys, found), len(found)
        met = self.ledger.match(found.group, found.start, self._values(made), clock)
        told = [pa.array(["final"] * count), pa.nulls(count, pa.int64()), pa.array(np.ones(count, bool))]
        return answers(made, self._layout.schema, [*told, met])

    def early(
        self, prods: pa.Table, found: Segments, certain: Array, keys: Sequence[pa.Array], slots: int, clock: int
    ) -> pa.RecordBatch | None:
        """Early answers: those of all that is open that are asked for."""
        asked = asked_of(self._progress, prods, keys, slots)
        if isinstance(self._layout.plan.scheme, RowWindows):
            # windows end with numbers of rows, which nobody asks by
            last = np.iinfo(np.int64).max
            asked = [np.where(each > self._progress.nothing, last, -1) for each in asked]
        assert self._layout.prods is not None
        if self._layout.prods.passes:
            asked = [np.full(slots, self._emitter.progress.everything, self._emitter.progress.dtype)]
        answered = [bool((found.end <= each[found.group]).any()) for each in asked]
        self.counts["unanswered"] += len(answered) - sum(answered)
        wanted = np.zeros(len(found), bool)
        for each in asked:
            wanted |= found.end <= each[found.group]
        self.answered = None
        if not wanted.any():
            return None
        self.answered, certain = found.of(wanted), certain[wanted]
        found = self.answered
        made = self._emitter.batch(keys, replace(found, flags=found.flags | sg.PARTIAL_FLAG), certain)
        number = np.zeros(len(found), np.int64)
        if not self._layout.prods.passes:
            number = self.ledger.put(found.group, found.start, self._values(made), clock)
        schema = self._layout.schema
        told = [pa.array(["early"] * len(found)), pa.array(number), pa.array(certain)]
        return answers(made, schema, [*told, pa.nulls(len(found), schema.field("early").type)])

    def _values(self, made: pa.RecordBatch) -> list[pa.Array]:
        return [made.column(name) for name, _ in self._layout.agg]

    def forget(self, passed: Array, final: bool) -> None:
        """Let go of early answers whose final ones can't come any more."""
        if final:
            self.ledger.held = self.ledger.held.slice(0, 0)
        elif not isinstance(self._layout.plan.scheme, WindowScheme):
            self.ledger.forget(passed)

    @property
    def told(self) -> dict[str, int]:
        """What is counted, from the first micro-batch on."""
        return {**self.counts, **self.ledger.totals}

    def facts(self) -> dict[str, Any]:
        """All but what is held, as JSON takes it."""
        asked = None if self._schedule is None else self._schedule.asked
        return {"counts": self.counts, "asked": asked, **self.ledger.facts()}

    def restore(self, facts: Mapping[str, Any], held: pa.Table | None) -> None:
        """Go on from `facts` and what was held."""
        self.counts |= facts["counts"]
        if self._schedule is not None and facts["asked"] is not None:
            self._schedule.asked = facts["asked"]
        self.ledger.restore(facts, held)

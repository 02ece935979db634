"""A stream in one process: micro-batches in, segments out, on a clock that is told; the same shards as on Spark."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from panewise.errors import InputError, SpecError
from panewise.kernel.arrivals import REASONS
from panewise.kernel.follow import Follow
from panewise.kernel.keys import codes
from panewise.kernel.pack import FINAL, OTHER, PROMISE, PROMISE_OF_KEY, ROW, TICK, Packer
from panewise.kernel.sequence import Layout
from panewise.kernel.windowshard import new_shard
from panewise.local.runner import Applied, apply_local
from panewise.local.source import whole_rows
from panewise.spec.aggregates import Aggregates
from panewise.spec.emit import FINAL as FINAL_ONLY
from panewise.spec.emit import emit as checked_emit
from panewise.spec.plan import PlanSpec
from panewise.spec.punctuate import Ordered, Passed, check_punctuation, per_key

if TYPE_CHECKING:
    from panewise.local.runner import Table

__all__ = ["LocalStream", "needs_punctuation", "tagged", "with_control"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LocalStream:
    """A plan over a stream, without Spark: feed it micro-batches, read what comes out.

    >>> import panewise as pw
    >>> plan = pw.threshold_frames("v > 1").at("t", pw.slack(2))
    >>> stream = LocalStream(plan)
    >>> _ = stream.feed(pa.table({"t": [3, 2, 1], "v": [0, 2, 2]}))
    >>> stream.feed(pa.table({"t": [7], "v": [0]})).column("segment").to_pylist()
    [{'id': 0, 'start': 1, 'end': 2, 'bounds': '[]'}]
    """

    def __init__(
        self,
        plan: PlanSpec,
        agg: Aggregates | None = None,
        *,
        emit: str = "final",
        fragment_every: Any = None,
        shards: int = 1,
    ) -> None:
        if plan.scheme.longest:
            raise SpecError(
                "`longest` (True) needs a finished stream: on an unbounded one a longer frame may always come. "
                "Leave it out, or use segments_local."
            )
        if plan.punctuation is None:
            raise SpecError(needs_punctuation())
        plan, *self._rest = plan.chain()
        check_punctuation(plan)
        self._options = {"emit": emit, "fragment_every": fragment_every}
        self._links: list[tuple[Follow, LocalStream]] = []
        self._passes = bool(self._rest) or isinstance(plan.punctuation, Passed)
        self.passed: tuple[Any, Any] = (None, None)
        """Up to where no segment to come starts, and ends."""
        shards = 1 if plan.one_sequence else shards
        sent = FINAL_ONLY if self._rest else checked_emit(emit, fragment_every)
        self._plan, self._calls, self._emit = plan, plan.asked(agg), sent
        self._shards = shards
        self._state: list[bytes | None] = [None] * shards
        self._layout: Layout | None = None
        self._elements: pa.Schema | None = None
        self._late: list[pa.Table] = []
        self.counts = dict.fromkeys(("rows", *REASONS, "segments", "parts"), 0)
        """What has happened so far: rows, late rows by reason, segments and parts sent."""
        self.open = self.waiting = self.state_bytes = 0

    @property
    def late(self) -> list[dict[str, Any]]:
        """The rows that broke a promise, each with its reason."""
        return [{"reason": row["reason"], **row["row"]} for table in self._late for row in table.to_pylist()]

    def feed(
        self,
        rows: Table | None = None,
        *,
        until: Any = None,
        clock: datetime | float | None = None,
        final: bool = False,
    ) -> pa.Table:
        """One micro-batch: rows, then a punctuation about all keys, a tick of the clock (seconds), or the end."""
        elements = self._read(rows, until, clock, final)
        assert self._layout is not None
        pages: dict[int, list[bytes]] = {}
        for owner, page in Packer(self._layout, self._shards).run(elements.to_batches()):
            pages.setdefault(owner, []).append(page)
        found, starts, ends = [], [], []
        self.open = self.waiting = self.state_bytes = 0
        for number in range(self._shards):
            shard = new_shard(self._layout, self._shards, self._state[number])
            outcome = shard.batch(pages.get(number, []))
            if self._passes:
                starts.append(shard.passed())
                ends.append(shard.passed(ends=True))
            self._state[number] = state = shard.state()
            self.state_bytes += len(state)
            if outcome.segments is not None:
                found.append(outcome.segments)
            if outcome.late is not None:
                self._late.append(outcome.late)
            for name in self.counts:
                self.counts[name] += outcome.counts[name]
            self.open += outcome.counts["open"]
            self.waiting += outcome.counts["waiting"]
        if self._passes:
            self.passed = (min(starts), min(ends))
        return self._then(pa.Table.from_batches(found, self._layout.emitter.schema), final)

    def _then(self, found: pa.Table, final: bool) -> pa.Table:
        """What the plans that follow make of segments, and of how far these have come."""
        passed = self.passed
        for i, following in enumerate(self._rest):
            if i == len(self._links):
                last = self._options if i == len(self._rest) - 1 else {}
                follow = Follow(following, found.schema)
                self._links.append((follow, LocalStream(follow.plan(Passed(0)), shards=self._shards, **last)))
            follow, stream = self._links[i]
            made = stream.feed(follow.rows(found), until=follow.until(passed), final=final)
            found, passed = follow.bounded(made), follow.passed(stream.passed)
        return found

    def finish(self) -> pa.Table:
        """The end of the stream: everything closes."""
        return self.feed(final=True)

    def _read(self, rows: Table | None, until: Any, clock: Any, final: bool) -> pa.Table:
        if rows is not None:
            applied = apply_local(self._plan, self._calls, rows, self._emit)
            if self._layout is not None and applied.layout != self._layout:
                raise InputError("`rows` has other types than the rows before. Cast its columns, or start anew.")
            self._layout = applied.layout
            elements = self._tagged(applied, rows)
            self._elements = elements.schema
        elif self._elements is None:
            raise InputError("`rows` (None): the first micro-batch tells what the columns are. Give an empty table.")
        else:
            elements = self._elements.empty_table()
        assert self._layout is not None and self._elements is not None
        return with_control(elements, until, clock, final)

    def _tagged(self, applied: Applied, table: Any) -> pa.Table:
        return tagged(self._plan, applied.rows, applied.promises, self._shards, table)


def with_control(elements: pa.Table, until: Any, clock: Any, final: bool) -> pa.Table:
    """Elements, then a punctuation about all keys, a tick of the clock, or the end."""
    control = []
    if until is not None:
        control.append({"kind": PROMISE, "at": until})
    if clock is not None:
        control.append({"kind": TICK, "clock": _micros(clock)})
    if final:
        control.append({"kind": FINAL})
    more = [pa.array([row.get(field.name) for row in control], field.type) for field in elements.schema]
    return pa.concat_tables([elements, pa.Table.from_arrays(more, schema=elements.schema)])


def tagged(
    plan: Ordered, rows: pa.Table, promises: pa.Array | None, shards: int, table: Any, others: pa.Array | None = None
) -> pa.Table:
    """Rows with their kinds and shards, and beside them the rows as they were."""
    kinds = np.full(len(rows), ROW, np.int8)
    if promises is not None:
        kinds[np.asarray(promises)] = PROMISE_OF_KEY if per_key(plan) else PROMISE
    if others is not None:
        kinds[np.asarray(others)] = OTHER
    keys = [rows.column(f"k{i}").combine_chunks() for i in range(len(plan.keys))]
    found, firsts = codes(keys, len(rows))
    named = zip(*(key.take(pa.array(firsts)).to_pylist() for key in keys), strict=True)
    hashed = [zlib.crc32(repr(key).encode()) % shards for key in named] if keys else [0] * len(firsts)
    owners = np.asarray(hashed, np.int32)[found] if len(rows) else np.empty(0, np.int32)
    more = {
        "kind": pa.array(kinds),
        "shard": pa.array(owners),
        "clock": pa.nulls(len(rows), pa.int64()),
    }
    if table is not None:
        more["row"] = whole_rows(table)
    for name, column in more.items():
        rows = rows.append_column(name, column)
    return rows


def needs_punctuation() -> str:
    """What a stream is refused with that does not say how late its rows may be."""
    return (
        "`punctuation` (None): a stream must say how it is known that rows have come, or no segment could ever close. "
        'Add it to `at`, such as .at("time", pw.slack("10 seconds")).'
    )


def _micros(clock: datetime | float) -> int:
    if isinstance(clock, datetime):
        zoned = clock if clock.tzinfo is not None else clock.replace(tzinfo=UTC)
        return (zoned - _EPOCH) // timedelta(microseconds=1)
    return round(clock * 1_000_000)

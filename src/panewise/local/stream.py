"""A stream in one process: micro-batches in, segments out, on a clock that is told; the same shards as on Spark."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.errors import InputError, SpecError, did_you_mean
from panewise.kernel.answers import ProdProgress, added, told
from panewise.kernel.arrivals import REASONS
from panewise.kernel.aside import ranges
from panewise.kernel.follow import Follow
from panewise.kernel.keys import codes
from panewise.kernel.ledger import check_measures
from panewise.kernel.pack import EARLY, FINAL, OTHER, PROD, PROMISE, PROMISE_OF_KEY, ROW, TICK, UNSURE, Packer
from panewise.kernel.page import Array, in_one
from panewise.kernel.prod import without_told
from panewise.kernel.sequence import Layout
from panewise.kernel.shard import Shard
from panewise.kernel.windows import grid_of
from panewise.kernel.windowshard import WindowShard, new_shard
from panewise.local.runner import Applied, apply_local
from panewise.local.source import whole_rows
from panewise.spec.aggregates import Aggregates
from panewise.spec.aside import checked_set_aside
from panewise.spec.emit import FINAL as FINAL_ONLY
from panewise.spec.emit import emit as checked_emit
from panewise.spec.frames import Windows
from panewise.spec.plan import PlanSpec
from panewise.spec.prod import first_of, later_of, on_grid
from panewise.spec.prod import prods as checked_prods
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

    Each micro-batch reads its state anew, as on Spark, and writes it; shards that are `lasting` save the time.
    """

    def __init__(
        self,
        plan: PlanSpec,
        agg: Aggregates | None = None,
        *,
        emit: str = "final",
        fragment_every: Any = None,
        shards: int = 1,
        prods: Any = None,
        accuracy: Any = None,
        lasting: bool = False,
        set_aside: Any = None,
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
        self.ranges: list[tuple[Any, Any]] = []
        """What is promised beyond that where rows are set aside: nothing to come ends after one and up to the other."""
        shards = 1 if plan.one_sequence else shards
        sent = FINAL_ONLY if self._rest else checked_emit(emit, fragment_every)
        self._plan, self._calls, self._emit = plan, plan.asked(agg), sent
        self._shards, self._given = shards, on_grid(checked_prods(prods, accuracy), (plan, *self._rest)[-1].scheme)
        if self._given is not None and self._given.stream is not None:
            raise SpecError(
                "`prods` (prods_from) is another stream, and here there is one. Give prods=True, and each of its rows "
                "as feed(prod=...)."
            )
        self._prods = first_of(self._given) if self._rest else self._given
        if self._prods is not None:
            check_measures(self._prods.accuracy, [name for name, _ in self._calls])
        self._set_aside = checked_set_aside(set_aside, plan.scheme, self._given)
        self._state: list[bytes | None] = [None] * shards
        self._lasting: list[Shard] | None = [] if lasting else None
        self._layout: Layout | None = None
        self._elements: pa.Schema | None = None
        self._late: list[pa.Table] = []
        self.counts = dict.fromkeys(("rows", *REASONS, "segments", "parts"), 0)
        """What has happened so far: rows, late rows by reason, segments and parts sent."""
        self.open = self.waiting = self.aside = self.state_bytes = 0
        """As of now: segments open, rows waiting, rows set aside; and how much is kept, but where shards last."""
        self._told = ProdProgress()

    @property
    def prods(self) -> ProdProgress:
        """How many prods there were, and how good their answers were so far; of the last of several plans."""
        if self._links:
            return self._links[-1][1].prods
        return self._told

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
        prod: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        aside: int | None = None,
    ) -> pa.Table:
        """One micro-batch: rows, then a punctuation about all keys, a tick of the clock (seconds), prods, or the end.

        A prod names what it asks for: {"until": 50}, {"sensor": 7}, both, or neither. So many rows that are set `aside`
        are processed after the new ones; if it is left out, as many as the plan says.
        """
        return self.take(self.read(rows), until=until, clock=clock, final=final, prod=prod, aside=aside)

    def read(self, rows: Table | None) -> pa.Table:
        """Rows as elements, of which `take` takes any slice."""
        if rows is not None:
            applied = apply_local(self._plan, self._calls, rows, self._emit, self._prods)
            layout = replace(applied.layout, set_aside=self._set_aside)
            if self._layout is not None and layout != self._layout:
                raise InputError("`rows` has other types than the rows before. Cast its columns, or start anew.")
            self._layout = layout
            elements = self._tagged(applied, rows)
            self._elements = elements.schema
            return elements
        if self._elements is None:
            raise InputError("`rows` (None): the first micro-batch tells what the columns are. Give an empty table.")
        return self._elements.empty_table()

    def take(
        self,
        elements: pa.Table,
        *,
        until: Any = None,
        clock: datetime | float | None = None,
        final: bool = False,
        prod: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        aside: int | None = None,
    ) -> pa.Table:
        """As `feed`, of rows that have been read."""
        return self._run(with_control(elements, until, clock, final, self._asked(prod)), final, aside)

    def _run(self, elements: pa.Table, final: bool, aside: int | None = None) -> pa.Table:
        assert self._layout is not None
        pages: dict[int, list[bytes]] = {}
        for owner, page in Packer(self._layout, self._shards).run(elements.to_batches()):
            pages.setdefault(owner, []).append(page)
        found, starts, ends, asked, figures, unsent, clock = [], [], [], None, [], [], -1
        self.open = self.waiting = self.aside = self.state_bytes = 0
        for number in range(self._shards):
            shard = self._shard(number)
            if shard.aside is not None:
                shard.aside.low = aside
            outcome = shard.batch(pages.get(number, []))
            clock = shard.punctuator.clock
            if self._passes or shard.aside is not None:
                starts.append(shard.passed())
                ends.append(shard.passed(ends=True))
            if isinstance(shard, WindowShard) and shard.aside is not None:
                unsent.append(shard.unsent())
            if self._lasting is None:
                self._state[number] = state = shard.state()
                self.state_bytes += len(state)
            asked = outcome.asked if asked is None else asked
            if shard.prodding is not None:
                figures.append(shard.prodding.figures(outcome.answered))
            if outcome.segments is not None:
                found.append(outcome.segments)
            if outcome.late is not None:
                self._late.append(outcome.late)
            for name in self.counts:
                self.counts[name] += outcome.counts[name]
            self.open += outcome.counts["open"]
            self.waiting += outcome.counts["waiting"]
            self.aside += outcome.counts["aside"]
        if figures:
            seen = told(added(figures, len(self._calls)), [name for name, _ in self._calls])
            self._told = replace(seen, unanswered=self._told.unanswered + seen.unanswered)
        if starts:
            self.passed = (min(starts), min(ends))
        if unsent:
            scheme, progress = self._plan.scheme, self._layout.progress
            assert isinstance(scheme, Windows)
            both = ranges(grid_of(scheme, progress), progress, unsent)
            self.ranges = [*zip(*(progress.bounds(each).to_pylist() for each in both), strict=True)]
        return self._then(pa.concat_tables(found or [self._layout.schema.empty_table()]), asked, final, clock)

    def _shard(self, number: int) -> Shard:
        """A shard as the micro-batch before has left it."""
        assert self._layout is not None
        if self._lasting is None:
            return new_shard(self._layout, self._shards, self._state[number])
        if number == len(self._lasting):
            self._lasting.append(new_shard(self._layout, self._shards))
        return self._lasting[number]

    def sets_aside(self, elements: pa.Table) -> Array:
        """Which of these elements would be set aside, if they came now."""
        kinds = np.asarray(elements.column("kind").to_numpy())
        wanted = (kinds == ROW) & np.asarray(elements.column("at").is_valid().to_numpy())
        found, some = np.zeros(len(elements), bool), elements.filter(pa.array(wanted))
        for number in range(self._shards):
            shard = self._shard(number)
            if isinstance(shard, WindowShard):
                found[wanted] |= shard.sets_aside(some)
        return found

    def prod(self, until: Any = None, **key: Any) -> pa.Table:
        """Ask for what is open: what ends up to `until`, of these keys; an early answer for each."""
        return self.feed(prod={"until": until, **key})

    def _asked(self, prod: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
        """Prods as elements."""
        asked = [] if prod is None else [prod] if isinstance(prod, Mapping) else prod
        if not isinstance(asked, (list, tuple)) or not all(isinstance(each, Mapping) for each in asked):
            raise InputError(
                f"`prod` ({prod!r}) must say what it asks for. Give a dict, such as {{'until': 50}}; or some."
            )
        if asked and self._prods is None:
            raise SpecError("`prod`: the stream was not told that there are any. Give it `prods=True`.")
        found = []
        for each in asked:
            for name in each:
                if name != "until" and name not in self._plan.keys:
                    raise InputError(f"`prod` ({name!r}): no such key. {did_you_mean(name, self._plan.keys)}")
            named = {f"k{i}": each.get(key) for i, key in enumerate(self._plan.keys)}
            found.append({"kind": PROD, "at": each.get("until"), **named})
        return found

    def _then(self, found: pa.Table, asked: pa.Table | None, final: bool, clock: int) -> pa.Table:
        """What the plans that follow make of segments, and of how far these have come."""
        passed, prods = self.passed, self._prods_of(asked)
        for i, following in enumerate(self._rest):
            plain, early, unsure = found, found.slice(0, 0), found.slice(0, 0)
            if self._prods is not None:
                plain, early, unsure = (
                    without_told(found, *which) for which in (("final",), ("early",), ("early", False))
                )
            if i == len(self._links):
                last = i == len(self._rest) - 1
                follow = Follow(following, plain.schema)
                options = {**(self._options if last else {}), "prods": self._given and later_of(self._given, last)}
                options |= {"shards": self._shards, "lasting": self._lasting is not None}
                self._links.append((follow, LocalStream(follow.plan(Passed(0)), **options)))
            follow, stream = self._links[i]
            mine = [{**prod, "until": follow.asked(prod["until"])} for prod in prods]
            apart = {EARLY: follow.rows(early), UNSURE: follow.rows(unsure)}
            made = stream._feed_early(follow.rows(plain), apart, follow.until(passed), final, mine, clock)
            found, passed = follow.bounded(made), follow.passed(stream.passed)
        return found

    def _prods_of(self, asked: pa.Table | None) -> list[dict[str, Any]]:
        """Prods that were due, by the names of keys."""
        names = {"at": "until", **{f"k{i}": key for i, key in enumerate(self._plan.keys)}}
        due = [] if asked is None else asked.to_pylist()
        return [{names[name]: value for name, value in prod.items()} for prod in due]

    def _feed_early(
        self, rows: pa.Table, early: Mapping[int, pa.Table], until: Any, final: bool, prods: list[Any], clock: int
    ) -> pa.Table:
        """Feed segments of the plan before, final ones and, by their kinds, such as are for early answers only."""
        keys = (*self._plan.keys, "until")
        asked = self._asked([{name: prod[name] for name in prod if name in keys} for prod in prods])
        elements = with_control(self.read(rows), until, None if clock < 0 else clock / 1_000_000, final, asked)
        for kind, apart in early.items():
            if len(apart):
                assert self._elements is not None
                more = self._tagged(apply_local(self._plan, self._calls, apart, self._emit, self._prods), apart)
                kinds = pa.array(np.full(len(more), kind, np.int8))
                more = more.set_column(more.column_names.index("kind"), "kind", kinds)
                elements = pa.concat_tables([elements, more.cast(elements.schema)])
        return self._run(elements, final)

    def finish(self) -> pa.Table:
        """The end of the stream: everything closes."""
        return self.feed(final=True)

    def _tagged(self, applied: Applied, table: Any) -> pa.Table:
        found = tagged(self._plan, applied.rows, applied.promises, self._shards, table)
        if applied.prods is None or self._prods is None or self._prods.in_band is None:
            return found
        kinds = pc.if_else(applied.prods, pa.scalar(PROD, pa.int8()), in_one(found.column("kind")))
        found = found.set_column(found.column_names.index("kind"), "kind", kinds)
        if self._prods.in_band.per_key:
            return found
        for i in range(len(self._plan.keys)):
            place, column = found.column_names.index(f"k{i}"), in_one(found.column(f"k{i}"))
            found = found.set_column(place, f"k{i}", pc.if_else(applied.prods, pa.scalar(None, column.type), column))
        return found


def with_control(
    elements: pa.Table, until: Any, clock: Any, final: bool, asked: Sequence[Mapping[str, Any]] = ()
) -> pa.Table:
    """Elements, then a punctuation about all keys, a tick of the clock, prods, or the end."""
    control: list[Mapping[str, Any]] = [*asked]
    if until is not None:
        control.append({"kind": PROMISE, "at": until})
    if clock is not None:
        control.append({"kind": TICK, "clock": _micros(clock)})
    if final:
        control.append({"kind": FINAL})
    more = [_control(field, [row.get(field.name) for row in control]) for field in elements.schema]
    return pa.concat_tables([elements, pa.Table.from_arrays(more, schema=elements.schema)])


def _control(field: pa.Field, values: list[Any]) -> pa.Array:
    made = [_typed(field, value) for value in values]
    return pa.concat_arrays(made) if made else pa.array([], field.type)


def _typed(field: pa.Field, value: Any) -> pa.Array:
    """A value of a control element, which Arrow would round, or take for so many microseconds."""
    kind, found = field.type, None
    number = isinstance(value, Real)
    fits = value == value and not (isinstance(value, bool) and field.name == "at")
    fits &= not (number and (pa.types.is_temporal(kind) or (pa.types.is_integer(kind) and value % 1 != 0)))
    with suppress(pa.ArrowException, ValueError, TypeError, OverflowError):
        found = pa.array([value], kind) if fits else None
    if found is None:
        name = "`until`" if field.name == "at" else "`prod`"
        raise InputError(f"{name} ({value!r}) must be of type {kind}, as the rows have it. Give such a one.")
    return found


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

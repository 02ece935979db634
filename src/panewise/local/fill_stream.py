"""A fill of streams in one process: micro-batches of both sides in, filled segments out; shards as on Spark."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from panewise.errors import InputError, SpecError
from panewise.kernel.arrivals import REASONS
from panewise.kernel.fill import FillLayout
from panewise.kernel.filler import FILL_COUNTS
from panewise.kernel.fillshard import FillShard, FillSpec
from panewise.kernel.pack import Packer
from panewise.kernel.progress import promised
from panewise.local.fill import apply_filling
from panewise.local.runner import Applied, apply_local
from panewise.local.source import read_columns
from panewise.local.stream import needs_punctuation, tagged, with_control
from panewise.spec.aggregates import Aggregate, Aggregates, Calls, aggregates
from panewise.spec.emit import emit as checked_emit
from panewise.spec.fill import Filling, check_parts, check_windows
from panewise.spec.plan import PlanSpec
from panewise.spec.punctuate import check_punctuation

if TYPE_CHECKING:
    from panewise.local.runner import Table

__all__ = ["LocalFill"]

_COUNT = "panewise n"


class LocalFill:
    """A plan whose segments are filled from a stream, without Spark.

    `framing` gives the types of the rows that draw segments, or segments that were found before.

    >>> import panewise as pw
    >>> from panewise.spec.fill import filling
    >>> hot = pw.threshold_frames("v > 1").at("t", pw.slack(0))
    >>> rows, visits = pa.table({"t": [1, 2, 3], "v": [2, 2, 0]}), pa.table({"t": [2, 5]})
    >>> fill = LocalFill(hot, filling((), "t", punctuation=pw.slack(0)), {"n": "count(*)"}, rows[:0], visits[:0])
    >>> fill.feed(rows, visits, until=3).column("n").to_pylist()
    [1]
    """

    def __init__(
        self,
        plan: PlanSpec,
        filling: Filling,
        agg: Aggregates | None,
        framing: Table,
        rows: Table,
        *,
        keep_empty: bool = False,
        emit: str = "final",
        fragment_every: Any = None,
        shards: int = 1,
    ) -> None:
        if emit == "updates":
            raise SpecError('`emit` ("updates") sends a segment again and again, and a row fills it once.')
        self._plan, self._filling, self._emit = plan, filling, checked_emit(emit, fragment_every)
        if emit == "fragments":
            check_parts(filling)
        if filling.punctuation is None:
            raise SpecError(needs_punctuation())
        self._keep_empty, self._whole, self._shards = keep_empty, agg is None, shards
        calls = aggregates(agg)
        self._calls: Calls = calls if self._whole else (*calls, (_COUNT, Aggregate("count", None)))
        stored = isinstance(framing, pa.Table) and "segment" in framing.column_names
        self._framing: Applied | None = None
        if not stored:
            if plan.punctuation is None:
                raise SpecError(needs_punctuation())
            check_punctuation(plan)
            check_windows(plan, live=True)
            self._framing = apply_local(plan, (), framing, self._emit)
        self._schema: pa.Schema = framing.schema if self._framing is None else self._framing.layout.emitter.schema
        first, layout = self._applied(rows)
        layout_of_framing = None if self._framing is None else self._framing.layout
        self._layout: FillLayout = layout
        at = read_columns(rows, (filling.time,), ()).at(filling.time)
        # whether segments are bounded by days, and rows are not
        self._timed = layout.progress.unit == "days" and pa.types.is_timestamp(at.type)
        self._elements = self._tagged(first)[:0]
        self._of_framing = None if self._framing is None else self._framed(framing)[:0]
        self._spec = FillSpec(layout_of_framing, (layout,), plan.keys, shards, self._whole)
        self._stores: list[dict[str, bytes]] = [{} for _ in range(shards)]
        self._states: list[bytes | None] = [None] * shards
        self.late: list[dict[str, Any]] = []
        """Rows that broke a promise, of either side, each with its reason."""
        self.counts: dict[str, int] = {}
        """Rows and segments that wait, as of the last micro-batch; and its late rows."""
        if stored:
            self._hold(framing)

    def _framed(self, table: Table) -> pa.Table:
        applied = apply_local(self._plan, (), table, self._emit)
        return tagged(self._plan, applied.rows, applied.promises, self._shards, table)

    def _applied(self, table: Table) -> tuple[pa.Table, FillLayout]:
        return apply_filling(
            self._filling, self._calls, table, self._schema, self._plan.keys, with_rows=True, others=True
        )

    def _tagged(self, rows: pa.Table) -> pa.Table:
        marks = {name: rows.column(name).combine_chunks() for name in ("promise", "other") if name in rows.column_names}
        plain = rows.drop_columns(list(marks))
        return tagged(self._filling, plain, marks.get("promise"), self._shards, None, marks.get("other"))

    def _hold(self, segments: pa.Table) -> None:
        from panewise.kernel.bundle import dump

        named = {f"k{i}": segments.column(key) for i, key in enumerate(self._plan.keys)}
        keys = pa.table(named) if named else pa.table({"none": pa.nulls(len(segments))})
        owners = tagged(self._filling, keys, None, self._shards, None).column("shard").to_numpy()
        for number in range(self._shards):
            shard = FillShard(self._spec, self._stores[number])
            shard.hold([dump({"segments": segments.filter(pa.array(owners == number))}, {})])
            self._states[number] = shard.state()

    def feed(
        self,
        framing: Table | None = None,
        filling: Table | None = None,
        *,
        framing_until: Any = None,
        filling_until: Any = None,
        until: Any = None,
        clock: datetime | float | None = None,
        final: bool = False,
    ) -> pa.Table:
        """One micro-batch: rows of both sides, then punctuations about one of them, or both; a tick; or the end."""
        pages: list[list[bytes]] = [[] for _ in range(self._shards)]
        if self._of_framing is not None:
            assert self._framing is not None
            rows = self._of_framing if framing is None else self._framed(framing)
            told = with_control(rows, until if framing_until is None else framing_until, clock, final)
            for owner, page in Packer(self._framing.layout, self._shards).run(told.to_batches()):
                pages[owner].append(page)
        elif framing is not None:
            raise InputError("`framing`: the segments were given at the start. Leave it out.")
        elements = self._elements
        if filling is not None:
            applied, layout = self._applied(filling)
            if layout != self._layout:
                raise InputError("`filling` has other types than the rows before. Cast its columns, or start anew.")
            elements = self._tagged(applied)
        told = with_control(elements, self._promised(until if filling_until is None else filling_until), clock, final)
        for owner, page in Packer(self._layout, self._shards, side=0).run(told.to_batches()):
            pages[owner].append(page)
        return self._run(pages)

    def _promised(self, until: Any) -> Any:
        """A promise about the rows that fill, as their segments are bounded."""
        if until is None or not self._timed:
            return until
        at = datetime(until.year, until.month, until.day) if not isinstance(until, datetime) else until
        return promised(pa.array([at]), pa.date32())[0].as_py()

    def _run(self, pages: list[list[bytes]]) -> pa.Table:
        found = []
        counts: dict[str, int] = {}
        for number in range(self._shards):
            shard = FillShard(self._spec, self._stores[number], self._states[number])
            outcome = shard.batch(pages[number])
            self._states[number] = shard.state()
            if outcome.found is not None:
                found.append(outcome.found)
            for name in (*FILL_COUNTS, *(f"filling_{reason}" for reason in REASONS)):
                counts[name] = counts.get(name, 0) + outcome.counts[name]
            for table in ([outcome.late] if outcome.late is not None else []) + [late for _, late in outcome.late_of]:
                self.late += [{"reason": row["reason"], **row["row"]} for row in table.to_pylist()]
        self.counts = counts
        whole = pa.concat_tables([self._result().empty_table(), *found], promote_options="default")
        if self._whole:
            return whole
        if not self._keep_empty:
            import pyarrow.compute as pc

            whole = whole.filter(pc.greater(whole.column(_COUNT), 0))
        return whole.drop_columns([_COUNT])

    def _result(self) -> pa.Schema:
        if self._whole:
            return self._schema.append(self._elements.schema.field("row"))
        outputs = [pa.field(output.name, output.type) for output in self._layout.aggregation.outputs]
        return pa.schema([*self._schema, *outputs])

    def finish(self) -> pa.Table:
        """The end of both streams: every segment is complete."""
        return self.feed(final=True)

"""Fill of a stream, within a shard: segments wait for rows, rows wait for segments, progress lets go of both.

In one micro-batch: rows of each source that break a promise are set aside; new segments take rows that wait and rows
that are new, waiting segments take new rows; a segment whose reach every source has passed is complete; a row that no
segment to come can reach is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel.arrivals import REASONS, Arrivals
from panewise.kernel.bundle import Facts
from panewise.kernel.chunks import BESIDE, SegmentChunks, Store, WaitingRows
from panewise.kernel.fill import FillLayout, Tallies, located, pairs, reach, sorted_rows
from panewise.kernel.keys import KeyTable
from panewise.kernel.page import Array
from panewise.kernel.punctuate import Seen

__all__ = ["FILL_COUNTS", "FILL_TOTALS", "Filled", "Filler", "Given"]

_SLOT = f"{BESIDE}slot"

FILL_TOTALS = ("filling_rows", *(f"filling_{reason}" for reason in REASONS), "filled")
"""What is counted from the first micro-batch on: rows of all sources, late ones by reason, segments filled."""

FILL_COUNTS = ("rows_waiting", "segments_waiting")
"""What is counted as of now."""


@dataclass(frozen=True)
class Given:
    """What a source brought in a micro-batch: what its tasks saw, rows and promises about keys, as pages."""

    seen: Sequence[Seen]
    rows: Sequence[tuple[pa.Table, pa.Table]]
    promises: Sequence[tuple[pa.Table, pa.Table]]


@dataclass(frozen=True)
class Filled:
    """What came of it: segments that are complete with their aggregates, or rows with their segments; late rows."""

    segments: pa.Table | None
    late: list[tuple[int, pa.Table]]
    """By source."""


@dataclass(frozen=True)
class _Fresh:
    """New rows of one source, sorted by slot and `at`."""

    rows: pa.Table
    slots: Array
    at: Array
    offsets: Array

    @property
    def span(self) -> tuple[Any, Any] | None:
        return (self.at.min(), self.at.max()) if len(self.at) else None


class Filler:
    """The fill of one shard: segments of one framing, rows of one or several sources."""

    def __init__(self, layouts: Sequence[FillLayout], keys: Sequence[str], store: Store, whole_rows: bool) -> None:
        self._layouts, self._keys, self._store, self._whole = layouts, tuple(keys), store, whole_rows
        self._progress = layouts[0].progress
        self._table = KeyTable(layouts[0].key_types)
        self.sides = [Arrivals(layout.filling, self._progress) for layout in layouts]
        dtype = self._progress.dtype
        self._rows = [WaitingRows(store, f"r{i}:", WaitingRows.empty(dtype)) for i in range(len(layouts))]
        self._segments = SegmentChunks(store, "s:", SegmentChunks.empty(dtype, len(layouts)))
        self.totals = dict.fromkeys(FILL_TOTALS, 0)

    # ---- state

    def state(self) -> tuple[dict[str, pa.Table], Facts]:
        """All but the chunks."""
        tables = {"fill_segments": self._segments.index}
        if self._table.columns:
            tables["fill_keys"] = pa.table({f"k{i}": key for i, key in enumerate(self._table.columns)})
        sides = []
        for i, (side, rows) in enumerate(zip(self.sides, self._rows, strict=True)):
            tables[f"fill_rows{i}"] = rows.index
            tables[f"fill_until{i}"] = pa.table({"until": pa.array(side.until)})
            if side.punctuator.sources is not None:
                tables[f"fill_sources{i}"] = side.punctuator.sources
            sides.append({"progress": side.punctuator.facts(), "number": rows.number})
        facts = {"sides": sides, "number": self._segments.number, "totals": self.totals, "keys": len(self._table)}
        return tables, facts

    def restore(self, tables: Mapping[str, pa.Table], facts: Facts) -> None:
        """Go on from `state`."""
        if "fill_keys" in tables:
            self._table.restore([column.combine_chunks() for column in tables["fill_keys"].columns])
        else:
            self._table.size = facts["keys"]
        self._segments.index, self._segments.number = tables["fill_segments"], facts["number"]
        for i, (side, rows, told) in enumerate(zip(self.sides, self._rows, facts["sides"], strict=True)):
            rows.index, rows.number = tables[f"fill_rows{i}"], told["number"]
            side.until = np.array(tables[f"fill_until{i}"].column("until").to_numpy())
            side.punctuator.restore(told["progress"], tables.get(f"fill_sources{i}"))
        self.totals |= facts["totals"]

    def counts(self) -> dict[str, int]:
        """Rows and segments that wait."""
        return {"rows_waiting": sum(map(len, self._rows)), "segments_waiting": len(self._segments)}

    @property
    def size(self) -> int:
        """About how many bytes the chunks are."""
        return self._segments.size + sum(rows.size for rows in self._rows)

    # ---- a micro-batch

    def step(
        self,
        segments: pa.Table | None,
        promised: tuple[Sequence[pa.Array], Array] | None,
        beyond: Any,
        given: Sequence[Given],
        watermarks: Sequence[Any],
    ) -> Filled:
        """Take new segments, how far their keys are promised (others: `beyond`), and what the sources brought."""
        late: list[tuple[int, pa.Table]] = []
        fresh = [self._arrived(i, each, late, watermarks[i]) for i, each in enumerate(given)]
        owners = np.empty(0, np.int64)
        if segments is not None and len(segments):
            owners = self._table.slots([segments.column(name).combine_chunks() for name in self._keys], len(segments))
        else:
            segments = None
        known = np.empty(0, np.int64)
        if promised is not None:
            known = self._table.slots(promised[0], len(promised[1]))
        count = len(self._table)
        for side in self.sides:
            side.grow(count)
        limit = np.full(count, beyond, self._progress.dtype)
        if promised is not None:
            limit[known] = promised[1]
        # now that all keys are known, rows lie in as many groups
        fresh = [_regrouped(each, count) for each in fresh]
        out: list[pa.Table] = []
        self._revisit(fresh, out)
        if segments is not None:
            self._welcome(segments, owners, fresh, out)
        for i, each in enumerate(fresh):
            self._keep(i, each, limit)
        found = pa.concat_tables(out, promote_options="default") if out else None
        self.totals["filled"] += 0 if found is None or self._whole else len(found)
        return Filled(found, late)

    def hold(self, segments: pa.Table) -> None:
        """Take segments that were found before: rows are still to come."""
        owners = self._table.slots([segments.column(name).combine_chunks() for name in self._keys], len(segments))
        for side in self.sides:
            side.grow(len(self._table))
        self._put(self._extended(segments, owners))

    def _arrived(self, i: int, given: Given, late: list[tuple[int, pa.Table]], watermark: Any) -> _Fresh | None:
        """The rows of a source that keep its promises, sorted; then its promises hold."""
        side = self.sides[i]
        before = side.punctuator.until
        rows, slots = self._gathered(given.rows, side)
        at = np.empty(0, self._progress.dtype)
        counts = dict.fromkeys(("rows", *REASONS), 0)
        if rows is not None:
            counts["rows"] = len(rows)
            rows, slots, aside = side.without_late(rows, slots, before, counts)
            if aside is not None:
                late.append((i, aside))
            at = side.numbers(rows)
        for name, number in counts.items():
            self.totals[f"filling_{name}"] += number
        side.punctuator.take(given.seen, watermark)
        promises, about = self._gathered(given.promises, side)
        if promises is not None:
            side.promise(promises, about)
        side.advance(slots, at)
        if rows is None or not len(rows):
            return None
        if "row" in rows.column_names and not self._whole:
            rows = rows.drop_columns(["row"])
        order, offsets = sorted_rows(slots, at, len(self._table))
        if order is not None:
            rows, slots, at = rows.take(pa.array(order)), slots[order], at[order]
        return _Fresh(rows, slots, at, offsets)

    def _gathered(self, pages: Sequence[tuple[pa.Table, pa.Table]], side: Arrivals) -> tuple[pa.Table | None, Array]:
        if not pages:
            return None, np.empty(0, np.int64)
        keys = pa.concat_tables([keys for keys, _ in pages])
        named = [keys.column(i).combine_chunks() for i in range(len(self._keys))]
        slots = np.repeat(self._table.slots(named, len(keys)), np.asarray(keys.column("n").to_numpy()))
        side.grow(len(self._table))
        return pa.concat_tables([rows for _, rows in pages], promote_options="default"), slots

    def _extended(self, segments: pa.Table, owners: Array) -> pa.Table:
        """Segments with their slots, their reach in each source, and empty tallies."""
        table = segments.append_column(_SLOT, pa.array(owners))
        for i, layout in enumerate(self._layouts):
            lo, hi = reach(layout, segments)
            table = table.append_column(f"{BESIDE}lo{i}", pa.array(lo)).append_column(f"{BESIDE}hi{i}", pa.array(hi))
            table = _with_cells(table, i, Tallies.empty(len(segments), layout.aggregation))
        return table

    def _revisit(self, fresh: Sequence[_Fresh | None], out: list[pa.Table]) -> None:
        """Waiting segments take new rows; those that are complete go."""
        spans = [None if each is None else each.span for each in fresh]
        furthest = max(np.max(side.until, initial=side.punctuator.until) for side in self.sides)
        for number, table in self._segments.touched(spans, furthest):
            for i, each in enumerate(fresh):
                if each is not None:
                    table = self._take(table, i, each, out)
            table = self._completed(table, out)
            if len(table):
                self._segments.write(number, table)

    def _welcome(self, segments: pa.Table, owners: Array, fresh: Sequence[_Fresh | None], out: list[pa.Table]) -> None:
        """New segments take rows that wait and rows that are new."""
        table = self._extended(segments, owners)
        for i, each in enumerate(fresh):
            lo, hi = _bounds(table, i)
            for waiting in self._rows[i].within(owners, lo, hi, len(self._table)):
                slots, at = (np.asarray(waiting.column(name).to_numpy()) for name in ("slot", "number"))
                _, offsets = sorted_rows(slots, at, len(self._table))
                held = _Fresh(waiting.drop_columns(["slot", "number"]), slots, at, offsets)
                table = self._take(table, i, held, out)
            if each is not None:
                table = self._take(table, i, each, out)
        self._put(self._completed(table, out))

    def _put(self, table: pa.Table) -> None:
        if len(table):
            bounds = [_bounds(table, i) for i in range(len(self._layouts))]
            self._segments.add(table, [lo for lo, _ in bounds], [hi for _, hi in bounds])

    def _take(self, table: pa.Table, i: int, rows: _Fresh, out: list[pa.Table]) -> pa.Table:
        """Segments with the rows that lie in them added."""
        layout = self._layouts[i]
        owners = np.asarray(table.column(_SLOT).to_numpy())
        lo, hi = _bounds(table, i)
        first, last = located(owners, lo, hi, rows.offsets, rows.at)
        if not (last > first).any():
            return table
        if self._whole:
            owner, taken = pairs(first, last)
            own = self._own(table).take(pa.array(owner))
            out.append(own.append_column("row", rows.rows.column("row").take(pa.array(taken))))
            return table
        tallies = _cells(table, i, layout)
        tallies.add(first, last, layout.inputs(rows.rows), rows.at)
        return _with_cells(table, i, tallies)

    def _completed(self, table: pa.Table, out: list[pa.Table]) -> pa.Table:
        """The segments that rows may still enter; the others are complete."""
        owners = np.asarray(table.column(_SLOT).to_numpy())
        done = np.ones(len(table), bool)
        for i, side in enumerate(self.sides):
            done &= _bounds(table, i)[1] <= side.until[owners]
        if not done.any():
            return table
        if not self._whole:
            ready = table.filter(pa.array(done)).combine_chunks()
            found = self._own(ready)
            for i, layout in enumerate(self._layouts):
                results = _cells(ready, i, layout).results()
                for output, result in zip(layout.aggregation.outputs, results, strict=True):
                    found = found.append_column(output.name, result)
            out.append(found)
        return table.filter(pa.array(~done))

    def _own(self, table: pa.Table) -> pa.Table:
        return table.drop_columns([name for name in table.column_names if name.startswith(BESIDE)])

    def _keep(self, i: int, fresh: _Fresh | None, limit: Array) -> None:
        """Let go of rows that no segment to come can reach; the new ones that one can wait."""
        progress, by_start = self._progress, self._layouts[i].moves()[0]
        bound = limit.copy()
        some = (limit > progress.nothing) & (limit < progress.everything)
        # a segment starts just after the limit, or at the next instant: once moved, real numbers may be the same
        at_next = progress.moved(progress.above(limit[some]), by_start)
        bound[some] = np.minimum(progress.moved(limit[some], by_start), progress.below(at_next))
        self._rows[i].let_go(bound)
        if fresh is None:
            return
        stays = fresh.at > bound[fresh.slots]
        if stays.any():
            self._rows[i].add(fresh.rows.filter(pa.array(stays)), fresh.slots[stays], fresh.at[stays], bound)


def _regrouped(fresh: _Fresh | None, count: int) -> _Fresh | None:
    if fresh is None:
        return None
    offsets = np.full(count + 1, fresh.offsets[-1])
    offsets[: len(fresh.offsets)] = fresh.offsets
    return _Fresh(fresh.rows, fresh.slots, fresh.at, offsets)


def _bounds(table: pa.Table, i: int) -> tuple[Array, Array]:
    lo, hi = (np.asarray(table.column(f"{BESIDE}{name}{i}").to_numpy()) for name in ("lo", "hi"))
    return lo, hi


def _cells(table: pa.Table, i: int, layout: FillLayout) -> Tallies:
    aggregation = layout.aggregation
    return Tallies.read({n: table.column(f"{BESIDE}{n}{i}") for n in Tallies.names(aggregation)}, aggregation)


def _with_cells(table: pa.Table, i: int, tallies: Tallies) -> pa.Table:
    for name, column in tallies.columns().items():
        named = f"{BESIDE}{name}{i}"
        if named in table.column_names:
            table = table.set_column(table.column_names.index(named), named, column)
        else:
            table = table.append_column(named, column)
    return table

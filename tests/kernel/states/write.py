"""Streams that stop midway, and their state at that moment, kept for every version that was ever in use.

Each story is fed to one shard: a few micro-batches, then its state, then the rest. Run this file to keep the state and
what came of the rest, for each version of the state (`panewise.kernel.state.VERSION`). What was kept once stays:

    PYTHONPATH=tests .venv/bin/python tests/kernel/states/write.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import panewise as pw
from conformance.schemes import Doubling
from panewise.kernel.pack import FINAL, PROMISE, PROMISE_OF_KEY, ROW, TICK, Packer
from panewise.kernel.sequence import Layout
from panewise.kernel.shard import Outcome, Shard
from panewise.kernel.state import VERSION
from panewise.kernel.windowshard import new_shard
from panewise.local.runner import apply_local
from panewise.spec.aggregates import aggregates
from panewise.spec.emit import emit
from panewise.spec.punctuate import InBand, per_key

__all__ = ["FOLDER", "STORIES", "Batch", "Story", "plain"]

FOLDER = Path(__file__).parent
AGG = {
    "n": "count(*)",
    "there": "count(v)",
    "total": "sum(v)",
    "whole": "sum(i)",
    "low": "min(v)",
    "high": "max(i)",
    "mean": "avg(v)",
    "spread": "stddev(v)",
    "head": "first(v)",
    "tail": "last(i)",
}
VALUES = {
    "n": "count(*)",
    "sites": "count(distinct site)",
    "about": "approx_count_distinct(i)",
    "middle": "median(v)",
    "near": "approx_percentile(v, 0.9)",
    "own": "conformance.schemes:Span(v)",
}
FIELDS = {"k": pa.string(), "v": pa.float64(), "i": pa.int64(), "c": pa.bool_(), "d": pa.bool_(), "site": pa.string()}


@dataclass(frozen=True)
class Batch:
    """A micro-batch: rows, a tick of the clock in seconds, a punctuation, the end."""

    rows: pa.Table
    clock: int | None = None
    until: Any = None
    final: bool = False


@dataclass(frozen=True)
class Story:
    """A plan and the micro-batches that it is fed, before its state is taken and after."""

    plan: pw.Plan
    before: Sequence[Batch]
    after: Sequence[Batch]
    agg: Any = None
    emit: str = "final"
    late: bool = False

    @cached_property
    def layout(self) -> Layout:
        return self._applied(self.before[0]).layout

    def _applied(self, batch: Batch) -> Any:
        return apply_local(self.plan, aggregates(self.agg), batch.rows, emit(self.emit))

    def shard(self, state: bytes | None = None) -> Shard:
        return new_shard(self.layout, 1, state)

    def feed(self, shard: Shard, batch: Batch) -> Outcome:
        return shard.batch([page for _, page in Packer(self.layout, 1).run(self._elements(batch).to_batches())])

    def told(self, shard: Shard, batches: Sequence[Batch]) -> list[dict[str, Any]]:
        """What comes of micro-batches, as JSON has it."""
        return [plain(self.feed(shard, batch)) for batch in batches]

    def table(self) -> pa.Table:
        """All rows."""
        return pa.concat_tables([batch.rows for batch in (*self.before, *self.after)])

    def _elements(self, batch: Batch) -> pa.Table:
        """What pack is given: rows with their kinds, then what else the micro-batch says."""
        applied = self._applied(batch)
        kinds = np.full(len(batch.rows), ROW, np.int8)
        if isinstance(self.plan.punctuation, InBand):
            kinds[np.asarray(applied.promises)] = PROMISE_OF_KEY if per_key(self.plan) else PROMISE
        rows = applied.rows.append_column("kind", pa.array(kinds))
        rows = rows.append_column("shard", pa.array(np.zeros(len(kinds), np.int32)))
        rows = rows.append_column("clock", pa.nulls(len(kinds), pa.int64()))
        if self.late:
            row = pa.StructArray.from_arrays([c.combine_chunks() for c in batch.rows.columns], batch.rows.column_names)
            rows = rows.append_column("row", row)
        said: list[dict[str, Any]] = []
        if batch.clock is not None:
            said.append({"kind": TICK, "clock": batch.clock * 1_000_000})
        if batch.until is not None:
            said.append({"kind": PROMISE, "at": batch.until})
        if batch.final:
            said.append({"kind": FINAL})
        more = [pa.array([row.get(field.name) for row in said], field.type) for field in rows.schema]
        return pa.concat_tables([rows, pa.Table.from_arrays(more, schema=rows.schema)])


def plain(outcome: Outcome) -> dict[str, Any]:
    """An outcome as it comes back from JSON."""
    segments = [] if outcome.segments is None else outcome.segments.to_pylist()
    late = [] if outcome.late is None else outcome.late.to_pylist()
    told = {"segments": segments, "late": late, "counts": outcome.counts}
    return json.loads(json.dumps(told, default=str))


# ---- rows: twenty times of two keys, disordered within five, so that some wait wherever the stream is cut

_VALUES = [1, 2, 4, 4.5, 7, 7.5, None, 7, 3, 0.5, 1, 1.5, 6, 8, 9, None, 9.5, 2, 2, 1]
_START = datetime(2024, 1, 1, tzinfo=UTC)


def _rows(first: int, last: int, time: str = "whole") -> pa.Table:
    made = []
    for five in range(first, last, 5):
        for t in (five + 3, five + 1, five, five + 4, five + 2):
            for k in ("a", "b"):
                n = t + 3 * (k == "b")
                v = _VALUES[n % 20]
                made.append(
                    {
                        "k": k, "t": t, "v": v, "i": n * n % 7, "c": None if v is None else v > 2, "d": n % 7 == 0,
                        "site": "east" if n % 3 else "west",
                    }
                )  # fmt: skip
    kinds = {"whole": pa.int64(), "real": pa.float64(), "micros": pa.timestamp("us", "UTC")}
    for row in made:
        if time == "real":
            row["t"] += 0.25
        elif time == "micros":
            row["t"] = _START + timedelta(seconds=row["t"])
    return pa.Table.from_pylist(made, pa.schema({**FIELDS, "t": kinds[time]}))


def _in_fives(first: int, last: int, time: str = "whole") -> list[Batch]:
    return [Batch(_rows(n, n + 5, time)) for n in range(first, last, 5)]


def _ends(batches: list[Batch], **others: Any) -> list[Batch]:
    return [*batches, Batch(batches[0].rows.slice(0, 0), final=True, **others)]


def _story(plan: pw.Plan, punctuation: Any, time: str = "whole", **options: Any) -> Story:
    plan = plan.by("k").at("t", punctuation)
    return Story(plan, _in_fives(0, 15, time), _ends(_in_fives(15, 40, time)), **options)


def _promised() -> Story:
    """Promises of single keys come in the data: `a` is told more often than `b`."""
    plan = pw.aggregate_frames("sum(v)", reaches=15).by("k").at("t", pw.in_band("site = 'mark'", per_key=True))

    def marked(batch: Batch, until: int, keys: str) -> Batch:
        marks = [{"k": k, "t": until, "site": "mark"} for k in keys]
        return Batch(pa.concat_tables([batch.rows, pa.Table.from_pylist(marks, batch.rows.schema)]))

    batches = [
        marked(batch, 5 * n + 4, "ab" if n % 3 == 0 else "a" if n % 3 == 1 else "")
        for n, batch in enumerate(_in_fives(0, 40))
    ]
    return Story(plan, batches[:3], _ends(batches[3:]), AGG)


def _sources() -> Story:
    """Two sites, each in order; one falls silent, is left out, and speaks again too late."""
    plan = pw.session_frames("2 seconds").by("k").at("t", pw.ordered_per("site", idle_after="20 seconds", expect=2))

    def batch(clock: int, **rows: Sequence[int]) -> Batch:
        made = [
            {"k": "ab"[t % 2], "t": _START + timedelta(seconds=t), "v": t / 4, "i": t, "site": site}
            for site, times in rows.items()
            for t in times
        ]
        return Batch(pa.Table.from_pylist(made, pa.schema({**FIELDS, "t": pa.timestamp("us", "UTC")})), clock)

    before = [batch(0, east=(0, 1, 2)), batch(10, east=(3, 4, 9), west=(0, 2, 5, 6)), batch(15, east=(10, 14, 15))]
    after = [batch(25, east=(16, 21)), batch(40, east=(22, 28)), batch(41, west=(12, 29, 30)), batch(50, east=(35,))]
    return Story(plan, before, _ends(after), {"n": "count(*)", "mean": "avg(v)", "until": "max(t)"}, late=True)


STORIES = {
    "threshold": _story(
        pw.threshold_frames("c", gaps=True, min_rows=2, nulls="invisible"), pw.slack(4), agg=AGG, late=True
    ),
    "pieces": _story(pw.threshold_frames("v > 0.7", min_duration=6, max_rows=3), pw.slack(4), agg=AGG),
    "scheduled": _story(
        pw.threshold_frames("c", expect_every=1, missing="satisfies", min_duration=2),
        pw.schedule(give_up_after=8),
        agg={"n": "count(*)"},
        emit="fragments",
    ),
    "hysteresis": _story(pw.threshold_frames(open="v > 5", close="v < 2"), pw.slack(4), "real", emit="updates"),
    "boundary": _story(pw.boundary_frames({"v": 2.5}), pw.slack("4 seconds"), "micros", agg=AGG),
    "trend": _story(pw.trend_frames("v", "rising", min_rows=3), pw.slack(rows=9), agg=AGG),
    "session": _sources(),
    "delta": _story(pw.delta_frames({"v": 3}, nulls="invisible"), pw.slack(4), agg=AGG, emit="fragments"),
    "saturated": _story(pw.delta_frames({"v": 4}, overlap="saturated"), pw.slack(rows=9), "real", agg=AGG),
    "starts": _story(pw.delta_frames({"v": 5}, starts="d", on_overlap="continue"), pw.slack(4), agg=AGG),
    "aggregate": _promised(),
    "custom": _story(
        pw.custom_frames(Doubling),
        pw.slack("4 seconds", per="site", ahead_limit="1 minute"),
        "micros",
        agg={"n": "count(*)"},
    ),
    "windows": _story(pw.sliding_windows("10 seconds", "4 seconds"), pw.slack("4 seconds"), "micros", agg=AGG),
    "tuples": _story(pw.slide_by_tuple_windows(6, every=3), pw.slack(4), "real", agg=AGG),
    "row_windows": _story(pw.row_windows(7, 3, partitioned=True), pw.slack(4), agg=AGG),
    "landmark": _story(pw.landmark_windows(8), pw.slack(4), agg=AGG, late=True),
    "values": _story(pw.threshold_frames("c", nulls="invisible", gaps=True), pw.slack(4), agg=VALUES, emit="fragments"),
    "values_chain": _story(pw.delta_frames({"v": 4}, overlap="saturated"), pw.slack(4), agg=VALUES),
    "values_windows": _story(pw.sliding_windows(10, 4, keep_empty=True), pw.slack(4), agg=VALUES),
}


def write() -> None:
    for name, story in STORIES.items():
        shard = story.shard()
        story.told(shard, story.before)
        kept = FOLDER / f"v{VERSION}-{name}.bin"
        if kept.exists():
            continue
        kept.write_bytes(shard.state())
        rest = story.told(shard, story.after)
        kept.with_suffix(".json").write_text(json.dumps(rest, indent=1) + "\n")
        print(
            f"{kept.name}: {kept.stat().st_size:,} bytes; {sum(len(told['segments']) for told in rest)} segments after"
        )


if __name__ == "__main__":
    write()

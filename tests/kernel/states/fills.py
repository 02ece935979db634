"""A fill of streams that stops midway, and its state at that moment: what the shard keeps, and its chunks.

Run this file to keep the state and what came of the rest, for this version of the state. What was kept once stays:

    PYTHONPATH=tests .venv/bin/python tests/kernel/states/fills.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import panewise as pw
from kernel.states.write import AGG, FOLDER, STORIES, Batch
from panewise.kernel.fill import FillLayout
from panewise.kernel.fillshard import FillShard, FillSpec, Outcome
from panewise.kernel.pack import Packer
from panewise.kernel.state import VERSION
from panewise.local.fill import apply_filling
from panewise.local.runner import apply_local
from panewise.local.stream import tagged, with_control
from panewise.spec.aggregates import aggregates
from panewise.spec.fill import Filling, filling

__all__ = ["STORED", "Fill", "read"]

STORED = sorted(FOLDER.glob("fill-v*.parquet"))
PLAN = pw.threshold_frames("c", min_rows=2, nulls="invisible").by("k").at("t", pw.slack(4))
BEFORE, AFTER = STORIES["threshold"].before, STORIES["threshold"].after
"""Rows of five times each; they draw segments, and fill them."""
_STATE = "state"


@dataclass
class Fill:
    """Segments filled from two sources, in one shard."""

    fillings: tuple[Filling, ...] = (
        filling(("k",), "t", where="i > 0", widen=(2, None), punctuation=pw.slack(9)),
        filling(("k",), "t", shift=1, punctuation=pw.ordered_per("site")),
    )
    aggs: tuple[dict[str, str], ...] = (AGG, {"others": "count(*)", "latest": "max(t)"})
    shards: int = 1
    state: bytes | None = None
    store: dict[str, bytes] = field(default_factory=dict)

    def _applied(self, i: int, rows: pa.Table) -> tuple[pa.Table, FillLayout]:
        schema = apply_local(PLAN, (), rows).layout.emitter.schema
        return apply_filling(
            self.fillings[i], aggregates(self.aggs[i]), rows, schema, PLAN.keys, with_rows=False, others=True
        )

    @property
    def spec(self) -> FillSpec:
        """All that the shard must know."""
        rows = BEFORE[0].rows
        layouts = tuple(self._applied(i, rows)[1] for i in range(len(self.fillings)))
        return FillSpec(apply_local(PLAN, (), rows).layout, layouts, PLAN.keys, self.shards)

    def shard(self) -> FillShard:
        """The shard, as it was when the last micro-batch was over."""
        return FillShard(self.spec, self.store, self.state)

    def feed(self, batch: Batch) -> Outcome:
        """A micro-batch, the same rows for all."""
        spec, shard = self.spec, self.shard()
        assert spec.framing is not None
        elements = [tagged(PLAN, apply_local(PLAN, (), batch.rows).rows, None, 1, None)]
        for i, given in enumerate(self.fillings):
            rows = self._applied(i, batch.rows)[0]
            others = rows.column("other").combine_chunks()
            elements.append(tagged(given, rows.drop_columns(["other"]), None, 1, None, others))
        pages = []
        for side, (layout, some) in enumerate(zip((spec.framing, *spec.fillings), elements, strict=True)):
            told = with_control(some, batch.until, batch.clock, batch.final)
            packer = Packer(layout, 1, side=side - 1 if side else None)
            pages += [page for _, page in packer.run(told.to_batches())]
        outcome = shard.batch(pages)
        self.state = shard.state()
        return outcome

    def told(self, batches: Sequence[Batch]) -> list[dict[str, Any]]:
        """What comes of micro-batches, as JSON has it."""
        return [_plain(self.feed(batch)) for batch in batches]

    def write(self, path: Path) -> None:
        """Keep the state, and the chunks beside it."""
        assert self.state is not None
        kept = {_STATE: self.state, **self.store}
        table = pa.table({"name": list(kept), "data": pa.array(kept.values(), pa.binary())})
        pq.write_table(table, path, compression="zstd")


def read(path: Path, **changed: Any) -> Fill:
    """A fill that goes on from what was kept."""
    table = pq.read_table(path)
    kept = dict(zip(table.column("name").to_pylist(), table.column("data").to_pylist(), strict=True))
    return replace(Fill(**changed), state=kept.pop(_STATE), store=kept)


def _plain(outcome: Outcome) -> dict[str, Any]:
    found = [] if outcome.found is None else outcome.found.to_pylist()
    return json.loads(json.dumps({"segments": found, "counts": outcome.counts}, default=str))


def write() -> None:
    kept = FOLDER / f"fill-v{VERSION}.parquet"
    if not kept.exists():
        fill = Fill()
        fill.told(BEFORE)
        fill.write(kept)
        kept.with_suffix(".json").write_text(json.dumps(fill.told(AFTER), indent=1) + "\n")
        print(f"{kept.name}: {kept.stat().st_size:,} bytes")


if __name__ == "__main__":
    write()

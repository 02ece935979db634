"""A shard as Spark runs it: state in, pages in, results and state out, once for each micro-batch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from panewise.kernel.bundle import dump
from panewise.kernel.progress import Progress
from panewise.kernel.punctuate import Punctuator
from panewise.kernel.sequence import Layout
from panewise.kernel.shard import ASKED, PUNCTUATION
from panewise.kernel.windowshard import new_shard
from panewise.spark.lanes import shard_in
from panewise.spark.report import staged

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ShardRunner", "reported"]


@dataclass(frozen=True)
class ShardRunner:
    """Adapts `Shard` to Spark's stateful stage."""

    layout: Layout
    shards: int
    watermark: bool
    passes: bool = False
    clocked: bool = False

    def run(
        self, lane: int, stored: bytes | None, store: object, pages: list[bytes], reached: int | None
    ) -> tuple[bytes, pd.DataFrame]:
        """The state after a micro-batch, and what came of it."""
        number, shard = shard_in(lane), new_shard(self.layout, self.shards, stored)
        until = None if reached is None else np.int64(reached)
        # a clock that was given need not be near the time
        outcome = shard.batch(pages, until, -1 if self.clocked else time.time_ns() // 1_000)
        state = shard.state()
        tables = {}
        if outcome.segments is not None:
            tables["segments"] = outcome.segments
        if outcome.late is not None:
            tables["late"] = outcome.late
        progress = self.layout.progress
        facts = reported(progress, shard.punctuator, number, outcome.counts, shard.totals, len(state), shard.behind)
        if shard.prodding is not None:
            facts |= shard.prodding.figures(outcome.answered)
        if self.passes:
            passed = shard.passed_on(number)
            if self.layout.prods is not None and self.layout.prods.passes:
                # they went to every shard, and one of them passes them on
                asked = None if outcome.asked is None or number else dump({ASKED: outcome.asked.combine_chunks()}, {})
                passed = passed.append_column(ASKED, pa.array([asked], pa.binary()))
            tables[PUNCTUATION] = passed
        return state, staged(tables, facts)


def reported(
    progress: Progress,
    punctuator: Punctuator,
    number: int,
    counts: Mapping[str, int],
    totals: Mapping[str, int],
    state_bytes: int,
    behind: Any = None,
) -> dict[str, Any]:
    """What a shard reports of a micro-batch; `behind` is how far its last key is, where each has its own progress."""
    until = punctuator.until if behind is None else behind
    known = progress.nothing < until < progress.everything
    return {
        **counts,
        "shard": number,
        "state_bytes": state_bytes,
        "until": progress.written(until) if known else None,
        "behind": float(until) if known and behind is not None else None,
        "sources": punctuator.told() if number == 0 else None,
        "ended": bool(punctuator.final),
        "filling_until": None,
        **{f"total_{name}": count for name, count in totals.items()},
    }

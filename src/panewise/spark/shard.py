"""A shard as Spark runs it: state in, pages in, results and state out, once for each micro-batch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

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

__all__ = ["ShardProcessor", "reached_by", "reported"]

_MICROS = 1_000


class ShardProcessor(StatefulProcessor):
    """Adapts `Shard` to Spark's stateful stage; its one state variable holds the shard's bytes."""

    def __init__(
        self, layout: Layout, shards: int, watermark: bool, passes: bool = False, clocked: bool = False
    ) -> None:
        self._layout, self._shards, self._watermark, self._passes = layout, shards, watermark, passes
        self._clocked = clocked

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark before anything else."""
        self._handle = handle
        self._state = handle.getValueState("shard", "state binary")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803  # Spark calls it so
        """A micro-batch with pages for the shard."""
        pages = [page for frame in rows for page in frame["page"]]
        yield self._run(shard_in(key[0]), pages, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803  # Spark calls it so
        """A micro-batch that only moves the watermark."""
        yield self._run(shard_in(key[0]), [], timerValues)

    def close(self) -> None:
        """Nothing is held between micro-batches."""

    def _run(self, number: int, pages: list[bytes], timers: Any) -> pd.DataFrame:
        stored = self._state.get()
        shard = new_shard(self._layout, self._shards, None if stored is None else bytes(stored[0]))
        reached = reached_by(self._handle, timers) if self._watermark else None
        # a clock that was given need not be near the time
        outcome = shard.batch(pages, reached, -1 if self._clocked else time.time_ns() // 1_000)
        state = shard.state()
        self._state.update((state,))
        tables = {}
        if outcome.segments is not None:
            tables["segments"] = outcome.segments
        if outcome.late is not None:
            tables["late"] = outcome.late
        progress = self._layout.progress
        facts = reported(progress, shard.punctuator, number, outcome.counts, shard.totals, len(state), shard.behind)
        if shard.prodding is not None:
            facts |= shard.prodding.figures(outcome.answered)
        if self._passes:
            passed = shard.passed_on(number)
            if self._layout.prods is not None and self._layout.prods.passes:
                # they went to every shard, and one of them passes them on
                asked = None if outcome.asked is None or number else dump({ASKED: outcome.asked.combine_chunks()}, {})
                passed = passed.append_column(ASKED, pa.array([asked], pa.binary()))
            tables[PUNCTUATION] = passed
        return staged(tables, facts)


def reached_by(handle: StatefulProcessorHandle, timers: Any) -> Any:
    """How far Spark's watermark has come; and Spark is asked to call again when it moves on."""
    millis = timers.getCurrentWatermarkInMs()
    for registered in list(handle.listTimers()):
        handle.deleteTimer(registered)
    handle.registerTimer(max(millis, 0) + 1)
    return np.int64(millis * _MICROS) if millis > 0 else None


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

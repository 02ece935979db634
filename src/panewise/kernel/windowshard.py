"""A shard of a stream of windows: rows are added to panes as they come, in whatever order, and none waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel.page import Array
from panewise.kernel.sequence import Layout
from panewise.kernel.shard import Shard
from panewise.kernel.windowing import WindowOperator
from panewise.kernel.windows import Grid, grid_of
from panewise.spec.aggregates import input_columns
from panewise.spec.frames import Windows
from panewise.spec.punctuate import SlackRows, SlackTime

__all__ = ["WindowShard", "new_shard"]


def new_shard(layout: Layout, shards: int = 1, state: bytes | None = None) -> Shard:
    """The shard of a plan."""
    made = WindowShard if isinstance(layout.plan.scheme, Windows) else Shard
    return made(layout, shards, state)


class WindowShard(Shard):
    """The keys of one shard, and their open panes."""

    def __init__(self, layout: Layout, shards: int = 1, state: bytes | None = None) -> None:
        super().__init__(layout, shards, state)
        self._inputs = input_columns(layout.agg)
        if self._grid.begins:
            self._arrivals.origin = self._grid.origin
        given = layout.plan.punctuation
        if not isinstance(given, (SlackTime, SlackRows)) or given.late == "generous":
            self._arrivals.closed = self._closed

    def _made(self, layout: Layout) -> Any:
        assert isinstance(layout.plan.scheme, Windows)
        self._grid: Grid = grid_of(layout.plan.scheme, layout.progress)
        return WindowOperator(self._grid, layout.aggregation)

    def _closed(self, until: Array) -> Array:
        """Up to where all windows are complete: a late row is missing from those only that are."""
        progress = self._progress
        over = until >= progress.everything
        start, _ = self._grid.bounds(self._grid.complete(np.where(over, progress.nothing, until), progress) + 1)
        return np.where(over, progress.everything, np.minimum(progress.below(start), until))

    def _gather(self, pages: list[tuple[pa.Table, pa.Table]]) -> tuple[pa.Table | None, Array]:
        found = super()._gather(pages)
        # a key that is new has missed what is complete by now
        self._operator.close(self._grid.complete(self._arrivals.until, self._progress))
        return found

    def _advance(self, fresh: pa.Table | None, slots: Array) -> Any:
        """Add rows to their panes, and let go of windows that progress has passed."""
        at = np.empty(0, self._progress.dtype) if fresh is None else self._arrivals.numbers(fresh)
        self._arrivals.advance(slots, at)
        if fresh is not None and len(at):
            inputs = self._layout.aggregation.inputs(self._inputs, fresh)
            self._operator.take(slots.astype(np.int64), at, inputs, len(self._table))
        until = self._arrivals.until
        complete = self._grid.complete(until, self._progress)
        latest = self.punctuator.latest
        if self._grid.range is None and latest > self._progress.nothing:
            # those that go on forever end where the stream does
            over = until >= self._progress.everything
            complete = np.where(over, self._grid.wids(latest)[0], complete)
        return self._operator.release(complete)

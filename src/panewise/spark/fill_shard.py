"""A shard that is filled, as Spark runs it: one state value, chunks in map state, results out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from panewise.kernel.fillshard import FillShard, FillSpec
from panewise.kernel.progress import day_over
from panewise.kernel.sqltypes import zone_of
from panewise.spark.lanes import shard_in
from panewise.spark.report import staged
from panewise.spark.shard import reported

if TYPE_CHECKING:
    import pandas as pd

    from panewise.spark.processor import Store

__all__ = ["FillRunner"]


@dataclass(frozen=True)
class FillRunner:
    """Adapts `FillShard` to Spark's stateful stage."""

    spec: FillSpec
    watermarks: tuple[bool, ...]
    zones: tuple[str | None, ...]
    """By which clocks the watermark of each source is told as a day."""
    names: tuple[str, ...]

    @property
    def watermark(self) -> bool:
        """Whether Spark's watermark is asked for."""
        return any(self.watermarks)

    def hold(self, stored: bytes | None, store: Store, pages: Any) -> bytes:
        """The state with segments found before the stream began."""
        shard = FillShard(self.spec, store, stored)
        shard.hold(pages)
        return shard.state()

    def _reached(self, reached: int | None) -> list[Any]:
        """How far the watermark of each input has come, as its segments are bounded."""
        if reached is None:
            return [None] * len(self.watermarks)
        zones = (None, *self.zones)
        told = [np.int64(reached if zone is None else day_over(reached, zone_of(zone))) for zone in zones]
        return [until if marked else None for until, marked in zip(told, self.watermarks, strict=True)]

    def run(
        self, lane: int, stored: bytes | None, store: Store, pages: list[bytes], reached: int | None
    ) -> tuple[bytes, pd.DataFrame]:
        """The state after a micro-batch, and what came of it."""
        shard = FillShard(self.spec, store, stored)
        outcome = shard.batch(pages, self._reached(reached))
        state = shard.state()
        tables = {}
        if outcome.found is not None:
            tables["segments"] = outcome.found
        if outcome.late is not None:
            tables["late"] = outcome.late
        if self.names:
            named = ((self.names[i], late) for i, late in outcome.late_of)
            tables |= {f"late of {name}": late.rename_columns(["reason", name]) for name, late in named}
        first = shard.framing.punctuator if shard.framing is not None else shard.filler.sides[0].punctuator
        size = len(state) + shard.filler.size
        progress, behind = self.spec.fillings[0].progress, None if shard.framing is None else shard.framing.behind
        facts = reported(progress, first, shard_in(lane), outcome.counts, shard.totals, size, behind)
        until = min(side.punctuator.until for side in shard.filler.sides)
        if progress.nothing < until < progress.everything:
            facts["filling_until"] = progress.written(until)
        return state, staged(tables, facts)

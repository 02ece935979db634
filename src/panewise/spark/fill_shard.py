"""A shard that is filled, as Spark runs it: one state value, chunks in map state, results out."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from panewise.kernel.fillshard import FillShard, FillSpec
from panewise.kernel.progress import day_over
from panewise.kernel.sqltypes import zone_of
from panewise.spark.lanes import shard_in
from panewise.spark.report import staged
from panewise.spark.shard import reached_by, reported

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FillProcessor"]


class _MapStore(MutableMapping[str, bytes]):
    """Spark's map state as a mapping; it is never listed."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def __getitem__(self, name: str) -> bytes:
        return bytes(self._state.getValue((name,))[0])

    def __setitem__(self, name: str, data: bytes) -> None:
        self._state.updateValue((name,), (data,))

    def __delitem__(self, name: str) -> None:
        self._state.removeKey((name,))

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


class FillProcessor(StatefulProcessor):
    """Adapts `FillShard` to Spark's stateful stage."""

    def __init__(
        self, spec: FillSpec, watermarks: tuple[bool, ...], zones: tuple[str | None, ...], names: tuple[str, ...]
    ) -> None:
        self._spec, self._watermarks, self._names = spec, watermarks, names
        # by which clocks the watermark of each source is told as a day
        self._zones = (None, *zones)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark before anything else."""
        self._handle = handle
        self._state = handle.getValueState("shard", "state binary")
        self._store = _MapStore(handle.getMapState("chunks", "name string", "data binary"))

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803  # Spark calls it so
        """Segments found before the stream began."""
        shard = self._shard()
        shard.hold(initialState["page"])
        self._state.update((shard.state(),))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803  # Spark calls it so
        """A micro-batch with pages for the shard."""
        pages = [page for frame in rows for page in frame["page"]]
        yield self._run(shard_in(key[0]), pages, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803  # Spark calls it so
        """A micro-batch that only moves the watermark."""
        yield self._run(shard_in(key[0]), [], timerValues)

    def close(self) -> None:
        """Nothing is held between micro-batches."""

    def _shard(self) -> FillShard:
        stored = self._state.get()
        return FillShard(self._spec, self._store, None if stored is None else bytes(stored[0]))

    def _reached(self, timers: Any) -> list[Any]:
        """How far the watermark of each input has come, as its segments are bounded."""
        reached = reached_by(self._handle, timers) if any(self._watermarks) else None
        if reached is None:
            return [None] * len(self._watermarks)
        told = [reached if zone is None else np.int64(day_over(int(reached), zone_of(zone))) for zone in self._zones]
        return [until if marked else None for until, marked in zip(told, self._watermarks, strict=True)]

    def _run(self, number: int, pages: list[bytes], timers: Any) -> pd.DataFrame:
        shard = self._shard()
        outcome = shard.batch(pages, self._reached(timers))
        state = shard.state()
        self._state.update((state,))
        tables = {}
        if outcome.found is not None:
            tables["segments"] = outcome.found
        if outcome.late is not None:
            tables["late"] = outcome.late
        if self._names:
            named = ((self._names[i], late) for i, late in outcome.late_of)
            tables |= {f"late of {name}": late.rename_columns(["reason", name]) for name, late in named}
        first = shard.framing.punctuator if shard.framing is not None else shard.filler.sides[0].punctuator
        size = len(state) + shard.filler.size
        progress, behind = self._spec.fillings[0].progress, None if shard.framing is None else shard.framing.behind
        facts = reported(progress, first, number, outcome.counts, shard.totals, size, behind)
        until = min(side.punctuator.until for side in shard.filler.sides)
        if progress.nothing < until < progress.everything:
            facts["filling_until"] = progress.written(until)
        return staged(tables, facts)

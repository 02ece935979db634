"""What Spark's stateful stage is given: a shard's state, its pages, and who makes results of them.

When a query starts, Spark starts a Python process only to ask which states there are, and waits for it. All that shards
are made of takes as long to import as Spark's own part, so that it is only unpickled where there are rows.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ChunkedProcessor", "Processor", "Runner", "Store"]


class Store(MutableMapping[str, bytes]):
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


class Runner(Protocol):
    """Who makes results of a shard's pages."""

    @property
    def watermark(self) -> bool:
        """Whether Spark's watermark is asked for."""

    def run(
        self, lane: int, stored: bytes | None, store: Any, pages: list[bytes], reached: int | None
    ) -> tuple[bytes, pd.DataFrame]:
        """A lane's state after a micro-batch, and what came of it; the watermark has reached this, in microseconds."""


class Processor(StatefulProcessor):
    """Adapts a runner; one value holds the shard's bytes."""

    _store: Store | None = None

    def __init__(self, runner: Runner) -> None:
        self._pickled = cloudpickle.dumps(runner)  # type: ignore[no-untyped-call]  # it has no types

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark before anything else."""
        self._handle = handle
        self._state = handle.getValueState("shard", "state binary")
        self._made: Any = None

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803  # Spark calls it so
        """A micro-batch with pages for the shard."""
        yield self._run(key, [page for frame in rows for page in frame["page"]], timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803  # Spark calls it so
        """A micro-batch that only moves the watermark."""
        yield self._run(key, [], timerValues)

    def close(self) -> None:
        """Nothing is held between micro-batches."""

    def _runner(self) -> Any:
        if self._made is None:
            self._made = cloudpickle.loads(self._pickled)
        return self._made

    def _stored(self) -> bytes | None:
        stored = self._state.get()
        return None if stored is None else bytes(stored[0])

    def _run(self, key: Any, pages: list[bytes], timers: Any) -> pd.DataFrame:
        runner = self._runner()
        reached = self._reached(timers) if runner.watermark else None
        state, made = runner.run(key[0], self._stored(), self._store, pages, reached)
        self._state.update((state,))
        return cast("pd.DataFrame", made)

    def _reached(self, timers: Any) -> int | None:
        """How far Spark's watermark has come, in microseconds; and Spark is asked to call again when it moves on."""
        millis = timers.getCurrentWatermarkInMs()
        for registered in list(self._handle.listTimers()):
            self._handle.deleteTimer(registered)
        self._handle.registerTimer(max(millis, 0) + 1)
        return millis * 1_000 if millis > 0 else None


class ChunkedProcessor(Processor):
    """A map holds the shard's chunks beside; and what was there before the stream began is held first."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark before anything else."""
        super().init(handle)
        self._store = Store(handle.getMapState("chunks", "name string", "data binary"))

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803  # Spark calls it so
        """What was found before the stream began."""
        self._state.update((self._runner().hold(self._stored(), self._store, initialState["page"]),))

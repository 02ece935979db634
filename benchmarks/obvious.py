"""What one would write by hand: a key of Spark's stateful stage for each sensor, and numpy on its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

__all__ = ["BY_HAND"]

RESULT = "sensor int, start timestamp, end timestamp, rows bigint"
_OPEN = "start timestamp, last timestamp, rows bigint"
_COLUMNS = ["sensor", "start", "end", "rows"]
Open = tuple[Any, Any, int]
"""The first and the last report of a stretch, and how many it has."""


def _stretches(sensor: int, rows: Iterable[pd.DataFrame], state: Open, speed: float, least: int) -> tuple[Any, Open]:
    """The stretches that end in these rows, and what is open; trusts that none comes in a later micro-batch."""
    start, last, count = state
    found, frames = [], list(rows)
    # Spark gives the rows of a key in several pieces, which need not be in order
    ordered = (frames[0] if len(frames) == 1 else pd.concat(frames)).sort_values("ts")
    times, slow, begin = ordered["ts"].array, ordered["speed"].to_numpy() <= speed, 0
    for i in np.flatnonzero(np.diff(slow, prepend=count > 0)).tolist():
        if slow[i]:
            start, begin = times[i], i
            continue
        count += i - begin
        if count >= least:
            found.append((sensor, start, times[i - 1] if i else last, count))
        count = 0
    if len(slow) and slow[-1]:
        last, count = times[-1], count + len(slow) - begin
    return found, (start, last, count)


class SlowStretches(StatefulProcessor):
    """At least `least` reports in a row at or below a speed."""

    def __init__(self, speed: float, least: int) -> None:
        self._speed, self._least = speed, least

    def init(self, handle: Any) -> None:
        self._open = handle.getValueState("open", _OPEN)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803  # Spark calls it so
        kept = self._open.get()
        found, state = _stretches(key[0], rows, (None, None, 0) if kept is None else kept, self._speed, self._least)
        if state[2]:
            self._open.update(state)
        elif kept is not None:
            self._open.clear()
        if found:
            yield pd.DataFrame(found, columns=_COLUMNS)

    def close(self) -> None:
        pass


def _by_processor(df: DataFrame, speed: float, least: int) -> DataFrame:
    stage = df.select("sensor", "ts", "speed").groupBy("sensor")
    return stage.transformWithStateInPandas(SlowStretches(speed, least), RESULT, "Append", "None")


def _by_function(df: DataFrame, speed: float, least: int) -> DataFrame:
    def run(key: Any, rows: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        kept = state.get if state.exists else (None, None, 0)
        found, now = _stretches(key[0], rows, kept, speed, least)
        if now[2]:
            state.update(now)
        elif state.exists:
            state.remove()
        if found:
            yield pd.DataFrame(found, columns=_COLUMNS)

    stage = df.select("sensor", "ts", "speed").groupBy("sensor")
    return stage.applyInPandasWithState(run, RESULT, _OPEN, "append", GroupStateTimeout.NoTimeout)


BY_HAND = {"transformWithStateInPandas": _by_processor, "applyInPandasWithState": _by_function}
"""The segments of a stream of traffic reports, two ways."""

"""What one would write by hand: a key of Spark's stateful stage for each sensor, and a loop over its rows in pandas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

RESULT = "sensor int, start timestamp, end timestamp, rows bigint"


class SlowStretches(StatefulProcessor):
    """At least `least` reports in a row at or below a speed; trusts that a sensor's reports come in order."""

    def __init__(self, speed: float, least: int) -> None:
        self._speed, self._least = speed, least

    def init(self, handle: Any) -> None:
        self._open = handle.getValueState("open", "start timestamp, last timestamp, rows bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803  # Spark calls it so
        kept = self._open.get()
        start, last, count = kept if kept is not None else (None, None, 0)
        found = []
        for frame in rows:
            ordered = frame.sort_values("ts")
            for ts, speed in zip(ordered["ts"], ordered["speed"], strict=True):
                if speed <= self._speed:
                    start = ts if count == 0 else start
                    last, count = ts, count + 1
                elif count:
                    if count >= self._least:
                        found.append((key[0], start, last, count))
                    count = 0
        if count:
            self._open.update((start, last, count))
        elif kept is not None:
            self._open.clear()
        if found:
            yield pd.DataFrame(found, columns=["sensor", "start", "end", "rows"])

    def close(self) -> None:
        pass


def slow_stretches(df: DataFrame, speed: float, least: int) -> DataFrame:
    """The segments of a stream of traffic reports."""
    stage = df.select("sensor", "ts", "speed").groupBy("sensor")
    return stage.transformWithStateInPandas(SlowStretches(speed, least), RESULT, "Append", "None")

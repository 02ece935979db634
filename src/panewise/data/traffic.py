"""Road detectors that report speed and volume every 20 seconds: rush hours, incidents, outages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

import numpy as np
import pyarrow as pa

from panewise.data import blocks
from panewise.data.blocks import Progress

__all__ = ["EVERY", "SCHEMA", "table", "write"]

EVERY = 20_000_000
"""Microseconds between two reports of a sensor."""

SCHEMA = pa.schema(
    [
        pa.field("sensor", pa.int32()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("speed", pa.float64()),
        pa.field("volume", pa.int64()),
    ]
)

_DAY = 4_320
_CELLS = 1 << 19
_SENSORS, _DAYS, _REPORTS, _BEFORE = 20, 21, 22, 23
_SLOW, _SMOOTH = 0.985, 0.93


def table(rows: int = 100_000, *, sensors: int = 600, seed: int = 0, outages: bool = True) -> pa.Table:
    """The reports as one table, in order of time, then sensor.

    >>> table(3, sensors=2)["sensor"].to_pylist()
    [0, 1, 0]
    """
    return blocks.collect(_batches(rows, sensors, seed, outages), SCHEMA)


def write(
    path: Union[str, os.PathLike[str]],
    rows: int = 20_000_000,
    *,
    sensors: int = 600,
    seed: int = 0,
    files: int = 8,
    outages: bool = True,
    progress: Progress | None = None,
) -> None:
    """Write the reports to a new folder of Parquet files, in order of time, then sensor.

    About 4 % of the speeds are at most 30, 45 % at least 50, 90 % at least 30, and 6 % null, because detectors
    fail for minutes at a time; `outages=False` gives those their speed. The mean volume is about 7.
    """
    blocks.write(path, _batches(rows, sensors, seed, outages), SCHEMA, rows, files, progress)


@dataclass(frozen=True, slots=True)
class _Day:
    """What one day holds for each sensor: hours of the day, and miles per hour lost."""

    rush: tuple[tuple[float, float, np.ndarray, np.ndarray], ...]  # hour, width, shift, loss
    incident: tuple[np.ndarray, np.ndarray, np.ndarray]  # start, length, loss
    outage: tuple[np.ndarray, np.ndarray]  # start, end: a row for each ninth of the day


def _day(day: int, sensors: int, seed: int) -> _Day:
    rng = blocks.random(seed, _DAYS, day)
    inbound = np.arange(sensors) % 2 == 0
    weekday = day % 7 < 5
    rush = []
    for hour, width, heavy in ((7.75, 1.25, inbound), (17.25, 1.6, ~inbound)):
        worst = np.where(heavy, rng.uniform(13, 38, sensors), rng.uniform(0, 7, sensors))
        rush.append((hour, width, rng.normal(0, 0.3, sensors), worst * (1.0 if weekday else 0.15)))
    length = rng.uniform(0.3, 2.5, sensors)
    start = rng.uniform(0, 24 - length)
    loss = np.where(rng.random(sensors) < 0.05, rng.uniform(10, 30, sensors), 0)
    # the queue reaches the next sensor upstream a little later, and is shorter there
    behind = np.roll(loss, -2) * (loss == 0) * 0.6
    start = np.where(behind > 0, np.roll(start, -2) + 0.1, start)
    length = np.where(behind > 0, np.roll(length, -2) * 0.8, length)
    minutes = rng.uniform(0, 19.2, (9, sensors)) / 60
    fails = np.arange(9)[:, None] * 24 / 9 + rng.uniform(0, 24 / 9 - minutes)
    return _Day(tuple(rush), (start, length, loss + behind), (fails, fails + minutes))


def _smooth(noise: np.ndarray, before: np.ndarray, keep: float) -> None:
    """In place, down the rows: x[t] = keep * x[t - 1] + noise[t]; `before` is x[-1], and becomes the last row."""
    scratch = np.empty_like(before)
    last = before
    for row in noise:
        np.multiply(last, keep, out=scratch)
        np.add(row, scratch, out=row)
        last = row
    before[:] = last


def _loss(day: _Day, hour: np.ndarray, sensors: int) -> np.ndarray:
    """Miles per hour lost to rush hours and incidents, a row per report."""
    lost = np.zeros((len(hour), sensors))
    for peak, width, shift, loss in day.rush:
        if hour[-1] > peak - 3 * width - 1.5 and hour[0] < peak + 3 * width + 1.5:
            lost += loss * np.exp(-(((hour[:, None] - peak - shift) / width) ** 4))
    start, length, loss = day.incident
    hit = np.flatnonzero((loss > 0) & (start <= hour[-1]) & (start + length >= hour[0]))
    part = np.clip((hour[:, None] - start[hit]) / length[hit], 0, 1)
    lost[:, hit] += loss[hit] * np.minimum(1, 3 * np.sin(np.pi * part))
    return lost


def _demand(hour: np.ndarray, weekday: bool, sensors: int) -> np.ndarray:
    """Vehicles to expect in 20 s; even sensors lie inbound, odd ones outbound."""
    noon = 7.5 * np.exp(-(((hour - 13.5) / 6.5) ** 4))
    morning, evening = np.exp(-(((hour - 7.75) / 1.5) ** 2)), np.exp(-(((hour - 17.25) / 1.8) ** 2))
    busy = 1.0 if weekday else 0.2
    ways = [1.8 + noon + busy * (8 * morning + 3 * evening), 1.8 + noon + busy * (3 * morning + 8 * evening)]
    return np.stack(ways, axis=1)[:, np.arange(sensors) % 2]


def _steps(sensors: int) -> int:
    """Reports per block: a part of a day, so that a block lies within one."""
    return max(size for size in range(1, _DAY + 1) if _DAY % size == 0 and size <= max(1, _CELLS // sensors))


def _batches(rows: int, sensors: int, seed: int, outages: bool) -> Iterator[pa.RecordBatch]:
    blocks.at_least("rows", rows)
    size = _steps(blocks.at_least("sensors", sensors))
    rng = blocks.random(seed, _SENSORS)
    usual = rng.normal(50.6, 1.5, sensors)
    busy = rng.uniform(0.7, 1.3, sensors)
    before = blocks.random(seed, _BEFORE).normal(0, 1, (2, sensors)) * [[5.8], [4.0]]
    for first in range(0, -(-rows // sensors), size):
        number, step = divmod(first, _DAY)
        day = _day(number, sensors, seed)
        hour = (step + np.arange(size)) / 180
        rng = blocks.random(seed, _REPORTS, first)
        noise = rng.standard_normal((size, sensors))
        _smooth(noise, before[0], _SLOW)
        noise *= (1 - _SMOOTH) * 0.7
        _smooth(noise, before[1], _SMOOTH)
        noise += 0.2 * rng.standard_normal((size, sensors))
        loss = _loss(day, hour, sensors)
        noise *= 1 + loss / 10  # stop and go: slower is rougher
        speed = usual - loss + noise
        np.clip(speed, 3, 85, out=speed)
        np.round(speed, 1, out=speed)
        volume = rng.poisson(_demand(hour, number % 7 < 5, sensors) * busy)
        ninth = (step + np.arange(size)) // (_DAY // 9)
        failed = (hour[:, None] >= day.outage[0][ninth]) & (hour[:, None] < day.outage[1][ninth])
        when = blocks.START + EVERY * (first + np.arange(size))
        columns = [
            pa.array(np.tile(np.arange(sensors, dtype=np.int32), size)),
            blocks.times(np.repeat(when, sensors)),
            pa.array(speed.ravel(), mask=failed.ravel() if outages else None),
            pa.array(volume.ravel()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA).slice(0, rows - first * sensors)

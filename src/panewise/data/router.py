"""Routers that report packet loss every ten seconds, with episodes of loss whose bounds are known exactly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

import numpy as np
import pyarrow as pa

from panewise.data import blocks
from panewise.data.blocks import Progress

__all__ = ["EVERY", "MESSAGES", "SCHEMA", "THRESHOLD", "messages", "table", "truth", "write"]

EVERY = 10_000_000
"""Microseconds between two reports of a router."""

THRESHOLD = 0.3
"""Every report of an episode is at least 0.36, every other one at most 0.2."""

SCHEMA = pa.schema(
    [
        pa.field("router", pa.string()),
        pa.field("rpt_time", pa.timestamp("us", tz="UTC")),
        pa.field("total_pkts", pa.int64()),
        pa.field("drop_pct", pa.float64()),
    ]
)

MESSAGES = pa.schema(
    [
        pa.field("host", pa.string()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("kind", pa.string()),
        pa.field("prefixes", pa.int64()),
    ]
)

_DAY = 8_640
_CELLS = 1 << 18
_DRAW = 16
_ROUTERS, _EPISODES, _REPORTS, _CONTROL = 10, 11, 12, 13
_BEFORE = 30_000_000
_KINDS = pa.array(["update", "withdraw"])


def table(rows: int = 100_000, *, routers: int = 100, seed: int = 0) -> pa.Table:
    """The reports as one table, in order of time, then router.

    >>> table(6, routers=2)["router"].to_pylist()
    ['r0001', 'r0002', 'r0001', 'r0002', 'r0001', 'r0002']
    """
    return blocks.collect(_batches(rows, routers, seed), SCHEMA)


def write(
    path: Union[str, os.PathLike[str]],
    rows: int = 1_000_000,
    *,
    routers: int = 1_000,
    seed: int = 0,
    files: int = 8,
    progress: Progress | None = None,
) -> None:
    """Write the reports to a new folder of Parquet files, in order of time, then router."""
    blocks.write(path, _batches(rows, routers, seed), SCHEMA, rows, files, progress)


def truth(rows: int = 1_000_000, *, routers: int = 1_000, seed: int = 0) -> pa.Table:
    """The episodes in those reports: every maximal run of reports above 0.3, also those of a single report.

    `start` and `end` are the times of the first and last report, `reports` their number, `total_pkts` their sum.
    """
    found = _episodes(rows, routers, seed)
    packets = np.zeros(len(found.start), np.int64)
    for first, last in _spans(rows, routers):
        number, _, cell = _inside(found, first, last, routers)
        np.add.at(packets, number, _packets(first, last, routers, seed).ravel()[cell])
    order = np.lexsort((found.start, found.router))
    end = found.start + found.reports - 1
    columns = [
        _names(routers).take(pa.array(found.router[order])),
        blocks.times(blocks.START + EVERY * found.start[order]),
        blocks.times(blocks.START + EVERY * end[order]),
        pa.array(found.reports[order]),
        pa.array(packets[order]),
    ]
    return pa.table(columns, names=["router", "start", "end", "reports", "total_pkts"])


def messages(rows: int = 100_000, *, routers: int = 100, seed: int = 0) -> pa.Table:
    """Control messages of the routers over the time of so many reports, in order of time.

    Each sends an update every few minutes. Before two of three episodes of loss that last it withdraws prefixes, up to
    half a minute ahead; before the others, and before spikes of one report, it does not.
    """
    found = _episodes(rows, routers, seed)
    rng = blocks.random(seed, _CONTROL, 0)
    steps = -(-rows // routers)
    usual = rng.poisson(steps / 20, routers)
    owner = np.repeat(np.arange(routers), usual)
    at = rng.integers(0, steps * EVERY, len(owner))
    caused = np.flatnonzero((found.drawn > 1) & (rng.random(len(found.start)) < 2 / 3))
    burst = rng.integers(2, 6, len(caused))
    cause = np.repeat(caused, burst)
    ahead = rng.integers(1_000_000, _BEFORE, len(cause))
    at = np.concatenate([at, np.maximum(found.start[cause] * EVERY - ahead, 0)])
    owner = np.concatenate([owner, found.router[cause]])
    kind = np.concatenate([np.zeros(int(usual.sum()), np.int8), np.ones(len(cause), np.int8)])
    prefixes = rng.integers(1, 40, len(at)) * np.where(kind, 25, 1)
    order = np.lexsort((prefixes, owner, at))
    columns = [
        _names(routers).take(pa.array(owner[order])),
        blocks.times(blocks.START + at[order]),
        _KINDS.take(pa.array(kind[order])),
        pa.array(prefixes[order]),
    ]
    return pa.Table.from_arrays(columns, schema=MESSAGES)


@dataclass(frozen=True, slots=True)
class _Episodes:
    router: np.ndarray
    start: np.ndarray
    reports: np.ndarray
    drawn: np.ndarray  # the length before the end of the stream cut it: the shape must not depend on `rows`
    peak: np.ndarray


def _episodes(rows: int, routers: int, seed: int) -> _Episodes:
    """Alternate stretches without loss (at least one report) and with it, per router, beyond the last report."""
    steps = -(-blocks.at_least("rows", rows) // blocks.at_least("routers", routers))
    reached = np.full(routers, -1, np.int64)
    starts: list[np.ndarray] = []
    lengths: list[np.ndarray] = []
    peaks: list[np.ndarray] = []
    while int(reached.min()) < steps:
        rng = blocks.random(seed, _EPISODES, len(starts))
        shape = (_DRAW, routers)
        dip = rng.random(shape) < 0.15
        quiet = np.where(dip, 1, 1 + rng.exponential(1_000, shape).astype(np.int64))
        spike = rng.random(shape) < 0.3
        episode = np.minimum(2 + rng.lognormal(2.9, 1.5, shape), _DAY).astype(np.int64)
        length = np.where(spike, 1, episode)
        end = reached + np.cumsum(quiet + length, axis=0)
        starts.append(end - length)
        lengths.append(length)
        peaks.append(0.2 + rng.lognormal(-0.2, 0.6, shape))
        reached = end[-1]
    start, drawn, peak = np.concatenate(starts), np.concatenate(lengths), np.concatenate(peaks)
    router = np.broadcast_to(np.arange(routers), start.shape)
    own = rows // routers + (router < rows % routers)
    real = start < own
    reports = np.minimum(drawn, own - start)
    return _Episodes(router[real], start[real], reports[real], drawn[real], peak[real])


def _spans(rows: int, routers: int) -> Iterator[tuple[int, int]]:
    size = max(1, _CELLS // routers)
    steps = -(-rows // routers)
    for first in range(0, steps, size):
        yield first, first + size


def _inside(found: _Episodes, first: int, last: int, routers: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each report of an episode within the span: the episode's number, the report's place in it, its cell."""
    number = np.flatnonzero((found.start < last) & (found.start + found.reports > first))
    low = np.maximum(found.start[number], first)
    count = np.minimum(found.start[number] + found.reports[number], last) - low
    number, low = np.repeat(number, count), np.repeat(low, count)
    step = low + np.arange(len(low)) - np.repeat(np.cumsum(count) - count, count)
    return number, step - found.start[number], (step - first) * routers + found.router[number]


def _packets(first: int, last: int, routers: int, seed: int) -> np.ndarray:
    size = blocks.random(seed, _ROUTERS, 0).lognormal(11, 0.8, routers)
    busy = 1 + 0.4 * _cycle(first, last)
    noise = blocks.random(seed, _REPORTS, first, 0).normal(1, 0.05, (last - first, routers))
    return np.asarray(np.maximum(size * busy * noise, 1), np.int64)


def _cycle(first: int, last: int) -> np.ndarray:
    return np.sin(2 * np.pi * (np.arange(first, last) / _DAY - 0.3))[:, None]


def _loss(found: _Episodes, first: int, last: int, routers: int, seed: int) -> np.ndarray:
    rng = blocks.random(seed, _REPORTS, first, 1)
    usual = blocks.random(seed, _ROUTERS, 1).uniform(0.045, 0.075, routers)
    loss = np.clip(usual + 0.012 * _cycle(first, last) + rng.normal(0, 0.005, (last - first, routers)), 0, 0.2)
    texture = rng.random((last - first, routers)).ravel()
    number, place, cell = _inside(found, first, last, routers)
    length = found.drawn[number]
    slope = np.clip(length // 3, 1, 6)
    ramp = np.minimum(np.minimum(place + 1, length - place) / slope, 1)
    loss.ravel()[cell] = 0.36 + found.peak[number] * ramp * (
        0.7 + 0.2 * np.sin((place + found.start[number]) / 9) + 0.3 * texture[cell]
    )
    return np.minimum(np.round(loss, 4), 100)


def _names(routers: int) -> pa.Array:
    width = max(4, len(str(routers)))
    return pa.array([f"r{n:0{width}d}" for n in range(1, routers + 1)])


def _batches(rows: int, routers: int, seed: int) -> Iterator[pa.RecordBatch]:
    found = _episodes(rows, routers, seed)
    names = _names(routers)
    for first, last in _spans(rows, routers):
        step, router = np.divmod(np.arange(first * routers, last * routers), routers)
        columns = [
            names.take(pa.array(router)),
            blocks.times(blocks.START + EVERY * step),
            pa.array(_packets(first, last, routers, seed).ravel()),
            pa.array(_loss(found, first, last, routers, seed).ravel()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA).slice(0, rows - first * routers)

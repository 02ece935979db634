"""A fluorometer towed up and down through patches of dye: depth, density and fluorescence at 4 Hz."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

import numpy as np
import pyarrow as pa

from panewise.data import blocks
from panewise.data.blocks import Progress
from panewise.data.waves import Waves

__all__ = ["EVERY", "SCHEMA", "table", "write"]

EVERY = 250_000
"""Microseconds between two readings."""

SCHEMA = pa.schema(
    [
        pa.field("tow", pa.int32()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("depth_m", pa.float64()),
        pa.field("density", pa.float64()),
        pa.field("fluorescence", pa.float64()),
    ]
)

_BLOCK = 1 << 15
_PAUSE = 6 * 3_600_000_000
_PATCHES = 6
_LEG = 4_000.0
_TOWS, _READINGS = 30, 31


def table(rows: int = 400_000, *, tows: int = 1, seed: int = 0) -> pa.Table:
    """The readings as one table, one tow after the other.

    >>> table(4, tows=2)["tow"].to_pylist()
    [0, 0, 1, 1]
    """
    return blocks.collect(_batches(rows, tows, seed), SCHEMA)


def write(
    path: Union[str, os.PathLike[str]],
    rows: int = 1_600_000,
    *,
    tows: int = 4,
    seed: int = 0,
    files: int = 4,
    progress: Progress | None = None,
) -> None:
    """Write the readings to a new folder of Parquet files, one tow after the other.

    In 400,000 readings, delta frames on fluorescence number in the hundreds at 0.05, below 15,000 at 0.005.
    """
    blocks.write(path, _batches(rows, tows, seed), SCHEMA, rows, files, progress)


def _waves(rng: np.random.Generator, count: int, shortest: float, longest: float) -> Waves:
    """Waves of these periods (in seconds), higher where longer, of variance 1 together."""
    period = np.geomspace(shortest, longest, count)
    return Waves.draw(rng, np.sqrt(2 * period / period.sum()), period)


@dataclass(frozen=True, slots=True)
class _Water:
    """The water that one tow meets: internal waves, and patches of dye along layers of equal density."""

    heave: Waves
    pace: Waves
    texture: Waves
    centre: np.ndarray
    width: np.ndarray
    layer: np.ndarray
    thickness: np.ndarray
    strength: np.ndarray

    @staticmethod
    def draw(rng: np.random.Generator) -> _Water:
        """The water of one tow."""
        dilution = rng.uniform(0.7, 1.2)
        return _Water(
            heave=_waves(rng, 8, 300, 5_000),
            pace=_waves(rng, 4, 900, 7_000),
            texture=_waves(rng, 12, 25, 400),
            centre=rng.uniform(-0.4 * _LEG, 0.4 * _LEG, _PATCHES),
            width=rng.uniform(150, 500, _PATCHES),
            layer=1024 + rng.normal(0, 0.5, _PATCHES),
            thickness=rng.uniform(0.4, 0.8, _PATCHES),
            strength=dilution * 0.045 * rng.lognormal(0, 0.35, _PATCHES),
        )

    def readings(self, seconds: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Depth, density and fluorescence at these times."""
        noise = rng.standard_normal((3, len(seconds)))
        cycle = np.cos(2 * np.pi * seconds / 220 + 0.6 * self.pace.at(seconds))
        depth = np.clip(32.5 - 27.5 * np.clip(1.04 * cycle, -1, 1) + 0.02 * noise[0], 5, 60)
        heaved = depth + 2.5 * self.heave.at(seconds)
        density = 1023.8 + 1.6 * np.tanh((heaved - 26) / 10) + 0.008 * heaved
        along = _LEG * (np.abs((2 * seconds / _LEG) % 2 - 1) - 0.5)  # 2 m/s, to and fro across the patches
        dye = np.zeros_like(seconds)
        for n in range(_PATCHES):
            across = np.exp(-(((along - self.centre[n]) / self.width[n]) ** 2))
            within = np.exp(-(((density - self.layer[n]) / self.thickness[n]) ** 2))
            dye += self.strength[n] * across * within
        dye *= np.exp(0.35 * self.texture.at(seconds))
        dye += 0.004 + (0.0002 + 0.003 * dye) * noise[1]
        return depth, density + 0.0005 * noise[2], np.maximum(dye, 0)


def _batches(rows: int, tows: int, seed: int) -> Iterator[pa.RecordBatch]:
    begun = 0
    for tow, count in enumerate(blocks.split(blocks.at_least("rows", rows), blocks.at_least("tows", tows))):
        water = _Water.draw(blocks.random(seed, _TOWS, tow))
        begin = blocks.START + begun * EVERY + tow * _PAUSE
        for first in range(0, count, _BLOCK):
            step = np.arange(first, first + _BLOCK)
            depth, density, dye = water.readings(step * (EVERY / 1e6), blocks.random(seed, _READINGS, tow, first))
            columns = [
                pa.array(np.full(_BLOCK, tow, np.int32)),
                blocks.times(begin + EVERY * step),
                pa.array(np.round(depth, 2)),
                pa.array(np.round(density, 4)),
                pa.array(np.round(dye, 5)),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA).slice(0, count - first)
        begun += count

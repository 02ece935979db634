"""Positions of 22 players and a ball at 10 Hz: smooth motion around the places of their roles."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

import numpy as np
import pyarrow as pa

from panewise.data import blocks
from panewise.data.blocks import Progress
from panewise.data.waves import Waves

__all__ = ["EVERY", "OBJECTS", "SCHEMA", "table", "write"]

EVERY = 100_000
"""Microseconds between two positions of an object."""

OBJECTS = 23
"""Object 0 is the ball, 1 to 11 play from left to right, 12 to 22 from right to left; 1 and 12 keep the goal."""

SCHEMA = pa.schema(
    [
        pa.field("object_id", pa.int32()),
        pa.field("frame", pa.int64()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("x_m", pa.float64()),
        pa.field("y_m", pa.float64()),
    ]
)

_LENGTH, _WIDTH = 52.5, 34.0
_FASTEST = 8.8  # 9 m/s, less what rounding to centimetres may add
_STEPS = 4_096
_MATCH = 40
_ROLES = [
    (-46, 0),
    (-30, -22),
    (-33, -8),
    (-33, 8),
    (-30, 22),
    (-12, -20),
    (-16, -6),
    (-16, 6),
    (-12, 20),
    (2, -7),
    (2, 7),
]
_SWAY, _SWAYING = np.array([7.0, 5.0, 3.2, 1.6]), np.array([95.0, 37.0, 17.0, 8.0])  # metres, seconds
_ROLL, _ROLLING = np.array([20.0, 14.0, 8.0, 5.0]), np.array([75.0, 31.0, 13.0, 7.0])


def table(rows: int = 1_242_000, *, seed: int = 0) -> pa.Table:
    """The positions as one table, in order of time, then object; 1,242,000 rows are 90 minutes.

    >>> table(46)["frame"].to_pylist()[22:24]
    [0, 1]
    """
    return blocks.collect(_batches(rows, seed), SCHEMA)


def write(
    path: Union[str, os.PathLike[str]],
    rows: int = 1_242_000,
    *,
    seed: int = 0,
    files: int = 2,
    progress: Progress | None = None,
) -> None:
    """Write the positions to a new folder of Parquet files, in order of time, then object.

    No player is faster than 9 m/s, nor the ball faster than 20; all stay on a pitch of 105 x 68 m around (0, 0).
    """
    blocks.write(path, _batches(rows, seed), SCHEMA, rows, files, progress)


@dataclass(frozen=True, slots=True)
class _Player:
    """A place, a share in where the game is, and a motion of their own that is now slow, now fast."""

    place: tuple[float, float]
    follows: float
    sway: tuple[Waves, Waves]
    turn: float
    scale: float

    @staticmethod
    def draw(rng: np.random.Generator, place: tuple[float, float], keeper: bool, game: tuple[Waves, Waves]) -> _Player:
        """A player who keeps to 9 m/s."""
        follows, size = (0.08, 0.3) if keeper else (0.35, 1.0)
        sway = (Waves.draw(rng, size * _SWAY, _SWAYING), Waves.draw(rng, 0.8 * size * _SWAY, _SWAYING))
        x, y = (1.8 * own.fastest() + follows * shared.fastest() for own, shared in zip(sway, game, strict=True))
        return _Player(place, follows, sway, rng.uniform(0, 60), min(1.0, _FASTEST / math.hypot(x, y)))

    def at(self, seconds: np.ndarray, game: tuple[Waves, Waves]) -> tuple[np.ndarray, np.ndarray]:
        """Where the player is."""
        minute = 2 * np.pi / 60
        own = seconds + 0.8 / minute * np.sin(minute * (seconds + self.turn))  # their clock runs at 0.2 to 1.8
        x, y = (
            place + self.scale * (sway.at(own) + self.follows * shared.at(seconds))
            for place, sway, shared in zip(self.place, self.sway, game, strict=True)
        )
        return x, y


def _batches(rows: int, seed: int) -> Iterator[pa.RecordBatch]:
    rng = blocks.random(seed, _MATCH)
    ball = (Waves.draw(rng, _ROLL, _ROLLING), Waves.draw(rng, 0.65 * _ROLL, _ROLLING))
    game = (ball[0].first(2), ball[1].first(2))
    players = [
        _Player.draw(rng, (side * x, side * y), number == 0, game)
        for side in (1.0, -1.0)
        for number, (x, y) in enumerate(_ROLES)
    ]
    for first in range(0, -(-blocks.at_least("rows", rows) // OBJECTS), _STEPS):
        frame = np.arange(first, first + _STEPS)
        seconds = frame * (EVERY / 1e6)
        paths = [(ball[0].at(seconds), ball[1].at(seconds)), *(player.at(seconds, game) for player in players)]
        x = np.clip(np.stack([x for x, _ in paths], axis=1), -_LENGTH, _LENGTH)
        y = np.clip(np.stack([y for _, y in paths], axis=1), -_WIDTH, _WIDTH)
        columns = [
            pa.array(np.tile(np.arange(OBJECTS, dtype=np.int32), _STEPS)),
            pa.array(np.repeat(frame, OBJECTS)),
            blocks.times(np.repeat(blocks.START + EVERY * frame, OBJECTS)),
            pa.array(np.round(x, 2).ravel()),
            pa.array(np.round(y, 2).ravel()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA).slice(0, rows - first * OBJECTS)

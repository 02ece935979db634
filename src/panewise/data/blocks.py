"""Blocks of rows in time order: what every generator yields, collected into a table or written to Parquet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Union

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from panewise.errors import SpecError

__all__ = ["START", "Progress", "at_least", "collect", "random", "split", "times", "write"]

Progress = Callable[[int, int], None]
"""Told (rows written, rows in all) after each row group."""

START = 1_704_067_200_000_000
"""Where every made-up stream begins: Monday 2024-01-01 00:00 UTC, in microseconds."""

_GROUP = 1_000_000


def at_least(name: str, value: int, least: int = 1) -> int:
    """A whole number that is not too small."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SpecError(f"`{name}` ({value!r}) must be a whole number of at least {least}. Give a larger one.")
    return value


def random(seed: int, *place: int) -> np.random.Generator:
    """The random stream of one place (a generator, a block, a day): a function of its arguments alone.

    >>> float(random(7, 1, 2).random()) == float(random(7, 1, 2).random())
    True
    """
    return np.random.default_rng(np.random.SeedSequence(at_least("seed", seed, 0), spawn_key=place))


def times(micros: np.ndarray) -> pa.Array:
    """Microseconds since the epoch as timestamps in UTC."""
    return pa.array(micros, pa.int64()).view(pa.timestamp("us", tz="UTC"))


def collect(blocks: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """All rows as one table, for small streams."""
    return pa.Table.from_batches(blocks, schema).combine_chunks()


def write(
    path: Union[str, os.PathLike[str]],
    blocks: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    rows: int,
    files: int,
    progress: Progress | None,
) -> None:
    """Write the rows to a new folder: files in time order, of equal size, in row groups of about a million rows.

    The folder appears when it is complete, so that an interrupted run is never taken for a whole one.
    """
    if at_least("files", files) > at_least("rows", rows):
        raise SpecError(
            f"`files` ({files}) can't be more than `rows` ({rows}): a file would be empty. Use fewer files."
        )
    target = Path(path)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise SpecError(
            f"`path` ({str(target)!r}) is not empty, and old rows would mix with new ones. Give a new folder."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    done = 0
    with TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        folder = Path(scratch, target.name)
        folder.mkdir()
        groups = _regroup(blocks, [size for file in split(rows, files) for size in _groups(file)])
        for number, file in enumerate(split(rows, files)):
            with pq.ParquetWriter(folder / f"part-{number:05d}.parquet", schema, compression="zstd") as writer:
                for size in _groups(file):
                    writer.write_table(next(groups), row_group_size=size)
                    done += size
                    if progress is not None:
                        progress(done, rows)
        os.replace(folder, target)


def split(total: int, parts: int) -> list[int]:
    """Equal parts of a whole, in whole numbers.

    >>> split(10, 4)
    [2, 3, 2, 3]
    """
    return [total * (n + 1) // parts - total * n // parts for n in range(parts)]


def _groups(rows: int) -> list[int]:
    return split(rows, max(1, round(rows / _GROUP)))


def _regroup(blocks: Iterator[pa.RecordBatch], sizes: list[int]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    count = 0
    for size in sizes:
        while count < size:
            held.append(next(blocks))
            count += held[-1].num_rows
        over = count - size
        last = held.pop()
        yield pa.Table.from_batches([*held, last.slice(0, last.num_rows - over)])
        held, count = ([last.slice(last.num_rows - over)] if over else []), over

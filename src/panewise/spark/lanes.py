"""Lanes: under which key Spark holds a shard, so that its partitions get equally many."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa

from panewise.kernel.page import Array
from panewise.spec.job import MAX_SHARDS

__all__ = ["PAGES", "lanes", "page_of", "shard_in"]

PAGES = "lane bigint, page binary"
_SEED = 42


@cache
def lanes(shards: int) -> tuple[int, ...]:
    """The key of each of so many shards, a power of two.

    Spark deals keys to partitions by a hash: of the keys 0 to 15, one of four partitions gets six, one of eight four.
    The hash of these ends in the number of the shard, so that a number of partitions that is a power of two has as many
    in each.

    >>> [shard_in(lane) for lane in lanes(8)], [int(hashed(np.array(lane))) % 8 for lane in lanes(8)]
    ([0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7])
    """
    found = []
    for shard in range(shards):
        tried = shard + MAX_SHARDS * np.arange(64 * shards, dtype=np.int64)
        found.append(int(tried[np.flatnonzero(hashed(tried) % shards == shard)[0]]))
    return tuple(found)


def shard_in(lane: int) -> int:
    """The shard that a key is of."""
    return lane % MAX_SHARDS


def page_of(lane: int, page: bytes) -> pa.RecordBatch:
    """A page on its way to a shard, as `PAGES`."""
    return pa.RecordBatch.from_pydict({"lane": pa.array([lane], pa.int64()), "page": [page]})


def hashed(values: Array) -> Array:
    """Spark's hash of a bigint that is not negative (Murmur3, 32 bits)."""
    values = np.asarray(values, np.uint64)
    with np.errstate(over="ignore"):
        low, high = values.astype(np.uint32), (values >> np.uint64(32)).astype(np.uint32)
        found = _mixed(_mixed(np.uint32(_SEED), low), high) ^ np.uint32(8)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            found = (found ^ (found >> np.uint32(shift))) * np.uint32(factor)
    return np.asarray(found ^ (found >> np.uint32(16)))


def _mixed(before: Array | np.uint32, word: Array) -> Array:
    word = _turned(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _turned(before ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _turned(word: Array, by: int) -> Array:
    return np.asarray((word << np.uint32(by)) | (word >> np.uint32(32 - by)))

"""The shard of a key: Spark's `xxhash64` of its columns, by which streams have dealt keys since their first run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel.compiled import compiled, inlined
from panewise.kernel.page import Array

__all__ = ["can_deal", "shards_of"]

_SEED = 42
_LONG = 18
"""How many digits a decimal has at most that Spark holds in 64 bits."""
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)


def can_deal(types: Iterable[pa.DataType]) -> bool:
    """Whether keys of these types are dealt here as Spark does.

    >>> can_deal([pa.int32(), pa.string()]), can_deal([pa.float64()])
    (True, False)
    """
    return all(_words(kind) is not None or _is_text(kind) for kind in types)


def shards_of(keys: Sequence[pa.Array], count: int, shards: int) -> Array:
    """The shards of so many keys; null leaves a hash as it is, and what has no keys is all in the first.

    >>> shards_of([pa.array([1, 2, None]), pa.array(["a", None, None])], 3, 1 << 10)
    array([198, 973,  42], dtype=int32)
    """
    if not keys:
        return np.zeros(count, np.int32)
    found = np.full(count, _SEED, np.uint64)
    for key in keys:
        valid = np.asarray(key.is_valid().to_numpy(zero_copy_only=False))
        held, places = _bytes(key)
        _hash(found, held, places, valid)
    # as Spark's pmod has it: the hash has a sign, and what is left has none
    return (found.view(np.int64) % shards).astype(np.int32)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or _is_large(kind))


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def _words(kind: pa.DataType) -> pa.DataType | None:
    """As which integer Spark takes a value of a type, if it does."""
    if pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_signed_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_decimal128(kind) and kind.precision <= _LONG:
        return pa.int64()
    return None


def _bytes(key: pa.Array) -> tuple[Array, Array]:
    """What stands for each value, one after another, and where each begins."""
    if _is_text(key.type):
        _, offsets, data = key.buffers()
        wide = np.dtype(np.int64 if _is_large(key.type) else np.int32)
        places = np.frombuffer(offsets, wide, len(key) + 1, wide.itemsize * key.offset).astype(np.int64)
        return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8), places
    whole = _words(key.type)
    if pa.types.is_decimal(key.type):
        # without their point: the lower of the two words that each has
        pairs = np.frombuffer(key.buffers()[1], np.int64, 2 * len(key), 16 * key.offset)
        values = np.ascontiguousarray(pairs[::2])
    else:
        filled = key.view(whole) if pa.types.is_temporal(key.type) else key.cast(whole)
        values = filled.fill_null(0).to_numpy(zero_copy_only=False)
    return values.view(np.uint8), np.arange(len(key) + 1, dtype=np.int64) * values.itemsize


@inlined
def _turned(x: Any, by: Any) -> Any:
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))


@inlined
def _round(lane: Any, word: Any) -> Any:
    return _turned(lane + word * _P2, 31) * _P1


@compiled
def _word(held: Any, at: Any, size: Any) -> Any:
    """So many bytes as a number, the lowest first."""
    found = np.uint64(0)
    for i in range(size):
        found |= np.uint64(held[at + i]) << np.uint64(8 * i)
    return found


@compiled
def _hash(found: Any, held: Any, places: Any, valid: Any) -> None:
    """The hash of each value that is there, from what was found before it."""
    for i in range(len(found)):
        if not valid[i]:
            continue
        seed, at, end = found[i], places[i], places[i + 1]
        size = end - at
        if size >= 32:
            a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
            while at + 32 <= end:
                a = _round(a, _word(held, at, 8))
                b = _round(b, _word(held, at + 8, 8))
                c = _round(c, _word(held, at + 16, 8))
                d = _round(d, _word(held, at + 24, 8))
                at += 32
            x = _turned(a, 1) + _turned(b, 7) + _turned(c, 12) + _turned(d, 18)
            for lane in (a, b, c, d):
                x = (x ^ _round(np.uint64(0), lane)) * _P1 + _P4
        else:
            x = seed + _P5
        x += np.uint64(size)
        while at + 8 <= end:
            x = _turned(x ^ _round(np.uint64(0), _word(held, at, 8)), 27) * _P1 + _P4
            at += 8
        if at + 4 <= end:
            x = _turned(x ^ (_word(held, at, 4) * _P1), 23) * _P2 + _P3
            at += 4
        while at < end:
            x = _turned(x ^ (np.uint64(held[at]) * _P5), 11) * _P1
            at += 1
        x ^= x >> np.uint64(33)
        x *= _P2
        x ^= x >> np.uint64(29)
        x *= _P3
        found[i] = x ^ (x >> np.uint64(32))

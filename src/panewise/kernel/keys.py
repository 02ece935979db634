"""Keys of several columns as dense numbers, and rows in the order of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.kernel.compiled import compiled
from panewise.kernel.page import Array

__all__ = ["KeyTable", "codes", "grouped", "grouped_some", "hashed", "slots_of"]

_TABLE = 1 << 16
"""How far apart keys may be that are looked up in a table, however few rows there are."""
_SPARSE = 4
"""And how many times as far as there are keys, or rows."""


def codes(columns: Sequence[pa.Array], rows: int) -> tuple[Array, Array]:
    """A number for each row, equal where all columns are, counted from 0 as they first appear; and those first rows.

    >>> codes([pa.array(["a", "b", "a", None])], 4)
    (array([0, 1, 0, 2]), array([0, 1, 3]))
    """
    found = np.zeros(rows, np.int64)
    count = min(rows, 1)
    for i, column in enumerate(columns):
        more, size = _dense(column)
        found, count = (more, size) if i == 0 else _dense(pa.array(found * size + more))
    return found, _firsts(found, count)


def _dense(column: pa.Array) -> tuple[Array, int]:
    encoded = column.dictionary_encode(null_encoding="encode")
    return np.array(encoded.indices.to_numpy(zero_copy_only=False), np.int64), len(encoded.dictionary)


@compiled
def _firsts(found: Any, count: Any) -> Any:
    """The first row of each number; numbers are given as they appear."""
    firsts = np.empty(count, np.int64)
    seen = 0
    for i in range(len(found)):
        if found[i] == seen:
            firsts[seen] = i
            seen += 1
    return firsts


@compiled
def grouped(ranks: Any, count: Any) -> Any:
    """Rows in order of their ranks 0 to count, equal ones as they stand; and where each rank begins."""
    offsets = np.zeros(count + 1, np.int64)
    for i in range(len(ranks)):
        offsets[ranks[i] + 1] += 1
    for k in range(count):
        offsets[k + 1] += offsets[k]
    to = offsets[:-1].copy()
    order = np.empty(len(ranks), np.int64)
    for i in range(len(ranks)):
        order[to[ranks[i]]] = i
        to[ranks[i]] += 1
    return order, offsets


@compiled
def grouped_some(ranks: Any, count: Any, places: Any) -> Any:
    """Some rows in order of their ranks, equal ones as they are named.

    >>> grouped_some(np.array([1, 0, 1, 0]), 2, np.array([0, 2, 3]))
    array([3, 0, 2])
    """
    to = np.zeros(count + 1, np.int64)
    for place in places:
        to[ranks[place] + 1] += 1
    for k in range(count):
        to[k + 1] += to[k]
    order = np.empty(len(places), np.int64)
    for place in places:
        order[to[ranks[place]]] = place
        to[ranks[place]] += 1
    return order


def hashed(columns: Sequence[pa.Array], rows: int) -> Array:
    """A number for each row, from 0 to 2**63, the same for the same key in every process.

    >>> found = hashed([pa.array(["a", "b", "a", None])], 4)
    >>> int(found[0]) == int(found[2]), len(set(found.tolist()))
    (True, 3)
    """
    found = np.zeros(rows, np.uint64)
    for column in columns:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        absent = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
        if not _is_fixed(column.type):
            text = (column if _is_text(column.type) else column.cast(pa.string())).cast(pa.large_binary())
            _, offsets, data = text.buffers()
            places = np.frombuffer(offsets, np.int64, len(text) + 1, 8 * text.offset)
            held = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
            _mix_bytes(found, places, held, absent)
        else:
            _mix(found, _bits(column), absent)
    return (found >> np.uint64(1)).astype(np.int64)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def _is_fixed(kind: pa.DataType) -> bool:
    """Whether a value is a number of at most 64 bits."""
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return bool(numbers or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _bits(column: pa.Array) -> Array:
    """Values as 64 bits; 0.0 is -0.0."""
    kind = column.type
    if pa.types.is_floating(kind):
        return (np.asarray(pc.fill_null(column.cast(pa.float64()), 0.0)) + 0.0).view(np.uint64)
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        column = column.view(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.view(pa.int32())
    whole = pa.uint64() if pa.types.is_uint64(kind) else pa.int64()
    return np.asarray(pc.fill_null(column.cast(whole), 0)).view(np.uint64)


@compiled
def _mixed(x: Any) -> Any:
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def _mix(found: Any, bits: Any, absent: Any) -> None:
    for i in range(len(found)):
        x = np.uint64(0x9E3779B97F4A7C15) if absent[i] else bits[i]
        found[i] = _mixed(found[i] * np.uint64(0xD6E8FEB86659FD93) + x + np.uint64(1))


@compiled
def _mix_bytes(found: Any, places: Any, data: Any, absent: Any) -> None:
    for i in range(len(found)):
        x = np.uint64(0xCBF29CE484222325)
        if absent[i]:
            x = np.uint64(0x9E3779B97F4A7C15)
        else:
            for j in range(places[i], places[i + 1]):
                x = (x ^ np.uint64(data[j])) * np.uint64(0x100000001B3)
        found[i] = _mixed(found[i] * np.uint64(0xD6E8FEB86659FD93) + x + np.uint64(1))


def slots_of(known: Sequence[pa.Array], keys: Sequence[pa.Array], count: int, rows: int) -> Array:
    """Where each key stands among so many known ones, which differ; `count` or more, if it is none of them.

    >>> slots_of([pa.array(["a", None])], [pa.array(["b", "a", None])], 2, 3)
    array([2, 0, 1])
    """
    if not known:
        return np.zeros(rows, np.int64)
    if len(known) == 1:
        if pa.types.is_signed_integer(keys[0].type) and not (keys[0].null_count or known[0].null_count):
            names = known[0].to_numpy()
            low, high = (int(names.min()), int(names.max())) if len(names) else (0, 0)
            if high - low < max(4 * rows, _TABLE):
                table = np.full(high - low + 1, count, np.int64)
                table[names.astype(np.int64) - low] = np.arange(len(names))
                return np.asarray(_looked_up(keys[0].to_numpy(), low, table, count))
        places = pc.index_in(keys[0], known[0])
        return np.asarray(pc.fill_null(places, count).to_numpy(zero_copy_only=False), np.int64)
    both = [pa.concat_arrays([old, key]) for old, key in zip(known, keys, strict=True)]
    return codes(both, count + rows)[0][count:]


@compiled
def _looked_up(keys: Any, low: Any, table: Any, none: Any) -> Any:
    found = np.empty(len(keys), np.int64)
    high = low + len(table) - 1
    for i in range(len(keys)):
        key = np.int64(keys[i])
        found[i] = table[key - low] if low <= key <= high else none
    return found


@compiled
def _extremes(keys: Any) -> Any:
    low = high = np.int64(keys[0])
    for i in range(len(keys)):
        key = np.int64(keys[i])
        low, high = min(low, key), max(high, key)
    return low, high


@compiled
def _numbered(keys: Any, low: Any, table: Any, count: Any) -> Any:
    """The slot of each key, by a table from `low` on, where -1 is for none; new keys get the next ones from `count` on.

    And the rows of those that are new.
    """
    found, new, known = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64), count
    for i in range(len(keys)):
        place = np.int64(keys[i]) - low
        slot = table[place]
        if slot < 0:
            table[place] = slot = count
            new[count - known] = i
            count += 1
        found[i] = slot
    return found, new[: count - known]


class KeyTable:
    """Keys and the slots that they were given, in the order in which they came; a key keeps its slot for good."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self.columns = [pa.array([], kind) for kind in types]
        self.size = 0
        # of one column of whole numbers that are not far apart: the slots of all from the lowest to the highest
        self._low, self._table = 0, np.empty(0, np.int32)
        self._tabled = 0

    def __len__(self) -> int:
        return self.size

    def slots(self, keys: Sequence[pa.Array], rows: int) -> Array:
        """The slot of each key; new keys get new slots."""
        if not self.columns:
            self.size = max(self.size, 1)
            return np.zeros(rows, np.int64)
        known = self.size
        if rows and len(keys) == 1 and self._fits(keys[0]):
            found, new = _numbered(keys[0].to_numpy(), self._low, self._table, known)
            if len(new):
                more = keys[0].take(pa.array(new)).cast(self.columns[0].type)
                self.columns = [pa.concat_arrays([self.columns[0], more])]
                self.size = self._tabled = known + len(new)
            return np.asarray(found)
        both = [pa.concat_arrays([old, key.cast(old.type)]) for old, key in zip(self.columns, keys, strict=True)]
        found, firsts = codes(both, known + rows)
        if len(firsts) > known:
            self.columns = [column.take(pa.array(firsts)) for column in both]
            self.size = len(firsts)
        return found[known:]

    def _fits(self, key: pa.Array) -> bool:
        """Whether these keys can be looked up in the table, which is made anew where it must be larger."""
        if not pa.types.is_signed_integer(key.type) or key.null_count:
            return False
        low, high = _extremes(key.to_numpy())
        inside = self._low <= low and high < self._low + len(self._table)
        if inside and self._tabled == self.size:
            return True
        known = self.columns[0]
        if known.null_count:
            return False
        names = known.to_numpy().astype(np.int64)
        if len(names):
            low, high = min(low, int(names.min())), max(high, int(names.max()))
        if high - low >= max(_TABLE, _SPARSE * max(len(names), len(key))):
            return False
        # with room for as many again, so that keys that grow do not make it anew each time
        self._low, self._table = low, np.full(2 * (high - low + 1), -1, np.int32)
        self._table[names - low] = np.arange(len(names))
        self._tabled = self.size
        return True

    def restore(self, columns: Sequence[pa.Array]) -> None:
        """Go on with keys that were given slots before."""
        self.columns, self.size, self._tabled = list(columns), len(columns[0]), -1

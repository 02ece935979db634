"""Aggregates whose state grows with the values: distinct ones, percentiles, sketches, and a user's own.

A reducer works on columns: `reduce` makes one state for each owner of some values, `merge` one for each owner of some
states, `finish` results. States are Arrow, so that they travel and are kept as they are; that of no rows may be null.
Values are never null, and come in any order: whatever the pieces, and whatever the order of merging, the result is the
same.
"""

from __future__ import annotations

import json
import math
import sys
from collections import deque
from functools import reduce
from itertools import pairwise
from typing import Any, Protocol

import datasketches
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.errors import DataError
from panewise.kernel.page import Array
from panewise.spec.aggregates import Aggregate

__all__ = ["ACCURACY", "Reducer", "over_runs", "reduced", "reducer_of"]

ACCURACY = 0.01
"""An approximate percentile is off by at most this, relative to itself."""
_LG_K = 12
_FEW = 16
"""How often a state is merged directly, at most: by doubling, values are moved at every level, and twice as often."""


class Reducer(Protocol):
    """What the aggregates here share."""

    type: pa.DataType
    """Of results."""
    state: pa.DataType

    def reduce(self, owner: Array, values: pa.Array, count: int) -> pa.Array:
        """The states of so many owners, from a value for each entry of `owner`."""

    def merge(self, owner: Array, states: pa.Array, count: int) -> pa.Array:
        """The states of so many owners, from a state for each entry of `owner`."""

    def finish(self, states: pa.Array) -> pa.Array:
        """A result for each state."""


def _lists(owner: Array, values: pa.Array, count: int) -> pa.Array:
    """The values of each owner."""
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=count), out=offsets[1:])
    if len(owner) and (np.diff(owner) < 0).any():
        values = values.take(pa.array(np.argsort(owner, kind="stable")))
    return pa.LargeListArray.from_arrays(pa.array(offsets), values)


def _owners(owner: Array, states: pa.Array) -> tuple[Array, pa.Array]:
    """The values of lists, one after another, and whose each is."""
    return np.repeat(owner, _lengths(states)), states.flatten()


def _lengths(states: pa.Array) -> Array:
    return np.asarray(pc.fill_null(pc.list_value_length(states), 0).to_numpy(zero_copy_only=False), np.int64)


def _present(owner: Array, states: pa.Array, count: int) -> tuple[list[Any], Array]:
    """The states that are there, by owner, and where those of each begin."""
    there = np.flatnonzero(states.is_valid().to_numpy(zero_copy_only=False))
    order = there[np.argsort(owner[there], kind="stable")]
    return states.take(pa.array(order)).to_pylist(), np.searchsorted(owner[order], np.arange(count + 1))


def _unique(owner: Array, values: pa.Array) -> tuple[Array, pa.Array]:
    """Each value of an owner once, by owner, in order."""
    encoded = values.dictionary_encode()
    known = encoded.dictionary.take(pc.sort_indices(encoded.dictionary))
    rank, size = pc.index_in(encoded.dictionary, known).to_numpy(zero_copy_only=False), max(len(known), 1)
    pair = np.unique(owner * size + rank[encoded.indices.to_numpy(zero_copy_only=False)])
    return pair // size, known.take(pa.array(pair % size))


class _Distinct:
    """How many different values there are: they are kept."""

    type = pa.int64()

    def __init__(self, values: pa.DataType) -> None:
        self.state = pa.large_list(values)

    def reduce(self, owner: Array, values: pa.Array, count: int) -> pa.Array:
        return _lists(*_unique(owner, values), count)

    def merge(self, owner: Array, states: pa.Array, count: int) -> pa.Array:
        return self.reduce(*_owners(owner, states), count)

    def finish(self, states: pa.Array) -> pa.Array:
        return pa.array(_lengths(states))


class _Percentile:
    """Between the two values that the share lies between, in proportion: all values are kept, in order."""

    type = pa.float64()
    state = pa.large_list(pa.float64())

    def __init__(self, share: float) -> None:
        self._share = share

    def reduce(self, owner: Array, values: pa.Array, count: int) -> pa.Array:
        return self._sorted(owner, values.cast(pa.float64(), safe=False), count)

    def merge(self, owner: Array, states: pa.Array, count: int) -> pa.Array:
        return self._sorted(*_owners(owner, states), count)

    def _sorted(self, owner: Array, values: pa.Array, count: int) -> pa.Array:
        order = np.lexsort((values.to_numpy(zero_copy_only=False), owner))
        return _lists(owner[order], values.take(pa.array(order)), count)

    def finish(self, states: pa.Array) -> pa.Array:
        owner, flat = _owners(np.arange(len(states)), states)
        values = np.asarray(flat.to_numpy(zero_copy_only=False))
        sizes = np.bincount(owner, minlength=len(states))
        firsts, some = np.cumsum(sizes) - sizes, sizes > 0
        place = self._share * (sizes[some] - 1)
        low, high = np.floor(place), np.ceil(place)
        a, b = (values[firsts[some] + where.astype(np.int64)] for where in (low, high))
        found = np.zeros(len(states))
        with np.errstate(invalid="ignore"):
            found[some] = np.where((low == high) | (a == b), a, (high - place) * a + (place - low) * b)
        return pa.array(found, mask=~some)


class _ApproxPercentile:
    """The same to one percent: values are counted in buckets that grow by two percent (a DDSketch, without a limit).

    Buckets are numbered in the order of their values: those of negative ones below zero, which is that of 0.
    """

    type = pa.float64()
    state = pa.large_list(pa.struct([pa.field("bucket", pa.int64()), pa.field("n", pa.int64())]))
    _growth = (1 + ACCURACY) / (1 - ACCURACY)
    _middle, _infinite = 1 << 20, 1 << 40
    _last = math.ceil(math.log(sys.float_info.max) / math.log(_growth))

    def __init__(self, share: float) -> None:
        self._share = share

    def _counted(self, owner: Array, buckets: Array, counts: Array, count: int) -> pa.Array:
        order = np.lexsort((buckets, owner))
        owner, buckets, counts = owner[order], buckets[order], counts[order]
        new = np.ones(len(owner), bool)
        new[1:] = (np.diff(owner) != 0) | (np.diff(buckets) != 0)
        firsts = np.flatnonzero(new)
        sums = np.add.reduceat(counts, firsts) if len(firsts) else counts
        cells = [pa.array(buckets[firsts]), pa.array(sums)]
        return _lists(owner[firsts], pa.StructArray.from_arrays(cells, fields=list(self.state.value_type)), count)

    def reduce(self, owner: Array, values: pa.Array, count: int) -> pa.Array:
        x = np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
        size = np.abs(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            number = np.ceil(np.log(size) / np.log(self._growth))
        number = np.where(np.isinf(size), self._infinite, np.where(size < np.finfo(float).tiny, 0, number))
        zero = size < np.finfo(float).tiny
        buckets = np.where(zero, 0, np.sign(x) * (number + self._middle)).astype(np.int64)
        return self._counted(owner, buckets, np.ones(len(x), np.int64), count)

    def merge(self, owner: Array, states: pa.Array, count: int) -> pa.Array:
        owner, cells = _owners(owner, states)
        buckets, counts = (np.asarray(cells.field(i).to_numpy()) for i in range(2))
        return self._counted(owner, buckets, counts, count)

    def finish(self, states: pa.Array) -> pa.Array:
        owner, cells = _owners(np.arange(len(states)), states)
        buckets, counts = (np.asarray(cells.field(i).to_numpy()) for i in range(2))
        so_far = np.cumsum(counts)
        totals = np.bincount(owner, counts, minlength=len(states))
        before = np.cumsum(totals) - totals
        some = totals > 0
        # the first bucket whose values reach beyond the place
        rank = before + np.floor(self._share * np.maximum(totals - 1, 0))
        found, which = np.unique(buckets[np.searchsorted(so_far, rank[some], side="right")], return_inverse=True)
        result = np.zeros(len(states))
        result[some] = np.array([self._value(bucket) for bucket in found.tolist()])[which]
        return pa.array(result, mask=~some)

    def _value(self, bucket: int) -> float:
        """The middle of a bucket."""
        if bucket == 0 or abs(bucket) > self._infinite:
            return bucket * math.inf if bucket else 0.0
        number = abs(bucket) - self._middle
        # the last bucket ends where real numbers do
        end = self._growth**number if number < self._last else sys.float_info.max
        return math.copysign(2 / (1 + self._growth) * end, bucket)


class _ApproxDistinct:
    """How many different values there are, to about two percent: HyperLogLog, 4,096 registers."""

    type = pa.int64()
    state = pa.large_binary()

    def reduce(self, owner: Array, values: pa.Array, count: int) -> pa.Array:
        owner, values = _unique(owner, _hashable(values))
        return self._made(values.to_pylist(), np.searchsorted(owner, np.arange(count + 1)))

    def merge(self, owner: Array, states: pa.Array, count: int) -> pa.Array:
        given, edges = _present(owner, states, count)
        return self._made(list(map(_read, given)), edges)

    def _made(self, given: list[Any], edges: Array) -> pa.Array:
        found: list[bytes | None] = []
        for first, last in pairwise(edges.tolist()):
            union = datasketches.hll_union(_LG_K)
            deque(map(union.update, given[first:last]), 0)
            result = union.get_result(datasketches.tgt_hll_type.HLL_8)
            found.append(result.serialize_compact() if last > first else None)
        return pa.array(found, self.state)

    def finish(self, states: pa.Array) -> pa.Array:
        return pa.array([self._estimate(state) for state in states.to_pylist()], pa.int64())

    def _estimate(self, state: bytes | None) -> int:
        if state is None:
            return 0
        # what was merged is estimated by its registers alone, and not by the order in which they were filled
        union = datasketches.hll_union(_LG_K)
        for _ in range(2):
            union.update(_read(state))
        return round(float(union.get_estimate()))


def _read(state: bytes) -> Any:
    return datasketches.hll_sketch.deserialize(state)


def _hashable(values: pa.Array) -> pa.Array:
    """As integers, real numbers or text; text begins with a letter, because sketches leave the empty one out."""
    kind = values.type
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind):
        return values.cast(pa.int64())
    if pa.types.is_time32(kind):
        return values.cast(pa.int32())
    if pa.types.is_date(kind):
        return values.cast(pa.date32()).cast(pa.int32())
    if pa.types.is_decimal(kind):
        return values.cast(pa.string())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.binary_join_element_wise(pa.scalar("x", kind), values, pa.scalar("", kind))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.array([f"x{value.hex()}" for value in values.to_pylist()], pa.string())
    return values


class _Custom:
    """A user's own: states are written as JSON."""

    state = pa.large_string()

    def __init__(self, name: str, user: Any) -> None:
        self._name, self._user = name, user()
        self.type = pa.type_for_alias(user.type)

    def _written(self, states: list[Any]) -> pa.Array:
        try:
            return pa.array([json.dumps(_plain(state)) for state in states], self.state)
        except TypeError as e:
            raise DataError(
                f"`agg[{self._name}]`: {type(self._user).__name__} keeps a state that can't be written as JSON ({e}). "
                "Keep numbers, text, lists and dictionaries of them, whose keys are text."
            ) from None

    def reduce(self, owner: Array, values: pa.Array, count: int) -> pa.Array:
        given = _lists(owner, values, count)
        edges = np.asarray(given.offsets.to_numpy())
        flat = given.values.to_numpy(zero_copy_only=False)
        user = self._user
        return self._written(
            [
                user.update(user.init(), flat[first:last]) if last > first else user.init()
                for first, last in pairwise(edges)
            ]
        )

    def merge(self, owner: Array, states: pa.Array, count: int) -> pa.Array:
        given, edges = _present(owner, states, count)
        found = []
        for first, last in pairwise(edges.tolist()):
            some = [json.loads(state) for state in given[first:last]]
            found.append(reduce(self._user.merge, some) if some else self._user.init())
        return self._written(found)

    def finish(self, states: pa.Array) -> pa.Array:
        user = self._user
        given = [user.init() if state is None else json.loads(state) for state in states.to_pylist()]
        found = [user.finish(state) for state in given]
        try:
            results = [_plain(each) for each in found]
            made = pa.array(results, self.type)
        except (TypeError, OverflowError, pa.ArrowException) as e:
            raise self._misfit(str(e).splitlines()[0].rstrip(".")) from None
        # Arrow cuts what is behind the point
        if pa.types.is_integer(self.type):
            for result, kept in zip(results, made.to_pylist(), strict=True):
                if result != kept:
                    raise self._misfit(f"{result} is not whole")
        return made

    def _misfit(self, said: str) -> DataError:
        name = type(self._user).__name__
        return DataError(
            f"`agg[{self._name}]`: {name} finishes with what is no {self.type}, its `type`: {said}. "
            "Return that or None, or change `type`."
        )


def _plain(value: Any) -> Any:
    """Numpy's numbers and arrays as Python's; in JSON the keys of dictionaries would all become text."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} of a dictionary is not text")
        return {key: _plain(each) for key, each in value.items()}
    return value


def reducer_of(name: str, call: Aggregate, values: pa.DataType) -> Reducer | None:
    """How an aggregate over such values is reduced; None for those that folds and tallies hold."""
    if call.custom is not None:
        return _Custom(name, call.custom)
    match call.function:
        case "count_distinct":
            return _Distinct(values)
        case "approx_count_distinct":
            return _ApproxDistinct()
        case "percentile":
            assert call.share is not None
            return _Percentile(call.share)
        case "approx_percentile":
            assert call.share is not None
            return _ApproxPercentile(call.share)
    return None


def reduced(reducer: Reducer, owner: Array, values: pa.Array, count: int) -> pa.Array:
    """The states of so many owners; values that are null do not count."""
    if values.null_count:
        there = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        owner, values = owner[there], values.take(pa.array(there))
    return reducer.reduce(owner, values, count)


def over_runs(reducer: Reducer, states: pa.Array, first: Array, last: Array) -> pa.Array:
    """A state for each run of states first[i] to last[i]: few are merged directly, many that overlap by doubling."""
    lengths = last - first
    if len(first) == len(states) and (lengths == 1).all() and (first == np.arange(len(first))).all():
        return states
    if int(lengths.sum()) > _FEW * (len(states) + len(first)):
        return _doubled(reducer, states, first, lengths)
    owner = np.repeat(np.arange(len(first)), lengths)
    offsets = np.cumsum(lengths) - lengths
    index = np.arange(int(lengths.sum())) - np.repeat(offsets - first, lengths)
    return reducer.merge(owner, states.take(pa.array(index)), len(first))


def _doubled(reducer: Reducer, states: pa.Array, first: Array, lengths: Array) -> pa.Array:
    """A run is cut into pieces of 1, 2, 4, ... states; those of one size are merged from those of half the size."""
    pieces: list[pa.Array] = []
    owners: list[Array] = []
    place, level = first.copy(), states
    for bit in range(int(lengths.max()).bit_length()):
        taken = np.flatnonzero(lengths >> bit & 1)
        pieces.append(level.take(pa.array(place[taken])))
        owners.append(taken)
        place[taken] += 1 << bit
        more = len(states) - (2 << bit) + 1
        if more <= 0 or not (lengths >> (bit + 1)).any():
            break
        both = np.tile(np.arange(more), 2)
        halves = pa.concat_arrays([level.slice(0, more), level.slice(1 << bit, more)])
        level = reducer.merge(both, halves, more)
    return reducer.merge(np.concatenate(owners), pa.concat_arrays(pieces), len(first))

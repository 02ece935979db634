"""Aggregates over segments: which fold an aggregate needs, what it reads, and what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from panewise.errors import DataError, InputError
from panewise.kernel import folds
from panewise.kernel.page import Array, in_one, numbers
from panewise.kernel.reducers import Reducer, reducer_of
from panewise.spec.aggregates import AS_THEY_ARE, Aggregate

__all__ = ["Aggregation", "Inputs", "Output", "check_input"]

_FLOAT_KINDS = {
    "sum": folds.SUM_F,
    "min": folds.MIN_F,
    "max": folds.MAX_F,
    "first": folds.FIRST_F,
    "last": folds.LAST_F,
}
_INT_KINDS = {"sum": folds.SUM_I, "min": folds.MIN_I, "max": folds.MAX_I, "first": folds.FIRST_I, "last": folds.LAST_I}
_INT_VALUED = (folds.COUNT_ROWS, folds.COUNT)
_NUMBERS_ONLY = ("sum", "avg", "stddev", "variance", "percentile", "approx_percentile")


@dataclass(frozen=True)
class Output:
    """One aggregate: its name, its fold, where it reads, and the type of its result; or its reducer."""

    name: str
    kind: int
    lane: int
    type: pa.DataType
    read_as: pa.DataType | None
    reducer: Reducer | None = None
    squared: bool = False
    """A variance, which folds know by its root."""


@dataclass(frozen=True)
class Inputs:
    """What aggregates read of some rows."""

    cells: tuple[Array, ...]
    """Kinds, lanes, floats, ints and valid, as folds and tallies take them."""
    columns: tuple[pa.Array, ...]
    """The values of each reducer."""


def _reads_ints(arrow: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_timestamp, pa.types.is_date)
    return any(kind(arrow) for kind in kinds)


def check_input(name: str, call: Aggregate, found: str, number: bool, other: bool, plain: bool = True) -> None:
    """Refuse what an aggregate cannot read; `other` is a time, a date or a boolean, which have no sum."""
    if call.custom is not None or call.function in AS_THEY_ARE:
        if not plain:
            raise InputError(
                f"`agg[{name}]` ({call}): {call.argument} has type {found}, which is not a plain value. "
                "Aggregate one of its parts, or cast it."
            )
        return
    only = call.function in _NUMBERS_ONLY
    if not number and (only or not other):
        takes = "numbers" if only else "numbers, times, dates and booleans"
        raise InputError(
            f"`agg[{name}]` ({call}): {call.argument} has type {found}; {call.function} takes {takes}. "
            "Cast it, or aggregate something else."
        )


def _as_lane(column: pa.Array, read_as: pa.DataType) -> Array:
    """A column as float64 or int64; what is null may hold anything."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.date32()).cast(pa.int32())
    # a float64 holds large integers only nearly, which is what avg and stddev take
    return numbers(column.cast(read_as, safe=read_as != pa.float64()))


class Aggregation:
    """All aggregates of a plan, over inputs of known types (None for count(*))."""

    def __init__(self, calls: Sequence[tuple[str, Aggregate]], types: Sequence[pa.DataType | None]) -> None:
        floats = ints = 0
        outputs: list[Output] = []
        for (name, call), arrow in zip(calls, types, strict=True):
            if arrow is None:
                outputs.append(Output(name, folds.COUNT_ROWS, 0, pa.int64(), None))
                continue
            if call.function == "count":
                outputs.append(Output(name, folds.COUNT, 0, pa.int64(), None))
                continue
            number = pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_decimal(arrow)
            check_input(name, call, str(arrow), number, _reads_ints(arrow), not pa.types.is_nested(arrow))
            reducer = reducer_of(name, call, arrow)
            if reducer is not None:
                outputs.append(Output(name, -1, 0, reducer.type, None, reducer))
                continue
            if call.function in ("avg", "stddev", "variance"):
                kind, result, whole = folds.AVG if call.function == "avg" else folds.STDDEV, pa.float64(), False
            elif _reads_ints(arrow):
                kind, whole = _INT_KINDS[call.function], True
                result = pa.int64() if call.function == "sum" else arrow
            else:
                kind, whole = _FLOAT_KINDS[call.function], False
                result = pa.float32() if pa.types.is_float32(arrow) and call.function != "sum" else pa.float64()
            lane, read_as = (ints, pa.int64()) if whole else (floats, pa.float64())
            outputs.append(Output(name, kind, lane, result, read_as, squared=call.function == "variance"))
            ints += whole
            floats += not whole
        self.outputs = tuple(outputs)
        self.n_floats, self.n_ints = floats, ints
        plain = [output for output in outputs if output.reducer is None]
        self.reducers = tuple(output.reducer for output in outputs if output.reducer is not None)
        self.kinds = np.array([output.kind for output in plain], np.int64)
        self.lanes = np.array([output.lane for output in plain], np.int64)

    def __len__(self) -> int:
        """How many of them are folded; the others are reduced."""
        return len(self.kinds)

    def read(self, columns: Sequence[pa.Array | None], rows: int) -> Inputs:
        """What aggregates read of rows, from a column for each, none for count(*)."""
        floats = np.empty((self.n_floats, rows), np.float64)
        ints = np.empty((self.n_ints, rows), np.int64)
        valid = np.ones((len(self), rows), np.uint8)
        a, given = 0, []
        for output, column in zip(self.outputs, columns, strict=True):
            if output.reducer is not None:
                given.append(column)
                continue
            if column is not None and column.null_count:
                valid[a] = column.is_valid().to_numpy(zero_copy_only=False)
            if column is not None and output.read_as is not None:
                (floats if output.read_as == pa.float64() else ints)[output.lane] = _as_lane(column, output.read_as)
            a += 1
        return Inputs((self.kinds, self.lanes, floats, ints, valid), tuple(given))

    def inputs(self, names: Sequence[str | None], rows: pa.Table) -> Inputs:
        """The same from the columns of these names."""
        columns = [None if name is None else in_one(rows.column(name)) for name in names]
        return self.read(columns, len(rows))

    def results(self, ff: Array, fi: Array, reduced: Sequence[pa.Array] = ()) -> list[pa.Array]:
        """One array per aggregate, from folds [m, A, ...] and from the states of reducers."""
        found, a, states = [], 0, iter(reduced)
        for output in self.outputs:
            if output.reducer is not None:
                found.append(output.reducer.finish(next(states)))
                continue
            found.append(self._result(output, ff[:, a], fi[:, a]))
            a += 1
        return found

    def _result(self, output: Output, ff: Array, fi: Array) -> pa.Array:
        n = fi[:, 0]
        if output.kind in _INT_VALUED:
            return pa.array(n)
        if (n == folds.OVERFLOWN).any():
            raise DataError(
                f"`agg[{output.name}]`: a sum of integers went beyond 64 bits. "
                'Sum a double instead: "sum(cast(x as double))".'
            )
        nothing = n == 0
        if output.kind >= folds.FIRST_F:
            nothing = n != 1
        if output.kind == folds.AVG:
            found = pa.array(ff[:, 0] / np.maximum(n, 1), mask=nothing)
        elif output.kind == folds.STDDEV:
            nothing = n < 2
            variance = ff[:, 1] / np.maximum(n - 1, 1)
            found = pa.array(variance if output.squared else np.sqrt(variance), mask=nothing)
        elif output.read_as == pa.int64():
            found = pa.array(fi[:, 1], mask=nothing)
        else:
            found = pa.array(ff[:, 0], mask=nothing)
        if pa.types.is_date32(output.type):
            return found.cast(pa.int32()).cast(output.type)
        return found.cast(output.type)

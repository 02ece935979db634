"""Aggregates over segments: which fold an aggregate needs, what it reads, and what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from panewise.errors import DataError, InputError
from panewise.kernel import folds
from panewise.kernel.page import Array, in_one, numbers
from panewise.spec.aggregates import Aggregate

__all__ = ["Aggregation", "Output", "check_input"]

_FLOAT_KINDS = {
    "sum": folds.SUM_F,
    "min": folds.MIN_F,
    "max": folds.MAX_F,
    "first": folds.FIRST_F,
    "last": folds.LAST_F,
}
_INT_KINDS = {"sum": folds.SUM_I, "min": folds.MIN_I, "max": folds.MAX_I, "first": folds.FIRST_I, "last": folds.LAST_I}
_INT_VALUED = (folds.COUNT_ROWS, folds.COUNT)


@dataclass(frozen=True)
class Output:
    """One aggregate: its name, its fold, where it reads, and the type of its result."""

    name: str
    kind: int
    lane: int
    type: pa.DataType
    read_as: pa.DataType | None


def _reads_ints(arrow: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_timestamp, pa.types.is_date)
    return any(kind(arrow) for kind in kinds)


def check_input(name: str, call: Aggregate, found: str, number: bool, other: bool) -> None:
    """Refuse what an aggregate cannot read; `other` is a time, a date or a boolean, which have no sum."""
    sums = call.function in ("sum", "avg", "stddev")
    if not number and (sums or not other):
        takes = "numbers" if sums else "numbers, times, dates and booleans"
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
        outputs = []
        for (name, call), arrow in zip(calls, types, strict=True):
            if arrow is None:
                outputs.append(Output(name, folds.COUNT_ROWS, 0, pa.int64(), None))
                continue
            if call.function == "count":
                outputs.append(Output(name, folds.COUNT, 0, pa.int64(), None))
                continue
            number = pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_decimal(arrow)
            check_input(name, call, str(arrow), number, _reads_ints(arrow))
            if call.function in ("avg", "stddev"):
                kind, result, whole = folds.AVG if call.function == "avg" else folds.STDDEV, pa.float64(), False
            elif _reads_ints(arrow):
                kind, whole = _INT_KINDS[call.function], True
                result = pa.int64() if call.function == "sum" else arrow
            else:
                kind, whole = _FLOAT_KINDS[call.function], False
                result = pa.float32() if pa.types.is_float32(arrow) and call.function != "sum" else pa.float64()
            outputs.append(Output(name, kind, ints if whole else floats, result, pa.int64() if whole else pa.float64()))
            ints += whole
            floats += not whole
        self.outputs = tuple(outputs)
        self.n_floats, self.n_ints = floats, ints
        self.kinds = np.array([o.kind for o in outputs], np.int64)
        self.lanes = np.array([o.lane for o in outputs], np.int64)

    def __len__(self) -> int:
        return len(self.outputs)

    def read(self, columns: Sequence[pa.Array | None], rows: int) -> tuple[Array, Array, Array]:
        """Floats, ints and valid of a page."""
        floats = np.empty((self.n_floats, rows), np.float64)
        ints = np.empty((self.n_ints, rows), np.int64)
        valid = np.ones((len(self), rows), np.uint8)
        for a, (output, column) in enumerate(zip(self.outputs, columns, strict=True)):
            if column is None:
                continue
            if column.null_count:
                valid[a] = column.is_valid().to_numpy(zero_copy_only=False)
            if output.read_as is not None:
                (floats if output.read_as == pa.float64() else ints)[output.lane] = _as_lane(column, output.read_as)
        return floats, ints, valid

    def inputs(self, names: Sequence[str | None], rows: pa.Table) -> tuple[Array, ...]:
        """What tallies read of rows, from the columns of these names."""
        columns = [None if name is None else in_one(rows.column(name)) for name in names]
        return self.kinds, self.lanes, *self.read(columns, len(rows))

    def results(self, ff: Array, fi: Array) -> list[pa.Array]:
        """One array per aggregate, from folds [m, A, ...]."""
        return [self._result(output, ff[:, a], fi[:, a]) for a, output in enumerate(self.outputs)]

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
            found = pa.array(np.sqrt(ff[:, 1] / np.maximum(n - 1, 1)), mask=nothing)
        elif output.read_as == pa.int64():
            found = pa.array(fi[:, 1], mask=nothing)
        else:
            found = pa.array(ff[:, 0], mask=nothing)
        if pa.types.is_date32(output.type):
            return found.cast(pa.int32()).cast(output.type)
        return found.cast(output.type)

"""A table in memory as a plan sees it: the columns that it names, held as Spark would hold them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from panewise.errors import InputError, did_you_mean
from panewise.kernel.page import in_one
from panewise.kernel.progress import check_at, progress_of
from panewise.kernel.punctuate import source_columns
from panewise.kernel.sqltypes import is_tidy, without_nan
from panewise.spec.aggregates import Calls
from panewise.spec.plan import PlanSpec
from panewise.spec.punctuate import InBand

__all__ = ["Source", "is_plain", "names_read", "plain", "read", "read_columns", "whole_rows"]

_TABLES = ("DataFrame", "LazyFrame", "Series")
_UNREADABLE = (pa.ArrowException, NotImplementedError, OverflowError, TypeError, ValueError)
_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
_NANOS, _DAY = 1_000, 86_400_000
_MAX = 2**63 - 1


@dataclass(frozen=True)
class Source:
    """The columns of a table under their names; those that the plan does not name are left null."""

    rows: pa.Table
    index: tuple[object, ...] = ()
    """The names of a pandas index, which are no columns."""

    def column(self, role: str, name: str) -> pa.Array:
        """A column by its name: as it is written, or but for case."""
        known = self.rows.column_names
        found = [i for i, c in enumerate(known) if c == name] or _places(name, known)
        if not found:
            if name in self.index:
                raise InputError(
                    f"`{role}` ({name!r}) is the index of the pandas table, not a column. Give table.reset_index()."
                )
            raise InputError(f"`{role}` ({name!r}): no such column. {did_you_mean(name, known)}")
        if len(_places(known[found[0]], known)) > 1:
            raise InputError(
                f"`{role}` ({name!r}): several columns have this name. Rename them, so that each has its own."
            )
        return in_one(self.rows.column(found[0]))

    def plain(self, role: str, name: str) -> pa.Array:
        """A column of values that can be ordered."""
        found = self.column(role, name)
        if not is_plain(found.type):
            raise InputError(
                f"`{role}` ({name!r}) has type {found.type}, which is not a plain value. "
                "Use its parts as columns of their own, or cast it."
            )
        return found

    def at(self, name: str) -> pa.Array:
        """The column that orders rows, null where it is not a finite number."""
        found = self.column("at", name)
        check_at(name, str(found.type), is_plain(found.type))
        progress_of(name, found.type)
        if pa.types.is_floating(found.type):
            return pc.if_else(pc.is_finite(found), found, pa.scalar(None, found.type))
        if pa.types.is_uint64(found.type):
            most = pc.max(found).as_py()
            if most is not None and most > _MAX:
                raise InputError(
                    f"`at` ({name!r}) holds {most}, which is more than a signed 64-bit integer. "
                    "Cast it to double, or subtract where it begins."
                )
            return found.cast(pa.int64())
        return found


def read(table: Any, plan: PlanSpec, agg: Calls, more: Sequence[str] = ()) -> Source:
    """Check that it is a table, and take what the plan names, and more SQL texts."""
    scheme = plan.scheme
    texts = [*(value.text for value in scheme.values), *scheme.conditions, *more]
    if isinstance(plan.punctuation, InBand):
        texts.append(plan.punctuation.condition)
    texts += [call.argument for _, call in agg if call.argument is not None]
    return read_columns(table, (plan.ordered_by, *plan.keys, *plan.tie_break, *source_columns(plan)), texts)


def read_columns(table: Any, listed: Sequence[str], texts: Sequence[str]) -> Source:
    """Check that it is a table, and take the columns that are listed, or that SQL texts name."""
    names, column, rows, index = _opened(table)
    wanted = names_read(names, listed, texts)
    columns = []
    for i, name in enumerate(names):
        if name in wanted:
            with _readable(name):
                columns.append(plain(column(i)))
        else:
            columns.append(pa.nulls(rows))
    return Source(pa.table(columns, names=names), index)


def names_read(names: Sequence[str], listed: Sequence[str], texts: Sequence[str]) -> list[str]:
    """The columns that are listed, or that SQL texts may read."""
    text = "\n".join(texts).lower()
    wanted = {name.lower() for name in listed}
    return [name for name in names if name.lower() in wanted or _occurs(name.lower(), text)]


def whole_rows(table: Any) -> pa.StructArray:
    """The rows of a table as they are."""
    names, column, _, _ = _opened(table)
    columns = []
    for i, name in enumerate(names):
        with _readable(name):
            found = column(i)
            columns.append(found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found)
    return pa.StructArray.from_arrays(columns, names=names)


def plain(column: Any) -> pa.Array:
    """A column in one piece, decoded, in microseconds and days (rounded down); NaN is null, and -0.0 is 0.0."""
    array = in_one(column)
    while pa.types.is_dictionary(array.type) or pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array) if pa.types.is_run_end_encoded(array.type) else _decoded(array)
    kind = array.type
    if kind in _VIEWS:
        return array.cast(_VIEWS[kind])
    if pa.types.is_floating(kind):
        if is_tidy(array):
            return array
        real = without_nan(array.cast(pa.float32()) if pa.types.is_float16(kind) else array)
        # adding zero turns -0.0 into 0.0, which sorts and groups as one value
        return pc.add(real, pa.scalar(0, real.type))
    if pa.types.is_timestamp(kind):
        micros = _floored(array, _NANOS) if kind.unit == "ns" else array
        return micros.cast(pa.timestamp("us", kind.tz))
    if pa.types.is_date64(kind):
        return _floored(array, _DAY).cast(pa.int32()).cast(pa.date32())
    if pa.types.is_decimal(kind) and kind.bit_width < 128:
        return array.cast(pa.decimal128(kind.precision, kind.scale))
    return array


def is_plain(kind: pa.DataType) -> bool:
    """Whether values of a type can be ordered."""
    interval = kind == pa.month_day_nano_interval()
    return not (pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType) or interval)


def _places(name: str, known: list[str]) -> list[int]:
    return [i for i, column in enumerate(known) if column.lower() == name.lower()]


def _occurs(name: str, text: str) -> bool:
    """Whether SQL text may read a column; once too often does no harm."""
    return re.search(rf"(?<!\w){re.escape(name.replace('`', '``'))}(?!\w)", text) is not None


def _decoded(array: Any) -> pa.Array:
    if array.type.value_type in _VIEWS:
        array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(_VIEWS[array.type.value_type]))
    return array.dictionary_decode()


def _floored(array: pa.Array, size: int) -> pa.Array:
    """The whole number of times that `size` goes into each value; Arrow's own division rounds towards zero."""
    values = array.cast(pa.int64())
    times = pc.divide(values, size)
    below = pc.less(pc.subtract(values, pc.multiply(times, size)), 0)
    return pc.subtract(times, below.cast(pa.int64()))


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as e:
        said = str(e).strip().splitlines()[0].rstrip(".")
        raise InputError(
            f"`table`: the column {name!r} can't be read: {said}. Give its values one type that Arrow has, or cast it."
        ) from None


def _opened(table: Any) -> tuple[list[str], Callable[[int], Any], int, tuple[object, ...]]:
    """The names of the columns, a way to read each, the number of rows, and the names of the index."""
    if isinstance(table, (pa.Table, pa.RecordBatch)):
        return table.schema.names, table.column, table.num_rows, ()
    home, kind = _home(table)
    if kind == "Series":
        raise InputError(
            f"`table` (a {home} Series) is one column, but rows need an `at` beside it. "
            "Give a DataFrame with both columns."
        )
    if home == "pandas":
        names = [str(name) for name in table.columns]
        return names, lambda i: pa.array(table.iloc[:, i], from_pandas=True), len(table), tuple(table.index.names)
    if home == "polars":
        frame = table.collect() if kind == "LazyFrame" else table
        return frame.columns, lambda i: _from_polars(frame.to_series(i)), frame.height, ()
    raise InputError(
        f"`table` ({type(table).__name__}) must be an Arrow, pandas or polars table. "
        "For a Spark DataFrame use plan.segments(df)."
    )


def _home(table: object) -> tuple[str, str]:
    """The library of a table and what it is there, by the classes that it inherits from; neither is imported."""
    for parent in type(table).__mro__:
        home = parent.__module__.partition(".")[0]
        if home in ("pandas", "polars") and parent.__name__ in _TABLES:
            return home, parent.__name__
    return "", ""


def _from_polars(series: Any) -> Any:
    if str(series.dtype) == "Object":
        raise TypeError("it holds Python objects")
    return series.to_arrow()

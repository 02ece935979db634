"""Apply on Spark: keys, `at`, conditions, framing values and what aggregates read, as columns of fixed names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as F  # noqa: N812  # what every PySpark user calls it
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type

from panewise.errors import InputError, did_you_mean
from panewise.kernel.sequence import Layout, check_condition, check_value
from panewise.spec.aggregates import Aggregate
from panewise.spec.plan import PlanSpec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Applied", "apply"]

_TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)
_NESTED = (T.ArrayType, T.MapType, T.StructType)
_EPOCH = "timestamp_ntz'1970-01-01 00:00:00'"


@dataclass(frozen=True)
class Applied:
    """A DataFrame that holds just what the operator sees, and the layout of it."""

    df: DataFrame
    layout: Layout
    keys: tuple[T.StructField, ...]
    order: tuple[str, ...]
    """The columns that order the rows of a key."""


def _named(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class _Source:
    """Looks expressions up in a DataFrame, without running anything, and says clearly what does not fit."""

    def __init__(self, df: DataFrame) -> None:
        self.given = df
        reals = [f.name for f in df.schema.fields if isinstance(f.dataType, (T.FloatType, T.DoubleType))]
        twice = {name for name in reals if df.columns.count(name) > 1}
        # NaN is null in every column that we read; unused columns are pruned by Spark
        self.df = df.withColumns(
            {name: F.nanvl(F.col(_named(name)), F.lit(None)) for name in reals if name not in twice}
        )

    def type(self, option: str, text: str) -> T.DataType:
        """The type of an SQL expression."""
        try:
            return self.df.select(F.expr(text)).schema.fields[0].dataType
        except ParseException as e:
            said = (e.getMessage() or str(e)).strip().splitlines()[0]
            raise InputError(f"`{option}` ({text!r}) is not an SQL expression: {said} Correct the text.") from None
        except AnalysisException as e:
            raise InputError(self._unresolved(option, text, e)) from None

    def _unresolved(self, option: str, text: str, e: AnalysisException) -> str:
        parameters = e.getMessageParameters() or {}
        missing = (parameters.get("objectName") or "").replace("`", "")
        if (e.getCondition() or "").startswith("UNRESOLVED_COLUMN") and missing:
            return f"`{option}` ({text!r}): no column `{missing}`. {did_you_mean(missing, self.given.columns)}"
        said = (e.getMessage() or str(e)).strip().splitlines()[0]
        return f"`{option}` ({text!r}) can't be evaluated: {said} Correct the text."

    def column(self, role: str, name: str) -> tuple[Column, T.DataType]:
        """A column by its name."""
        found = [c for c in self.given.columns if c == name] or [
            c for c in self.given.columns if c.lower() == name.lower()
        ]
        if not found:
            raise InputError(f"`{role}` ({name!r}): no such column. {did_you_mean(name, self.given.columns)}")
        if len(found) > 1:
            raise InputError(f"`{role}` ({name!r}): several columns have this name. Rename them, so that each has its own.")
        return F.col(_named(found[0])), self.given.schema[found[0]].dataType

    def key(self, name: str) -> tuple[Column, T.DataType]:
        """A key column; 0.0 and -0.0 are one key."""
        column, kind = self.column("by", name)
        if isinstance(kind, _NESTED) or kind.typeName() == "variant":
            raise InputError(
                f"`by` ({name!r}) has type {kind.simpleString()}; a key is a plain value. Use its fields as columns of their own."
            )
        if isinstance(kind, (T.FloatType, T.DoubleType)):
            column = column + F.lit(0).cast(kind)
        return column, kind

    def condition(self, option: str, text: str) -> Column:
        """A boolean expression."""
        kind = self.type(option, text)
        check_condition(option, text, kind.simpleString(), isinstance(kind, (T.BooleanType, T.NullType)))
        return F.expr(text).cast("boolean")

    def input(self, name: str, call: Aggregate) -> tuple[Column | None, pa.DataType | None]:
        """What an aggregate reads."""
        if call.argument is None:
            return None, None
        kind = self.type(f"agg[{name}]", call.argument)
        column = F.expr(call.argument)
        if isinstance(kind, (T.DecimalType, T.NullType)):
            column, kind = column.cast("double"), T.DoubleType()
        if isinstance(kind, (T.FloatType, T.DoubleType)):
            column = F.nanvl(column, F.lit(None))
        return column, _arrow(kind)


def _arrow(kind: T.DataType) -> pa.DataType:
    """The Arrow type of a column; what Arrow lacks can be neither ordered nor aggregated, and null says so."""
    try:
        return to_arrow_type(kind, timezone="UTC")
    except PySparkException:
        return pa.null()


def _framing_value(kind: T.DataType, text: str, timed: bool) -> Column:
    if not timed:
        return F.nanvl(F.expr(text).cast("double"), F.lit(None))
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(F.expr(text)).cast("double")
    if isinstance(kind, T.DateType):
        return (F.datediff(F.expr(text), F.to_date(F.lit("1970-01-01"))) * F.lit(86_400_000_000)).cast("double")
    return F.expr(f"timestampdiff(MICROSECOND, {_EPOCH}, ({text}))").cast("double")


def apply(plan: PlanSpec, agg: tuple[tuple[str, Aggregate], ...], df: DataFrame) -> Applied:
    """Check a plan against a DataFrame and select what the operator needs."""
    source, scheme = _Source(df), plan.scheme
    keys = [source.key(name) for name in plan.keys]
    at, at_type = source.column("at", plan.ordered_by)
    layout_at = _arrow(at_type)
    columns = [column.alias(f"k{i}") for i, (column, _) in enumerate(keys)]
    columns.append(at.alias("at"))
    order = ["at"]
    for i, name in enumerate(plan.tie_break):
        columns.append(source.column("tie_break", name)[0].alias(f"b{i}"))
        order.append(f"b{i}")
    for i, value in enumerate(scheme.values):
        kind = source.type(scheme.value_option, value.text)
        number = isinstance(kind, (T.NumericType, T.NullType))
        check_value(scheme.value_option, value, kind.simpleString(), isinstance(kind, _TIMES), number)
        columns.append(_framing_value(kind, value.text, value.timed).alias(f"v{i}"))
        order.append(f"v{i}")
    for i, text in enumerate(scheme.conditions):
        columns.append(source.condition(scheme.condition_options[i], text).alias(f"c{i}"))
        order.append(f"c{i}")
    types = []
    for i, (name, call) in enumerate(agg):
        column, arrow = source.input(name, call)
        types.append(arrow)
        if column is not None:
            columns.append(column.alias(f"a{i}"))
            order.append(f"a{i}")
    fields = tuple(T.StructField(name, kind) for name, (_, kind) in zip(plan.keys, keys, strict=True))
    key_types = tuple(_arrow(kind) for _, kind in keys)
    layout = Layout(plan, agg, key_types, layout_at, tuple(types))
    return Applied(source.df.select(*columns), layout, fields, tuple(order))

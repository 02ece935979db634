"""Apply on Spark: keys, `at`, conditions, framing values and what aggregates read, as columns of fixed names."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from panewise.errors import InputError, did_you_mean
from panewise.kernel.aggregates import AS_THEY_ARE, check_input
from panewise.kernel.fill import FillLayout
from panewise.kernel.pack import FINAL as FINAL_ELEMENT
from panewise.kernel.pack import OTHER, PROMISE, PROMISE_OF_KEY, ROW
from panewise.kernel.progress import check_at, check_same_kind
from panewise.kernel.punctuate import ENDED, SHARD, heeds_rows, source_columns
from panewise.kernel.sequence import Layout, check_condition, check_value
from panewise.spec.aggregates import Aggregate, input_columns
from panewise.spec.emit import FINAL, Emit
from panewise.spec.fill import Filling, check_keys
from panewise.spec.frames import Value
from panewise.spec.plan import PlanSpec
from panewise.spec.punctuate import InBand, Ordered, Passed, per_key

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Applied", "AppliedFilling", "Dealt", "apply", "apply_filling", "named", "promised", "shard_of"]

_TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)
_REALS = (T.FloatType, T.DoubleType)
_EPOCH = "timestamp_ntz'1970-01-01 00:00:00'"
_ROW = "panewise row"
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@dataclass(frozen=True)
class Dealt:
    """What a stream's rows carry besides: the shard of their key, and the whole row, where late ones are wanted."""

    shards: int
    late: bool


@dataclass(frozen=True)
class Applied:
    """A DataFrame that holds just what the operator sees, and the layout of it."""

    df: DataFrame
    layout: Layout
    keys: tuple[T.StructField, ...]
    order: tuple[str, ...]
    """The columns that order the rows of a key."""


def named(name: str) -> str:
    """A column's name as SQL has it."""
    return "`" + name.replace("`", "``") + "`"


@contextmanager
def _unlogged() -> Iterator[None]:
    """Without the lines that PySpark logs, in this thread, for errors that we turn into our own."""
    thread = threading.get_ident()
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]

    def of_others(record: object) -> bool:
        return getattr(record, "thread", None) != thread

    for logger in loggers:
        logger.addFilter(of_others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(of_others)


def _said(e: PySparkException) -> str:
    """The sentence of a Spark error, without its class and SQL state."""
    line = (e.getMessage() or str(e)).strip().splitlines()[0]
    said = re.sub(r"^\[[A-Z0-9_.]+\] |;? *SQLSTATE: .*$", "", line).strip()
    return said if said.endswith((".", "!", "?")) else f"{said}."


def _real(column: Column, kind: T.DataType) -> Column:
    """A floating column with null for NaN and one zero: -0.0 sorts and groups as 0.0, so it must be 0.0."""
    return F.nanvl(column, F.lit(None)) + F.lit(0).cast(kind)


def _twice(df: DataFrame) -> set[str]:
    """The names that several columns share, as Spark compares them."""
    names = df.columns
    seen = [name.lower() for name in names]
    if len(set(seen)) < len(seen) and df.sparkSession.conf.get("spark.sql.caseSensitive") == "true":
        seen = names
    return {name for name, folded in zip(names, seen, strict=True) if seen.count(folded) > 1}


class _Source:
    """Looks expressions up in a DataFrame, without running anything, and says clearly what does not fit."""

    def __init__(self, df: DataFrame, at: str) -> None:
        self._given, self._twice = df, _twice(df)
        # NaN is null in every column that we read
        kinds = {f.name: f.dataType for f in df.schema.fields if isinstance(f.dataType, _REALS)}
        reals = {name: _real(F.col(named(name)), kind) for name, kind in kinds.items() if name not in self._twice}
        # the row as it was is taken before; unused columns are pruned by Spark
        row = F.struct(*(F.col(named(name)) for name in df.columns if name not in self._twice))
        self.df = df.withColumns({**reals, _ROW: row})
        self._types: dict[str, T.StructType] = {}
        self.at, self.at_type = self._column("at", at)
        usable = isinstance(self.at_type, (*_TIMES, T.IntegralType, *_REALS))
        check_at(at, self.at_type.simpleString(), usable)
        if isinstance(self.at_type, _REALS):
            # an infinite `at` orders nothing; NaN is beyond all numbers here
            self.at = F.when(F.abs(self.at) < F.lit(float("inf")), self.at)

    def _column(self, role: str, name: str) -> tuple[Column, T.DataType]:
        known = self._given.columns
        found = [c for c in known if c == name] or [c for c in known if c.lower() == name.lower()]
        if not found:
            raise InputError(f"`{role}` ({name!r}): no such column. {did_you_mean(name, known)}")
        if len(found) > 1 or found[0] in self._twice:
            raise InputError(
                f"`{role}` ({name!r}): several columns have this name. Rename them, so that each has its own."
            )
        return F.col(named(found[0])), self._given.schema[found[0]].dataType

    def plain(self, role: str, name: str) -> tuple[Column, T.DataType]:
        """A column by its name, of values that can be ordered."""
        column, kind = self._column(role, name)
        if not _is_plain(kind):
            raise InputError(
                f"`{role}` ({name!r}) has type {kind.simpleString()}, which is not a plain value. "
                "Use its parts as columns of their own, or cast it."
            )
        return column, kind

    def key(self, name: str) -> tuple[Column, T.DataType]:
        """A key column."""
        column, kind = self.plain("by", name)
        if isinstance(kind, T.StringType) and not kind.isUTF8BinaryCollation():
            raise InputError(
                f"`by` ({name!r}) has type {kind.simpleString()}, but keys are told apart letter by letter. "
                f"Use lower({name}), or collate({name}, 'UTF8_BINARY'), as a column of its own."
            )
        return column, kind

    def whole(self) -> Column:
        """The row as it is."""
        return F.col(named(_ROW))

    def promises(self, plan: Ordered) -> Column | None:
        """Which rows are punctuations, where they come in the data."""
        if isinstance(plan.punctuation, Passed) and plan.punctuation.shards:
            return F.col(named(SHARD)).isNotNull()
        if not isinstance(plan.punctuation, InBand):
            return None
        return F.coalesce(self.condition("condition", plan.punctuation.condition), F.lit(False))

    def look_up(self, texts: Sequence[str]) -> None:
        """Look expressions up in one go; where that fails, each is asked by itself, and says why."""
        with suppress(AnalysisException):
            self._look_up(tuple(dict.fromkeys(texts)))

    def _look_up(self, texts: tuple[str, ...]) -> None:
        with _unlogged():
            # beside `at` nothing can be an aggregate, in a struct nothing can be a generator
            asked = self.df.select(self.at, *(F.struct(F.expr(text)) for text in texts)).schema.fields[1:]
        self._types |= {text: cast(T.StructType, field.dataType) for text, field in zip(texts, asked, strict=True)}

    def _type(self, option: str, text: str) -> T.DataType:
        """The type of an SQL expression."""
        try:
            if text not in self._types:
                self._look_up((text,))
        except ParseException as e:
            raise InputError(f"`{option}` ({text!r}) is not an SQL expression: {_said(e)} Correct the text.") from None
        except AnalysisException as e:
            raise InputError(f"`{option}` ({text!r}){self._why(e)}") from None
        fields = self._types[text].fields
        if len(fields) != 1:
            raise InputError(f'`{option}` ({text!r}) must be one SQL expression. Write one, such as "speed > 30".')
        return fields[0].dataType

    def _why(self, e: AnalysisException) -> str:
        condition, parameters = e.getCondition() or "", e.getMessageParameters() or {}
        missing = (parameters.get("objectName") or "").replace("`", "")
        if condition.startswith("UNRESOLVED_COLUMN") and missing:
            return f": no column `{missing}`. {did_you_mean(missing, self._given.columns)}"
        if condition.startswith("MISSING_GROUP_BY"):
            return " is an aggregate, but each row needs a value of its own. Use a column, or add an OVER clause."
        if condition.startswith("UNSUPPORTED_GENERATOR"):
            return " makes many rows of one, but each row needs one value. Apply it to the DataFrame before."
        return f" can't be evaluated: {_said(e)} Correct the text."

    def condition(self, option: str, text: str) -> Column:
        """A boolean expression."""
        kind = self._type(option, text)
        check_condition(option, text, kind.simpleString(), isinstance(kind, (T.BooleanType, T.NullType)))
        return F.expr(text).cast("boolean")

    def value(self, option: str, value: Value) -> Column:
        """A framing value: a number, or a time in microseconds."""
        kind = self._type(option, value.text)
        number = isinstance(kind, (T.NumericType, T.NullType))
        check_value(option, value, kind.simpleString(), isinstance(kind, _TIMES), number)
        return _real(_number(kind, value.text, value.timed), T.DoubleType())

    def input(self, name: str, call: Aggregate) -> tuple[Column | None, pa.DataType | None]:
        """What an aggregate reads."""
        if call.argument is None:
            return None, None
        kind = self._type(f"agg[{name}]", call.argument)
        column = F.expr(call.argument)
        if isinstance(kind, T.NullType) or (isinstance(kind, T.DecimalType) and call.function not in AS_THEY_ARE):
            column, kind = column.cast("double"), T.DoubleType()
        if isinstance(kind, _REALS):
            column = _real(column, kind)
        if call.function == "count":
            # what has no order, or no place in Arrow, is there or not
            return (column, _arrow(kind)) if _is_plain(kind) else (F.when(column.isNotNull(), True), pa.bool_())
        number, other = isinstance(kind, T.NumericType), isinstance(kind, (*_TIMES, T.BooleanType))
        check_input(name, call, kind.simpleString(), number, other, _is_plain(kind))
        return column, _arrow(kind)


def _arrow(kind: T.DataType) -> pa.DataType:
    """The Arrow type of a column; null where Arrow has none."""
    try:
        return to_arrow_type(kind, timezone="UTC")
    except PySparkException:
        return pa.null()


def _is_plain(kind: T.DataType) -> bool:
    """Whether Spark can order values of a type, and hand them over."""
    arrow = _arrow(kind)
    known = isinstance(kind, T.NullType) or not pa.types.is_null(arrow)
    return known and not pa.types.is_nested(arrow) and not isinstance(kind, T.UserDefinedType)


def _number(kind: T.DataType, text: str, timed: bool) -> Column:
    if not timed:
        return F.expr(text).cast("double")
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(F.expr(text)).cast("double")
    if isinstance(kind, T.DateType):
        return (F.datediff(F.expr(text), F.to_date(F.lit("1970-01-01"))) * F.lit(86_400_000_000)).cast("double")
    return F.timestamp_diff("MICROSECOND", F.expr(_EPOCH), F.expr(text)).cast("double")


def shard_of(keys: Sequence[Column], shards: int) -> Column:
    """The shard of a key, the same in every run."""
    return F.pmod(F.xxhash64(*keys), F.lit(shards)).cast("int") if keys else F.lit(0)


def _dealt(
    source: _Source, plan: Ordered, promises: Column | None, keys: Sequence[Column], dealt: Dealt
) -> dict[str, Column]:
    """What a stream's rows carry besides: where they come from, what they are, and where they go."""
    columns = {f"s{i}": source.plain("per", name)[0] for i, name in enumerate(source_columns(plan))}
    kind = F.lit(ROW)
    if promises is not None:
        kind = F.when(promises, F.lit(PROMISE_OF_KEY if per_key(plan) else PROMISE)).otherwise(kind)
        if isinstance(plan.punctuation, Passed):
            kind = F.when(F.col(named(ENDED)), F.lit(FINAL_ELEMENT)).otherwise(kind)
    columns["kind"] = kind.cast("tinyint")
    columns["shard"] = shard_of(keys, dealt.shards)
    columns["clock"] = F.lit(None).cast("bigint")
    if dealt.late:
        columns["row"] = source.whole()
    return columns


def apply(
    plan: PlanSpec,
    agg: tuple[tuple[str, Aggregate], ...],
    df: DataFrame,
    emit: Emit = FINAL,
    dealt: Dealt | None = None,
) -> Applied:
    """Check a plan against a DataFrame and select what the operator needs."""
    source, scheme = _Source(df, plan.ordered_by), plan.scheme
    texts = [*(value.text for value in scheme.values), *scheme.conditions]
    source.look_up([*texts, *(call.argument for _, call in agg if call.argument is not None)])
    keys = [source.key(name) for name in plan.keys]
    ordering = {"at": source.at}
    ordering |= {f"b{i}": source.plain("tie_break", name)[0] for i, name in enumerate(plan.tie_break)}
    ordering |= {f"v{i}": source.value(scheme.value_option, value) for i, value in enumerate(scheme.values)}
    named = zip(scheme.condition_options, scheme.conditions, strict=False)
    ordering |= {f"c{i}": source.condition(option, text) for i, (option, text) in enumerate(named)}
    inputs = [source.input(name, call) for name, call in agg]
    for name, (column, _) in zip(input_columns(agg), inputs, strict=True):
        if name is not None and column is not None:
            ordering[name] = column
    fields = tuple(T.StructField(name, kind) for name, (_, kind) in zip(plan.keys, keys, strict=True))
    key_types = tuple(_arrow(kind) for _, kind in keys)
    layout = Layout(plan, agg, key_types, _arrow(source.at_type), tuple(arrow for _, arrow in inputs), emit)
    columns = {f"k{i}": column for i, (column, _) in enumerate(keys)} | ordering
    promises = source.promises(plan)
    if dealt is not None:
        columns |= _dealt(source, plan, promises, [column for column, _ in keys], dealt)
    elif promises is not None:
        source.df = source.df.filter(~promises)
    rows = source.df.select(*(column.alias(name) for name, column in columns.items()))
    return Applied(rows, layout, fields, tuple(ordering))


@dataclass(frozen=True)
class AppliedFilling:
    """A DataFrame that holds just what the fill sees, and the layout of it."""

    df: DataFrame
    layout: FillLayout
    promised: T.DataType
    """What is promised of its rows: a time, where segments are bounded by days and rows are not; else as `at` is."""


def promised(until: Column, kind: T.DataType, at: T.DataType) -> Column:
    """A promise as `at` has it: up to a time, of days those that are over just after it."""
    if kind == at:
        return until
    return F.date_sub((until + F.expr("INTERVAL '0.000001' SECOND")).cast(at), 1)


def apply_filling(
    filling: Filling,
    calls: tuple[tuple[str, Aggregate], ...],
    df: DataFrame,
    segments: T.StructType,
    keys: tuple[str, ...],
    dealt: Dealt,
    stream: bool = False,
) -> AppliedFilling:
    """Check a filling against a DataFrame and against the segments, and select what the fill needs."""
    source = _Source(df, filling.time)
    texts = [call.argument for _, call in calls if call.argument is not None]
    source.look_up([*texts, *(() if filling.where is None else (filling.where,))])
    bound = cast(T.StructType, segments["segment"].dataType)["start"].dataType
    check_same_kind(filling.time, _arrow(source.at_type), _arrow(bound))
    columns: dict[str, Column] = {}
    ours = F.lit(True)
    for i, (name, key) in enumerate(zip(filling.keys, keys, strict=True)):
        column, found = source.key(name)
        target = segments[key].dataType
        whole = isinstance(found, T.IntegralType) and isinstance(target, T.IntegralType)
        check_keys(name, found.simpleString(), key, target.simpleString(), found == target or whole)
        columns[f"k{i}"] = column if found == target else column.try_cast(target)
        if found != target:
            # a number that the segments' type can't hold is none of theirs
            ours = ours & (column.isNull() | columns[f"k{i}"].isNotNull())
    columns["at"] = source.at if source.at_type == bound else source.at.cast(bound)
    timed = isinstance(bound, T.DateType) and not isinstance(source.at_type, T.DateType)
    kind = source.at_type if timed else bound
    promises = source.promises(filling)
    if promises is not None and timed:
        columns["at"] = F.when(promises, promised(source.at, kind, bound)).otherwise(columns["at"])
    inputs = [source.input(name, call) for name, call in calls]
    for read, (argument, _) in zip(input_columns(calls), inputs, strict=True):
        if read is not None and argument is not None:
            columns[read] = argument
    key_types = tuple(_arrow(segments[key].dataType) for key in keys)
    parts = "part" in segments.names and "part" not in keys
    layout = FillLayout(filling, calls, key_types, _arrow(bound), tuple(arrow for _, arrow in inputs), parts)
    fits = ours
    if filling.where is not None:
        fits = ours & F.coalesce(source.condition("where", filling.where), F.lit(False))
    owners = [columns[f"k{i}"] for i in range(len(keys))]
    if stream:
        columns |= _dealt(source, filling, promises, owners, dealt)
        of_keys = ours if per_key(filling) else F.lit(True)
        kept = fits if promises is None else (promises & of_keys) | fits
        if heeds_rows(filling):
            # what does not fit says how far its source has come, and nothing else is read of it
            columns |= {read: F.when(fits, columns[read]) for read in input_columns(calls) if read is not None}
            columns["kind"] = F.when(fits, F.lit(ROW)).otherwise(F.lit(OTHER)).cast("tinyint")
            kept = fits | (source.at.isNotNull() & of_keys)
    else:
        columns["shard"] = shard_of(owners, dealt.shards)
        if dealt.late:
            columns["row"] = source.whole()
        kept = (fits if promises is None else ~promises & fits) & source.at.isNotNull()
    rows = source.df.filter(kept).select(*(column.alias(name) for name, column in columns.items()))
    return AppliedFilling(rows, layout, kind)

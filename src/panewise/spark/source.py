"""Apply a plan on Spark: keys, `at`, conditions, framing values and what aggregates read, as columns of fixed names."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from panewise.errors import InputError, did_you_mean
from panewise.kernel.aggregates import check_input
from panewise.kernel.pack import FINAL as FINAL_ELEMENT
from panewise.kernel.pack import PROD, PROMISE, PROMISE_OF_KEY, ROW
from panewise.kernel.prod import ARRIVED
from panewise.kernel.progress import check_at
from panewise.kernel.punctuate import ENDED, KIND, SHARD, source_columns
from panewise.kernel.sequence import Layout, check_condition, check_value
from panewise.kernel.sqltypes import Unsupported, zone_of
from panewise.spark.session import advise
from panewise.spec.aggregates import AS_THEY_ARE, Aggregate, Calls, input_columns
from panewise.spec.emit import FINAL, Emit
from panewise.spec.frames import Value
from panewise.spec.plan import PlanSpec
from panewise.spec.prod import Prods
from panewise.spec.punctuate import InBand, Ordered, Passed, per_key

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Applied", "Dealt", "Source", "apply", "arrow_of", "dealt_columns", "named", "shard_of"]

_TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)
_REALS = (T.FloatType, T.DoubleType)
_EPOCH = "timestamp_ntz'1970-01-01 00:00:00'"
_ROW = "panewise row"
_COLUMN = re.compile(r"(?i)(?!(true|false|null|user|session_user|current_\w+|local\w+)$)[a-z_]\w*", re.ASCII)
"""A text that is a column, if there is one of that name."""
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@dataclass(frozen=True)
class Dealt:
    """What a stream's rows carry besides: the shard of their key, and the whole row, where late ones are wanted."""

    shards: int
    late: bool


@dataclass(frozen=True)
class Applied:
    """A DataFrame that holds just what the operator sees, and the layout of it."""

    select: Callable[[], DataFrame]
    layout: Layout
    keys: tuple[T.StructField, ...]
    order: tuple[str, ...]
    """The columns that order the rows of a key."""

    @cached_property
    def df(self) -> DataFrame:
        """The rows; to have Spark look at them takes time, so they are selected where they are used."""
        return self.select()


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


class Source:
    """Looks expressions up in a DataFrame, without running anything, and says clearly what does not fit."""

    def __init__(self, df: DataFrame, at: str) -> None:
        advise(df.sparkSession)
        self._given, self._twice = df, _twice(df)
        self._types: dict[str, T.StructType] = {}
        self._at, self.at_type = self._column("at", at)
        usable = isinstance(self.at_type, (*_TIMES, T.IntegralType, *_REALS))
        check_at(at, self.at_type.simpleString(), usable)

    @property
    def columns(self) -> list[str]:
        """The names of columns."""
        return self._given.columns

    @cached_property
    def at(self) -> Column:
        """`at`; an infinite one orders nothing, and NaN is beyond all numbers here."""
        at = F.col(self._at)
        return F.when(F.abs(at) < F.lit(float("inf")), at) if isinstance(self.at_type, _REALS) else at

    @cached_property
    def df(self) -> DataFrame:
        """The rows, with null for NaN in every column that we read, and each as it was."""
        df = self._given
        kinds = {f.name: f.dataType for f in df.schema.fields if isinstance(f.dataType, _REALS)}
        reals = {name: _real(F.col(named(name)), kind) for name, kind in kinds.items() if name not in self._twice}
        # the row as it was is taken before; unused columns are pruned by Spark
        row = F.struct(*(F.col(named(name)) for name in df.columns if name not in self._twice))
        return df.withColumns({**reals, _ROW: row})

    def _column(self, role: str, name: str) -> tuple[str, T.DataType]:
        known = self._given.columns
        found = [c for c in known if c == name] or [c for c in known if c.lower() == name.lower()]
        if not found:
            raise InputError(f"`{role}` ({name!r}): no such column. {did_you_mean(name, known)}")
        if len(found) > 1 or found[0] in self._twice:
            raise InputError(
                f"`{role}` ({name!r}): several columns have this name. Rename them, so that each has its own."
            )
        return named(found[0]), self._given.schema[found[0]].dataType

    def plain(self, role: str, name: str) -> tuple[str, T.DataType]:
        """A column's name as SQL has it, and its type, of values that can be ordered."""
        column, kind = self._column(role, name)
        if not _is_plain(kind):
            raise InputError(
                f"`{role}` ({name!r}) has type {kind.simpleString()}, which is not a plain value. "
                "Use its parts as columns of their own, or cast it."
            )
        return column, kind

    def key(self, name: str) -> tuple[str, T.DataType]:
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
        asked = set(texts)
        for field in self._given.schema.fields:
            # what is just a column needs no asking
            if field.name in asked - self._twice and _COLUMN.fullmatch(field.name):
                self._types[field.name] = T.StructType([field])
        with suppress(AnalysisException):
            self._look_up(tuple(text for text in dict.fromkeys(texts) if text not in self._types))

    def _look_up(self, texts: tuple[str, ...]) -> None:
        if not texts:
            return
        with _unlogged():
            # beside `at` nothing can be an aggregate, in a struct nothing can be a generator
            asked = self._given.select(self.at, *(F.struct(F.expr(text)) for text in texts)).schema.fields[1:]
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

    def _input(self, name: str, call: Aggregate) -> T.DataType | None:
        """The type of what an aggregate reads."""
        if call.argument is None:
            return None
        kind = self._type(f"agg[{name}]", call.argument)
        if isinstance(kind, T.NullType) or (isinstance(kind, T.DecimalType) and call.function not in AS_THEY_ARE):
            kind = T.DoubleType()
        return kind

    def input_type(self, name: str, call: Aggregate) -> pa.DataType | None:
        """The type of what an aggregate reads, if it can read that."""
        kind = self._input(name, call)
        if kind is None:
            return None
        if call.function == "count":
            return arrow_of(kind) if _is_plain(kind) else pa.bool_()
        number, other = isinstance(kind, T.NumericType), isinstance(kind, (*_TIMES, T.BooleanType))
        check_input(name, call, kind.simpleString(), number, other, _is_plain(kind))
        return arrow_of(kind)

    def inputs(self, calls: Calls) -> dict[str, Column]:
        """What aggregates read."""
        found = {}
        for read, (name, call) in zip(input_columns(calls), calls, strict=True):
            kind = self._input(name, call)
            if read is None or kind is None or call.argument is None:
                continue
            column = F.expr(call.argument)
            if kind != self._type(f"agg[{name}]", call.argument):
                column = column.cast(kind)
            if isinstance(kind, _REALS):
                column = _real(column, kind)
            # what has no order, or no place in Arrow, is there or not
            found[read] = column if call.function != "count" or _is_plain(kind) else F.when(column.isNotNull(), True)
        return found


def arrow_of(kind: T.DataType) -> pa.DataType:
    """The Arrow type of a column; null where Arrow has none."""
    try:
        return to_arrow_type(kind, timezone="UTC")
    except PySparkException:
        return pa.null()


def _is_plain(kind: T.DataType) -> bool:
    """Whether Spark can order values of a type, and hand them over."""
    arrow = arrow_of(kind)
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


def _zone(df: DataFrame) -> str:
    """Where times without a zone are read off the wall."""
    zone = df.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC"
    try:
        zone_of(zone)
    except Unsupported as error:
        raise InputError(
            f"`prods` (prodder) asks by the clock in spark.sql.session.timeZone, as `at` has no zone: {error} is not "
            "known. Set another one, such as Europe/Berlin."
        ) from None
    return zone


def shard_of(keys: Sequence[Column], shards: int) -> Column:
    """The shard of a key, the same in every run."""
    return F.pmod(F.xxhash64(*keys), F.lit(shards)).cast("int") if keys else F.lit(0)


def dealt_columns(
    source: Source, plan: Ordered, promises: Column | None, keys: Sequence[Column], dealt: Dealt
) -> dict[str, Column]:
    """What a stream's rows carry besides: where they come from, what they are, and where they go."""
    columns = {f"s{i}": F.col(source.plain("per", name)[0]) for i, name in enumerate(source_columns(plan))}
    kind = F.lit(ROW)
    if promises is not None:
        kind = F.when(promises, F.lit(PROMISE_OF_KEY if per_key(plan) else PROMISE)).otherwise(kind)
        if isinstance(plan.punctuation, Passed):
            kind = F.when(F.col(named(ENDED)), F.lit(FINAL_ELEMENT)).otherwise(kind)
            if KIND in source.columns:
                kind = F.coalesce(F.col(named(KIND)), kind)
    columns["kind"] = kind.cast("tinyint")
    columns["shard"] = shard_of(keys, dealt.shards)
    columns["clock"] = F.lit(None).cast("bigint")
    if dealt.late:
        columns["row"] = source.whole()
    return columns


def apply(
    plan: PlanSpec,
    agg: Calls,
    df: DataFrame,
    emit: Emit = FINAL,
    dealt: Dealt | None = None,
    prods: Prods | None = None,
) -> Applied:
    """Check a plan against a DataFrame and select what the operator needs."""
    source, scheme = Source(df, plan.ordered_by), plan.scheme
    texts = [*(value.text for value in scheme.values), *scheme.conditions]
    source.look_up([*texts, *(call.argument for _, call in agg if call.argument is not None)])
    keys = [source.key(name) for name in plan.keys]
    ordering = {"at": source.at}
    ordering |= {f"b{i}": F.col(source.plain("tie_break", name)[0]) for i, name in enumerate(plan.tie_break)}
    ordering |= {f"v{i}": source.value(scheme.value_option, value) for i, value in enumerate(scheme.values)}
    conditions = zip(scheme.condition_options, scheme.conditions, strict=False)
    ordering |= {f"c{i}": source.condition(option, text) for i, (option, text) in enumerate(conditions)}
    inputs = tuple(source.input_type(name, call) for name, call in agg)
    ordering |= source.inputs(agg)
    fields = tuple(T.StructField(name, kind) for name, (_, kind) in zip(plan.keys, keys, strict=True))
    key_types = tuple(arrow_of(kind) for _, kind in keys)
    if prods is not None and prods.prodder is not None and isinstance(source.at_type, T.TimestampNTZType):
        prods = replace(prods, prodder=replace(prods.prodder, zone=_zone(df)))
    layout = Layout(plan, agg, key_types, arrow_of(source.at_type), inputs, emit, prods, prods is not None)
    owners = [F.col(name) for name, _ in keys]
    columns = {f"k{i}": column for i, column in enumerate(owners)} | ordering
    promises = source.promises(plan)
    if prods is not None and ARRIVED in source.columns:
        columns[ARRIVED] = F.col(named(ARRIVED))
    if dealt is not None:
        columns |= dealt_columns(source, plan, promises, owners, dealt)
        if prods is not None and prods.in_band is not None:
            asks = F.coalesce(source.condition("condition", prods.in_band.condition), F.lit(False))
            columns["kind"] = F.when(asks, F.lit(PROD)).otherwise(columns["kind"]).cast("tinyint")
            if not prods.in_band.per_key:
                columns |= {f"k{i}": F.when(~asks, owner) for i, owner in enumerate(owners)}
    elif promises is not None:
        source.df = source.df.filter(~promises)
    return Applied(
        lambda: source.df.select(*(column.alias(name) for name, column in columns.items())),
        layout, fields, tuple(ordering),
    )  # fmt: skip

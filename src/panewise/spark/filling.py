"""Apply a filling on Spark: what the fill reads of rows, as columns of fixed names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

from pyspark.sql import functions as F
from pyspark.sql import types as T

from panewise.kernel.fill import FillLayout
from panewise.kernel.pack import OTHER, ROW
from panewise.kernel.progress import check_same_kind
from panewise.kernel.punctuate import heeds_rows
from panewise.spark.source import Dealt, Source, arrow_of, dealt_columns, shard_of
from panewise.spec.aggregates import Calls, input_columns
from panewise.spec.fill import Filling, check_keys
from panewise.spec.punctuate import per_key

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["AppliedFilling", "apply_filling", "promised"]


@dataclass(frozen=True)
class AppliedFilling:
    """The layout of what the fill sees, and a DataFrame that holds just that, made when it is asked for."""

    layout: FillLayout
    promised: T.DataType
    """What is promised of its rows: a time, where segments are bounded by days and rows are not; else as `at` is."""
    select: Callable[[], DataFrame]

    @cached_property
    def df(self) -> DataFrame:
        """The rows."""
        return self.select()


def promised(until: Column, kind: T.DataType, at: T.DataType) -> Column:
    """A promise as `at` has it: up to a time, of days those that are over just after it."""
    if kind == at:
        return until
    return F.date_sub((until + F.expr("INTERVAL '0.000001' SECOND")).cast(at), 1)


def apply_filling(
    filling: Filling,
    calls: Calls,
    df: DataFrame,
    segments: T.StructType,
    keys: tuple[str, ...],
    dealt: Dealt,
    stream: bool = False,
) -> AppliedFilling:
    """Check a filling against a DataFrame and against the segments, and select what the fill needs."""
    source = Source(df, filling.time)
    texts = [call.argument for _, call in calls if call.argument is not None]
    source.look_up([*texts, *(() if filling.where is None else (filling.where,))])
    bound = cast(T.StructType, segments["segment"].dataType)["start"].dataType
    check_same_kind(filling.time, arrow_of(source.at_type), arrow_of(bound))
    owners: list[tuple[str, T.DataType, T.DataType]] = []
    for name, key in zip(filling.keys, keys, strict=True):
        column, found = source.key(name)
        target = segments[key].dataType
        whole = isinstance(found, T.IntegralType) and isinstance(target, T.IntegralType)
        check_keys(name, found.simpleString(), key, target.simpleString(), found == target or whole)
        owners.append((column, found, target))
    timed = isinstance(bound, T.DateType) and not isinstance(source.at_type, T.DateType)
    kind = source.at_type if timed else bound
    promises = source.promises(filling)
    where = None if filling.where is None else source.condition("where", filling.where)
    inputs = tuple(source.input_type(name, call) for name, call in calls)
    key_types = tuple(arrow_of(target) for _, _, target in owners)
    parts = "part" in segments.names and "part" not in keys
    layout = FillLayout(filling, calls, key_types, arrow_of(bound), inputs, parts)

    def select() -> DataFrame:
        columns: dict[str, Column] = {}
        ours = F.lit(True)
        for i, (name, found, target) in enumerate(owners):
            column = F.col(name)
            columns[f"k{i}"] = column if found == target else column.try_cast(target)
            if found != target:
                # a number that the segments' type can't hold is none of theirs
                ours = ours & (column.isNull() | columns[f"k{i}"].isNotNull())
        placed = list(columns.values())
        columns["at"] = source.at if source.at_type == bound else source.at.cast(bound)
        if promises is not None and timed:
            columns["at"] = F.when(promises, promised(source.at, kind, bound)).otherwise(columns["at"])
        columns |= source.inputs(calls)
        fits = ours if where is None else ours & F.coalesce(where, F.lit(False))
        if stream:
            columns |= dealt_columns(source, filling, promises, placed, dealt)
            of_keys = ours if per_key(filling) else F.lit(True)
            kept = fits if promises is None else (promises & of_keys) | fits
            if heeds_rows(filling):
                # what does not fit says how far its source has come, and nothing else is read of it
                columns |= {read: F.when(fits, columns[read]) for read in input_columns(calls) if read is not None}
                columns["kind"] = F.when(fits, F.lit(ROW)).otherwise(F.lit(OTHER)).cast("tinyint")
                kept = fits | (source.at.isNotNull() & of_keys)
        else:
            columns["shard"] = shard_of(placed, dealt.shards)
            if dealt.late:
                columns["row"] = source.whole()
            kept = (fits if promises is None else ~promises & fits) & source.at.isNotNull()
        return source.df.filter(kept).select(*(column.alias(name) for name, column in columns.items()))

    return AppliedFilling(layout, kind, select)

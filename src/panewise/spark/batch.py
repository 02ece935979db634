"""The batch executor: windows from panes, frames where rows lie, or from one pass over sorted rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from panewise.kernel.sequence import Layout
from panewise.spark.follow import bounded, follow_of, followed
from panewise.spark.framescan import frame_scan_of
from panewise.spark.framing import framed, one_pass, why_not_framed
from panewise.spark.source import apply
from panewise.spark.windows import windows
from panewise.spec.aggregates import Aggregates
from panewise.spec.emit import FINAL, Emit
from panewise.spec.frames import WindowScheme
from panewise.spec.plan import PlanSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

__all__ = ["path_of", "result_schema", "segments"]


def result_schema(layout: Layout, keys: tuple[T.StructField, ...]) -> T.StructType:
    """What comes out: key columns as they were, then what the emitter makes."""
    made = from_arrow_schema(layout.schema, prefer_timestamp_ntz=True)
    return T.StructType([*keys, *made.fields[len(keys) :]])


def segments(
    plan: PlanSpec,
    df: DataFrame,
    agg: Aggregates | None = None,
    observation: Observation | None = None,
    emit: Emit = FINAL,
) -> DataFrame:
    """The segments of a batch DataFrame."""
    first, *rest = plan.chain()
    found = _segments(first, df, agg, observation, FINAL if rest else emit)
    for i, following in enumerate(rest):
        follow = follow_of(following, found)
        sent = emit if i == len(rest) - 1 else FINAL
        found = bounded(follow, _segments(follow.plan(), followed(follow, found), None, None, sent))
    return found


def _segments(
    plan: PlanSpec, df: DataFrame, agg: Aggregates | None, observation: Observation | None, emit: Emit
) -> DataFrame:
    applied = apply(plan, plan.asked(agg), df, emit)
    rows = observed = applied.df
    if observation is not None:
        observed = rows.observe(
            observation, F.count(F.lit(1)).alias("rows"), F.count_if(F.col("at").isNull()).alias("null_at")
        )
    layout = applied.layout
    rows, observed = rows.filter("at is not null"), observed.filter("at is not null")
    if isinstance(plan.scheme, WindowScheme):
        return windows(applied, observed, result_schema(layout, applied.keys))
    result = result_schema(layout, applied.keys)
    if why_not_framed(layout, df):
        return one_pass(applied, observed, result)
    # what is observed must pass through Spark
    scan = frame_scan_of(df, layout) if observation is None else ""
    return framed(applied, rows, observed, result, None if isinstance(scan, str) else scan)


def path_of(plan: PlanSpec, df: DataFrame, agg: Aggregates | None = None) -> str:
    """Which way the rows of a DataFrame go, and why."""
    if isinstance(plan.scheme, WindowScheme):
        return ""
    layout = apply(plan, plan.asked(agg), df).layout
    why = why_not_framed(layout, df)
    if why:
        return f"all rows are shuffled by key and sorted: {why}"
    scan = frame_scan_of(df, layout)
    again = "rows of keys whose parts overlap, or do not meet, are read again, shuffled and sorted"
    if isinstance(scan, str):
        return f"Spark reads rows ({scan}), and they are framed where they lie; {again}"
    files = len(scan.rows.files)
    return f"scan lane: {files:,} Parquet file{'s' if files > 1 else ''}, read and framed by Python workers; {again}"

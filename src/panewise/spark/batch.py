"""The batch executor: windows from panes, frames where rows lie, or from one pass over sorted rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from panewise.kernel.sequence import Layout
from panewise.spark.fill import cores_of
from panewise.spark.follow import bounded, follow_of, followed
from panewise.spark.framescan import FrameScan, frame_scan_of
from panewise.spark.framing import framed, framed_files, is_certain, is_few, is_sparse, one_pass, why_not_framed
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
    layout = applied.layout
    result = result_schema(layout, applied.keys)
    why, scan = ("windows", "") if isinstance(plan.scheme, WindowScheme) else _way(layout, df, observation is not None)
    if not why and isinstance(scan, FrameScan):
        return framed_files(applied, df.sparkSession, scan, result)
    rows = observed = applied.df.filter("at is not null")
    if observation is not None:
        counts = F.count(F.lit(1)).alias("rows"), F.count_if(F.col("at").isNull()).alias("null_at")
        observed = applied.df.observe(observation, *counts).filter("at is not null")
    if isinstance(plan.scheme, WindowScheme):
        return windows(applied, observed, result)
    return one_pass(applied, observed, result) if why else framed(applied, rows, observed, result)


def _way(layout: Layout, df: DataFrame, observed: bool = False) -> tuple[str, FrameScan | str]:
    """Why rows are shuffled and sorted, if they are; and the files that workers read, or why Spark reads them."""
    why, scan = why_not_framed(layout, df.sparkSession), "what is observed must pass through Spark"
    found = scan if why or observed else frame_scan_of(df, layout)
    return why or is_few(df, found), found


def path_of(plan: PlanSpec, df: DataFrame, agg: Aggregates | None = None) -> str:
    """Which way the rows of a DataFrame go, and why."""
    if isinstance(plan.scheme, WindowScheme):
        return ""
    why, scan = _way(apply(plan, plan.asked(agg), df).layout, df)
    if why:
        return f"all rows are shuffled by key and sorted: {why}"
    again = "rows of keys whose parts overlap, or do not meet, are read again, shuffled and sorted"
    if isinstance(scan, str):
        return f"Spark reads rows ({scan}), and they are framed where they lie; {again}"
    files = len(scan.rows.files)
    told = f"scan lane: {files:,} Parquet file{'s' if files > 1 else ''}, read "
    if is_sparse(scan, len(scan.work(cores_of(df.sparkSession)))):
        return told + "by Python workers; they are in order, keys have few rows each, and rows are shuffled, not sorted"
    told += "and framed by Python workers; "
    if is_certain(scan):
        return told + "they are in order, and no row is shuffled or sorted"
    return told + again

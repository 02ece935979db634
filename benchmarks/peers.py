"""What others would run for the same segments: Spark SQL, Spark with numpy, Polars, DuckDB; the best plan of each.

All give sensor, start, end and rows, in no order. A run is what lies between two changes; the others take it as:

Spark SQL: one window by sensor and time for lag, row_number and lead, of which only the rows where something changes
are kept, and the last of each sensor; then lead over the same window, for which Spark neither shuffles nor sorts again.
Spark applyInPandas: a group for each sensor, and numpy on its columns; chains step from frame to frame, not row to row.
Polars: rle_id().over(sensor), then a group for each run; lazily, from the files, with as many threads as there are
cores. DuckDB: the plan of Spark SQL. With aggregates, runs are numbered by a running sum of changes, and grouped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

__all__ = ["AGG", "Runs", "above", "cells", "in_duckdb", "in_pandas", "in_polars", "in_spark_sql", "tumbling"]

AGG = {"mean": "avg(speed)", "n": "count(*)", "total": "sum(volume)"}
"""What is computed of each segment, where it is."""

RESULT = "sensor int, start timestamp, end timestamp, rows bigint"
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Runs:
    """Rows that share a value: which, whether a run of it counts, and whether its end is its last row or the next."""

    value: str
    """In SQL."""
    polars: pl.Expr
    """The same in Polars."""
    rows: str = "true"
    """Which rows are looked at."""
    counts: str = "true"
    least: int = 1
    held: bool = False


_SQL = """
with looked as (
  select sensor, ts, {value} as value from {source} where {rows}
), marked as (
  select *, lag(value) over w as before, lag(ts) over w as last, lead(ts) over w as next, row_number() over w as n
  from looked window w as (partition by sensor order by ts)
), changed as (
  select *, before is null or before <> value as begins from marked
  where before is null or before <> value or next is null
), closed as (
  select *, lead(begins) over w as other, lead(ts) over w as upto, lead(last) over w as final, lead(n) over w as m
  from changed window w as (partition by sensor order by ts)
), runs as (
  select sensor, value, ts as start,
         case when other is null then ts when other and {observed} then final else upto end as "end",
         case when other is null then 1 when other then m - n else m - n + 1 end as rows
  from closed where begins
)
select sensor, start, "end", cast(rows as bigint) as rows from runs where {counts} and rows >= {least}
"""


_WITH_AGG = """
with looked as (
  select sensor, ts, {value} as value, speed, volume from {source} where {rows}
), marked as (
  select *, case when value = lag(value) over w then 0 else 1 end as begins
  from looked window w as (partition by sensor order by ts)
), numbered as (
  select *, sum(begins) over w as run from marked window w as (partition by sensor order by ts)
)
select sensor, min(ts) as start, max(ts) as "end", count(*) as rows, {asked} from numbered where {counts}
group by sensor, run having count(*) >= {least}
"""


def _sql(runs: Runs, source: str, agg: bool = False) -> str:
    if agg:
        asked = ", ".join(f"{text} as {name}" for name, text in AGG.items())
        told = {"value": runs.value, "rows": runs.rows, "counts": runs.counts, "least": runs.least, "asked": asked}
        return _WITH_AGG.format(source=source, **told)
    told = {"value": runs.value, "rows": runs.rows, "counts": runs.counts, "least": runs.least}
    return _SQL.format(source=source, observed=str(not runs.held).lower(), **told)


def in_spark_sql(spark: SparkSession, df: DataFrame, runs: Runs, agg: bool = False) -> DataFrame:
    """Spark SQL."""
    df.createOrReplaceTempView("peer")
    return spark.sql(_sql(runs, "peer", agg).replace('"', "`"))


def in_duckdb(folder: Path, runs: Runs, agg: bool = False) -> pa.Table:
    """DuckDB, with as many threads as there are cores."""
    with duckdb.connect() as db:
        db.execute("set preserve_insertion_order = false")
        return db.sql(_sql(runs, f"read_parquet('{folder}/*.parquet')", agg)).to_arrow_table()


def in_polars(folder: Path, runs: Runs, ordered: bool = True, agg: bool = False) -> pa.Table:
    """Polars, with as many threads as there are cores; rows that are not in order are put in it."""
    rows = pl.scan_parquet(folder / "*.parquet").select(
        "sensor", "ts", *(("speed", "volume") if agg else ()), value=runs.polars
    )
    rows = rows if ordered else rows.sort("sensor", "ts")
    if runs.held:
        # those without a value are not looked at, and the end is the next row
        rows = rows.filter(pl.col("value").is_not_null()).with_columns(
            end=pl.col("ts").shift(-1).over("sensor").fill_null(pl.col("ts"))
        )
    else:
        rows = rows.with_columns(end=pl.col("ts"))
    rows = rows.with_columns(run=pl.col("value").rle_id().over("sensor"))
    if not runs.held:
        rows = rows.filter(pl.col("value"))
    of_each = {"start": pl.col("ts").first(), "end": pl.col("end").last(), "rows": pl.len().cast(pl.Int64)}
    if agg:
        of_each |= {"mean": pl.col("speed").mean(), "n": pl.len(), "total": pl.col("volume").sum()}
    found = rows.group_by("sensor", "run").agg(**of_each).filter(pl.col("rows") >= runs.least).drop("run")
    return found.collect().to_arrow()


Starts = Callable[[pd.DataFrame], tuple[Array, Array, Array]]
"""Of the rows of a sensor, in order: where frames begin and end (not included), among those that are looked at."""


def in_pandas(df: DataFrame, columns: str, starts: Starts, held: bool = True) -> DataFrame:
    """Spark's applyInPandas; `held` is whether a frame ends at the next row, or at its last."""

    def found(rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows.sort_values("ts", kind="stable")
        begin, end, looked = starts(rows)
        ts = rows["ts"].to_numpy()[looked]
        upto = ts[np.minimum(end, len(ts) - 1) if held else end - 1]
        sensor = np.full(len(begin), rows["sensor"].iloc[0])
        return pd.DataFrame({"sensor": sensor, "start": ts[begin], "end": upto, "rows": end - begin})

    return df.select("sensor", "ts", columns).groupBy("sensor").applyInPandas(found, RESULT)


def above(speed: float, least: int) -> Starts:
    """Where speeds are above one, for so many rows at least."""

    def starts(rows: pd.DataFrame) -> tuple[Array, Array, Array]:
        edges = np.diff(rows["speed"].to_numpy() > speed, prepend=False, append=False).nonzero()[0]
        begin, end = edges[::2], edges[1::2]
        enough = end - begin >= least
        return begin[enough], end[enough], np.arange(len(rows))

    return starts


def cells(width: float) -> Starts:
    """Where speeds go to another cell of a width."""

    def starts(rows: pd.DataFrame) -> tuple[Array, Array, Array]:
        speed = rows["speed"].to_numpy()
        looked = np.flatnonzero(~np.isnan(speed))
        edges = np.diff(np.ceil(speed[looked] / width), prepend=np.nan).nonzero()[0]
        return edges, np.append(edges[1:], len(looked)), looked

    return starts


def moves(amount: float, against: str) -> Starts:
    """Where speeds have moved by an amount, against the first of a frame or over its range."""

    def starts(rows: pd.DataFrame) -> tuple[Array, Array, Array]:
        speed = rows["speed"].to_numpy()
        looked = np.flatnonzero(~np.isnan(speed))
        edges = np.fromiter(_moved(speed[looked], amount, against), np.int64)
        return edges, np.append(edges[1:], len(looked)), looked

    return starts


def _moved(speed: Array, amount: float, against: str) -> Iterator[int]:
    place, step = 0, 64
    while place < len(speed):
        yield place
        reach = step
        while True:
            some = speed[place : place + reach]
            if against == "first":
                over = np.abs(some - some[0]) >= amount
            else:
                over = np.maximum.accumulate(some) - np.minimum.accumulate(some) >= amount
            first = int(over.argmax())
            if over[first]:
                place += first
                break
            if place + reach >= len(speed):
                return
            reach *= 8


def reaching(amount: int) -> Starts:
    """Where volumes have reached an amount; what has not by the end is no frame."""

    def starts(rows: pd.DataFrame) -> tuple[Array, Array, Array]:
        volume = rows["volume"].to_numpy()
        total = np.cumsum(volume)
        ends = []
        place = int(np.searchsorted(total, amount))
        while place < len(total):
            ends.append(place + 1)
            place = int(np.searchsorted(total, total[place] + amount))
        end = np.array(ends, np.int64)
        return np.concatenate([np.zeros(min(len(end), 1), np.int64), end[:-1]]), end, np.arange(len(volume))

    return starts


def tumbling(df: DataFrame) -> DataFrame:
    """Spark's own average of five minutes."""
    return df.groupBy("sensor", F.window("ts", "5 minutes")).agg(F.avg("speed"))

"""A job, drawn: a value over time with the segments that were found in it, and what fills them, for some keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import Any

import sqlglot
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from sqlglot import exp

from panewise.cli.fill import check_columns
from panewise.cli.run import quoted
from panewise.cli.source import read
from panewise.cli.steps import watched
from panewise.errors import InputError, JobError
from panewise.fill import is_segments
from panewise.jobs import Job
from panewise.plan import Plan
from panewise.plots.segments import PANELS, draw
from panewise.plots.under import Under
from panewise.spec.aggregates import Aggregate
from panewise.spec.job import FileSource, FillTable, KafkaSource, Source, TableSource

__all__ = ["plot"]

_ENDINGS = (".png", ".svg", ".pdf")
_KEYS = 3
_AT, _VALUE = "panewise at", "panewise value"


def plot(spark: SparkSession, job: Job, keys: Sequence[str], value: str | None, path: Path) -> None:
    """Draw the job's segments for the keys given, or those in [plot], or those with the most time in segments."""
    if path.suffix.lower() not in _ENDINGS:
        raise JobError(f"`--out` ({str(path)!r}) must end in {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}. Rename it.")
    tables = {name: read(spark, source, name) for name, source in job.sources.items()}
    plan, source = job.plan, tables["source"]
    if is_segments(source):
        raise JobError(
            "[source] holds segments that were found before, and there is nothing to draw them over. "
            "Name the source of the rows that they were found in."
        )
    shown = value or (job.plot.value if job.plot else None) or _first_number(plan, source)
    wanted = [str(key) for key in keys or (job.plot.keys if job.plot else ())]
    with watched(spark, "finding segments"):
        rows = source.where(_among(plan, wanted) if wanted else _most(plan, source))
        names = dict.fromkeys([*plan.keys, plan.ordered_by])
        columns = [F.col(quoted(name)) for name in names]
        series = rows.select(*columns, *([] if shown in names else [F.expr(shown).alias(shown)])).toArrow()
        found = plan.segments(rows).toArrow()
    there = series.group_by(list(plan.keys)).aggregate([]).to_pylist() if plan.keys else []
    if len(series) == 0 or len(there) < len(set(wanted)):
        have = ", ".join(",".join(map(str, key.values())) for key in there) or "none of them"
        raise InputError(
            f"`--key` ({', '.join(wanted)}): the source has rows of {have} only. Choose keys that occur in it."
        )
    under = [
        _under(job, name, table, tables[name], there) for name, table in (job.fill.tables if job.fill else {}).items()
    ]
    threshold = job.plot.threshold if job.plot and job.plot.threshold is not None else _threshold(plan, shown)
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(
        series,
        found,
        key=list(plan.keys),
        at=plan.ordered_by,
        value=shown,
        path=path,
        threshold=threshold,
        under=under,
    )


def _under(job: Job, name: str, table: FillTable, df: DataFrame, keys: Sequence[Mapping[str, Any]]) -> Under:
    """The rows of a [fill] that belong to these keys."""
    given, own = table.filling, job.plan.keys
    check_columns(name, table, df)
    named = dict(zip(own, given.keys, strict=True))
    rows = df if given.where is None else df.where(given.where)
    if keys:
        wanted = [[F.col(quoted(named[key])).eqNullSafe(F.lit(v)) for key, v in each.items()] for each in keys]
        rows = rows.where(_any(wanted))
    value = _filling_value(job, name, table, df)
    columns = [F.col(quoted(column)).alias(key) for key, column in named.items()]
    columns += [F.col(quoted(given.time)).alias(_AT), *([] if value is None else [F.expr(value).alias(_VALUE)])]
    title = name.removeprefix("fill").removeprefix(".") or _place(job.sources[name])
    title += "" if given.where is None else f" where {given.where}"
    drawn = None if value is None else _VALUE
    return Under(rows.select(*columns).toArrow(), _AT, drawn, value or "", title, given.reach)


def _filling_value(job: Job, name: str, table: FillTable, df: DataFrame) -> str | None:
    """What [plot] says, or the first number that is aggregated; rows without one are ticks."""
    said = dict(job.plot.fill).get(name.removeprefix("fill").removeprefix(".")) if job.plot else None
    for argument in [said] if said else [Aggregate.parse(call).argument for _, call in table.agg]:
        if argument is not None and isinstance(df.select(F.expr(argument)).schema[0].dataType, T.NumericType):
            return argument
    if said:
        raise JobError(f"`fill` in [plot] ({said!r}) is no number, and only numbers can be drawn. Name another.")
    return None


def _place(source: Source) -> str:
    """What a source is called, in short."""
    match source:
        case FileSource():
            return Path(source.path).name
        case TableSource():
            return source.table
        case KafkaSource():
            return source.topic


def _among(plan: Plan, wanted: Sequence[str]) -> Column:
    """Rows of these keys; a key of several columns is written with commas."""
    if not plan.keys:
        raise JobError(f"`--key` ({', '.join(wanted)}): the plan has no `by`, so there are no keys. Leave it out.")
    if len(wanted) > PANELS:
        raise JobError(f"`--key` is given {len(wanted)} times; a picture holds at most {PANELS}. Choose some.")
    several = len(plan.keys) > 1
    keys = [key.split(",") if several else [key] for key in wanted]
    for key, text in zip(keys, wanted, strict=True):
        if len(key) != len(plan.keys):
            raise JobError(
                f"`--key` ({text!r}) must give a value for each of {', '.join(plan.keys)}. Write them with commas."
            )
    return _any([[F.col(quoted(n)).cast("string") == v for n, v in zip(plan.keys, key, strict=True)] for key in keys])


def _most(plan: Plan, source: DataFrame) -> Column:
    """Rows of the keys that spend the most time in segments; the first keys, where there are none."""
    if not plan.keys:
        return F.lit(True)
    names = [quoted(name) for name in plan.keys]
    found = plan.segments(source)
    if "gap" in found.columns:
        found = found.where("not gap")
    spent = found.groupBy(*names).agg(F.expr("sum(segment.end - segment.start)").alias("spent in segments"))
    keys: list[Any] = spent.orderBy(F.desc("`spent in segments`"), *names).limit(_KEYS).collect()
    keys = keys or source.select(*names).distinct().orderBy(*names).limit(_KEYS).collect()
    if not keys:
        raise InputError("[source] has no rows: there is nothing to draw. Check the source.")
    return _any([[F.col(n).eqNullSafe(F.lit(v)) for n, v in zip(names, key, strict=False)] for key in keys])


def _any(keys: Sequence[Sequence[Column]]) -> Column:
    return reduce(or_, [reduce(and_, key) for key in keys])


def _parsed(plan: Plan) -> list[Any]:
    texts = [*plan.scheme.conditions, *(value.text for value in plan.scheme.values)]
    try:
        return [sqlglot.parse_one(text, dialect="spark") for text in texts]
    except sqlglot.errors.SqlglotError:
        return []


def _first_number(plan: Plan, source: DataFrame) -> str:
    """The first numeric column that the plan looks at."""
    numbers = {f.name.lower(): f.name for f in source.schema.fields if isinstance(f.dataType, T.NumericType)}
    for condition in _parsed(plan):
        for column in condition.find_all(exp.Column, bfs=False):
            if column.name.lower() in numbers:
                return numbers[column.name.lower()]
    raise JobError(
        "`--value` is not given, and the plan's conditions name no numeric column. Add --value, or `value` in [plot]."
    )


def _threshold(plan: Plan, value: str) -> float | None:
    """The number that a condition compares the value with, where it is as simple as that."""
    for condition in _parsed(plan):
        if isinstance(condition, (exp.GT, exp.GTE, exp.LT, exp.LTE)):
            column, number = condition.left, condition.right
            if isinstance(column, exp.Column) and column.name.lower() == value.lower() and number.is_number:
                return float(number.to_py())
    return None

"""The segments of a job, filled as its [fill] tables say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from panewise.errors import JobError, did_you_mean
from panewise.fill import FillingSource, filling, is_segments
from panewise.jobs import Job
from panewise.spec.aggregates import aggregates
from panewise.spec.fill import fuses
from panewise.spec.job import FillTable, FillTables
from panewise.spec.punctuate import Punctuation, Scheduled

__all__ = ["check_columns", "filled", "fused", "promised"]

_ONLY = "filling"
_OWN = "[agg]"
_COUNT = "panewise rows of "


def filled(job: Job, fill: FillTables, rows: Mapping[str, DataFrame], **options: Any) -> DataFrame:
    """Each matching row with its segment, or each segment with aggregates; `rows` are those of each table."""
    framing, own = rows["source"], dict(job.agg)
    if own and is_segments(framing):
        raise JobError(
            "[agg] is over the rows that segments are found in, and [source] holds segments that were found before. "
            "Leave [agg] out, or name the source of those rows in a [fill]."
        )
    for name, table in fill.tables.items():
        check_columns(name, table, rows[name])
    named = {name or _ONLY: table for name, table in fill.named}
    sources = dict(zip(named, (_source(job, table, rows[at]) for at, table in fill.tables.items()), strict=True))
    if fill.gives_rows:
        return job.plan.fill(framing, sources, **options).rows()
    calls = {name: dict(table.agg) for name, table in named.items()}
    if not own:
        return job.plan.fill(framing, sources, keep_empty=fill.keep_empty, **options).agg(calls)
    counts = {name: f"{_COUNT}{name}" for name in calls}
    counted = calls if fill.keep_empty else {name: {**calls[name], counts[name]: "count(*)"} for name in calls}
    both = job.plan.fill(framing, {_OWN: filling(framing), **sources}, keep_empty=fill.keep_empty, **options)
    found = both.agg({_OWN: own, **counted})
    if fill.keep_empty:
        return found
    # every segment has rows of its own; whether it is empty is asked of the others
    some = " or ".join(f"`{count}` > 0" for count in counts.values())
    some += " or late is not null" if options.get("late") else ""
    return found.filter(some).drop(*counts.values())


def _source(job: Job, table: FillTable, df: DataFrame) -> FillingSource:
    given = table.filling
    widen = None if given.before is None and given.after is None else (given.before, given.after)
    return filling(
        df,
        given.time,
        by=given.keys,
        where=given.where,
        widen=widen,
        shift=given.shift,
        punctuation=promised(job, table),
    )


def fused(job: Job, table: FillTable) -> bool:
    """Whether what fills is computed while segments are found, from their own rows."""
    same = (table.source or job.source) == job.source
    return same and bool(table.agg) and fuses(job.plan, table.filling, aggregates(dict(table.agg)))


def promised(job: Job, table: FillTable) -> Punctuation | None:
    """How it is known how far the rows of a table have come: as it says, or as the plan does of the same source."""
    given, plan = table.filling, job.plan
    same = (table.source or job.source) == job.source and given.time == plan.time
    # a schedule is about readings that a segment expects
    if given.punctuation is None and same and not isinstance(plan.punctuation, Scheduled):
        return plan.punctuation
    return given.punctuation


def check_columns(name: str, table: FillTable, df: DataFrame) -> None:
    """Refuse columns that are not there, while it is known which table names them."""
    known = {column.lower() for column in df.columns}
    for role, columns in (("at", [table.filling.time]), ("by", table.filling.keys)):
        for column in columns:
            if column.lower() not in known:
                raise JobError(f"`{role}` in [{name}] ({column!r}): no such column. {did_you_mean(column, df.columns)}")

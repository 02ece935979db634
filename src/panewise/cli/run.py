"""A job, run: its source read, its segments found, its sink written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from panewise.cli.show import screen, show
from panewise.cli.source import read, said
from panewise.cli.steps import watched
from panewise.errors import JobError
from panewise.jobs import Job
from panewise.spec.job import ConsoleSink, FileSink, FileSource

__all__ = ["Outcome", "check", "flat", "local", "meet", "quoted", "run"]

_ORDER = re.compile(r"(.+?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a job."""

    segments: int
    keys: int
    rows: int
    dropped: int
    seconds: float

    def summary(self, job: Job) -> str:
        """All of it in one line."""
        found = f"{self.segments:,} segment{'s' if self.segments != 1 else ''}"
        if job.plan.keys:
            found += f" in {self.keys:,} key{'s' if self.keys != 1 else ''}"
        if isinstance(job.sink, FileSink):
            found += f", written to {job.sink.path}"
        dropped = f"{self.dropped:,} dropped for want of {job.plan.ordered_by}" if self.dropped else "none dropped"
        return f"{found}; {self.rows:,} row{'s' if self.rows != 1 else ''} read, {dropped}; {self.seconds:.1f} s"


def check(job: Job) -> None:
    """Refuse, before any work, a sink that would fail in the end or destroy its own source."""
    source, sink = job.source, job.sink
    if not isinstance(sink, FileSink):
        return
    target = local(sink.path)
    if sink.mode == "error" and target is not None and target.exists():
        raise JobError(_occupied(sink.path))
    if sink.mode == "overwrite" and isinstance(source, FileSource) and meet(source.path, sink.path):
        raise JobError(
            f"`path` in [sink] ({sink.path!r}) and in [source] ({source.path!r}) meet: overwriting would destroy the "
            "rows before they are read. Write to another path."
        )


def _occupied(path: str) -> str:
    return f'`path` in [sink] ({path!r}) exists already. Choose another, or add mode = "overwrite".'


def local(path: str) -> Path | None:
    """A path on this machine, or None where it is somewhere else."""
    parts = urlsplit(path)
    return Path(parts.path).resolve() if parts.scheme in ("", "file") else None


def meet(source: str, sink: str) -> bool:
    """Whether one path is the other, or lies in it."""
    read, written = local(source), local(sink)
    if read is None or written is None:
        return source.rstrip("/") == sink.rstrip("/")
    return read == written or read in written.parents or written in read.parents


def run(spark: SparkSession, job: Job) -> Outcome:
    """Find the segments of a job and send them where it says."""
    begun = perf_counter()
    rows, results = Observation(), Observation()
    source = read(spark, job.source)
    found = job.plan.segments(source, dict(job.agg), observation=rows).observe(
        results, F.count(F.lit(1)).alias("segments"), F.count_if(F.col("segment.id") == 0).alias("keys")
    )
    match job.sink:
        case ConsoleSink():
            _to_screen(spark, job, job.sink, found, results)
        case FileSink():
            _to_files(spark, job.sink, found)
    counts = results.get
    # where nothing comes out Spark may have found that out early and counted nothing
    read_of = rows.get if counts["segments"] else _count(source, job.plan.ordered_by)
    seconds = perf_counter() - begun
    return Outcome(counts["segments"], counts["keys"], read_of["rows"], read_of["null_at"], seconds)


def _count(source: DataFrame, at: str) -> dict[str, int]:
    column = F.col(quoted(at))
    if source.select(column).dtypes[0][1] in ("float", "double"):
        column = F.nanvl(column, F.lit(None))
    counted = source.agg(F.count(F.lit(1)).alias("rows"), F.count_if(column.isNull()).alias("null_at")).first()
    return {} if counted is None else counted.asDict()


def _to_screen(spark: SparkSession, job: Job, sink: ConsoleSink, found: DataFrame, results: Observation) -> None:
    usual = [*(F.col(quoted(key)) for key in job.plan.keys), F.col("segment.id")]
    try:
        # always in some order, so that every segment is looked at, and counted
        first = found.orderBy(*(_order(sink.order) if sink.order else usual)).limit(sink.limit)
    except (AnalysisException, ParseException) as error:
        raise JobError(
            f'`order` in [sink] ({sink.order!r}) can\'t order segments: {said(error)} Write it as "rows desc".'
        ) from None
    with watched(spark, "finding segments"):
        shown = first.toArrow()
    if len(shown):
        show(shown)
    left = results.get["segments"] - len(shown)
    if left:
        screen().print(f"... and {left:,} more")


def _order(text: str) -> list[Column]:
    columns = []
    for part in _split(text):
        given = _ORDER.fullmatch(part.strip())
        if given is None:
            raise JobError(f'`order` in [sink] ({text!r}) has an empty part. Write it as "rows desc, router".')
        column, way, nulls = F.expr(given[1]), (given[2] or "asc").lower(), (given[3] or "").lower()
        columns.append(getattr(column, f"{way}_nulls_{nulls}" if nulls else way)())
    return columns


def _split(text: str) -> list[str]:
    """The parts between commas that are in no parentheses.

    >>> _split("greatest(a, (b)) desc, rows")
    ['greatest(a, (b)) desc', ' rows']
    """
    parts, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def _to_files(spark: SparkSession, sink: FileSink, found: DataFrame) -> None:
    if sink.format == "csv":
        found = flat(found)
    writer = found.write.mode("overwrite" if sink.mode == "overwrite" else "error")
    try:
        with watched(spark, "finding segments"):
            writer.csv(sink.path, header=True) if sink.format == "csv" else writer.parquet(sink.path)
    except AnalysisException as error:
        if error.getCondition() == "PATH_ALREADY_EXISTS":
            raise JobError(_occupied(sink.path)) from None
        raise


def flat(found: DataFrame) -> DataFrame:
    """Segments as CSV takes them, without the struct."""
    fields = [f"segment.{name}" for name in ("id", "start", "end", "bounds")]
    spread = [F.col(field).alias(field.replace(".", "_")) for field in fields]
    columns = [spread if name == "segment" else [F.col(quoted(name))] for name in found.columns]
    return found.select(*(column for part in columns for column in part))


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return "`" + name.replace("`", "``") + "`"

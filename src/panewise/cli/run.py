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
from panewise.cli.steps import watched
from panewise.errors import JobError
from panewise.jobs import Job
from panewise.spec.job import ConsoleSink, FileSink, FileSource, KafkaSource, Source, TableSource

__all__ = ["Outcome", "check", "quoted", "read", "run"]

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
    target = _local(sink.path)
    if sink.mode == "error" and target is not None and target.exists():
        raise JobError(_occupied(sink.path))
    if sink.mode == "overwrite" and isinstance(source, FileSource) and _meet(source.path, sink.path):
        raise JobError(
            f"`path` in [sink] ({sink.path!r}) and in [source] ({source.path!r}) meet: overwriting would destroy the "
            "rows before they are read. Write to another path."
        )


def _occupied(path: str) -> str:
    return f'`path` in [sink] ({path!r}) exists already. Choose another, or add mode = "overwrite".'


def _local(path: str) -> Path | None:
    """A path on this machine, or None where it is somewhere else."""
    parts = urlsplit(path)
    return Path(parts.path).resolve() if parts.scheme in ("", "file") else None


def _meet(source: str, sink: str) -> bool:
    read, written = _local(source), _local(sink)
    if read is None or written is None:
        return source.rstrip("/") == sink.rstrip("/")
    return read == written or read in written.parents or written in read.parents


def read(spark: SparkSession, source: Source) -> DataFrame:
    """The rows of a source."""
    if isinstance(source, KafkaSource) or source.stream:
        raise JobError("[source] is a stream, and this command can't read one yet. Leave `stream` and [stream] out.")
    reader = spark.read.options(**dict(source.options))
    try:
        if isinstance(source, TableSource):
            return reader.table(source.table)
        if source.schema is not None:
            reader = reader.schema(source.schema)
        return reader.load(source.path, source.format)
    except (AnalysisException, ParseException) as error:
        raise JobError(_unreadable(source, error)) from None


def _unreadable(source: FileSource | TableSource, error: AnalysisException | ParseException) -> str:
    said, condition = _said(error), error.getCondition()
    if isinstance(source, TableSource):
        if condition == "TABLE_OR_VIEW_NOT_FOUND":
            return f"`table` in [source] ({source.table!r}): Spark knows no such table. Check the name."
        return f"`table` in [source] ({source.table!r}) can't be read: {said} Check its name and options."
    if condition == "PATH_NOT_FOUND":
        return f"`path` in [source] ({source.path!r}): nothing is there. Check the path."
    if condition == "UNABLE_TO_INFER_SCHEMA":
        return f"`path` in [source] ({source.path!r}) holds no {source.format} files. Check path and format."
    if isinstance(error, ParseException):
        return f'`schema` in [source] ({source.schema!r}) is none: {said} Write it as "name string, at timestamp".'
    return f"`path` in [source] ({source.path!r}) can't be read: {said} Check path, format and options."


def _said(error: AnalysisException | ParseException) -> str:
    return (error.getMessage() or str(error)).strip().splitlines()[0]


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
            f'`order` in [sink] ({sink.order!r}) can\'t order segments: {_said(error)} Write it as "rows desc".'
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
        found = found.select(*(column for name in found.columns for column in _flat(name)))
    writer = found.write.mode("overwrite" if sink.mode == "overwrite" else "error")
    try:
        with watched(spark, "finding segments"):
            writer.csv(sink.path, header=True) if sink.format == "csv" else writer.parquet(sink.path)
    except AnalysisException as error:
        if error.getCondition() == "PATH_ALREADY_EXISTS":
            raise JobError(_occupied(sink.path)) from None
        raise


def _flat(name: str) -> list[Column]:
    if name != "segment":
        return [F.col(quoted(name))]
    return [F.col(f"segment.{field}").alias(f"segment_{field}") for field in ("id", "start", "end", "bounds")]


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return "`" + name.replace("`", "``") + "`"

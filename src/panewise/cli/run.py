"""A job, run: its source read, its segments found, and filled, its sink written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from panewise.cli.fill import filled
from panewise.cli.show import screen, show
from panewise.cli.source import read_all, said
from panewise.cli.steps import watched
from panewise.errors import JobError
from panewise.jobs import Job
from panewise.spec.job import ConsoleSink, FileSink, FileSource

__all__ = ["Outcome", "check", "flat", "local", "meet", "quoted", "run", "usual"]

_ORDER = re.compile(r"(.+?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a job: its results, rows in segments where it gives these, and what was read for them."""

    segments: int
    keys: int
    rows: int
    dropped: int
    seconds: float
    fills: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Rows read and dropped of each [fill] that is not [source] itself."""

    def summary(self, job: Job) -> str:
        """All of it in one line."""
        found = _many(self.segments, "segment")
        if job.fill is not None and job.fill.gives_rows:
            found = f"{_many(self.segments, 'row')} in segments"
        elif job.fill is not None:
            found = f"{found} filled"
        elif job.plan.keys:
            found += f" in {_many(self.keys, 'key')}"
        if isinstance(job.sink, FileSink):
            found += f", written to {job.sink.path}"
        told = [_read(self.rows, self.dropped, job.plan.ordered_by)]
        for name, (rows, dropped) in self.fills.items():
            at = "" if job.fill is None else job.fill.tables[name].filling.time
            told.append(f"of [{name}] {_read(rows, dropped, at)}")
        return f"{found}; {'; '.join(told)}; {self.seconds:.1f} s"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count != 1 else ''}"


def _read(rows: int, dropped: int, at: str) -> str:
    return f"{_many(rows, 'row')} read, {f'{dropped:,} dropped for want of {at}' if dropped else 'none dropped'}"


def check(job: Job) -> None:
    """Refuse, before any work, a sink that would fail in the end or destroy its own source."""
    sink = job.sink
    if not isinstance(sink, FileSink):
        return
    target = local(sink.path)
    if sink.mode == "error" and target is not None and target.exists():
        raise JobError(_occupied(sink.path))
    for name, source in job.sources.items():
        if sink.mode == "overwrite" and isinstance(source, FileSource) and meet(source.path, sink.path):
            raise JobError(
                f"`path` in [sink] ({sink.path!r}) and in [{name}] ({source.path!r}) meet: overwriting would destroy "
                "the rows before they are read. Write to another path."
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
    """Find the segments of a job, fill them, and send them where it says."""
    begun = perf_counter()
    sources, results = read_all(spark, job), Observation()
    # a [fill] of the job's own source is that source
    ats = {"source": job.plan.ordered_by} | {
        name: table.filling.time
        for name, table in (job.fill.tables if job.fill else {}).items()
        if sources[name] is not sources["source"]
    }
    counts = {name: Observation() for name in ats}
    if job.fill is None:
        made = job.plan.segments(sources["source"], dict(job.agg), observation=counts["source"])
    else:
        counted = {name: sources[name].observe(counts[name], *_counts(sources[name], at)) for name, at in ats.items()}
        made = filled(job, job.fill, {name: counted.get(name, counted["source"]) for name in sources})
    found = made.observe(
        results, F.count(F.lit(1)).alias("segments"), F.count_if(F.col("segment.id") == 0).alias("keys")
    )
    match job.sink:
        case ConsoleSink():
            _to_screen(spark, job, job.sink, found, results)
        case FileSink():
            _to_files(spark, job.sink, found)
    told = results.get
    # where nothing comes out Spark may have found that out early and counted nothing
    reads = {name: counts[name].get if told["segments"] else _count(sources[name], at) for name, at in ats.items()}
    rows, dropped = ({name: read_of[of] for name, read_of in reads.items()} for of in ("rows", "null_at"))
    fills = {name: (rows[name], dropped[name]) for name in ats if name != "source"}
    seconds = perf_counter() - begun
    return Outcome(told["segments"], told["keys"], rows["source"], dropped["source"], seconds, fills)


def _counts(source: DataFrame, at: str) -> tuple[Column, Column]:
    """Rows, and those without `at`; segments that were found before need none."""
    kinds = {name.lower(): kind for name, kind in source.dtypes}
    column, kind = F.col(quoted(at)), kinds.get(at.lower())
    if kind in ("float", "double"):
        column = F.nanvl(column, F.lit(None))
    missing = F.lit(False) if kind is None else column.isNull()
    return F.count(F.lit(1)).alias("rows"), F.count_if(missing).alias("null_at")


def _count(source: DataFrame, at: str) -> dict[str, int]:
    counted = source.agg(*_counts(source, at)).first()
    return {} if counted is None else counted.asDict()


def _to_screen(spark: SparkSession, job: Job, sink: ConsoleSink, found: DataFrame, results: Observation) -> None:
    try:
        # always in some order, so that every segment is looked at, and counted
        first = found.orderBy(*(_order(sink.order) if sink.order else usual(job))).limit(sink.limit)
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


def usual(job: Job) -> list[Column]:
    """In which order results are shown, if nothing else is said."""
    columns = [*(F.col(quoted(key)) for key in job.plan.keys), F.col("segment.id")]
    if job.fill is None or not job.fill.gives_rows:
        return columns
    (table,) = job.fill.tables.values()
    return [*columns, F.col(f"row.{quoted(table.filling.time)}")]


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
    """Results as CSV takes them, without structs: segment_start, row_speed."""
    columns = []
    for name in found.columns:
        kind = found.schema[name].dataType
        if name in ("segment", "row") and isinstance(kind, T.StructType):
            columns += [F.col(f"{name}.{quoted(field)}").alias(f"{name}_{field}") for field in kind.names]
        else:
            columns.append(F.col(quoted(name)))
    return found.select(*columns)


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return "`" + name.replace("`", "``") + "`"

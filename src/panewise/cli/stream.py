"""A job with a stream among its sources, run: to the end of what is there, or until somebody ends it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from panewise.cli.fill import filled, fused, promised
from panewise.cli.live import late, looked_at
from panewise.cli.run import flat, local, meet, usual
from panewise.cli.show import screen, show
from panewise.cli.source import CONNECTORS, read_all
from panewise.errors import JobError
from panewise.jobs import Job
from panewise.kernel.state import unpack_state
from panewise.spark.control import Control
from panewise.spark.outputs import outputs
from panewise.spark.stream import SHARDS
from panewise.spark.watch import StreamProgress, Watch, many, progress
from panewise.spec.job import MAX_SHARDS, ConsoleSink, FileSink, FileSource, KafkaSource, StreamOptions

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["StreamOutcome", "check", "each", "run", "settings"]

_LOOK = 0.5  # seconds between two looks at whether somebody wants an end
_NEWS = 30.0  # seconds to wait for the last news of a query that is over
_JARS = ("spark.jars", "spark.jars.packages")
_MANIFEST = "_spark_metadata"  # of Spark's own file sink, which has no place for late rows
_NONE_YET = "STDS_COMMITTED_BATCH_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class StreamOutcome:
    """What came of a stream, in this run and in those before it."""

    seen: StreamProgress
    stopped: bool
    seconds: float

    def summary(self, job: Job) -> str:
        """All of it in one line."""
        seen, drawn = self.seen, job.source.stream
        found = many(seen.closed, "segment")
        if not drawn and seen.filling is not None:
            # segments that were there before the stream are counted when they are complete, and rows are not
            rows = job.fill is not None and job.fill.gives_rows
            found = "rows in segments" if rows else many(seen.filling.filled, "segment")
        if seen.parts:
            found += f" and {many(seen.parts, 'part')}"
        if job.plan.keys and drawn:
            found += f" in {many(seen.keys_found, 'key')}"
        if isinstance(job.sink, FileSink):
            found += f", written to {job.sink.path}"
        read = [f"{many(seen.rows, 'row')} read, {late(seen, job.plan.ordered_by)}"] if drawn else []
        rest = f"{many(seen.open, 'segment')} open, {many(seen.waiting, 'row')} waiting, progress {seen.reached}"
        left = [rest] if drawn else []
        if seen.filling is not None and job.fill is not None:
            ats = {table.filling.time for _, table in job.fill.named}
            missed = late(StreamProgress(late=seen.filling.late), " or ".join(sorted(ats)))
            read.append(f"of [fill] {many(seen.filling.rows, 'row')} read, {missed}")
            waiting = many(seen.filling.segments_waiting, "segment")
            left.append(f"{many(seen.filling.rows_waiting, 'row')} of [fill] waiting for segments, {waiting} for rows")
        if seen.prods is not None:
            read.append(f"prods: {seen.prods.asked}; accuracy {seen.prods.accuracies}")
        told = "; ".join([found, *read, f"{self.seconds:.1f} s"])
        if not self.stopped:
            return told
        return "; ".join([f"stopped: {told}", *left, "run the job again to go on"])


def check(job: Job, stream: StreamOptions) -> None:
    """Refuse, before any work, what makes no sense for a stream."""
    sink = job.sink
    if job.source.stream and job.plan.punctuation is None:
        raise JobError(_unpunctuated("plan"))
    _check_fill(job, stream)
    if stream.prods is not None and stream.prods.prodder is not None and stream.trigger == "once":
        raise JobError(
            '`prods` in [stream] (prodder) asks by Spark\'s clock, which with `trigger` "once" makes one '
            "micro-batch of all there is: hardly anything is open after it. Give a length of time, such as "
            'trigger = "1 second", or leave the prodder out.'
        )
    if job.plot is not None:
        of = next(name for name, source in job.sources.items() if source.stream)
        raise JobError(f"[plot] draws a source that ends, and [{of}] is a stream. Leave [plot] out.")
    if isinstance(sink, ConsoleSink) and sink.order is not None:
        raise JobError(
            f"`order` in [sink] ({sink.order!r}): the segments of a stream are shown as they close. Leave it out, or "
            "write them to files."
        )
    if isinstance(sink, FileSink):
        if sink.mode == "overwrite":
            raise JobError(
                '`mode` in [sink] ("overwrite"): a stream adds to what it wrote before. Leave it out; to start again, '
                "remove its checkpoint and what it wrote."
            )
        _check_target(sink, stream)
        if stream.prods is not None and sink.format == "csv":
            raise JobError(
                '`format` in [sink] ("csv") has no place for what is told of early answers, which are lists. '
                'Write "parquet", or leave `prods` out.'
            )
    written_to = {"`path` in [sink]": sink.path if isinstance(sink, FileSink) else None}
    written_to |= {"`late` in [stream]": stream.late, "`control` in [stream]": stream.control}
    for table, source in job.sources.items():
        for name, path in written_to.items():
            if path is not None and isinstance(source, FileSource) and meet(source.path, path):
                raise JobError(
                    f"{name} ({path!r}) and `path` in [{table}] ({source.path!r}) meet: the stream would read what it "
                    "writes. Write to another path."
                )


def _unpunctuated(table: str) -> str:
    return (
        f"`punctuation` is missing in [{table}]: a stream must say how it is known that rows have come, or no segment "
        'could ever close. Add it, such as punctuation = {kind = "slack", amount = "10 seconds"}.'
    )


def _check_fill(job: Job, stream: StreamOptions) -> None:
    for name, table in (job.fill.tables if job.fill else {}).items():
        source = job.sources[name]
        if source.stream and not fused(job, table) and promised(job, table) is None:
            raise JobError(_unpunctuated(name))
        if not source.stream and stream.late is not None:
            raise JobError(
                f"`late` in [stream] ({stream.late!r}): late rows come beside segments, and these go on to [{name}], "
                "which is stored. Leave it out; late rows are counted."
            )


def _check_target(sink: FileSink, stream: StreamOptions) -> None:
    if stream.late is not None and meet(sink.path, stream.late):
        raise JobError(
            f"`late` in [stream] ({stream.late!r}) and `path` in [sink] ({sink.path!r}) meet: segments and late rows "
            "would be read as one. Write to another path."
        )
    target, begun = local(sink.path), local(stream.checkpoint)
    if target is None or begun is None or not target.exists():
        return
    if not begun.exists():
        raise JobError(
            f"`path` in [sink] ({sink.path!r}) exists already, and `checkpoint` in [stream] ({stream.checkpoint!r}) "
            "does not: what is there was written by something else. Choose another path."
        )
    if (target / _MANIFEST).exists() != (stream.late is None):
        raise JobError(
            f"`late` in [stream] ({stream.late!r}) was {'not ' if stream.late else ''}given when this stream began to "
            f"write to {sink.path!r}, and files are laid out otherwise without it. Undo the change."
        )


def settings(job: Job, stream: StreamOptions, master: str, given: Mapping[str, str]) -> dict[str, str]:
    """What a session of our own needs for a stream, and what was given, which has the last word."""
    # a partition is a task and a state store in every micro-batch; more than shards, or cores, do nothing else
    partitions = min(stream.shards or SHARDS, _cores(master))
    wanted = {"spark.sql.shuffle.partitions": str(partitions)}
    forms = {source.value for source in job.sources.values() if isinstance(source, KafkaSource)}
    if forms and not any(name in given for name in _JARS):
        needed = CONNECTORS if "avro" in forms else CONNECTORS[:1]
        wanted["spark.jars.packages"] = ",".join(f"{connector}:{pyspark.__version__}" for connector in needed)
    return {**wanted, **given}


def _cores(master: str) -> int:
    """How many tasks run at a time, where that is known.

    >>> _cores("local[2]"), _cores("local"), _cores("yarn") >= 1024
    (2, 1, True)
    """
    local_ones = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master)
    if local_ones is None:
        return MAX_SHARDS
    return (os.cpu_count() or 1) if local_ones[1] == "*" else int(local_ones[1] or 1)


def run(spark: SparkSession, job: Job, stream: StreamOptions, live: bool = False) -> StreamOutcome:
    """Run a stream: once, to the end of what there is; or again and again, until it is interrupted."""
    begun = perf_counter()
    control = _control(spark, stream)
    options: dict[str, Any] = {
        "emit": stream.emit,
        "fragment_every": stream.fragment_every,
        "late": stream.late is not None,
        "shards": stream.shards,
        "control": control.folder,
    }
    sources = read_all(spark, job)
    if job.fill is None:
        options |= {"prods": stream.prods, "set_aside": stream.set_aside}
        if stream.set_aside is not None and stream.trigger != "once":
            # what is set aside is made up for in a lull, which takes a micro-batch
            options["clock"] = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
        found = job.plan.segments(sources["source"], dict(job.agg), **options)
    else:
        found = filled(job, job.fill, sources, **options)
    once = stream.trigger == "once"
    when: dict[str, Any] = {"availableNow": True} if once else {"processingTime": stream.trigger}
    text = "finding segments" if once else "running; Ctrl-C ends it"
    with looked_at(job, live, text) as told, Watch(spark, told) as watch, _interrupts() as interrupted:
        query = _started(found, job, stream, when)
        ended = _awaited(query, interrupted)
        seen = progress(query)
        if ended and once:
            control.finish()
            query = _started(found, job, stream, when)
            ended = _awaited(query, interrupted)
            last = progress(query)
            seen = seen if last.batch is None else last
        if live:
            watch.settled(str(query.runId), _NEWS)
    return StreamOutcome(seen, not ended, perf_counter() - begun)


def _control(spark: SparkSession, stream: StreamOptions) -> Control:
    """The stream's control folder; refuse a stream that has ended, for which every further row would be late."""
    stage = _stage(spark, stream.checkpoint)
    if stage == "ended":
        raise JobError(
            f"`checkpoint` in [stream] ({stream.checkpoint!r}) is that of a stream that has ended: everything is "
            "closed, and rows that came since would all be late. Choose a new checkpoint, and new paths to write to."
        )
    if stream.control is not None:
        return Control(spark, stream.control)
    control = Control(spark, f"{stream.checkpoint.rstrip('/')}-control")
    if stage == "new":
        control.clear()  # what is there is about a stream whose checkpoint was removed
    return control


def _stage(spark: SparkSession, checkpoint: str) -> str:
    """Whether a checkpoint is new, or of a stream that has begun, or ended."""
    try:
        stored = spark.read.format("statestore").option("stateVarName", "shard").load(checkpoint)
        shard = stored.select("value.state").first()
    except PySparkException as error:
        return "new" if error.getCondition() == _NONE_YET else "begun"
    facts = {} if shard is None else unpack_state(bytes(shard[0]))[1]
    # of a fill, what was said to all of its sources
    told = facts["fill"]["sides"][0] if "fill" in facts else facts
    return "ended" if told and told["progress"]["final"] else "begun"


@contextmanager
def _interrupts() -> Iterator[Event]:
    """Ctrl-C, or a friendly kill, is noted, so that the stream can be stopped between two looks; a second one ends."""
    noted = Event()

    def note(*_: object) -> None:
        if noted.is_set():
            raise KeyboardInterrupt
        noted.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _awaited(query: StreamingQuery, interrupted: Event) -> bool:
    """Whether a query came to its own end; one that is interrupted is stopped."""
    while not query.awaitTermination(_LOOK):  # type: ignore[arg-type]  # fractions of a second are welcome
        if interrupted.is_set():
            query.stop()
            return False
    return True


def _started(found: DataFrame, job: Job, stream: StreamOptions, when: Mapping[str, Any]) -> StreamingQuery:
    sink = job.sink
    files = isinstance(sink, FileSink) and stream.late is None
    sent = flat(found) if files and isinstance(sink, FileSink) and sink.format == "csv" else found
    writer = sent.writeStream.option("checkpointLocation", stream.checkpoint).trigger(**when)
    if files and isinstance(sink, FileSink):
        return writer.format(sink.format).option("path", sink.path).option("header", "true").start()
    return writer.foreachBatch(each(job, stream)).start()


def each(job: Job, stream: StreamOptions) -> Callable[[DataFrame, int], None]:
    """What is done with each micro-batch; one that is done a second time writes over what it wrote."""

    def send(found: DataFrame, batch: int) -> None:
        found = found.persist()  # two looks at it must not be two runs of it
        try:
            segments, rows = outputs(found) if stream.late is not None else (found, None)
            match job.sink:
                case ConsoleSink():
                    _show(segments, job, job.sink)
                case FileSink():
                    _write(segments, job.sink, batch)
            if rows is not None and not rows.isEmpty():
                rows.write.mode("overwrite").parquet(f"{stream.late}/micro_batch={batch}")
        finally:
            found.unpersist()

    return send


def _show(segments: DataFrame, job: Job, sink: ConsoleSink) -> None:
    count = segments.count()
    if not count:
        return
    show(segments.orderBy(*usual(job)).limit(sink.limit).toArrow())
    if count > sink.limit:
        screen().print(f"... and {count - sink.limit:,} more")


def _write(segments: DataFrame, sink: FileSink, batch: int) -> None:
    if segments.isEmpty():
        return
    path = f"{sink.path}/micro_batch={batch}"
    if sink.format == "csv":
        flat(segments).write.mode("overwrite").csv(path, header=True)
    else:
        segments.write.mode("overwrite").parquet(path)

"""Streams from the command line: run to their end, stopped and gone on with, watched, and refused in words."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from rich.console import Console
from typer.testing import CliRunner

import panewise as pw
from panewise.cli.engine import unresolved
from panewise.cli.errors import sentence
from panewise.cli.live import line, looked_at, table
from panewise.cli.main import app
from panewise.cli.source import read_stream
from panewise.cli.stream import StreamOutcome, each, settings
from panewise.jobs import job_from_toml
from panewise.spark.watch import SourceProgress
from panewise.spec.job import FileSource, TableSource
from spark.tables import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JobMaker = Callable[..., str]

HAPPENS_WITHIN = 120
HEADER = "key,t,temp\n"
FIRST = "a,1,30\na,2,33\na,3,34\na,4,30\nb,1,33\nb,,99\n"
SECOND = "a,2,50\na,5,35\nb,3,33\nc,9,20\n"  # a's row at 2 is late
SCHEMA = "key string, t int, temp double"
PLAN = pw.threshold_frames("temp > 32").by("key").at("t", pw.slack(1))


def cli(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    result = CliRunner().invoke(app, ["run", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def refused(*arguments: str) -> str:
    """What a refused command says; nothing else may be printed."""
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    return err.rstrip("\n")


@pytest.fixture
def job(tmp_path: Path) -> JobMaker:
    """Writes a job over a folder of two small CSV files, which are two micro-batches; arguments replace parts of it."""
    folder = tmp_path / "rows"
    folder.mkdir()
    for number, text in enumerate((FIRST, SECOND)):
        file = folder / f"{number}.csv"
        file.write_text(HEADER + text, encoding="utf-8")
        os.utime(file, (1_700_000_000 + number,) * 2)  # Spark takes files in the order of these times

    def write(
        sink: str = 'format = "console"',
        stream: str = "",
        *tables: str,
        condition: str = "temp > 32",
        punctuation: str = 'punctuation = {kind = "slack", amount = 1}',
        source: str | None = None,
    ) -> str:
        read = source or f'format = "csv"\npath = "{folder}"\nschema = "{SCHEMA}"\nstream = true'
        options = "" if source else 'options = {header = "true", maxFilesPerTrigger = "1"}'
        plan = f'scheme = "threshold_frames"\ncondition = "{condition}"\nby = ["key"]\nat = "t"\n{punctuation}'
        how = f'checkpoint = "{tmp_path}/checkpoint"\nshards = 2\n{stream}'
        parts = [f"[source]\n{read}\n{options}", f"[plan]\n{plan}", f"[stream]\n{how}", f"[sink]\n{sink}", *tables]
        file = tmp_path / "job.toml"
        file.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
        return str(file)

    return write


def in_batch(spark: SparkSession, folder: Path, kept: str = "true") -> list[str]:
    """What a batch finds in the same rows."""
    read = spark.read.schema(SCHEMA).csv(str(folder / "rows"), header=True)
    return rows(PLAN.segments(read.where(kept)).toArrow())


# to the end


@pytest.mark.slow
def test_once_closes_everything(spark: SparkSession, job: JobMaker, tmp_path: Path) -> None:
    late = f'late = "{tmp_path}/late"'
    file = job(f'format = "parquet"\npath = "{tmp_path}/out"', late)
    code, out, err = cli(file, "--live")
    assert code == 0
    summary = rf"3 segments in 2 keys, written to {tmp_path}/out; 10 rows read, 1 late, 1 without t; \d+\.\d s\n"
    assert re.fullmatch(summary, out)
    # a line for each micro-batch, where there is no terminal
    assert [re.sub(r"in \S+ s;", "in a while;", told) for told in err.splitlines()] == [
        "micro-batch 0: 6 rows in a while; 0 segments closed, 2 open; 1 without t; progress 2",
        "micro-batch 1: 4 rows in a while; 1 segment closed, 2 open; 1 late, 1 without t; progress 7",
        "micro-batch 2: 0 rows in a while; 3 segments closed, 0 open; 1 late, 1 without t; "
        "progress everything, the stream has ended",
    ]
    found = spark.read.parquet(f"{tmp_path}/out").drop("micro_batch")
    assert rows(found.toArrow()) == in_batch(spark, tmp_path, "temp < 50")
    strays = spark.read.parquet(f"{tmp_path}/late").orderBy("temp").collect()
    assert [tuple(row) for row in strays] == [("late", "a", 2, 50.0, 1), ("null_at", "b", None, 99.0, 0)]
    # files are laid out for late rows, or not, for good
    assert refused(job(f'format = "parquet"\npath = "{tmp_path}/out"')) == (
        f"`late` in [stream] (None) was given when this stream began to write to '{tmp_path}/out', and files are laid "
        "out otherwise without it. Undo the change."
    )
    file = job(f'format = "parquet"\npath = "{tmp_path}/out"', late)
    # the stream is over: what came now would be late
    assert refused(file).startswith(f"`checkpoint` in [stream] ('{tmp_path}/checkpoint') is that of a stream that has ")


@pytest.mark.slow
def test_once_shows_segments_as_they_close(spark: SparkSession, job: JobMaker, tmp_path: Path) -> None:
    (tmp_path / "checkpoint-control").mkdir()
    # what a removed checkpoint has left behind does not count
    (tmp_path / "checkpoint-control" / "old.json").write_text('{"kind": "final"}')
    code, out, err = cli(job('format = "console"\nlimit = 1'))
    assert (code, err) == (0, "")
    *shown, summary = out.splitlines()
    assert [told.split() for told in shown] == [
        ["key", "id", "start", "end", "rows"],
        ["a", "0", "2", "3", "2"],
        ["key", "id", "start", "end", "rows"],
        ["a", "1", "5", "5", "1"],
        ["...", "and", "1", "more"],
    ]
    assert summary.startswith("3 segments in 2 keys; 10 rows read, 1 late, 1 without t; ")


def test_a_micro_batch_that_is_done_again_writes_over_what_it_wrote(spark: SparkSession, tmp_path: Path) -> None:
    text = KAFKA + f'late = "{tmp_path}/late"\n[sink]\nformat = "csv"\npath = "{tmp_path}/out"\n'
    job = job_from_toml(text)
    assert job.stream is not None
    segment = "segment struct<id bigint, start int, end int, bounds string>, rows bigint, status string"
    schema = f"{segment}, late struct<reason string, row struct<t int>>"
    made = [((0, 1, 2, "[]"), 2, "final", None), (None, None, None, ("late", (1,)))]
    for batch, found in [(3, made), (4, []), (3, made)]:
        each(job, job.stream)(spark.createDataFrame(found, schema), batch)
    assert [tuple(row) for row in spark.read.csv(f"{tmp_path}/out", header=True).collect()] == [
        ("0", "1", "2", "[]", "2", "final", 3)
    ]
    assert [tuple(row) for row in spark.read.parquet(f"{tmp_path}/late").collect()] == [("late", 1, 3)]


# until somebody ends it


def interrupt_when(happened: Callable[[], bool]) -> Thread:
    """Presses Ctrl-C once something has happened, or in any case after a while."""

    def wait() -> None:
        pause, left = Event(), HAPPENS_WITHIN * 10
        while not happened() and left:
            pause.wait(0.1)
            left -= 1
        os.kill(os.getpid(), signal.SIGINT)

    waiting = Thread(target=wait, daemon=True)
    waiting.start()
    return waiting


@pytest.mark.slow
def test_a_stream_is_stopped_and_gone_on_with(spark: SparkSession, job: JobMaker, tmp_path: Path) -> None:
    sink = f'format = "csv"\npath = "{tmp_path}/out"'
    second, aside = tmp_path / "rows" / "1.csv", tmp_path / "1.csv"
    second.rename(aside)
    before = signal.getsignal(signal.SIGINT)
    thread = interrupt_when((tmp_path / "checkpoint" / "commits" / "0").exists)
    code, out, err = cli(job(sink, 'trigger = "100 ms"'))
    thread.join()
    assert (code, err) == (0, "")
    assert re.fullmatch(
        rf"stopped: 0 segments in 0 keys, written to {tmp_path}/out; 6 rows read, 1 without t; \d+\.\d s; "
        r"2 segments open, 2 rows waiting, progress 2; run the job again to go on\n",
        out,
    )
    assert signal.getsignal(signal.SIGINT) is before
    aside.rename(second)
    code, out, _ = cli(job(sink))
    assert re.fullmatch(
        rf"3 segments in 2 keys, written to {tmp_path}/out; 10 rows read, 1 late, 1 without t; \d+\.\d s\n", out
    )
    found = spark.read.csv(f"{tmp_path}/out", header=True).orderBy("key", "segment_id").collect()
    assert [tuple(row) for row in found] == [
        ("a", "0", "2", "3", "[]", "2", "final"),
        ("a", "1", "5", "5", "[]", "1", "final"),
        ("b", "0", "1", "3", "[]", "2", "final"),
    ]


# refused


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (
            {"punctuation": ""},
            "`punctuation` is missing in [plan]: a stream must say how it is known that rows have come, or no segment "
            'could ever close. Add it, such as punctuation = {kind = "slack", amount = "10 seconds"}.',
        ),
        (
            {"sink": 'format = "console"\norder = "rows desc"'},
            "`order` in [sink] ('rows desc'): the segments of a stream are shown as they close. Leave it out, or write "
            "them to files.",
        ),
        (
            {"sink": 'format = "csv"\npath = "out"\nmode = "overwrite"'},
            '`mode` in [sink] ("overwrite"): a stream adds to what it wrote before. Leave it out; to start again, '
            "remove its checkpoint and what it wrote.",
        ),
        (
            {"stream": 'prods = {kind = "prodder", every = "1 minute"}'},
            '`prods` in [stream] (prodder) asks by Spark\'s clock, which with `trigger` "once" makes one '
            "micro-batch of all there is: hardly anything is open after it. Give a length of time, such as "
            'trigger = "1 second", or leave the prodder out.',
        ),
    ],
)
def test_what_makes_no_sense_for_a_stream(job: JobMaker, wanted: dict[str, str], said: str) -> None:
    assert refused(job(**wanted)) == said


def test_a_plot_of_a_stream(job: JobMaker, spark: SparkSession, tmp_path: Path) -> None:
    assert refused(job('format = "console"', "", '[plot]\nvalue = "temp"\npath = "x.png"')) == (
        "[plot] draws a source that ends, and [source] is a stream. Leave [plot] out."
    )
    result = CliRunner().invoke(app, ["plot", job(), "--out", f"{tmp_path}/x.png"])
    assert result.exit_code == 2
    assert result.stderr == (
        "[source] is a stream, and this takes a source that ends. Leave `stream` and [stream] out.\n"
    )


def test_paths_that_are_in_the_way(job: JobMaker, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert refused(job(f'format = "csv"\npath = "{tmp_path}/out"')) == (
        f"`path` in [sink] ('{tmp_path}/out') exists already, and `checkpoint` in [stream] ('{tmp_path}/checkpoint') "
        "does not: what is there was written by something else. Choose another path."
    )
    assert refused(job(f'format = "csv"\npath = "{tmp_path}/new"', f'late = "{tmp_path}/new/late"')) == (
        f"`late` in [stream] ('{tmp_path}/new/late') and `path` in [sink] ('{tmp_path}/new') meet: segments and late "
        "rows would be read as one. Write to another path."
    )
    assert refused(job(stream=f'late = "{tmp_path}/rows/late"')) == (
        f"`late` in [stream] ('{tmp_path}/rows/late') and `path` in [source] ('{tmp_path}/rows') meet: the stream "
        "would read what it writes. Write to another path."
    )


def test_live_is_for_streams(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    plan = '[plan]\nscheme = "session_frames"\ngap = 5\nat = "t"\n'
    file.write_text(f'[source]\nformat = "table"\ntable = "t"\n{plan}', encoding="utf-8")
    assert refused(str(file), "--live") == (
        "`--live` watches a stream, and [source] is none. Leave it out, or add stream = true."
    )


# sources


def test_the_schema_of_a_parquet_stream_is_that_of_its_files(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame([(1, 2.0)], "t int, temp double").write.parquet(f"{tmp_path}/rows")
    read = read_stream(spark, FileSource("parquet", f"{tmp_path}/rows", stream=True))
    assert read.isStreaming
    assert read.schema.simpleString() == "struct<t:int,temp:double>"
    with pytest.raises(pw.JobError, match="nothing is there"):
        read_stream(spark, FileSource("parquet", f"{tmp_path}/none", stream=True))


def test_a_table_as_a_stream(spark: SparkSession) -> None:
    spark.readStream.format("rate").load().createOrReplaceTempView("rates")
    assert read_stream(spark, TableSource("rates", stream=True)).isStreaming
    with pytest.raises(pw.JobError, match="Spark knows no such table"):
        read_stream(spark, TableSource("no_such", stream=True))


KAFKA = (
    '[source]\nformat = "kafka"\nservers = "h:1"\ntopic = "t"\nvalue = "json"\nschema = "t int"\n'
    '[plan]\nscheme = "session_frames"\ngap = 5\nat = "t"\npunctuation = {kind = "slack", amount = 0}\n'
    '[stream]\ncheckpoint = "c"\n'
)


AVRO_KAFKA = KAFKA.replace('"json"', '"avro"').replace('"t int"', '\'{"type": "int"}\'')
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"


@pytest.mark.parametrize(
    ("text", "given", "packages"),
    [
        (KAFKA, {}, CONNECTOR),
        (AVRO_KAFKA, {}, f"{CONNECTOR},org.apache.spark:spark-avro_2.13:{pyspark.__version__}"),
        (KAFKA, {"spark.jars": "x.jar"}, None),
        (KAFKA, {"spark.jars.packages": "a:b:1"}, "a:b:1"),
    ],
)
def test_a_kafka_job_brings_its_connectors(text: str, given: dict[str, str], packages: str | None) -> None:
    job = job_from_toml(text)
    assert job.stream is not None
    wanted = settings(job, job.stream, "local[3]", given)
    assert wanted.get("spark.jars.packages") == packages
    assert {name: wanted[name] for name in given} == given


def test_a_connector_that_is_not_to_be_had() -> None:
    ivy = "unresolved dependency: org.apache.spark#spark-{}_2.13;4.3.0: not found"
    log = f":: problems\njava.lang.RuntimeException: [{ivy.format('sql-kafka-0-10')}, {ivy.format('avro')}]\n\tat x"
    assert unresolved(log) == (
        "`spark.jars.packages` (org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0, org.apache.spark:spark-avro_2.13:"
        "4.3.0): Spark did not start, because no repository that it knows gave it that. Name another one by --conf "
        "spark.jars.repositories=https://..., another version by --conf spark.jars.packages=..., or jars that you have "
        "by --conf spark.jars=a.jar,b.jar."
    )
    assert unresolved("The connection was refused.") is None


@pytest.mark.parametrize(
    ("master", "shards", "given", "partitions"),
    [
        ("local[3]", None, {}, "3"),
        ("local[3]", 2, {}, "2"),
        ("local", None, {}, "1"),
        ("spark://host:7077", None, {}, "16"),
        ("local[3]", None, {"spark.sql.shuffle.partitions": "7"}, "7"),
    ],
)
def test_as_many_partitions_as_are_of_use(
    master: str, shards: int | None, given: dict[str, str], partitions: str
) -> None:
    job = job_from_toml(KAFKA + (f"shards = {shards}\n" if shards else ""))
    assert job.stream is not None
    assert settings(job, job.stream, master, given)["spark.sql.shuffle.partitions"] == partitions


# on the screen

SEEN = pw.StreamProgress(
    batch=12,
    rows=24_000,
    closed=31,
    late={"late": 10, "after_idle": 1, "null_at": 2, "before_origin": 0, "partly_late": 3},
    batch_rows=2_000,
    batch_seconds=1.25,
    open=3,
    waiting=8,
    keys=4,
    state_bytes=11_263,
    until=7,
)


def drawn(seen: pw.StreamProgress) -> list[str]:
    console = Console(width=100, record=True, file=StringIO())
    console.print(table(seen, "t"))
    return [told.rstrip() for told in console.export_text().splitlines()]


def test_a_table_of_all_that_is_known() -> None:
    assert drawn(pw.StreamProgress()) == ["waiting for the first micro-batch ..."]
    facts = [
        "micro-batch  12 took 1.2 s",
        "rows         24,000, 1,600 a second in this one",
        "segments     31 closed, 3 open",
        "late rows    10 late, 1 late after idling, 2 without t, 3 late for some of their windows",
        "progress     7",
        "state        4 keys, 8 rows waiting, 11.3 kB",
    ]
    assert drawn(SEEN) == facts


def test_the_sources_that_are_furthest_behind_come_first() -> None:
    now = datetime.now(UTC)
    sources = [SourceProgress(f"s{n}", now - timedelta(minutes=n), n == 11) for n in range(12)]
    told = drawn(pw.StreamProgress(batch=1, sources=tuple(sources), until=now))[6:]
    assert told[:2] == ["", "source  progress                        lag"]
    assert [(words[0], words[-2:]) for words in (text.split() for text in told[2:4])] == [
        ("s10", ["10", "min"]),
        ("s9", ["9", "min"]),
    ]
    assert told[-1] == "... and 2 more, further ahead or idle"


def test_a_line_for_a_micro_batch() -> None:
    assert line(SEEN, "t") == (
        "micro-batch 12: 2,000 rows in 1.2 s; 31 segments closed, 3 open; 10 late, 1 late after idling, 2 without t, "
        "3 late for some of their windows; progress 7"
    )


def test_a_terminal_gets_a_live_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with looked_at(job_from_toml(KAFKA), True, "") as told:
        told("q", SEEN)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "31 closed, 3 open" in shown.err


def test_summaries() -> None:
    job = job_from_toml(KAFKA)
    none = StreamOutcome(pw.StreamProgress(), True, 0.25).summary(job)
    assert none == (
        "stopped: 0 segments; 0 rows read, none late; 0.2 s; 0 segments open, 0 rows waiting, progress nothing for all "
        "keys yet; run the job again to go on"
    )
    parts = pw.StreamProgress(batch=9, rows=1, closed=1, parts=2)
    assert StreamOutcome(parts, False, 0.25).summary(job) == "1 segment and 2 parts; 1 row read, none late; 0.2 s"


STREAM = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{STREAM}No space left. SQLSTATE: XXKST\n=== Streaming Query ===", "No space left."),
        (
            f"{STREAM}Reason: Traceback:\n  File\npy4j.Py4JJavaError: calling\n: a.b.SomeException: No.\n\tat x",
            "a.b.SomeException: No.",
        ),
        (
            f"{STREAM}Job aborted: Traceback:\n  File\nZeroDivisionError: division by zero\n\tat x",
            "ZeroDivisionError: division by zero",
        ),
    ],
)
def test_a_stream_that_fails(text: str, said: str) -> None:
    class Failed(StreamingQueryException):
        def getCondition(self) -> str:  # noqa: N802  # Spark's name
            return "STREAM_FAILED"

        def __str__(self) -> str:
            return text

    assert sentence(Failed.__new__(Failed)) == (f"The stream has failed: {said}", False)


@pytest.mark.slow
def test_a_stream_whose_plan_has_changed(spark: SparkSession, job: JobMaker, tmp_path: Path) -> None:
    thread = interrupt_when((tmp_path / "checkpoint" / "commits" / "0").exists)
    cli(job(stream='trigger = "100 ms"'))
    thread.join()
    assert refused(job(condition="temp > 33")).startswith(
        "The checkpoint belongs to another plan: `condition` was \"'temp > 32'\" and is \"'temp > 33'\". "
    )

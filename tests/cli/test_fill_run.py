"""Jobs with [fill] from the command line: in a batch, as streams, drawn, and refused in words."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
import pytest
from typer.testing import CliRunner

import panewise as pw
from panewise.cli.main import app
from panewise.cli.run import Outcome, check
from panewise.cli.show import show
from panewise.cli.stream import StreamOutcome, settings
from panewise.cli.stream import check as check_stream
from panewise.jobs import job_from_toml
from panewise.spark.watch import FillProgress
from panewise.spec.duration import Duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JobMaker = Callable[..., str]

READINGS = (
    "key,t,temp\na,1,30\na,2,33\na,3,34\na,4,30\nb,1,33\nb,,99\n",
    "key,t,temp\na,5,35\nb,3,33\nc,9,20\n",
)
LOADS = (
    "host,ts,load\na,1,0.5\na,2,0.75\na,3,0.25\nb,2,0.5\n",
    "host,ts,load\nb,,9\na,4,1\nb,3,0.25\nc,9,1\na,0,3\n",  # the last one is late
)
PROMISE = 'punctuation = {kind = "slack", amount = 1}'
AGG = 'agg = {n = "count(*)", most = "max(load)"}'


def cli(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def refused(*arguments: str) -> str:
    """What a refused command says; nothing else may be printed."""
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    return err.rstrip("\n")


def shown(out: str) -> list[list[str]]:
    """The lines of a table, in words."""
    return [line.split() for line in out.splitlines()]


def streamed(options: str = "") -> str:
    """A source that is a stream, and how far it has come."""
    return f"stream = true\n{options}"


@pytest.fixture
def job(tmp_path: Path) -> JobMaker:
    """Writes a job over two folders of small CSV files, of which each is a micro-batch of a stream."""
    for name, texts in (("readings", READINGS), ("loads", LOADS)):
        (tmp_path / name).mkdir()
        for number, text in enumerate(texts):
            file = tmp_path / name / f"{number}.csv"
            file.write_text(text, encoding="utf-8")
            os.utime(file, (1_700_000_000 + number,) * 2)  # Spark takes files in the order of these times

    def write(fill: str = AGG, *tables: str, source: str = "", plan: str = "", of: str | None = None) -> str:
        options = 'options = {header = "true", maxFilesPerTrigger = "1"}'
        own = f'format = "csv"\npath = "{tmp_path}/readings"\nschema = "key string, t int, temp double"\n{options}'
        other = f'format = "csv"\npath = "{tmp_path}/loads"\nschema = "host string, ts int, load double"\n{options}'
        other += '\nat = "ts"\nby = ["host"]\n'
        how = f'scheme = "threshold_frames"\ncondition = "temp > 32"\nby = ["key"]\nat = "t"\n{plan}'
        parts = [f"[source]\n{of or own}\n{source}", f"[plan]\n{how}", f"[fill]\n{other}{fill}", *tables]
        file = tmp_path / "job.toml"
        file.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
        return str(file)

    return write


# batch


def test_each_matching_row_with_its_segment(spark: SparkSession, job: JobMaker, tmp_path: Path) -> None:
    code, out, err = cli("run", job(""))
    assert (code, err) == (0, "")
    assert shown(out)[:-1] == [
        ["key", "id", "start", "end", "rows", "host", "ts", "load"],
        ["a", "0", "2", "3", "2", "a", "2", "0.75"],
        ["a", "0", "2", "3", "2", "a", "3", "0.25"],
        ["b", "0", "1", "3", "2", "b", "2", "0.5"],
        ["b", "0", "1", "3", "2", "b", "3", "0.25"],
    ]
    assert re.fullmatch(
        r"4 rows in segments; 9 rows read, 1 dropped for want of t; "
        r"of \[fill\] 9 rows read, 1 dropped for want of ts; \d+\.\d s",
        out.splitlines()[-1],
    )
    cli("run", job("", f'[sink]\nformat = "csv"\npath = "{tmp_path}/out"'))
    lines = [line for file in sorted((tmp_path / "out").glob("*.csv")) for line in file.read_text().splitlines()]
    assert {
        "key,segment_id,segment_start,segment_end,segment_bounds,rows,status,row_host,row_ts,row_load",
        "b,0,1,3,[],2,final,b,2,0.5",
    } <= set(lines)


def test_aggregates_of_the_segment_and_of_what_fills_it(spark: SparkSession, job: JobMaker) -> None:
    code, out, err = cli("run", job(AGG, '[agg]\ntop = "max(temp)"'))
    assert (code, err) == (0, "")
    filled = [
        ["key", "id", "start", "end", "rows", "top", "n", "most"],
        ["a", "0", "2", "3", "2", "34", "2", "0.75"],
        ["b", "0", "1", "3", "2", "33", "2", "0.5"],
    ]
    assert shown(out)[:-1] == filled
    assert out.splitlines()[-1].startswith("2 segments filled; 9 rows read, 1 dropped for want of t; of [fill] 9 rows ")
    # a segment has rows of its own; it is empty all the same
    _, out, _ = cli("run", job(f"keep_empty = true\n{AGG}", '[agg]\ntop = "max(temp)"'))
    assert shown(out)[2] == ["a", "1", "5", "5", "1", "35", "0"]
    assert len(shown(out)) == 5
    # without [agg] it is the same
    _, out, _ = cli("run", job(f"widen = {{before = 1}}\nwhere = 'load < 1'\n{AGG}"))
    assert [line[:1] + line[5:] for line in shown(out)[1:-1]] == [["a", "3", "0.75"], ["b", "2", "0.5"]]


@pytest.mark.slow
def test_several_sources_and_the_jobs_own(spark: SparkSession, job: JobMaker, tmp_path: Path) -> None:
    file = Path(job(AGG))
    own = '[fill.own]\nwiden = {before = 1}\nagg = {around = "count(*)"}\n\n[fill.same]\nagg = {top = "max(temp)"}\n'
    file.write_text(file.read_text().replace("[fill]\n", "[fill.loads]\n") + own, encoding="utf-8")
    code, out, err = cli("run", str(file))
    assert (code, err) == (0, "")
    assert [line[:1] + line[5:] for line in shown(out)[:-1]] == [
        ["key", "n", "most", "around", "top"],
        ["a", "2", "0.75", "3", "34"],
        ["a", "0", "2", "35"],
        ["b", "2", "0.5", "2", "33"],
    ]
    assert re.search(r"read, 1 dropped for want of t; of \[fill.loads\] 9 rows read, 1 dropped for want of ts; ", out)


def test_nothing_to_fill_is_still_counted(spark: SparkSession, job: JobMaker) -> None:
    _, out, _ = cli("run", job(f'where = "load > 100"\n{AGG}'))
    assert out.startswith("0 segments filled; 9 rows read, 1 dropped for want of t; of [fill] 9 rows read, 1 dropped ")


@pytest.mark.slow
def test_segments_that_were_found_before(spark: SparkSession, job: JobMaker, tmp_path: Path) -> None:
    readings = spark.read.schema("key string, t int, temp double").csv(f"{tmp_path}/readings", header=True)
    loud = pw.threshold_frames("temp > 32").by("key").at("t")
    loud.segments(readings).write.parquet(f"{tmp_path}/segments")
    of = f'format = "parquet"\npath = "{tmp_path}/segments"'
    _, out, _ = cli("run", job(AGG, of=of))
    assert [line[:1] + line[5:] for line in shown(out)[1:-1]] == [["a", "2", "0.75"], ["b", "2", "0.5"]]
    assert out.splitlines()[-1].startswith("2 segments filled; 3 rows read, none dropped; of [fill] 9 rows read, 1 ")
    assert refused("run", job(AGG, '[agg]\ntop = "max(temp)"', of=of)) == (
        "[agg] is over the rows that segments are found in, and [source] holds segments that were found before. "
        "Leave [agg] out, or name the source of those rows in a [fill]."
    )
    assert refused("plot", job(AGG, of=of), "--out", f"{tmp_path}/p.png") == (
        "[source] holds segments that were found before, and there is nothing to draw them over. "
        "Name the source of the rows that they were found in."
    )
    # data that comes later
    file = job(f"{streamed(PROMISE)}\n{AGG}", f'[stream]\ncheckpoint = "{tmp_path}/checkpoint"\nshards = 2', of=of)
    code, out, err = cli("run", file)
    assert (code, err) == (0, "")
    assert [line[:1] + line[5:] for line in shown(out)[1:-1]] == [["a", "2", "0.75"], ["b", "2", "0.5"]]
    assert re.fullmatch(r"3 segments; of \[fill\] 9 rows read, 1 late, 1 without ts; \d+\.\d s", out.splitlines()[-1])


# streams


@pytest.mark.slow
def test_two_streams_to_their_end(spark: SparkSession, job: JobMaker, tmp_path: Path) -> None:
    def file() -> str:
        return job(
            f"{streamed(PROMISE)}\n{AGG}",
            '[agg]\ntop = "max(temp)"',
            f'[stream]\ncheckpoint = "{tmp_path}/checkpoint"\nshards = 2\nlate = "{tmp_path}/late"',
            f'[sink]\nformat = "parquet"\npath = "{tmp_path}/out"',
            source=streamed(),
            plan=PROMISE,
        )

    code, out, err = cli("run", file(), "--live")
    assert code == 0
    assert re.fullmatch(
        rf"3 segments in 2 keys, written to {tmp_path}/out; 9 rows read, 1 without t; "
        r"of \[fill\] 9 rows read, 1 late, 1 without ts; \d+\.\d s\n",
        out,
    )
    told = err.splitlines()
    assert len(told) == 3
    assert "; filling: 4 rows, late: none; waiting: 3 rows for segments, 0 segments for rows; progress: 1" in told[0]
    assert "0 rows for segments, 0 segments for rows" in told[-1]
    found = spark.read.parquet(f"{tmp_path}/out").orderBy("key").drop("micro_batch", "segment").collect()
    assert [tuple(row) for row in found] == [("a", 2, "final", 34.0, 2, 0.75), ("b", 2, "final", 33.0, 2, 0.5)]
    strays = spark.read.parquet(f"{tmp_path}/late").orderBy("reason", "micro_batch").collect()
    # late rows of all sources, each under a name of its own
    assert [(row.reason, row.row and tuple(row.row), row.filling and tuple(row.filling)) for row in strays] == [
        ("late", None, ("a", 0, 3.0)),
        ("null_at", ("b", None, 99.0), None),
        ("null_at", None, ("b", None, 9.0)),
    ]
    assert refused("run", file()).startswith(f"`checkpoint` in [stream] ('{tmp_path}/checkpoint') is that of a stream ")


@pytest.mark.slow
def test_a_stream_and_a_stored_table(spark: SparkSession, job: JobMaker, tmp_path: Path) -> None:
    how = f'[stream]\ncheckpoint = "{tmp_path}/checkpoint"\nshards = 2'
    code, out, err = cli("run", job("", how, source=streamed(), plan=PROMISE))
    assert (code, err) == (0, "")
    assert [line[:1] + line[-2:] for line in shown(out) if line[0] in "ab"] == [
        ["a", "2", "0.75"],
        ["a", "3", "0.25"],
        ["b", "2", "0.5"],
        ["b", "3", "0.25"],
    ]
    assert refused("run", job("", f'{how}\nlate = "{tmp_path}/late"', source=streamed(), plan=PROMISE)) == (
        f"`late` in [stream] ('{tmp_path}/late'): late rows come beside segments, and these go on to [fill], which is "
        "stored. Leave it out; late rows are counted."
    )


@pytest.mark.slow
def test_readings_that_are_stored_and_a_stream(spark: SparkSession, job: JobMaker, tmp_path: Path) -> None:
    how = f'[stream]\ncheckpoint = "{tmp_path}/checkpoint"\nshards = 2'
    code, out, err = cli("run", job(f"{streamed(PROMISE)}\n{AGG}", '[agg]\ntop = "max(temp)"', how))
    assert (code, err) == (0, "")
    assert [line[:1] + line[5:] for line in shown(out)[:-1]] == [
        ["key", "top", "n", "most"],
        ["a", "34", "2", "0.75"],
        ["b", "33", "2", "0.5"],
    ]


# refused


UNPUNCTUATED = (
    "a stream must say how it is known that rows have come, or no segment could ever close. "
    'Add it, such as punctuation = {kind = "slack", amount = "10 seconds"}.'
)
STREAM = '[stream]\ncheckpoint = "c"'


def test_a_stream_that_says_nothing_of_its_progress(job: JobMaker) -> None:
    assert refused("run", job(streamed(), STREAM)) == f"`punctuation` is missing in [fill]: {UNPUNCTUATED}"
    assert refused("run", job("", STREAM, source=streamed())) == f"`punctuation` is missing in [plan]: {UNPUNCTUATED}"


def own(text: str, plan: str = "") -> str:
    return (
        '[source]\nformat = "table"\ntable = "t"\nstream = true\n'
        f'[plan]\nscheme = "session_frames"\ngap = 5\nat = "t"\n{plan}\n[fill]\n{text}\n{STREAM}\n'
    )


def test_a_stream_filled_from_itself_promises_once() -> None:
    def asked(text: str) -> None:
        wanted = job_from_toml(own(text, PROMISE))
        assert wanted.stream is not None
        check_stream(wanted, wanted.stream)

    asked("")
    asked('agg = {n = "count(*)"}')
    # what is promised of one column is not promised of another
    with pytest.raises(pw.JobError, match=r"^`punctuation` is missing in \[fill\]"):
        asked('at = "other"')


def test_columns_that_are_not_there(spark: SparkSession, job: JobMaker) -> None:
    file = Path(job(""))
    text = file.read_text()
    file.write_text(text.replace('by = ["host"]', 'by = ["hst"]'), encoding="utf-8")
    assert refused("run", str(file)) == "`by` in [fill] ('hst'): no such column. Did you mean `host`?"
    file.write_text(text.replace('at = "ts"', 'at = "tss"'), encoding="utf-8")
    assert refused("run", str(file)) == "`at` in [fill] ('tss'): no such column. Did you mean `ts`?"
    file.write_text(text.replace("/loads", "/none"), encoding="utf-8")
    assert refused("run", str(file)).startswith("`path` in [fill] (")


def test_paths_that_meet(job: JobMaker, tmp_path: Path) -> None:
    sink = f'[sink]\nformat = "parquet"\npath = "{tmp_path}/loads"\nmode = "overwrite"'
    with pytest.raises(pw.JobError, match=rf"and in \[fill\] \('{tmp_path}/loads'\) meet: overwriting would destroy"):
        check(job_from_toml(Path(job("", sink)).read_text()))
    late = f'{STREAM}\nlate = "{tmp_path}/loads/late"'
    assert refused("run", job(streamed(PROMISE), late, source=streamed(), plan=PROMISE)) == (
        f"`late` in [stream] ('{tmp_path}/loads/late') and `path` in [fill] ('{tmp_path}/loads') meet: the stream "
        "would read what it writes. Write to another path."
    )


def test_live_and_plots_are_told_apart(spark: SparkSession, job: JobMaker, tmp_path: Path) -> None:
    assert refused("run", job(""), "--live") == (
        "`--live` watches a stream, and neither [source] nor [fill] is one. Leave it out, or add stream = true."
    )
    plot = f'[plot]\nvalue = "temp"\npath = "{tmp_path}/p.png"'
    assert refused("run", job(streamed(PROMISE), STREAM, plot)) == (
        "[plot] draws a source that ends, and [fill] is a stream. Leave [plot] out."
    )
    assert refused("plot", job(streamed(PROMISE), STREAM), "--out", f"{tmp_path}/p.png") == (
        "[fill] is a stream, and this takes a source that ends. Leave `stream` and [stream] out."
    )


# explain


def test_explain_tells_of_what_fills(job: JobMaker) -> None:
    code, out, err = cli("explain", job())
    assert (code, err) == (0, "")
    assert "\nMatch          ts within the bounds of the segment" in out


# plot


def test_plot_draws_what_fills_below(
    spark: SparkSession, job: JobMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn: dict[str, Any] = {}
    monkeypatch.setattr("panewise.cli.plot.draw", lambda *_, **options: drawn.update(options))
    assert cli("plot", job(f"widen = {{before = 1}}\nwhere = 'load < 5'\n{AGG}"))[0] == 0
    (under,) = drawn["under"]
    assert (under.label, under.title, under.reach) == ("load", "loads where load < 5", (-1, 0))
    rows = under.rows.select(["key", under.at, under.value]).to_pylist()
    # of the keys that are drawn, a and b; only rows that count
    assert {(row["key"], row[under.at], row[under.value]) for row in rows} >= {("a", 0, 3.0), ("b", 3, 0.25)}
    assert {row["key"] for row in rows} == {"a", "b"}
    assert len(rows) == 7
    # where nothing is aggregated that is a number, rows are ticks
    for fill in ("", 'agg = {n = "count(*)", who = "count(host)"}'):
        assert cli("plot", job(fill))[0] == 0
        assert (drawn["under"][0].value, drawn["under"][0].title) == (None, "loads")
    table = f'[plot]\nvalue = "temp"\npath = "{tmp_path}/p.png"\nfill = "load * 2"'
    assert cli("plot", job("", table))[0] == 0
    assert drawn["under"][0].label == "load * 2"
    assert refused("plot", job("", table.replace("load * 2", "host"))) == (
        "`fill` in [plot] ('host') is no number, and only numbers can be drawn. Name another."
    )


def test_plot_writes_a_picture(spark: SparkSession, job: JobMaker, tmp_path: Path) -> None:
    file = Path(job(AGG))
    own = '[fill.own]\nwiden = {before = 1}\nagg = {around = "count(*)"}\n'
    file.write_text(file.read_text().replace("[fill]\n", "[fill.loads]\n") + own, encoding="utf-8")
    assert cli("plot", str(file), "--out", f"{tmp_path}/p.png") == (0, f"drawn to {tmp_path}/p.png\n", "")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


# in one line


def told(fill: str, source: str = "") -> Any:
    stream = '[stream]\ncheckpoint = "c"\n' if "stream = true" in fill + source else ""
    plan = '[plan]\nscheme = "session_frames"\ngap = 5\nby = ["k"]\nat = "t"\n'
    return job_from_toml(f'[source]\nformat = "table"\ntable = "t"\n{source}{plan}{fill}{stream}')


FILL = '[fill]\nformat = "table"\ntable = "m"\nat = "ts"\n'


def test_summaries_of_a_batch() -> None:
    made = Outcome(1, 1, 1, 0, 0.25, {"fill": (2, 1)})
    assert made.summary(told(FILL)) == (
        "1 row in segments; 1 row read, none dropped; of [fill] 2 rows read, 1 dropped for want of ts; 0.2 s"
    )
    assert made.summary(told(FILL + AGG + "\n")).startswith("1 segment filled; 1 row read")


def test_summaries_of_a_stream() -> None:
    waits = FillProgress(5, {"late": 1, "after_idle": 0, "null_at": 2}, 3, 4, 2, 7)
    seen = pw.StreamProgress(batch=1, rows=9, closed=6, keys_found=2, open=1, waiting=8, until=3, filling=waits)
    both = told(FILL + "stream = true\n", "stream = true\n")
    assert StreamOutcome(seen, True, 0.25).summary(both) == (
        "stopped: 6 segments in 2 keys; 9 rows read, none late; of [fill] 5 rows read, 1 late, 2 without ts; 0.2 s; "
        "1 segment open, 8 rows waiting, progress 3; "
        "4 rows of [fill] waiting for segments, 2 segments for rows; run the job again to go on"
    )
    known = told(FILL + f"stream = true\n{AGG}\n")
    read = "of [fill] 5 rows read, 1 late, 2 without ts; 0.2 s"
    assert StreamOutcome(seen, False, 0.25).summary(known) == f"3 segments; {read}"
    assert StreamOutcome(seen, False, 0.25).summary(told(FILL + "stream = true\n")) == f"rows in segments; {read}"


def test_kafka_on_either_side_brings_its_connectors() -> None:
    kafka = '[fill]\nformat = "kafka"\nservers = "h:1"\ntopic = "t"\nvalue = "json"\nschema = "t int"\n'
    wanted = told(kafka + STREAM)
    assert wanted.stream is not None
    assert f":{pyspark.__version__}" in settings(wanted, wanted.stream, "local[2]", {})["spark.jars.packages"]


def test_a_table_of_rows_tells_their_columns_from_the_segments(capsys: pytest.CaptureFixture[str]) -> None:
    segment = [{"id": 0, "start": 1, "end": 2, "bounds": "[]"}]
    row = [{"key": "a", "start": 7, "load": 1.0}]
    show(pa.table({"key": ["a"], "segment": segment, "rows": [2], "status": ["final"], "row": row}))
    assert shown(capsys.readouterr().out) == [
        ["key", "id", "start", "end", "rows", "row.start", "load"],
        ["a", "0", "1", "2", "2", "7", "1"],
    ]


def test_amounts_of_a_job_reach_the_picture() -> None:
    wanted = told(FILL + 'widen = {before = "1 s"}\nshift = "-1 s"\n')
    assert wanted.fill.named[0][1].filling.reach == (Duration(-2_000_000), Duration(-1_000_000))

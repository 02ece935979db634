"""The command line, as a user meets it: what it prints, writes, draws and refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from typer.testing import CliRunner

from panewise.cli import demo
from panewise.cli.errors import sentence
from panewise.cli.main import app
from panewise.cli.run import Outcome, check
from panewise.cli.show import show
from panewise.data import router
from panewise.jobs import job_from_toml

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JobMaker = Callable[..., str]

ROWS = """key,t,temp
a,1,30
a,2,33
a,3,34
a,4,30
a,5,35
b,1,33
b,,99
b,2,33
c,1,20
"""


def cli(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def job(tmp_path: Path) -> JobMaker:
    """Writes a job over a small CSV file; arguments replace parts of it."""

    def write(
        *tables: str,
        condition: str = "temp > 32",
        ties: str = "all",
        path: str | None = None,
        schema: str = "key string, t int, temp double",
        by: str = '["key"]',
    ) -> str:
        rows = tmp_path / "rows.csv"
        rows.write_text(ROWS, encoding="utf-8")
        source = f'format = "csv"\npath = "{path or rows}"\nschema = "{schema}"\noptions = {{ header = "true" }}'
        plan = f'scheme = "threshold_frames"\ncondition = "{condition}"\nby = {by}\nat = "t"\nties = "{ties}"'
        text = "\n\n".join([f"[source]\n{source}", f"[plan]\n{plan}", *tables])
        file = tmp_path / "job.toml"
        file.write_text(text + "\n", encoding="utf-8")
        return str(file)

    return write


# explain


def test_explain_says_what_will_be_found(job: JobMaker) -> None:
    code, out, err = cli("explain", job('[agg]\ntop = "max(temp)"'))
    assert (code, err) == (0, "")
    assert out.startswith("Finds          the stretches of rows in which temp > 32 holds\n")
    assert "top = max(temp)" in out


def test_without_a_command_it_lists_them() -> None:
    _, out, err = cli()
    assert all(name in out + err for name in ("run", "explain", "plot", "demo"))


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+.*\n", cli("--version")[1])


# run


def test_run_shows_the_segments(spark: SparkSession, job: JobMaker) -> None:
    code, out, err = cli("run", job('[agg]\ntop = "max(temp)"'))
    assert (code, err) == (0, "")
    *table, summary = out.splitlines()
    assert [line.split() for line in table] == [
        ["key", "id", "start", "end", "rows", "top"],
        ["a", "0", "2", "3", "2", "34"],
        ["a", "1", "5", "5", "1", "35"],
        ["b", "0", "1", "2", "2", "33"],
    ]
    assert re.fullmatch(r"3 segments in 2 keys; 9 rows read, 1 dropped for want of t; \d+\.\d s", summary)


def test_run_leaves_a_session_that_it_did_not_make(spark: SparkSession, job: JobMaker) -> None:
    cli("run", job())
    assert spark.range(3).count() == 3


def test_run_shows_as_many_as_the_sink_says_in_its_order(spark: SparkSession, job: JobMaker) -> None:
    order = "greatest(rows, segment.id) desc, segment.start DESC nulls last"
    sink = f'[sink]\nformat = "console"\nlimit = 2\norder = "{order}"'
    _, out, _ = cli("run", job(sink))
    table = [line.split() for line in out.splitlines()]
    assert table[1:3] == [["a", "0", "2", "3", "2"], ["b", "0", "1", "2", "2"]]
    assert out.splitlines()[3] == "... and 1 more"


def test_a_table_tells_a_key_called_id_from_the_segments_id(capsys: pytest.CaptureFixture[str]) -> None:
    day = datetime(2024, 1, 1, tzinfo=UTC)
    ends = [day + timedelta(hours=1), day + timedelta(days=1)]
    segment = [{"id": i, "start": day, "end": end, "bounds": "[)"} for i, end in enumerate(ends)]
    show(
        pa.table(
            {"id": ["x", None], "segment": segment, "rows": [1, 2000], "status": ["final"] * 2, "top": pa.nulls(2)}
        )
    )
    assert [re.split(r"  +", line.strip()) for line in capsys.readouterr().out.splitlines()] == [
        ["id", "segment.id", "start (UTC)", "end (UTC)", "bounds", "rows", "top"],
        ["x", "0", "2024-01-01 00:00:00", "01:00:00", "[)", "1"],
        ["1", "2024-01-01 00:00:00", "2024-01-02 00:00:00", "[)", "2,000"],
    ]


def test_run_writes_parquet(spark: SparkSession, job: JobMaker, tmp_path: Path) -> None:
    sink = f'[sink]\nformat = "parquet"\npath = "{tmp_path}/out"'
    code, out, _ = cli("run", job(sink))
    assert code == 0
    assert out.startswith(f"3 segments in 2 keys, written to {tmp_path}/out; 9 rows read")
    found = spark.read.parquet(f"{tmp_path}/out").orderBy("key", "segment.id").collect()
    assert [(row.key, *row.segment, row.rows) for row in found] == [
        ("a", 0, 2, 3, "[]", 2),
        ("a", 1, 5, 5, "[]", 1),
        ("b", 0, 1, 2, "[]", 2),
    ]


def test_run_writes_flat_csv(spark: SparkSession, job: JobMaker, tmp_path: Path) -> None:
    cli("run", job(f'[agg]\n"a.b" = "sum(temp)"\n\n[sink]\nformat = "csv"\npath = "{tmp_path}/out"'))
    lines = [line for file in sorted((tmp_path / "out").glob("*.csv")) for line in file.read_text().splitlines()]
    assert set(lines) == {
        "key,segment_id,segment_start,segment_end,segment_bounds,rows,status,a.b",
        "a,0,2,3,[],2,final,67.0",
        "a,1,5,5,[],1,final,35.0",
        "b,0,1,2,[],2,final,66.0",
    }


def test_run_that_finds_nothing_still_counts(spark: SparkSession, job: JobMaker) -> None:
    _, out, _ = cli("run", job(condition="temp > 1000"))
    assert out.startswith("0 segments in 0 keys; 9 rows read, 1 dropped for want of t; ")


def test_run_of_rows_without_any_at_says_so(spark: SparkSession, job: JobMaker) -> None:
    _, out, _ = cli("run", job(schema="key string, t date, temp double"))
    assert out.startswith("0 segments in 0 keys; 9 rows read, 9 dropped for want of t; ")


def test_run_reads_a_table(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame([], "t double, temp double").createOrReplaceTempView("nothing")
    spark.createDataFrame([(1.0, 33.0), (float("nan"), 34.0)], "t double, temp double").createOrReplaceTempView("some")
    for name, said in [("nothing", "0 segments; 0 rows read, none"), ("some", "1 segment; 2 rows read, 1")]:
        file = tmp_path / "job.toml"
        plan = '[plan]\nscheme = "threshold_frames"\ncondition = "temp > 32"\nat = "t"\n'
        file.write_text(f'[source]\nformat = "table"\ntable = "{name}"\n{plan}', encoding="utf-8")
        assert cli("run", str(file))[1].splitlines()[-1].startswith(f"{said} dropped")


# errors: one red line, exit code 2


def refused(*arguments: str) -> str:
    """What a refused command says; nothing else may be printed."""
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    return err.rstrip("\n")


def test_a_job_that_is_not_there(tmp_path: Path) -> None:
    assert (
        refused("explain", f"{tmp_path}/none.toml") == f"There is no job file '{tmp_path}/none.toml'. Check the path."
    )


def test_a_plan_that_cannot_be(job: JobMaker) -> None:
    assert refused("run", job(ties="some")).startswith("`ties` ('some') must be one of")


def test_a_source_that_is_not_there(spark: SparkSession, job: JobMaker) -> None:
    assert refused("run", job(path="no/such/rows.csv")) == (
        "`path` in [source] ('no/such/rows.csv'): nothing is there. Check the path."
    )


def test_a_table_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    plan = '[plan]\nscheme = "session_frames"\ngap = 5\nat = "t"\n'
    file.write_text(f'[source]\nformat = "table"\ntable = "no_such"\n{plan}', encoding="utf-8")
    assert refused("run", str(file)) == "`table` in [source] ('no_such'): Spark knows no such table. Check the name."


def test_a_schema_that_is_none(spark: SparkSession, job: JobMaker) -> None:
    assert refused("run", job(schema="key strong")).startswith("`schema` in [source] ('key strong') is none: ")


def test_a_column_that_is_not_there(spark: SparkSession, job: JobMaker) -> None:
    assert (
        refused("run", job(condition="tmp > 32")) == "`condition` ('tmp > 32'): no column `tmp`. Did you mean `temp`?"
    )


def test_an_order_that_is_none(spark: SparkSession, job: JobMaker) -> None:
    assert refused("run", job('[sink]\nformat = "console"\norder = "size desc"')).startswith(
        "`order` in [sink] ('size desc') can't order segments: "
    )
    assert refused("run", job('[sink]\nformat = "console"\norder = "rows,"')) == (
        "`order` in [sink] ('rows,') has an empty part. Write it as \"rows desc, router\"."
    )


def test_rows_that_break_a_rule_inside_a_worker(
    spark: SparkSession, job: JobMaker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = job(ties="error")
    with (tmp_path / "rows.csv").open("a", encoding="utf-8") as rows:
        rows.write("b,2,1\n")
    assert refused("run", file).startswith("`ties` (\"error\"): two rows of key='b' have the same `t` (2). ")


def test_a_sink_that_exists_is_refused_before_any_work(job: JobMaker, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    sink = f'[sink]\nformat = "csv"\npath = "{tmp_path}/out"'
    assert refused("run", job(sink, path="no/such/rows")) == (
        f"`path` in [sink] ('{tmp_path}/out') exists already. Choose another, or add mode = \"overwrite\"."
    )


@pytest.mark.parametrize(
    ("source", "sink", "meets"),
    [
        ("data/rows", "data/rows", True),
        ("data/rows", "data", True),
        ("data", "data/../data/rows/", True),
        ("file:/data/rows", "/data/rows", True),
        ("s3://b/rows", "s3://b/rows/", True),
        ("data/rows", "data/rows2", False),
        ("s3://b/rows", "/b/rows", False),
    ],
)
def test_a_sink_never_destroys_its_source(source: str, sink: str, meets: bool) -> None:
    job = job_from_toml(
        f'[source]\nformat = "parquet"\npath = "{source}"\n'
        '[plan]\nscheme = "session_frames"\ngap = 5\nat = "t"\n'
        f'[sink]\nformat = "parquet"\npath = "{sink}"\nmode = "overwrite"\n'
    )
    if meets:
        with pytest.raises(ValueError, match="overwriting would destroy the rows before they are read"):
            check(job)
    else:
        check(job)


def test_a_setting_that_is_none(job: JobMaker) -> None:
    code, _, err = cli("run", job(), "--conf", "shuffle=2")
    assert code == 2
    assert "is no Spark setting" in err


WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "x.py", line 1, in run
ZeroDivisionError: division by zero
"""
JAVA = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Could not parse Master URL: 'nowhere'
\tat org.apache.spark.SparkContext$.createTaskScheduler(SparkContext.scala:1)
"""


class _WorkerError(PySparkRuntimeError):
    def getCondition(self) -> str:  # noqa: N802  # Spark's name
        return "PYTHON_EXCEPTION"

    def __str__(self) -> str:
        return WORKER


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (_WorkerError("x"), "A Python worker failed: ZeroDivisionError: division by zero"),
        (Py4JError(JAVA), "Spark says: org.apache.spark.SparkException: Could not parse Master URL: 'nowhere'"),
        (
            PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}),
            "Spark did not start. It needs Java 17 or newer (JAVA_HOME), and a master that it knows.",
        ),
    ],
)
def test_errors_that_spark_may_know_more_about(error: Exception, said: str) -> None:
    assert sentence(error) == (said, False)


def test_a_file_that_cannot_be_written() -> None:
    assert sentence(PermissionError(13, "Permission denied", "x.png")) == ("Permission denied (x.png).", True)


# plot


def test_plot_draws_the_keys_with_most_time_in_segments(
    spark: SparkSession, job: JobMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn: dict[str, Any] = {}

    def note(series: pa.Table, segments: pa.Table, **options: Any) -> None:
        drawn.update(options, keys=set(series["key"].to_pylist()), segments=len(segments))

    monkeypatch.setattr("panewise.cli.plot.draw", note)
    assert cli("plot", job())[0] == 0
    assert (drawn["keys"], drawn["segments"], drawn["value"], drawn["threshold"]) == ({"a", "b"}, 3, "temp", 32.0)
    assert drawn["path"] == tmp_path / "job.png"
    # a plot table has its say, and options have the last word
    table = f'[plot]\nvalue = "temp * 2"\npath = "{tmp_path}/two.png"\nkeys = ["c"]\nthreshold = 1.5'
    assert cli("plot", job(table))[0] == 0
    assert (drawn["keys"], drawn["value"], drawn["threshold"]) == ({"c"}, "temp * 2", 1.5)
    assert drawn["path"] == tmp_path / "two.png"
    assert cli("plot", job(table), "--key", "a", "--key", "b", "--value", "t")[0] == 0
    assert (drawn["keys"], drawn["value"]) == ({"a", "b"}, "t")
    # where nothing is found, the first keys; a key of several columns is written with commas
    assert cli("plot", job(condition="temp > 1000"))[0] == 0
    assert drawn["keys"] == {"a", "b", "c"}
    assert cli("plot", job(by='["key", "temp"]'), "--key", "a,30.0")[0] == 0
    assert (drawn["keys"], drawn["key"]) == ({"a"}, ["key", "temp"])


def test_plot_writes_a_picture(spark: SparkSession, job: JobMaker, tmp_path: Path) -> None:
    code, out, _ = cli("plot", job(), "--out", f"{tmp_path}/new/loss.png")
    assert (code, out) == (0, f"drawn to {tmp_path}/new/loss.png\n")
    assert (tmp_path / "new" / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_plot_refuses_what_it_cannot_draw(spark: SparkSession, job: JobMaker) -> None:
    assert refused("plot", job(), "--out", "loss.gif") == (
        "`--out` ('loss.gif') must end in .png, .svg or .pdf. Rename it."
    )
    assert refused("plot", job(condition="key = 'a'")) == (
        "`--value` is not given, and the plan's conditions name no numeric column. Add --value, or `value` in [plot]."
    )
    assert refused("plot", job(), "--key", "a", "--key", "z") == (
        "`--key` (a, z): the source has rows of a only. Choose keys that occur in it."
    )
    assert refused("plot", job(by='["key", "temp"]'), "--key", "a") == (
        "`--key` ('a') must give a value for each of key, temp. Write them with commas."
    )
    assert refused("plot", job(by="[]"), "--key", "a").startswith("`--key` (a): the plan has no `by`")


# demo


def test_demo_finds_everything_twice(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    for _ in range(2):
        code, said, err = cli("demo", "--rows", "20000", "--routers", "20", "--out", str(out))
        assert (code, err) == (0, "")
        assert re.search(r"checked against the known truth: \d+ episodes, all found, none invented\n", said)
        assert (out / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert cli("run", f"{out}/job.toml")[0] == 0


def test_demo_sees_what_is_wrong(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = router.truth(20_000, routers=20)
    monkeypatch.setattr(router, "truth", lambda *_, **__: truth.slice(1))
    shorter = truth.slice(0, 1).to_pylist()[0]
    monkeypatch.setattr(demo, "_LEAST", shorter["end"] - shorter["start"])
    code, said, _ = cli("demo", "--rows", "20000", "--routers", "20", "--out", str(tmp_path / "demo"))
    assert code == 1
    assert re.search(r"episodes, \d+ not found, \d+ invented\n", said)


def test_demo_leaves_strange_folders_alone(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    assert refused("demo", "--out", str(tmp_path)).endswith("holds something that no demo made. Choose another folder.")
    assert (tmp_path / "reports").is_dir()


def test_summary_in_the_singular() -> None:
    job = job_from_toml(
        '[source]\nformat = "table"\ntable = "t"\n[plan]\nscheme = "session_frames"\ngap = 5\nat = "t"\n'
    )
    assert Outcome(1, 1, 1, 0, 0.25).summary(job) == "1 segment; 1 row read, none dropped; 0.2 s"

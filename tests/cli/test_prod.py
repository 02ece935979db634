"""Prods from the command line: what is written for a running query, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from panewise.cli.main import app

JOB = """
[source]
format = "csv"
path = "rows"
schema = "sensor string, lane int, t timestamp, v double"
stream = true

[plan]
scheme = "tumbling_windows"
size = "1 minute"
by = ["sensor", "lane"]
at = "t"
punctuation = {kind = "slack", amount = "10 seconds"}

[agg]
total = "sum(v)"

[stream]
checkpoint = "out/checkpoint"
trigger = "1 second"
prods = {kind = "prodder", every = "1 minute", aggressiveness = 0.25}
"""


def cli(*arguments: str) -> tuple[int, str]:
    """Exit code, and all that is said."""
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, (result.stdout + result.stderr).strip()


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job, and the control folder that its query would have made."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "job.toml"
    file.write_text(JOB, encoding="utf-8")
    (tmp_path / "out" / "checkpoint-control").mkdir(parents=True)
    return file


def written(folder: Path) -> list[dict]:
    return [json.loads(file.read_text()) for file in folder.iterdir() if not file.name.startswith(".")]


def test_a_request_is_a_file(job: Path) -> None:
    folder = job.parent / "out" / "checkpoint-control"
    assert cli("prod", str(job), "--until", "2024-01-01T08:00:00Z", "--key", "sensor=a=b", "--key", "lane=2") == (
        0,
        "asked, through out/checkpoint-control; the answer comes among the results of the query, as early",
    )
    (told,) = written(folder)
    assert told == {
        "kind": "prod",
        "until": "2024-01-01T08:00:00.000000Z",
        "key": {"sensor": "a=b", "lane": "2"},
    }
    assert [file.suffix for file in folder.iterdir()] == [".json"]


@pytest.mark.parametrize(("text", "until"), [("50", 50), ("0.5", 0.5), ("2024-01-01", "2024-01-01")])
def test_by_its_folder(job: Path, text: str, until: object) -> None:
    folder = job.parent / "out" / "checkpoint-control"
    assert cli("prod", str(folder), "--until", text)[0] == 0
    assert written(folder) == [{"kind": "prod", "until": until, "key": None}]


def test_what_is_refused(job: Path) -> None:
    assert cli("prod", str(job), "--key", "senor=1")[1] == (
        "`--key` ('senor=1'): 'senor' is no key of the plan. Did you mean `sensor`?"
    )
    assert "`--key` ('sensor') must name a key column and a value" in cli("prod", str(job), "--key", "sensor")[1]
    assert "`--until` ('soon') must be a number, a date or a time" in cli("prod", str(job), "--until", "soon")[1]
    assert cli("prod", "none.toml") == (2, "There is no job file 'none.toml'. Check the path.")
    assert "There is no control folder 'elsewhere'" in cli("prod", "elsewhere")[1]
    job.write_text(JOB.replace("prods =", "# prods ="), encoding="utf-8")
    assert "answers no prods. Add prods = true to [stream]" in cli("prod", str(job))[1]
    assert written(job.parent / "out" / "checkpoint-control") == []


def test_jobs_are_explained_with_their_prods(job: Path) -> None:
    code, told = cli("explain", str(job))
    assert code == 0
    assert "once in every 1 minute, 25% of it before its end" in told

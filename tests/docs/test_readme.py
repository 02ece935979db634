"""The README keeps its word: its Python prints what it says, its job is a job, its commands and links exist."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

import panewise as pw
from panewise.cli.main import app
from panewise.jobs import job_from_toml

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_python_runs_and_prints_what_it_says(spark: SparkSession) -> None:
    names: dict[str, Any] = {"__name__": "readme"}
    for (language, code), (after, text) in zip(BLOCKS, [*BLOCKS[1:], ("", "")], strict=True):
        if language == "python":
            said = StringIO()
            with redirect_stdout(said):
                exec(compile(code, "README.md", "exec"), names)
            assert said.getvalue().strip() == (text.strip() if after == "text" else "")
    assert names["spark"] is spark


def test_the_job_is_the_plan_of_the_tour() -> None:
    loss = pw.threshold_frames("drop_pct > 0.3", min_duration="2 minutes").by("router").at("rpt_time")
    assert [job_from_toml(code).plan for language, code in BLOCKS if language == "toml"] == [loss]


def test_every_command_is_there() -> None:
    known: Any = get_command(app)
    lines = [line.split() for language, code in BLOCKS if not language for line in code.splitlines()]
    assert {line[1] for line in lines if line[0] == "panewise"} == set(known.commands)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {line[1] for line in lines if line[0] == "make"} <= set(targets)
    assert {line[0] for line in lines} == {"panewise", "make"}


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []

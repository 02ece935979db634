"""The pages below docs keep their word: their Python runs, their jobs are jobs, their links lead somewhere."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import panewise as pw
from panewise.jobs import job_from_toml

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def blocks(page: Path) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


SLOW = ("correlate-with-another-stream.md",)
"""Half a minute of streams."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] if page.name in SLOW else [], id=page.name) for page in PAGES],
)
def test_python_runs_and_prints_what_it_says(page: Path, spark: SparkSession) -> None:
    names: dict[str, Any] = {"__name__": page.stem}
    for (language, code), (after, text) in pairwise([*blocks(page), ("", "")]):
        if language == "python":
            said = StringIO()
            with redirect_stdout(said):
                exec(compile(code, page.name, "exec"), names)
            assert said.getvalue().strip() == (text.strip() if after == "text" else "")


def test_the_job_is_the_plan_of_the_page() -> None:
    page = DOCS / "reference" / "punctuation.md"
    names: dict[str, Any] = {}
    exec(blocks(page)[0][1], names)
    jobs = [job_from_toml(code) for language, code in blocks(page) if language == "toml"]
    assert [job.plan for job in jobs] == [names["plan"]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_job_is_one(page: Path) -> None:
    for language, code in blocks(page):
        if language == "toml":
            job_from_toml(code)


def test_every_punctuation_has_its_section() -> None:
    kinds = {"external", "in_band", "ordered_per", "schedule", "slack", "watermark"}
    assert kinds <= set(pw.__all__)
    text = (DOCS / "reference" / "punctuation.md").read_text(encoding="utf-8")
    assert kinds <= set(re.findall(r"^### (\w+)$", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []

"""What is set aside: what is refused, and why."""

from __future__ import annotations

from typing import Any

import pytest

import panewise as pw
from panewise.jobs import job_from_toml, job_to_toml
from panewise.local.stream import LocalStream
from panewise.spec.aside import SetAside, checked_set_aside
from panewise.spec.prod import Prods
from panewise.spec.prod_tables import aside_from_value, aside_to_value

WINDOWS = pw.tumbling_windows(10).scheme


def test_none_and_all_of_it() -> None:
    assert checked_set_aside(None, WINDOWS, None) is None
    assert checked_set_aside(False, WINDOWS, None) is None
    assert checked_set_aside(True, WINDOWS, Prods()) == SetAside() == pw.set_aside()
    assert checked_set_aside(pw.set_aside(5), WINDOWS, Prods()) == SetAside(rows=5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rows": 0}, "`rows` (0) must be a whole number, at least 1: a window with more rows is a burst."),
        ({"rows": 2.5}, "`rows` (2.5) must be a whole number"),
        ({"every": True}, "`every` (True) must be a whole number"),
        ({"every": 0}, "one row that is set aside is processed after so many new ones. Give one, such as 10."),
        ({"at_most": -1}, "`at_most` (-1) must be a whole number, at least 1"),
        ({"lull": -1}, "`lull` (-1) must be a whole number, at least 0: a micro-batch that brings no more rows"),
    ],
)
def test_numbers_that_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(pw.SpecError) as caught:
        pw.set_aside(**given)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (pw.threshold_frames("v > 1"), "frames are drawn by rows in order"),
        (pw.landmark_windows(10, origin=0), "a landmark window has the rows of all before it"),
        (pw.row_windows(10, 5), "windows of rows number all rows in order"),
        (pw.slide_by_tuple_windows(10), "every window ends with a row"),
    ],
)
def test_it_is_for_windows_on_a_grid(plan: pw.Plan, why: str) -> None:
    with pytest.raises(pw.SpecError, match=rf"`set_aside` is for windows on a grid.*{why}.*Leave it out"):
        LocalStream(plan.at("t", pw.slack(1)), prods=True, set_aside=True)


def test_without_prods_there_is_nothing_to_set_aside() -> None:
    with pytest.raises(pw.SpecError, match=r"`set_aside`: .* there are no prods\. Give `prods` too"):
        LocalStream(pw.tumbling_windows(10).at("t", pw.slack(1)), set_aside=True)


def test_it_says_what_is_set_aside() -> None:
    with pytest.raises(pw.SpecError, match=r"`set_aside` \(1000\) does not say which rows.*pw\.set_aside"):
        checked_set_aside(1000, WINDOWS, Prods())


@pytest.mark.parametrize("given", [SetAside(), pw.set_aside(500), pw.set_aside(5, every=2, at_most=7, lull=1)])
def test_there_and_back(given: SetAside) -> None:
    assert aside_from_value("stream.set_aside", aside_to_value(given)) == given


def test_in_a_job_file() -> None:
    assert aside_from_value("stream.set_aside", False) is None
    assert aside_to_value(SetAside()) is True
    assert aside_to_value(pw.set_aside(500)) == {"rows": 500}
    with pytest.raises(pw.JobError, match=r"`row` in \[stream\.set_aside\] is not an option.*Did you mean `rows`"):
        aside_from_value("stream.set_aside", {"row": 5})
    with pytest.raises(pw.JobError, match=r"`stream\.set_aside` \(500\) must be a table"):
        aside_from_value("stream.set_aside", 500)


@pytest.mark.parametrize(
    ("scheme", "more", "said"),
    [
        ('scheme = "tumbling_windows"\nsize = 10', "", "there are no prods"),
        ('scheme = "threshold_frames"\ncondition = "v > 1"', "prods = true", "frames are drawn by rows in order"),
    ],
)
def test_a_job_that_can_t_set_anything_aside_is_refused(scheme: str, more: str, said: str) -> None:
    source = '[source]\nformat = "parquet"\npath = "rows"\nstream = true\n'
    plan = f'[plan]\n{scheme}\nat = "t"\npunctuation = {{kind = "slack", amount = 1}}\n'
    with pytest.raises(pw.SpecError, match=said):
        job_from_toml(f'{source}{plan}[stream]\ncheckpoint = "c"\nset_aside = true\n{more}\n')


def test_a_job_with_bursts_there_and_back() -> None:
    text = """
        [source]
        format = "parquet"
        path = "rows"
        stream = true
        [plan]
        scheme = "tumbling_windows"
        size = 10
        at = "t"
        punctuation = {kind = "slack", amount = 1}
        [stream]
        checkpoint = "c"
        prods = true
        set_aside = {rows = 500}
    """
    job = job_from_toml(text)
    assert job.stream is not None
    assert job.stream.set_aside == pw.set_aside(500)
    assert job_from_toml(job_to_toml(job)) == job

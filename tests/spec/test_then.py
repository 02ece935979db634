"""Plans over plans: what goes together, in job files and in words."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import panewise as pw
from panewise.errors import PanewiseError
from panewise.jobs import Job, job_from_toml, job_to_toml, plan_from_mapping, plan_to_mapping
from panewise.spec.explain import explain
from panewise.spec.job import TableSource

FIRST = pw.threshold_frames("v > 0").by("k").at("t")
COUNTS = pw.tumbling_windows(10).by("k").agg(n="count(*)", busy="sum(duration)")
PLANS = [
    FIRST.then(COUNTS),
    FIRST.then(COUNTS).then(pw.session_frames(5).at("end").agg(most="percentile(n, 0.9)")),
    FIRST.then(pw.sliding_windows(10, 5, keep_empty=True).agg(own="conformance.schemes:Span(duration)")),
]
ROWS = pa.table({"k": ["a"], "t": [1], "v": [1]})
FAR = pa.table({"k": ["a", "a"], "t": [0, 10**10], "v": [1, 1]})


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_and_its_job_are_one(plan: pw.Plan) -> None:
    assert plan_from_mapping(plan_to_mapping(plan)) == plan
    job = Job(TableSource("rows"), plan)
    assert job_from_toml(job_to_toml(job)) == job


def test_aggregates_of_a_plan_are_those_of_its_job() -> None:
    plan = FIRST.agg(top="max(v)")
    assert job_from_toml(job_to_toml(Job(TableSource("rows"), plan))).agg == (("top", "max(v)"),)
    assert pw.segments_local(plan, ROWS).column("top").to_pylist() == [1]


def test_plans_are_told_one_after_another() -> None:
    told = explain(PLANS[1])
    assert told.count("Finds ") == 3
    assert "Then, over these segments: each counts in every window that it meets, clipped to it" in told
    assert "Then, over these segments: each is a row" in told


@pytest.mark.parametrize(
    ("built", "said"),
    [
        (lambda: FIRST.then("windows"), "`then` (str) must be a plan over the segments of this one."),
        (
            lambda: FIRST.then(pw.session_frames(5).at("end", pw.slack(1))),
            "`punctuation`: the plan before it tells how far segments have come.",
        ),
        (
            lambda: pw.segments_local(FIRST.then(pw.session_frames(5).at("t")), ROWS),
            "`at` ('t'): a plan that follows is over segments, in order of their `start` or `end`.",
        ),
        (
            lambda: pw.segments_local(FIRST.then(pw.landmark_windows(5)), ROWS),
            "`then` (landmark_windows): segments are clipped to windows, and these have no end of their own.",
        ),
        (
            lambda: pw.segments_local(FIRST.then(pw.tumbling_windows(5).at("start", tie_break="nope")), ROWS),
            "`tie_break` (('nope',)) is about rows with one `at`, and windows take all. Leave it out.",
        ),
        (
            lambda: pw.segments_local(FIRST.then(pw.tumbling_windows(5).at("start", ties="first")), ROWS),
            "`ties` ('first') is about rows with one `at`, and windows take all. Leave it out.",
        ),
        (
            lambda: pw.segments_local(FIRST.agg(duration="count(*)").then(COUNTS), ROWS),
            "`then`: the plan before it has a column 'duration', which is what a segment's own is called there",
        ),
        (
            lambda: pw.segments_local(FIRST.agg(n="count(*)"), ROWS, {"m": "count(*)"}),
            "`agg` (m) is given, and the plan has aggregates of its own (n). Give one or the other.",
        ),
        (
            lambda: pw.segments_local(FIRST.then(pw.tumbling_windows(1)), FAR),
            "`slide` (1): 10,000,000,001 windows would be sent at once, because a row or a promise is so far ahead of "
            "the others. Correct its clock, or choose a larger slide.",
        ),
        (lambda: FIRST.then(COUNTS).fill(ROWS, ROWS), "`fill`: a plan follows this one"),
        (
            lambda: pw.segments_local(FIRST.then(pw.tumbling_windows("1 minute")), ROWS),
            "`range` (1 minute) is a length of time, but `at` is a number.",
        ),
        (
            lambda: pw.windows(slide=5, wattr="t", keep_empty=True),
            "`keep_empty` (True) is for windows of a length that lie on a grid",
        ),
    ],
)
def test_what_does_not_go_together(built: Callable[[], object], said: str) -> None:
    with pytest.raises(PanewiseError) as raised:
        built()
    assert str(raised.value).startswith(said)

"""Every transcript, told by every executor."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from conformance.transcripts import Story, differences, stories, told
from panewise.errors import PanewiseError

STORIES = stories()
EXECUTORS = ("local", "batch")


def _run(story: Story, executor: str, request: pytest.FixtureRequest) -> pa.Table:
    import panewise as pw
    from panewise.jobs import plan_from_mapping

    plan: Any = plan_from_mapping(story.plan)
    agg = dict(story.agg) or None
    match executor:
        case "local":
            return pw.segments_local(plan, story.table, agg)
        case "batch":
            spark = request.getfixturevalue("spark")
            return plan.segments(spark.createDataFrame(story.table, story.ddl), agg).toArrow()
    raise AssertionError(executor)


def _cases() -> list[Any]:
    cases = []
    for story in STORIES:
        for executor in EXECUTORS:
            reason = story.broken_on.get(executor)
            marks = [pytest.mark.xfail(reason=reason)] if reason else []
            cases.append(pytest.param(story, executor, marks=marks, id=f"{story.name} - {executor}"))
    return cases


@pytest.mark.parametrize(("story", "executor"), _cases())
def test_story(story: Story, executor: str, request: pytest.FixtureRequest) -> None:
    if story.error is not None:
        # Spark wraps what its workers raise; in process nothing but panewise's own errors will do
        kind = PanewiseError if executor == "local" else Exception
        with pytest.raises(kind) as raised:
            _run(story, executor, request)
        assert story.error in str(raised.value)
        return
    found = differences(story.expected, told(_run(story, executor, request)))
    if story.must_fail:
        assert found, "this story is wrong on purpose, and the harness took it for right"
    else:
        assert not found, "\n".join([story.tells, *found])


def test_there_are_enough_stories() -> None:
    assert len(STORIES) >= 60
    assert sum(story.must_fail for story in STORIES) >= 3


def test_names_are_unique() -> None:
    assert [name for name, n in Counter(story.name for story in STORIES).items() if n > 1] == []


def test_wrong_stories_are_only_those_that_say_so() -> None:
    """The comparison itself, without an executor: equal is equal, and each kind of difference is seen."""
    one = {"id": 0, "start": 1, "x": 1.0, "gap": False, "y": None}
    assert differences([one], [dict(one)]) == []
    assert differences([one], [{**one, "x": 1.0 + 1e-15}]) == []
    assert differences([one, one], [one]) != []
    assert differences([one], [one, one]) != []
    for name, value in [("id", 1), ("start", None), ("x", 1.0 + 1e-9), ("gap", True), ("y", 0.0), ("extra", 1)]:
        assert differences([one], [{**one, name: value}]) != [], name

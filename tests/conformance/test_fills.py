"""Every transcript of a fill, told by every combination of tables and streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from conformance.fills import FillStory, Told, fill_stories, local, local_stored, local_stream
from conformance.fills_on_spark import Spark
from conformance.transcripts import differences
from panewise.errors import PanewiseError
from spark.tables import settings

STORIES = fill_stories()
LOCAL: dict[str, Callable[[FillStory], Told]] = {
    "local": local,
    "local_stored": local_stored,
    "local_stream": local_stream,
}
ON_SPARK = (
    *("batch", "scanned", "scanned_stored", "stored"),
    *("streams", "stream_and_table", "stream_and_files", "stored_and_stream"),
)
_QUICK = (
    "segments without rows are kept where that is wanted",
    "fragments are filled one by one, and let rows go early",
    "of its own rows some may count",
    "a segment waits for the slowest of its sources",
)
"""On Spark a stream takes seconds; as all is told in one process, and by a batch, a choice of them will do.

So it will for files that are scanned, whose reading has tests of its own.
"""


def _executors(story: FillStory) -> list[str]:
    """Who can tell a story: in one process there is no fill from several sources."""
    if story.several:
        return ["batch", "stored", "streams", "stored_and_stream"] if story.steps is None else ["streams"]
    if story.same:
        return ["local", "batch", "streams"] if story.steps is None else ["streams"]
    return [*LOCAL, *ON_SPARK] if story.steps is None else ["local_stream", "streams"]


def _cases() -> list[Any]:
    cases = []
    for story in STORIES:
        for executor in _executors(story):
            quick = executor in (*LOCAL, "batch") or story.name in _QUICK or story.error is not None
            marks = [] if quick else [pytest.mark.slow]
            cases.append(pytest.param(story, executor, marks=marks, id=f"{story.name} - {executor}"))
    return cases


@pytest.fixture(scope="module")
def on_spark(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Spark, with few partitions."""
    with settings(spark, shuffle_partitions=1):
        yield Spark(spark, tmp_path_factory.mktemp("fills"))


def _tell(story: FillStory, executor: str, request: pytest.FixtureRequest) -> Told:
    if executor in LOCAL:
        return LOCAL[executor](story)
    tell: Callable[[FillStory], Told] = getattr(request.getfixturevalue("on_spark"), executor)
    return tell(story)


def _found(story: FillStory, told: Told) -> list[str]:
    """What differs from the story."""
    if story.steps is None:
        assert story.segments is not None
        return differences(story.expected(story.segments), [row for step in told.steps for row in step])
    found = []
    for i, step in enumerate(story.steps):
        ours = told.steps[i] if i < len(told.steps) else []
        found += [f"step {i + 1}: {said}" for said in differences(story.expected(step.segments), ours)]
        if step.waiting is not None and told.waiting and told.waiting[i] != step.waiting:
            found.append(f"step {i + 1}: {told.waiting[i]} wait, not {step.waiting}")
    found += [f"after the last step: {row}" for rows in told.steps[len(story.steps) :] for row in rows]
    return found + [f"late row {said}" for said in differences(story.expected_late, told.late)]


@pytest.mark.parametrize(("story", "executor"), _cases())
def test_story(story: FillStory, executor: str, request: pytest.FixtureRequest) -> None:
    if story.error is not None:
        with pytest.raises(PanewiseError) as raised:
            _tell(story, executor, request)
        assert story.error in str(raised.value)
        return
    found = _found(story, _tell(story, executor, request))
    if story.must_fail:
        assert found, "this story is wrong on purpose, and the harness took it for right"
    else:
        assert not found, "\n".join([story.tells, *found])


def test_names_are_unique() -> None:
    assert [name for name, n in Counter(story.name for story in STORIES).items() if n > 1] == []

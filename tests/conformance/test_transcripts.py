"""Every transcript, told by every executor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from conformance.executors import SparkStreams, Telling, batch, local, local_stream
from conformance.transcripts import Story, differences, stories
from panewise.errors import PanewiseError

STORIES = stories()
AT_ONCE, IN_STEPS = ("local", "batch"), ("local_stream", "stream")
GROUP = 8
"""How many stories are told by streams on Spark before the next test goes on."""

_STEPS = ("until", "tick", "prods")
"""What a step may bring besides rows."""
_KINDS = ("scheme", "kind", "emit")
"""Options of which every value is worth a story of its own."""


def _features(story: Story) -> set[Any]:
    """What a story shows: its scheme, options and types, and what happens to its stream."""
    # what a scheme's other options do is the kernel's business, and told by all the other executors
    known = ("scheme", "by", "tie_break", "ties", "then")
    framing = {option: value for option, value in story.plan.items() if option in known}
    if framing["scheme"] != "custom_frames":
        framing["scheme"] = framing["scheme"].rpartition("_")[2]
    options = {**framing, **story.plan.get("punctuation", {}), **story.stream}
    found: set[Any] = {(option, value) if option in _KINDS else option for option, value in options.items()}
    found |= {story.at, "agg" if story.agg else "rows", *(late["reason"] for late in story.late)}
    return found | {name for step in story.steps or () for name in _STEPS if getattr(step, name)}


def _representative() -> set[str]:
    """Few stories that together show all of it."""
    left = [story for story in STORIES if story.error is None and not story.must_fail]
    chosen, wanted = set(), set().union(*map(_features, left))
    while wanted:
        best = max(left, key=lambda story: len(_features(story) & wanted))
        chosen.add(best.name)
        wanted -= _features(best)
    return chosen


REPRESENTATIVE = _representative()


def _is_slow(story: Story, executor: str) -> bool:
    """On Spark a stream takes seconds; as the same one in one process tells every story, a choice of them will do.

    So it will for windows in a batch, which is the kernel of the table in memory between two stages of Spark.
    """
    chosen = executor == "stream" or (executor == "batch" and story.plan["scheme"].endswith("_windows"))
    if executor == "batch" and story.name.startswith("a compiled custom"):
        return True  # it is compiled there once more
    return chosen and story.error is None and story.name not in REPRESENTATIVE


def _cases() -> list[Any]:
    cases = []
    for story in STORIES:
        for executor in (*AT_ONCE, *IN_STEPS):
            version = story.at_once() if executor in AT_ONCE else story.in_steps()
            if version is None:
                continue
            reason = story.broken_on.get(executor)
            marks = [pytest.mark.xfail(reason=reason)] if reason else []
            marks += [pytest.mark.slow] if _is_slow(story, executor) else []
            cases.append(pytest.param(version, executor, marks=marks, id=f"{story.name} - {executor}"))
    return cases


Tell = Callable[[Story], Telling]


@pytest.fixture(scope="session")
def stream(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tell:
    """Tells a story on Spark, and with it the next that will be asked for."""
    streams = SparkStreams(request.getfixturevalue("spark"), tmp_path_factory.mktemp("streams"))
    cases = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    asked = [case["story"] for case in cases if case.get("executor") == "stream"]
    known: dict[str, Telling | Exception] = {}

    def tell(story: Story) -> Telling:
        if story.name not in known:
            first = asked.index(story)
            group = asked[first : first + GROUP]
            known.update(zip([other.name for other in group], streams.tell(group), strict=True))
        if isinstance(found := known[story.name], Exception):
            raise found
        return found

    return tell


def _told(story: Story, executor: str, request: pytest.FixtureRequest) -> Telling:
    match executor:
        case "local":
            return local(story)
        case "batch":
            return batch(story, request.getfixturevalue("spark"))
        case "local_stream":
            return local_stream(story)
        case "stream":
            return request.getfixturevalue("stream")(story)
    raise AssertionError(executor)


def _found(story: Story, telling: Telling) -> list[str]:
    """What differs from the story."""
    if story.segments is not None:
        found = differences(story.expected(story.segments), [row for step in telling.steps for row in step])
        return found + [f"late: {row}" for row in telling.late if row["reason"] not in ("null_at", "before_origin")]
    steps = [*(story.steps or ())]
    found = []
    for i, step in enumerate(steps):
        ours = telling.steps[i] if i < len(telling.steps) else []
        found += [f"step {i + 1}: {said}" for said in differences(story.expected(step.segments, step.early), ours)]
    found += [f"after the last step: {row}" for rows in telling.steps[len(steps) :] for row in rows]
    return found + [f"late row {said}" for said in differences(story.expected_late, telling.late)]


@pytest.mark.parametrize(("story", "executor"), _cases())
def test_story(story: Story, executor: str, request: pytest.FixtureRequest) -> None:
    if story.error is not None:
        # Spark wraps what its workers raise; in process nothing but panewise's own errors will do
        kind = PanewiseError if executor.startswith("local") else Exception
        with pytest.raises(kind) as raised:
            _told(story, executor, request)
        assert story.error in str(raised.value)
        return
    found = _found(story, _told(story, executor, request))
    if story.must_fail:
        assert found, "this story is wrong on purpose, and the harness took it for right"
    else:
        assert not found, "\n".join([story.tells, *found])


def test_there_are_enough_stories() -> None:
    assert len(STORIES) >= 200
    assert sum(story.steps is not None for story in STORIES) >= 50
    assert sum(story.prodded for story in STORIES) >= 50
    assert sum(story.must_fail for story in STORIES) >= 8


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

"""Why a row is late: its source had been left out for its silence, or not."""

from __future__ import annotations

import pyarrow as pa
import pytest

import panewise as pw
from panewise.local.stream import LocalStream

SCHEMA = pa.schema([("source", pa.string()), ("t", pa.int64()), ("v", pa.int64())])


def rows(t: int, *sources: str) -> pa.Table:
    return pa.table([list(sources), [t] * len(sources), [0] * len(sources)], schema=SCHEMA)


@pytest.mark.parametrize(
    ("expect", "late", "reason"),
    [
        (3, "c", "after_idle"),  # expected, and given up before it spoke
        (2, "c", "late"),  # nobody had expected it, so nobody waited
        (None, "c", "late"),
        (None, "b", "after_idle"),  # spoke, and fell silent
        (None, "a", "late"),  # never was silent
    ],
)
def test_late_after_idle_or_just_late(expect: int | None, late: str, reason: str) -> None:
    punctuation = pw.ordered_per("source", idle_after="3 seconds", expect=expect)
    stream = LocalStream(pw.threshold_frames("v > 0").by("v").at("t", punctuation))
    stream.feed(rows(10, "a", "b"), clock=0)
    stream.feed(rows(15, "a"), clock=2)
    stream.feed(rows(20, "a"), clock=4)
    stream.feed(rows(5, late), clock=5)
    assert [(row["reason"], row["source"]) for row in stream.late] == [(reason, late)]
    assert stream.counts[reason] == 1


def test_an_expected_source_that_is_still_waited_for_is_not_idle() -> None:
    stream = LocalStream(pw.threshold_frames("v > 0").by("v").at("t", pw.ordered_per("source", expect=2)))
    stream.feed(rows(10, "a"), until=10, clock=0)
    stream.feed(rows(5, "b"), clock=100)
    assert [row["reason"] for row in stream.late] == ["late"]

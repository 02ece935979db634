"""What is set aside: what is refused, and why."""

from __future__ import annotations

from typing import Any

import pytest

import panewise as pw
from panewise.local.stream import LocalStream
from panewise.spec.aside import SetAside, checked_set_aside
from panewise.spec.prod import Prods

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

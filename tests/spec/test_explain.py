from __future__ import annotations

from typing import Any

import pytest

from panewise.builders import (
    aggregate_frames,
    boundary_frames,
    custom_frames,
    delta_frames,
    session_frames,
    threshold_frames,
)
from panewise.kernel.windows import Grid
from panewise.plan import Plan
from panewise.spec.explain import explain
from panewise.spec.punctuate import Punctuation, external, in_band, ordered_per, schedule, slack, watermark
from panewise.window_builders import sliding_windows

LOSS = """\
Finds          the stretches of rows in which drop_pct > 0.3 holds
Within         each router, by itself
Order          rpt_time, then seq, then drop_pct > 0.3, then total_pkts
Shape          separated: at least one row lies between two segments
Interval       observed: [first row, last row], both included
Limits         at least 2 minutes; a stretch that is too short is not reported
Nulls          a row with a null condition is in no segment and ends an open segment
Aggregates     avg_pkts = avg(total_pkts)
Stages         source -> apply (Spark SQL per row) -> segment and aggregate by router -> emit
State per key  start, last, rows, sum and count of total_pkts; one open segment at most"""

JAMS = """\
Finds          the stretches that open where speed < 30 and go on until speed > 50
Within         all rows together: there is no key
Order          ts, then speed < 30, then speed > 50; of rows with one ts only the last counts
Shape          partitions: every visible row is in exactly one segment
Interval       held: [first row, next row): it lasts until the key's next row; before a missing reading, \
and at the end, until 20 seconds after its last row; a gap lasts until the next row, and the last one to its last row
Limits         at least 3 rows, at most 1 hour; a stretch that is too short belongs to the gap; \
the row that would be too much starts the next segment
Schedule       a reading every 20 seconds, give or take 2 seconds; a missing one ends a segment
Nulls          a row whose closing condition is null is in a gap and ends an open segment
Reports        the gaps between segments too, marked
Stages         source -> apply (Spark SQL per row) -> segment all rows together -> emit
State per key  start, last, rows; one open segment at most; \
pieces that were cut wait until the whole stretch has met its minimum; start, last and rows of the open gap"""

MOVES = """\
Finds          rows until speed has moved by more than 5 or ts has moved by more than 5 minutes (max - min); \
the completing row belongs
Within         each road, lane, by itself
Order          not set yet: add .at("column")
Shape          overlapping: a row may be in several segments
Interval       possible: (row before, row after), both excluded: all that may belong
Limits         at least 2 rows; a segment goes on until it is long enough
Nulls          a row with a null value is as if it were not there
Reports        a segment from every row, less those that contain another
Stages         source -> apply (Spark SQL per row) -> segment by road, lane -> emit
State per key  start, last, rows, min and max of speed, min and max of ts, row before; once for each open segment"""


def test_a_threshold_with_an_aggregate() -> None:
    loss = threshold_frames("drop_pct > 0.3", min_duration="2 minutes").by("router").at("rpt_time", tie_break="seq")
    assert explain(loss, {"avg_pkts": "avg(total_pkts)"}) == LOSS


def test_hysteresis_with_gaps_limits_and_a_schedule() -> None:
    limits = {"min_rows": 3, "max_duration": "1 hour", "expect_every": "20 s", "jitter": "2 s"}
    jams = threshold_frames(open="speed < 30", close="speed > 50", gaps=True, **limits)  # type: ignore[arg-type]  # of many types
    assert explain(jams.at("ts", ties="last")) == JAMS


def test_an_unfinished_plan_with_overlaps() -> None:
    moves = delta_frames(
        {"speed": 5, "ts": "5 minutes"},
        strict=True,
        closing="include",
        overlap="saturated",
        min_rows=2,
        extent="possible",
    )
    assert explain(moves.by("road", "lane")) == MOVES


def test_what_does_not_apply_is_left_out() -> None:
    text = explain(session_frames("30 minutes").at("ts"))
    assert [line.split("  ")[0] for line in text.splitlines()] == [
        "Finds",
        "Within",
        "Order",
        "Shape",
        "Interval",
        "Stages",
        "State per key",
    ]


def test_cells() -> None:
    text = explain(boundary_frames({"x": 4.25, "y": [0, 10]}, longest=True))
    first = "per key the longest of: one segment for every visit to a cell: x in steps of 4.25 and y split at 0 and 10"
    assert text.splitlines()[0] == f"Finds          {first}"
    assert text.endswith("start, last, rows, 2 cells; one open segment at most; the longest so far")


class Mine:
    values = ("speed",)
    cells = 1

    @staticmethod
    def open(state: Any, row: Any) -> bool:
        return True

    @staticmethod
    def update(state: Any, row: Any) -> None: ...

    @staticmethod
    def close(state: Any, row: Any) -> bool:
        return False


def line(plan: Plan, name: str) -> str:
    found = [text for text in explain(plan).splitlines() if text.startswith(name)]
    return found[0].removeprefix(name).strip() if found else ""


NEXT, LEFT = "the breaking row starts the next", "the breaking row does not belong"
OVER, OUT = (
    "the row that would be too much starts the next segment",
    "the row that would be too much is not in the segment",
)


@pytest.mark.parametrize(
    ("plan", "breaking", "too_much"),
    [
        (delta_frames({"v": 1}, max_rows=3), NEXT, OVER),
        (delta_frames({"v": 1}, max_rows=3, starts="go"), LEFT, OUT),
        (delta_frames({"v": 1}, max_rows=3, overlap="saturated"), LEFT, OUT),
        (aggregate_frames("sum(v)", stays_below=9, max_duration=5), NEXT, OVER),
        (custom_frames(Mine, max_rows=3), LEFT, OUT),
    ],
)
def test_where_the_breaking_row_goes(plan: Plan, breaking: str, too_much: str) -> None:
    assert line(plan, "Finds").endswith(f"; {breaking}")
    assert line(plan, "Limits").endswith(f"; {too_much}")


def test_held_ends_with_its_schedule() -> None:
    until = "held: [first row, next row): it lasts until the key's next row; "
    last = until + "the last one ends at its last row"
    assert line(delta_frames({"v": 1}), "Interval") == last
    assert line(delta_frames({"v": 1}, expect_every="20 s"), "Interval") == last
    assert line(delta_frames({"v": 1}, expect_every="20 s", missing="breaks"), "Interval") == (
        until + "before a missing reading, and at the end, until 20 seconds after its last row"
    )


def test_under_hysteresis_only_a_null_close_hides_a_row() -> None:
    hidden = threshold_frames(open="a", close="b", nulls="invisible")
    assert line(hidden, "Nulls") == "a row whose closing condition is null is as if it were not there"
    plain = threshold_frames("a", nulls="invisible")
    assert line(plain, "Nulls") == "a row with a null condition is as if it were not there"


def test_too_short_stretches_and_gaps() -> None:
    assert line(threshold_frames("a", min_rows=2), "Limits") == (
        "at least 2 rows; a stretch that is too short is not reported"
    )
    assert line(threshold_frames("a", min_rows=2, gaps=True), "Limits") == (
        "at least 2 rows; a stretch that is too short belongs to the gap"
    )


@pytest.mark.parametrize(
    ("number", "text"),
    [(1234567.89, "1234567.89"), (1234567, "1234567"), (0.1, "0.1"), (1e300, "1e+300"), (-2.0, "-2")],
)
def test_numbers_keep_their_digits(number: float, text: str) -> None:
    assert line(aggregate_frames("sum(v)", reaches=number), "Finds").startswith(f"rows until sum(v) reaches {text};")


def test_what_an_incomplete_end_is_in() -> None:
    every = "partitions: every visible row is in exactly one segment"
    assert line(delta_frames({"v": 1}), "Shape") == every
    assert line(delta_frames({"v": 1}, closing="include", remainder=True), "Shape") == every
    assert line(delta_frames({"v": 1}, closing="include"), "Shape") == (
        every + ", but those after the last complete one, which are in none"
    )


@pytest.mark.parametrize(
    ("range", "slide"), [(0.7, 0.1), (0.75, 0.1), (0.3, 0.1), (1.1, 1), (6, 1.5), (1, 2.5), (7, 2), (6, 2), (1, 2)]
)
def test_panes_are_those_of_the_kernel(range: float, slide: float) -> None:
    real = isinstance(range, float) or isinstance(slide, float)
    grid = Grid(float(range), float(slide)) if real else Grid(range, slide)
    each, count = grid.panes
    pieces = f"{count} pane{'s' if count != 1 else ''} in a window, {each} in each slide"
    assert line(sliding_windows(range, slide), "Panes").endswith(f": {pieces}")


def test_stages_of_windows() -> None:
    keyed, one = sliding_windows(7, 2).by("k"), sliding_windows(7, 2)
    before = "source -> apply (Spark SQL per row) -> bucket"
    assert line(keyed, "Stages") == f"{before} -> shuffle of panes by k -> emit"
    assert line(one, "Stages") == f"{before} -> gather panes in one partition -> emit"


def test_remainders() -> None:
    plan = aggregate_frames("sum(v)", reaches=9, remainder=True)
    assert line(plan, "Reports") == "an incomplete last segment too, as remainder"
    plan = aggregate_frames("sum(v)", reaches=9, remainder=True, nulls="breaks")
    assert line(plan, "Reports") == "incomplete segments too, as remainder"


LATER = "one that comes later is in no segment"
IN_ORDER = "rows come in order of ts; one that does not is in no segment"


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (in_band("kind = 'end'"), "rows where kind = 'end' are no data: no more rows come up to their ts"),
        (in_band("done", per_key=True), "rows where done are no data: no more rows come up to their ts, of their key"),
        (slack("10 s"), f"rows may come 10 seconds late; {LATER}"),
        (slack(2.5), f"rows may come 2.5 late; {LATER}"),
        (slack("0 s"), IN_ORDER),
        (slack(0), IN_ORDER),
        (slack(0.0), IN_ORDER),
        (
            slack("10 s", per=["road", "lane"], ahead_limit="1 hour"),
            f"rows may come 10 seconds late; {LATER}; "
            "a road, lane more than 1 hour ahead of the others counts as just that far",
        ),
        (slack(rows=50), f"rows may come 50 rows late; {LATER}"),
        (slack(rows=1), f"rows may come 1 row late; {LATER}"),
        (slack(rows=0), IN_ORDER),
        (ordered_per("router"), "each router comes in order, and counts by itself"),
        (ordered_per("site"), "each site comes in order, and the one that is furthest behind counts"),
        (
            ordered_per("site", idle_after="30 s", expect=4, ahead_limit="1 hour"),
            "each site comes in order, and the one that is furthest behind counts; nothing before all 4 were heard; "
            "one that is silent for 30 seconds is not waited for; "
            "a site more than 1 hour ahead of the others counts as just that far",
        ),
        (
            schedule(give_up_after="5 min"),
            "readings that are due have come, or are given up 5 minutes later; "
            "where none is missing there is no waiting",
        ),
        (watermark(), "Spark's watermark, as withWatermark sets it"),
        (external(object(), "upto"), "as another stream promises in its upto"),
        (external(object(), "upto", per_key=True), "as another stream promises in its upto, key by key"),
    ],
    ids=repr,
)
def test_how_progress_is_known(told: Punctuation, text: str) -> None:
    assert line(threshold_frames("a").by("router").at("ts", told), "Progress") == text


def test_progress_comes_after_order_and_only_where_it_is_said() -> None:
    plan = session_frames("30 minutes").by("user")
    names = [text.split("  ")[0] for text in explain(plan.at("ts", slack("1 min"))).splitlines()]
    assert names == ["Finds", "Within", "Order", "Progress", "Shape", "Interval", "Stages", "State per key"]
    assert line(plan.at("ts"), "Progress") == line(plan, "Progress") == ""

"""Windows at the ends of what numbers can say, and what is refused there."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import panewise as pw
from panewise.errors import DataError, InputError, SpecError
from panewise.kernel import windowing
from panewise.kernel.sliding import slid
from panewise.local.fill_stream import LocalFill
from panewise.local.stream import LocalStream
from panewise.spec.fill import filling

MOST = 2**63 - 1


def found(plan: pw.Plan, ats: list[Any], values: list[int] | None = None) -> list[tuple[Any, ...]]:
    rows = pa.table({"t": ats, "v": values or [1] * len(ats)})
    made = pw.segments_local(plan.at("t"), rows, {"s": "sum(v)"}).to_pylist()
    return [(row["segment"]["start"], row["segment"]["end"], row["s"]) for row in made]


def test_bounds_end_where_numbers_do() -> None:
    assert found(pw.tumbling_windows(2**40), [MOST, 5]) == [(0, 2**40, 1), (MOST - 2**40 + 1, MOST, 1)]
    least = -(2**63) + 1
    assert found(pw.slide_by_tuple_windows(10), [least, least + 3]) == [
        (least - 1, least, 1),
        (least - 1, least + 3, 2),
    ]


def test_a_row_is_in_its_own_window_however_large_it_is() -> None:
    wanted = [(4.0, 5.0, 100), (1e17, 1e17, 1), (3e17, 3e17, 10)]
    assert found(pw.slide_by_tuple_windows(1.0), [1e17, 3e17, 5.0], [1, 10, 100]) == wanted


@pytest.mark.parametrize(
    ("plan", "ats"),
    [
        (pw.tumbling_windows(1), [2**62, 5]),
        (pw.tumbling_windows(2), [5, -(2**63)]),
        (pw.tumbling_windows(1, origin=-(2**62)), [2**62 + 5]),
        (pw.tumbling_windows(1.0), [1e17]),
    ],
)
def test_rows_too_far_from_the_origin_are_not_lost_in_silence(plan: pw.Plan, ats: list[Any]) -> None:
    with pytest.raises(DataError, match="too far from the origin"):
        found(plan, ats)


@pytest.mark.parametrize(
    ("plan", "at", "said"),
    [
        (pw.tumbling_windows(1.0, origin=-1e20), 5.0, "real numbers of that size do not tell windows apart"),
        (pw.tumbling_windows(3, origin=10**30), 5, "must be a whole number of 64 bits"),
        (pw.tumbling_windows(3, origin=0.5), 5, "must be a whole number of 64 bits"),
        (pw.sliding_windows(10**12, 1), 5, "more than a million windows"),
    ],
)
def test_windows_that_can_not_be_are_refused(plan: pw.Plan, at: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        found(plan, [at])


def test_a_whole_origin_may_be_written_with_a_point() -> None:
    assert found(pw.tumbling_windows(3, origin=0.0), [2**60 + 1]) == found(
        pw.tumbling_windows(3, origin=0), [2**60 + 1]
    )


def test_a_promise_far_ahead_completes_what_there_is() -> None:
    stream = LocalStream(pw.tumbling_windows(1.0).at("t", pw.slack(1e17)), {"n": "count(*)"})
    assert not len(stream.feed(pa.table({"t": [5.0]})))
    assert len(stream.feed(until=1e17)) == 1
    assert not len(stream.finish())


def test_landmark_windows_do_not_go_on_without_end() -> None:
    with pytest.raises(DataError, match="windows would be sent at once"):
        found(pw.landmark_windows(1), [1, 10**12])


def test_numbers_that_are_not_told_apart_end_no_window() -> None:
    rows = pa.table({"t": [1, 2], "q": [2**53 + 1, 2**53 + 3]})
    plan = pw.slide_by_tuple_windows(5, every=2, numbered="q").at("t")
    with pytest.raises(DataError, match='numbered="q % 2"'):
        pw.segments_local(plan, rows)
    rest = pw.slide_by_tuple_windows(5, every=2, numbered="q % 2").at("t")
    assert len(pw.segments_local(rest, rows)) == 0


def test_nothing_is_open_at_the_end() -> None:
    for plan in (pw.tumbling_windows(10), pw.slide_by_tuple_windows(5), pw.row_windows(1, partitioned=True)):
        stream = LocalStream(plan.by("k").at("t", pw.slack(0)), {"n": "count(*)"})
        stream.feed(pa.table({"k": ["a", "b"], "t": [101, 115]}))
        stream.feed(pa.table({"k": ["a"], "t": [130]}))
        stream.finish()
        assert stream.open == 0


def test_keys_come_in_the_order_of_frames() -> None:
    rows = pa.table({"k": ["b", None, "a"], "t": [1, 2, 3]})
    made = pw.segments_local(pw.tumbling_windows(10).by("k").at("t"), rows)
    assert made.column("k").to_pylist() == [None, "a", "b"]


def test_one_attribute_for_both_is_the_windowing_attribute() -> None:
    both = pw.windows(range=60, slide=20, rattr="t", sattr="t")
    assert both == pw.windows(range=60, slide=20, wattr="t") == pw.sliding_windows(60, 20).at("t")


def test_numbers_of_rows_that_slide_by_a_column_are_refused() -> None:
    with pytest.raises(SpecError) as error:
        pw.windows(range=5, slide=10, rattr=pw.ROW_NUMBER, sattr="t")
    assert str(error.value) == (
        "`rattr` (ROW_NUMBER) and `sattr` ('t'): windows of so many rows slide by rows too. "
        "Give wattr=ROW_NUMBER, or a column as `rattr`."
    )
    both = pw.windows(range=5, slide=2, rattr=pw.ROW_NUMBER, sattr=pw.ROW_NUMBER)
    assert both == pw.row_windows(5, 2)
    assert pw.windows(range=5, slide=2, rattr="t", sattr=pw.ROW_NUMBER) == pw.slide_by_tuple_windows(5, every=2).at("t")


def test_windows_that_can_not_be_filled_are_refused() -> None:
    rows, visits = pa.table({"t": [101, 102]}), pa.table({"t": [101, 1]})
    with pytest.raises(SpecError, match="bounded by numbers of rows"):
        pw.fill_local(pw.row_windows(2).at("t"), rows, visits, {"n": "count(*)"})
    of_stream = filling((), "t", punctuation=pw.slack(0))
    with pytest.raises(SpecError, match="can't be filled from one stream to another yet"):
        LocalFill(pw.tumbling_windows(10).at("t", pw.slack(0)), of_stream, {"n": "count(*)"}, rows, visits)
    filled = pw.fill_local(pw.tumbling_windows(10).at("t"), rows, visits, {"n": "count(*)"})
    assert filled.column("n").to_pylist() == [1]


def test_each_block_of_windows_looks_at_its_own_panes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps values is merged over all the panes that it is given."""
    rows = pa.table({"k": [i % 40 for i in range(800)], "t": list(range(800)), "v": [i * 7 % 31 for i in range(800)]})
    plan = pw.sliding_windows(120, 40).by("k").at("t")
    agg = {"n": "count(distinct v)", "m": "median(v)", "s": "sum(v)"}
    whole = pw.segments_local(plan, rows, agg)
    given = []

    def spied(counts: Any, tallies: Any, *runs: Any) -> Any:
        given.append(len(tallies))
        return slid(counts, tallies, *runs)

    monkeypatch.setattr(windowing, "_BLOCK", 50)
    monkeypatch.setattr(windowing, "slid", spied)
    assert pw.segments_local(plan, rows, agg).equals(whole)
    assert len(given) > 10
    assert sum(given) == 40 * 20  # a pane for each row

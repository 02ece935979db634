"""Fills of streams in one process: what they are told besides rows."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

import panewise as pw
from panewise.local.fill_stream import LocalFill
from panewise.spec.fill import filling

PLAN = pw.threshold_frames("ok").at("d", pw.slack("0 days"))
DAYS = pa.table({"d": [date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 3)], "ok": [True, False, False]})


def times(*hours: int) -> pa.Table:
    return pa.table({"t": pa.array([datetime(2024, 1, 1, hour) for hour in hours], pa.timestamp("us"))})


@pytest.mark.parametrize(
    ("until", "over"),
    [
        (datetime(2024, 1, 1, 10), False),
        (datetime(2024, 1, 1, 23, 59, 59, 999_998), False),
        (datetime(2024, 1, 1, 23, 59, 59, 999_999), True),
        (datetime(2024, 1, 2, 5, tzinfo=UTC), True),
        (date(2024, 1, 1), False),
        (date(2024, 1, 2), True),
    ],
)
def test_a_promise_about_times_promises_the_days_that_are_over(until: date, over: bool) -> None:
    given = filling((), "t", punctuation=pw.in_band("false"))
    fill = LocalFill(PLAN, given, {"n": "count(*)"}, DAYS[:0], times())
    found = fill.feed(DAYS, times(9), filling_until=until)
    assert found.column("n").to_pylist() == ([1] if over else [])
    fill.feed(filling=times(11))
    assert [row["reason"] for row in fill.late] == (["late"] if over else [])


def test_a_promise_about_days_is_as_it_was() -> None:
    given = filling((), "d", punctuation=pw.in_band("false"))
    fill = LocalFill(PLAN, given, {"n": "count(*)"}, DAYS[:0], DAYS[:0])
    assert fill.feed(DAYS, DAYS[:1], filling_until=date(2024, 1, 1)).column("n").to_pylist() == [1]

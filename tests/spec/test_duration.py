from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panewise.errors import SpecError
from panewise.spec.duration import Duration, amount


@given(st.integers(-(10**20), 10**20))
def test_text_and_back(micros: int) -> None:
    assert Duration.parse(str(Duration(micros))) == Duration(micros)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("90 s", "90 seconds"),
        ("1.5 hours", "90 minutes"),
        ("60 minutes", "1 hour"),
        ("36 hours", "36 hours"),
        ("7 d", "1 week"),
        ("250 ms", "250 milliseconds"),
        ("1 hour 1 us", "3600000001 microseconds"),
        ("0 weeks", "0 seconds"),
        ("-1 minute", "-1 minute"),
        ("- 1 minute 30 seconds", "-90 seconds"),
    ],
)
def test_largest_unit_that_is_exact(text: str, written: str) -> None:
    assert str(Duration.parse(text)) == written


@pytest.mark.parametrize("text", ["", "-", "five minutes", "5", "5 minutes and", "--5 minutes", "5 -minutes"])
def test_texts_that_are_no_durations(text: str) -> None:
    with pytest.raises(SpecError, match="can't be read: a duration reads like"):
        Duration.parse(text)


def test_an_amount_is_more_than_zero() -> None:
    with pytest.raises(SpecError) as error:
        amount("gap", "-2 minutes")
    assert str(error.value) == "`gap` (-2 minutes) must be more than zero. Give a positive amount, or leave `gap` out."

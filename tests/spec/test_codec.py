from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panewise.errors import JobError
from panewise.spec.codec import dumps, loads

plain = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.text())
values = st.recursive(plain, lambda v: st.one_of(st.lists(v, max_size=4), st.dictionaries(st.text(), v, max_size=4)))


@given(st.dictionaries(st.text(), values, max_size=6))
def test_what_is_written_is_read(mapping: dict[str, Any]) -> None:
    assert tomllib.loads(dumps(mapping)) == mapping


@pytest.mark.parametrize("number", [1e-7, 1e16, -0.0, 5.0, 1.7976931348623157e308, float("inf"), 5, -(2**63)])
def test_a_number_keeps_its_kind(number: float) -> None:
    read = loads(dumps({"n": number}))["n"]
    assert (read, type(read)) == (number, type(number))


def test_order_and_quotes() -> None:
    text = dumps({"b": {"x_m + 52.5": 4.2, "y": [0, 10]}, "a": {"c": {}, "q": 'say "hi"\n\x7f'}})
    assert text == (
        '[b]\n"x_m + 52.5" = 4.2\ny = [0, 10]\n'
        '\n[a]\nq = "say \\"hi\\"\\n\\u007f"\n'
        "\n[a.c]\n"
    )  # fmt: skip


def test_what_cannot_be_written() -> None:
    with pytest.raises(JobError) as error:
        dumps({"a": None})
    assert str(error.value) == (
        "None can't be written to a job file. Use text, numbers, booleans, lists and tables."
    )  # fmt: skip


def test_invalid_toml_names_the_line() -> None:
    with pytest.raises(JobError) as error:
        loads("[plan]\nat = ts\n")
    assert str(error.value) == (
        "The job is not valid TOML: Invalid value (at line 2, column 6). "
        "Strings need quotes; keys with spaces do too."
    )  # fmt: skip

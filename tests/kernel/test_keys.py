"""Keys get slots in the order in which they come, and keep them, however they are looked up."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panewise.kernel.keys import KeyTable

NEAR = st.integers(-40, 40)
FAR = st.sampled_from([-(2**63), 2**63 - 1, 0, 10**6, -(10**6)])
PAGES = st.lists(st.lists(st.one_of(NEAR, FAR, st.none()), max_size=8), max_size=6)


def told(pages: list[list[int | None]]) -> list[list[int]]:
    """The slots of keys, as a dictionary gives them."""
    known: dict[int | None, int] = {}
    return [[known.setdefault(key, len(known)) for key in page] for page in pages]


@given(PAGES, st.integers(0, 6))
def test_slots_are_given_as_keys_come(pages: list[list[int | None]], stop: int) -> None:
    table = KeyTable([pa.int64()])
    for i, (page, slots) in enumerate(zip(pages, told(pages), strict=True)):
        if i == stop:
            other = KeyTable([pa.int64()])
            if table.size:
                other.restore(table.columns)
            table = other
        assert table.slots([pa.array(page, pa.int64())], len(page)).tolist() == slots
    assert len(table) == len({key for page in pages for key in page})
    assert sorted(map(str, table.columns[0].to_pylist())) == sorted({str(key) for page in pages for key in page})


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.string(), pa.date32()])
def test_keys_of_any_type(kind: pa.DataType) -> None:
    table = KeyTable([kind])
    pages = [pa.array([7, 3, 7], pa.int32()), pa.array([3, 9], pa.int32())]
    assert [table.slots([page.cast(kind)], len(page)).tolist() for page in pages] == [[0, 1, 0], [1, 2]]


def test_a_table_grows_with_keys() -> None:
    table = KeyTable([pa.int32()])
    for first in range(0, 200_000, 50_000):
        page = pa.array(range(first, first + 50_000), pa.int32())
        assert table.slots([page], len(page)).tolist() == list(range(first, first + 50_000))
    assert table.slots([pa.array([199_999, 0, 200_000], pa.int32())], 3).tolist() == [199_999, 0, 200_000]

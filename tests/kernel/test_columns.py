"""What is read without a copy: numbers that need no care, and keys looked up in a table."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panewise.kernel.keys import slots_of
from panewise.kernel.sqltypes import is_tidy
from panewise.local.source import plain

REALS = st.lists(st.none() | st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan, math.inf]), max_size=8)


@given(values=REALS, kind=st.sampled_from([pa.float32(), pa.float64()]), cut=st.integers(0, 3))
def test_real_numbers_have_no_nan_and_one_zero_wherever_an_array_begins(
    values: list[float | None], kind: pa.DataType, cut: int
) -> None:
    array = pa.array(values, kind)[cut:]
    expected = [None if v is None or math.isnan(v) else v + 0.0 for v in values[cut:]]
    found = plain(array).to_pylist()
    assert found == expected
    assert not any(v == 0.0 and math.copysign(1.0, v) < 0 for v in found if v is not None)
    if any(v is not None and (math.isnan(v) or (v == 0.0 and math.copysign(1.0, v) < 0)) for v in values[cut:]):
        assert not is_tidy(array)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.uint32(), pa.string()])
@given(data=st.data())
def test_keys_are_found_where_they_stand(kind: pa.DataType, data: st.DataObject) -> None:
    least, most = (0, 127) if pa.types.is_unsigned_integer(kind) else (-128, 127)
    if kind == pa.int64():
        least, most = data.draw(st.sampled_from([(-128, 127), (-(2**63), 2**63 - 1)]))
    one = st.integers(least, most) if kind != pa.string() else st.text(max_size=2)
    known = data.draw(st.lists(st.none() | one, unique=True, min_size=1, max_size=8))
    asked = data.draw(st.lists(st.none() | one | st.sampled_from(known), max_size=12))
    found = slots_of([pa.array(known, kind)], [pa.array(asked, kind)], len(known), len(asked))
    expected = [known.index(key) if key in known else len(known) for key in asked]
    assert np.minimum(found, len(known)).tolist() == expected

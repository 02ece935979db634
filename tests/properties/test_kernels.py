"""Every kernel against the oracle: any scheme, any options, any stream, cut anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from properties.streams import BUILDERS, expected, kernel, merged, plans, same, streams

SCHEMES = sorted(BUILDERS)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data())
def test_kernel_equals_oracle(scheme: str, data: st.DataObject) -> None:
    plan = data.draw(plans(scheme))
    rows = data.draw(streams(plan))
    found, wanted = kernel(plan, [rows])[0], expected(plan, rows)
    assert same(found, wanted, 1e-12), f"\nkernel {found}\noracle {wanted}"


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data())
def test_pages_and_neighbours_change_nothing(scheme: str, data: st.DataObject) -> None:
    plan = data.draw(plans(scheme))
    real = data.draw(st.booleans())
    keys = data.draw(st.lists(streams(plan, real=real), min_size=1, max_size=4))
    size = data.draw(st.integers(1, 9))
    assert kernel(plan, keys, size) == [kernel(plan, [rows])[0] for rows in keys]


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data())
def test_parts_merge(scheme: str, data: st.DataObject) -> None:
    plan = data.draw(plans(scheme))
    rows = data.draw(streams(plan, max_size=30))
    cuts = data.draw(st.lists(st.integers(1, 29), max_size=5))
    assert merged(plan, rows, cuts, data.draw(st.booleans())) == kernel(plan, [rows])[0]

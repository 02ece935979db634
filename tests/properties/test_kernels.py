"""Every kernel against the oracle: any scheme, any options, any stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from properties.streams import BUILDERS, expected, kernel, plans, same, streams


@given(st.data())
def test_kernel_equals_oracle(data: st.DataObject) -> None:
    plan = data.draw(plans())
    rows = data.draw(streams(plan))
    found, wanted = kernel(plan, [rows])[0], expected(plan, rows)
    # stddev and sums of floats are told to the last bits; the oracle may add in another order
    assert same(found, wanted, 1e-12), f"\nkernel {found}\noracle {wanted}"

from __future__ import annotations

import pytest

from panewise.errors import SpecError
from panewise.spec.duration import Duration
from panewise.spec.windows import SlidingWindows, sliding


@pytest.mark.parametrize(
    ("range", "slide", "message"),
    [
        (
            None,
            "1 minute",
            "`slide` (1 minute) needs a `range`: it says how often a window ends, not how much it holds. "
            "Give the range; for windows without overlap give it the same length.",
        ),
        (
            "5 s",
            "10 s",
            "`slide` (10 seconds) can't be longer than `range` (5 seconds); rows between windows would belong to none. "
            "Use tumbling windows or a longer range.",
        ),
        (
            4,
            4.5,
            "`slide` (4.5) can't be longer than `range` (4); rows between windows would belong to none. "
            "Use tumbling windows or a longer range.",
        ),
        (
            5,
            "10 s",
            "`slide` (10 seconds) and `range` (5) must be of one kind. Write both as `at` is measured.",
        ),
        (
            "0 s",
            None,
            "`range` (0 s) must be more than zero. Give a positive amount, or leave `range` out.",
        ),
    ],
)
def test_windows_that_cannot_be(range: object, slide: object, message: str) -> None:
    with pytest.raises(SpecError) as error:
        sliding(range, slide)
    assert str(error.value) == message


def test_windows_that_can_be() -> None:
    assert sliding(5) == SlidingWindows(5, 5)
    assert sliding("5 s", "5 s") == SlidingWindows(Duration(5_000_000), Duration(5_000_000))
    assert sliding(5, 2.5) == SlidingWindows(5, 2.5)

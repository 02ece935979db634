"""What is sent of an open segment: the modes, what is refused, and which schemes have parts to send."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import panewise as pw
from panewise.spec.duration import Duration
from panewise.spec.emit import FINAL, MODES, Emit, emit, sends_parts

MINUTE = Duration(60_000_000)


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode: str) -> None:
    assert emit(mode) == Emit(mode, None)
    assert hash(emit(mode)) == hash(Emit(mode))
    assert pickle.loads(pickle.dumps(emit(mode))) == Emit(mode)


@pytest.mark.parametrize("mode", ["fragments", "updates"])
def test_how_often_parts_are_sent(mode: str) -> None:
    assert emit(mode, "1 minute") == Emit(mode, MINUTE)
    assert emit(mode, 5) == Emit(mode, 5) != Emit(mode, 6)


def test_whole_segments_are_the_default() -> None:
    assert emit() == Emit() == FINAL == Emit("final", None)


CASES: list[tuple[Callable[[], object], str]] = [
    (
        lambda: emit("partial"),
        '`emit` (\'partial\') must be one of "final", "fragments", "updates". '
        "Choose one of these, or leave `emit` out.",
    ),
    (
        lambda: emit(None),
        '`emit` (None) must be one of "final", "fragments", "updates". Choose one of these, or leave `emit` out.',
    ),
    (
        lambda: emit("final", "1 minute"),
        '`fragment_every` (1 minute) says how often parts are sent, and emit="final" sends none. '
        'Use emit="fragments" or "updates", or leave `fragment_every` out.',
    ),
    (
        lambda: emit("fragments", 0),
        "`fragment_every` (0) must be more than zero. Give a positive amount, or leave `fragment_every` out.",
    ),
    (
        lambda: emit("updates", True),
        "`fragment_every` (True) must be a length of time or a number. "
        'Give text like "2 minutes", a timedelta, or a number where `at` is a number.',
    ),
]


@pytest.mark.parametrize(("make", "message"), CASES, ids=[message[:60] for _, message in CASES])
def test_what_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(pw.SpecError) as error:
        make()
    assert str(error.value) == message


class Mine:
    values = ("v",)
    cells = 1

    @staticmethod
    def open(state: Any, row: Any) -> bool:
        return True

    @staticmethod
    def update(state: Any, row: Any) -> None: ...

    @staticmethod
    def close(state: Any, row: Any) -> bool:
        return False


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (pw.threshold_frames("ok", min_rows=3), True),
        (pw.threshold_frames(open="a", close="b", gaps=True), True),
        (pw.boundary_frames({"x": 1}), True),
        (pw.trend_frames("x", "rising"), True),
        (pw.session_frames(5), True),
        (pw.delta_frames({"x": 1}), True),
        (pw.delta_frames({"x": 1}, overlap="saturated"), True),
        (pw.delta_frames({"x": 1}, starts="go"), True),
        (pw.delta_frames({"x": 1}, starts="go", on_overlap="continue"), True),
        (pw.delta_frames({"x": 1}, starts="go", on_overlap="drop"), False),
        (pw.delta_frames({"x": 1}, closing="include"), False),
        (pw.delta_frames({"x": 1}, closing="include", overlap="saturated"), False),
        (pw.delta_frames({"x": 1}, closing="include", starts="go", on_overlap="drop"), False),
        (pw.aggregate_frames("sum(x)", stays_below=9), True),
        (pw.aggregate_frames("sum(x)", reaches=9), False),
        (pw.custom_frames(Mine), True),
        (pw.custom_frames(Mine, closing="include"), False),
    ],
    ids=str,
)
def test_which_schemes_send_parts(plan: pw.Plan, expected: bool) -> None:
    assert sends_parts(plan.scheme) is expected

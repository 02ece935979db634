"""Custom schemes that transcripts name, one in plain Python, one compiled; and an aggregate."""

from __future__ import annotations

from typing import Any

from numba import njit

__all__ = ["Budget", "Doubling", "Span"]


class Doubling:
    """Rows until the value is at least twice the frame's first; only a positive value may start one."""

    values = ("v",)
    cells = 1

    @staticmethod
    def open(state: Any, row: Any) -> bool:
        state[0] = row[0]
        return bool(row[0] > 0)

    @staticmethod
    def update(state: Any, row: Any) -> None:
        pass

    @staticmethod
    def close(state: Any, row: Any) -> bool:
        return bool(row[0] >= 2 * state[0])


class Budget:
    """Rows until their values sum to at least ten."""

    values = ("v",)
    cells = 1

    @staticmethod
    @njit
    def open(state: Any, row: Any) -> bool:
        state[0] = row[0]
        return True

    @staticmethod
    @njit
    def update(state: Any, row: Any) -> None:
        state[0] += row[0]

    @staticmethod
    @njit
    def close(state: Any, row: Any) -> bool:
        return bool(state[0] >= 10.0)


class Span:
    """How far the largest value is from the smallest."""

    type = "double"

    def init(self) -> Any:
        return []

    def update(self, state: Any, values: Any) -> Any:
        return self.merge(state, [values.min(), values.max()])

    def merge(self, state: Any, other: Any) -> Any:
        both = [*state, *other]
        return [min(both), max(both)] if both else []

    def finish(self, state: Any) -> Any:
        return state[1] - state[0] if state else None

"""What a Python worker of Spark is spared."""

from __future__ import annotations

import gc
from functools import cache

__all__ = ["settle"]


@cache
def settle(part: str) -> None:
    """Take all that lives by now for what stays, once in a process for each part of the library that has run in it.

    After each task Spark's workers look through all objects for garbage, while the next task waits for them, and most
    of it is what modules hold.
    """
    gc.freeze()

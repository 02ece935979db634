"""One way to compile: cached on disk, without the GIL, typed for the checker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

__all__ = ["compiled", "inlined", "python_version"]

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function with numba, keeping its Python type."""
    try:
        return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))
    except RuntimeError:  # nowhere to keep a cache: no folder can be written to
        return cast(F, numba.njit(nogil=True, error_model="numpy")(function))


def inlined(function: F) -> F:
    """Compile a function into its callers: a call that passes arrays counts references, which costs more than a row."""
    return cast(F, numba.njit(inline="always", error_model="numpy")(function))


def python_version(function: F) -> F:
    """The uncompiled function behind a compiled one."""
    return cast(F, getattr(function, "py_func", function))

"""One way to compile: cached on disk, without the GIL, typed for the checker."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import IndexDataCacheFile

__all__ = ["compiled", "inlined", "python_version"]

F = TypeVar("F", bound=Callable[..., Any])


class _Renewed(IndexDataCacheFile):
    """The cache of a function, renewed if the source of anything that it calls has changed.

    Numba looks at the source of the function alone, and what it calls is compiled into it: a release that changes one
    module would run with the other's old code.
    """

    def __init__(self, function: FunctionType, of: IndexDataCacheFile) -> None:
        self.__dict__ |= of.__dict__
        self._function, self._own = function, of._source_stamp

    def _load_index(self) -> dict[Any, str]:
        # now, and not before: a function may call others that are defined after it
        self._source_stamp = (self._own, *sorted(_sources(self._function)))
        return cast("dict[Any, str]", super()._load_index())  # type: ignore[no-untyped-call]  # numba has no types


def compiled(function: F) -> F:
    """Compile a function with numba, keeping its Python type."""
    try:
        found: Any = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # nowhere to keep a cache: no folder can be written to
        return cast(F, numba.njit(nogil=True, error_model="numpy")(function))
    found._cache._cache_file = _Renewed(cast(FunctionType, function), found._cache._cache_file)
    return cast(F, found)


def inlined(function: F) -> F:
    """Compile a function into its callers: a call that passes arrays counts references, which costs more than a row."""
    return cast(F, numba.njit(inline="always", error_model="numpy")(function))


def python_version(function: F) -> F:
    """The uncompiled function behind a compiled one."""
    return cast(F, getattr(function, "py_func", function))


def _sources(function: FunctionType) -> set[str]:
    """A hash of the source of each module that a function takes functions or constants from, at any depth."""
    package = function.__module__.partition(".")[0]
    seen: set[FunctionType] = set()
    modules: set[str] = set()
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        modules.add(one.__module__)
        for name in one.__code__.co_names:
            value = one.__globals__.get(name)
            if isinstance(value, ModuleType) and value.__name__.partition(".")[0] == package:
                modules.add(value.__name__)
                used = [getattr(value, each, None) for each in one.__code__.co_names]
            else:
                used = [value]
            for each in used:
                called = getattr(each, "py_func", each)
                if isinstance(called, FunctionType) and called.__module__.partition(".")[0] == package:
                    waiting.append(called)
    return {_source(name) for name in modules}


@cache
def _source(module: str) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    return module + (hashlib.blake2b(Path(file).read_bytes(), digest_size=8).hexdigest() if file else "")

"""Custom frames: the chain operator, asking the user's functions instead of ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any

import numba
from numba.core.dispatcher import Dispatcher

from panewise.kernel import chains, progressions
from panewise.kernel.compiled import python_version
from panewise.kernel.delta import chain_reader
from panewise.kernel.framing import ChainFraming
from panewise.spec.frames import CustomFrames

__all__ = ["custom"]


@lru_cache(maxsize=64)
def _operator(scheme: Any) -> Callable[..., Any]:
    """The chain operator with the scheme's functions: compiled if all of them are, otherwise plain Python."""
    user_open, user_update, user_close = scheme.open, scheme.update, scheme.close

    def begin(kind: Any, states: Any, f: Any, values: Any, i: Any) -> Any:
        return user_open(states[f], values[:, i])

    def add(kind: Any, states: Any, f: Any, values: Any, i: Any) -> None:
        user_update(states[f], values[:, i])

    def passes(kind: Any, bounds: Any, strict: Any, states: Any, f: Any, values: Any, i: Any) -> Any:
        return user_close(states[f], values[:, i])

    def breaks(kind: Any, bounds: Any, strict: Any, states: Any, f: Any, scratch: Any, values: Any, i: Any) -> Any:
        if user_close(states[f], values[:, i]):
            return True
        user_update(states[f], values[:, i])
        return False

    hooks: dict[str, Any] = {"begin": begin, "add": add, "passes": passes, "breaks": breaks}
    compiled = all(isinstance(f, Dispatcher) for f in (user_open, user_update, user_close))
    if compiled:
        hooks = {name: numba.njit(hook) for name, hook in hooks.items()}
    rows = _with(chains.chain_rows, hooks, compiled)
    return _with(chains.chain_page, {"chain_rows": rows}, compiled)


def _with(function: Callable[..., Any], names: dict[str, Any], compiled: bool) -> Callable[..., Any]:
    """The same code with other meanings for some of its names."""
    plain = python_version(function)
    changed = FunctionType(plain.__code__, {**plain.__globals__, **names}, plain.__name__)
    return numba.njit(nogil=True, error_model="numpy")(changed) if compiled else changed


def custom(scheme: CustomFrames) -> ChainFraming:
    """The measure is whatever the user keeps in the cells."""
    return ChainFraming(
        read=chain_reader(scheme),
        kind=progressions.CUSTOM,
        bounds=(0.0,),
        strict=False,
        cells=max(scheme.scheme.cells, 1),  # type: ignore[attr-defined]  # checked by the builder
        operator=_operator(scheme.scheme),
        solo=False,
    )

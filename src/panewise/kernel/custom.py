"""Custom frames: the chain operator, asking the user's functions instead of ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any

import numba
from numba.core.dispatcher import Dispatcher

from panewise.kernel import chains
from panewise.kernel.compiled import python_version
from panewise.kernel.delta import chain_reader
from panewise.kernel.framing import ChainFraming
from panewise.spec.frames import CustomFrames

__all__ = ["custom"]


@lru_cache(maxsize=64)
def _operator(scheme: Any) -> Callable[..., Any]:
    """The chain operator with the scheme's functions: compiled if all of them are, otherwise plain Python."""
    user_open, user_update, user_close = scheme.open, scheme.update, scheme.close

    def begin(form: Any, state: Any, values: Any, i: Any) -> Any:
        return user_open(state, values[:, i])

    def add(form: Any, state: Any, values: Any, i: Any) -> None:
        user_update(state, values[:, i])

    def passes(form: Any, state: Any, values: Any, i: Any) -> Any:
        return user_close(state, values[:, i])

    def breaks(form: Any, state: Any, scratch: Any, values: Any, i: Any) -> Any:
        if user_close(state, values[:, i]):
            return True
        user_update(state, values[:, i])
        return False

    hooks: dict[str, Any] = {"begin": begin, "add": add, "passes": passes, "breaks": breaks}
    compiled = all(isinstance(f, Dispatcher) for f in (user_open, user_update, user_close))
    if compiled:
        hooks = {name: numba.njit(hook) for name, hook in hooks.items()}
    plain = python_version(chains.chain_page)
    page = FunctionType(plain.__code__, {**plain.__globals__, **hooks}, "chain_page")
    return numba.njit(nogil=True, error_model="numpy")(page) if compiled else page


def custom(scheme: CustomFrames) -> ChainFraming:
    """The measure is whatever the user keeps in the cells."""
    return ChainFraming(
        read=chain_reader(scheme),
        kind=0,
        bounds=(0.0,),
        strict=False,
        cells=max(scheme.scheme.cells, 1),  # type: ignore[attr-defined]  # checked by the builder
        operator=_operator(scheme.scheme),
        solo=False,
    )

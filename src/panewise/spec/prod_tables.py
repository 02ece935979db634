"""Where prods come from, and what is set aside after one, as a job file has it: [stream.prods], [stream.set_aside]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from panewise.errors import JobError
from panewise.spec.aside import SetAside, set_aside
from panewise.spec.codec import Table
from panewise.spec.duration import written
from panewise.spec.prod import BOUNDS, Prods, ProdSource, prodder, prods, prods_in

__all__ = ["aside_from_value", "aside_to_value", "prods_from_value", "prods_to_value"]

_SOURCES: dict[str, Callable[..., ProdSource]] = {"prodder": prodder, "prods_in": prods_in}


def prods_from_value(name: str, value: object) -> Prods | None:
    """True, a table with its `kind`, or a list of them."""
    if isinstance(value, bool):
        return prods(value)
    given = value if isinstance(value, list) else [value]
    return prods([Table(name, each).made("source of prods", _SOURCES, "prods_from") for each in given])


def prods_to_value(given: Prods) -> Any:
    """The inverse of `prods_from_value`."""
    if given.stream is not None:
        raise JobError(
            "`prods` (prods_from) can't be written to a job file: it is another stream, which a job file can't name. "
            "Choose another one, or run the plan from Python."
        )
    if given.accuracy is not None:
        raise JobError(
            "`accuracy` can't be written to a job file: it is a function. Leave it out, or run the plan from Python."
        )
    found: list[dict[str, Any]] = []
    if given.in_band is not None:
        per_key = {"per_key": True} if given.in_band.per_key else {}
        found.append({"kind": "prods_in", "condition": given.in_band.condition, **per_key})
    if given.prodder is not None:
        spec = given.prodder
        told: dict[str, Any] = {} if spec.aggressiveness is None else {"aggressiveness": spec.aggressiveness}
        if spec.hold_accuracy is not None:
            told |= {"hold_accuracy": spec.hold_accuracy}
            told |= {} if spec.bounds == BOUNDS else {"bounds": list(spec.bounds)}
        found.append({"kind": "prodder", "every": written(spec.every), **told})
    return (found[0] if len(found) == 1 else found) if found else True


def aside_from_value(name: str, value: object) -> SetAside | None:
    """True, or a table of its options."""
    if isinstance(value, bool):
        return set_aside() if value else None
    table = Table(name, value)
    table.only("set_aside", asdict(SetAside()))
    return set_aside(**table.content)


def aside_to_value(given: SetAside) -> Any:
    """The inverse of `aside_from_value`."""
    default = asdict(SetAside())
    return {option: value for option, value in asdict(given).items() if value != default[option]} or True

"""Where prods come from, as a job file has it: [stream.prods]."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from panewise.errors import JobError, did_you_mean
from panewise.spec.codec import Table
from panewise.spec.duration import written
from panewise.spec.prod import BOUNDS, Prods, ProdSource, prodder, prods, prods_in

__all__ = ["prods_from_value", "prods_to_value"]

_SOURCES: dict[str, Callable[..., ProdSource]] = {"prodder": prodder, "prods_in": prods_in}


def prods_from_value(name: str, value: object) -> Prods | None:
    """True, a table with its `kind`, or a list of them."""
    if isinstance(value, bool):
        return prods(value)
    return prods([_source(Table(name, each)) for each in (value if isinstance(value, list) else [value])])


def _source(table: Table) -> ProdSource:
    kind = table.required("kind", str, 'kind = "prodder"')
    if kind == "prods_from":
        raise JobError(
            f"`kind` in [{table.name}] ('prods_from') is another stream, which a job file can't name. "
            "Choose another kind, or run the plan from Python."
        )
    if kind not in _SOURCES:
        raise JobError(f"`kind` in [{table.name}] ({kind!r}) is no source of prods. {did_you_mean(kind, _SOURCES)}")
    parameters = inspect.signature(_SOURCES[kind]).parameters
    table.only(kind, ["kind", *parameters])
    for option, parameter in parameters.items():
        if parameter.default is parameter.empty and option not in table.content:
            raise JobError(f"`{option}` is missing in [{table.name}]: {kind} can't do without it. Add `{option}`.")
    return _SOURCES[kind](**{option: value for option, value in table.content.items() if option != "kind"})


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

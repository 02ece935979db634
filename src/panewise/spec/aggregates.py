"""Aggregates over the rows of a segment, written as SQL calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from panewise.errors import SpecError
from panewise.spec.check import sql

__all__ = ["FRAMING_FUNCTIONS", "FUNCTIONS", "Aggregate", "aggregates"]

FUNCTIONS = ("avg", "count", "first", "last", "max", "min", "stddev", "sum")
"""What `agg=` computes over a segment's rows."""

FRAMING_FUNCTIONS = ("avg", "count", "max", "min", "range", "stddev", "sum")
"""What can decide where an aggregate frame ends."""

_CALL = re.compile(r"\s*([A-Za-z_]+)\s*\((.*)\)\s*$", re.DOTALL)


def _balanced(text: str) -> bool:
    depth = 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if depth < 0:
            return False
    return depth == 0


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One function over one SQL expression; `argument` is None for `count(*)`.

    >>> Aggregate.parse("avg(speed * 3.6)")
    Aggregate(function='avg', argument='speed * 3.6')
    >>> str(Aggregate.parse("COUNT( * )"))
    'count(*)'
    """

    function: str
    argument: str | None

    @staticmethod
    def parse(text: object, name: str = "agg", functions: tuple[str, ...] = FUNCTIONS) -> Aggregate:
        """Read `"sum(volume)"`."""
        call = _CALL.match(sql(name, text))
        function = call.group(1).lower() if call else ""
        argument = call.group(2).strip() if call else ""
        known = ", ".join(functions)
        if call is None or not _balanced(argument) or not argument:
            raise SpecError(
                f'`{name}` ({text!r}) must be one aggregate call such as "sum(volume)". Functions: {known}.'
            )
        if function not in functions:
            raise SpecError(f"`{name}` ({text!r}): {function} is not an aggregate here. Functions: {known}.")
        if argument == "*":
            if function != "count":
                raise SpecError(f"`{name}` ({text!r}): only count takes *. Name a column or an expression.")
            return Aggregate(function, None)
        return Aggregate(function, argument)

    def __str__(self) -> str:
        return f"{self.function}({'*' if self.argument is None else self.argument})"


def aggregates(calls: Mapping[str, object] | None) -> tuple[tuple[str, Aggregate], ...]:
    """Check the `agg=` mapping of output names to calls, in its order."""
    taken = ("segment", "rows", "status", "gap", "part", "timing")
    result = []
    for name, text in (calls or {}).items():
        if not isinstance(name, str) or not name or name in taken:
            raise SpecError(
                f"`agg` ({name!r}) can't name a result: {', '.join(taken)} are the segment's own. Choose another name."
            )
        result.append((name, Aggregate.parse(text, f"agg[{name}]")))
    return tuple(result)

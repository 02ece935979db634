"""Aggregates over the rows of a segment, written as SQL calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from panewise.errors import SpecError
from panewise.spec.check import sql

__all__ = ["FRAMING_FUNCTIONS", "FUNCTIONS", "Aggregate", "aggregates", "input_columns"]

FUNCTIONS = ("avg", "count", "first", "last", "max", "min", "stddev", "sum")
"""What `agg=` computes over a segment's rows."""

FRAMING_FUNCTIONS = ("avg", "count", "max", "min", "range", "stddev", "sum")
"""What can decide where an aggregate frame ends."""

_CALL = re.compile(r"\s*([A-Za-z_]+)\s*\((.*)\)\s*$", re.DOTALL)


_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`""", re.DOTALL)
_DISTINCT = re.compile(r"distinct(?:\s+|(?=[(`'\"]))\S", re.IGNORECASE)
_OWN = ("segment", "rows", "status", "gap", "part", "timing")
_EXAMPLE = "sum(volume)"


def _balanced(text: str) -> bool:
    """Whether parentheses come in pairs; those inside quotes are text."""
    depth = 0
    for c in _QUOTED.sub("", text):
        depth += (c == "(") - (c == ")")
        if depth < 0 or c in "'\"`":
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
        call = _CALL.match(sql(name, text, _EXAMPLE))
        function = call.group(1).lower() if call else ""
        argument = call.group(2).strip() if call else ""
        known = ", ".join(functions)
        if call is None or not _balanced(argument) or not argument:
            raise SpecError(f'`{name}` ({text!r}) must be one aggregate call such as "{_EXAMPLE}". Functions: {known}.')
        if function not in functions:
            raise SpecError(f"`{name}` ({text!r}): {function} is not an aggregate here. Functions: {known}.")
        if _DISTINCT.match(argument):
            raise SpecError(
                f"`{name}` ({text!r}): distinct is not supported, an aggregate reads every row of a segment. "
                "Leave distinct out."
            )
        if argument == "*":
            if function != "count":
                raise SpecError(f"`{name}` ({text!r}): only count takes *. Name a column or an expression.")
            return Aggregate(function, None)
        return Aggregate(function, argument)

    def where(self, condition: str | None) -> Aggregate:
        """The same over the rows for which a condition holds.

        >>> str(Aggregate("sum", "x").where("y > 0")), str(Aggregate("count", None).where("y > 0"))
        ('sum(case when y > 0 then x end)', 'count(case when y > 0 then 1 end)')
        """
        if condition is None:
            return self
        value = "1" if self.argument is None else self.argument
        return Aggregate(self.function, f"case when {condition} then {value} end")

    def __str__(self) -> str:
        return f"{self.function}({'*' if self.argument is None else self.argument})"


def input_columns(calls: tuple[tuple[str, Aggregate], ...]) -> tuple[str | None, ...]:
    """The column that each aggregate reads, under its name on the way to the operator; None for count(*).

    >>> input_columns((("n", Aggregate("count", None)), ("a", Aggregate("avg", "x")), ("b", Aggregate("max", "x"))))
    (None, 'a1', 'a1')
    """
    arguments = [call.argument for _, call in calls]
    return tuple(None if argument is None else f"a{arguments.index(argument)}" for argument in arguments)


def aggregates(calls: object) -> tuple[tuple[str, Aggregate], ...]:
    """Check the `agg=` mapping of output names to calls, in its order."""
    if calls is None:
        return ()
    if not isinstance(calls, Mapping):
        raise SpecError(
            f'`agg` ({calls!r}) must map names of results to aggregate calls. Write {{"total": "{_EXAMPLE}"}}.'
        )
    result: list[tuple[str, Aggregate]] = []
    for name, text in calls.items():
        if not isinstance(name, str) or not name or name.lower() in _OWN:
            raise SpecError(
                f"`agg` ({name!r}) can't name a result: {', '.join(_OWN)} are the segment's own. Choose another name."
            )
        if name.lower() in (other.lower() for other, _ in result):
            raise SpecError(f"`agg` ({name!r}) is given twice, but for case. Choose another name for one of them.")
        result.append((name, Aggregate.parse(text, f"agg[{name}]")))
    return tuple(result)

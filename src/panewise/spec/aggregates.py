"""Aggregates over the rows of a segment, written as SQL calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from panewise.errors import SpecError
from panewise.spec.check import sql
from panewise.spec.classes import class_at, class_path

__all__ = [
    "AS_THEY_ARE",
    "FRAMING_FUNCTIONS",
    "FUNCTIONS",
    "Aggregate",
    "Aggregates",
    "Calls",
    "CustomAggregate",
    "aggregates",
    "custom_aggregate",
    "input_columns",
]

FUNCTIONS = (
    "approx_count_distinct", "approx_percentile", "avg", "count", "first", "last", "max", "median", "min",
    "percentile", "stddev", "sum", "variance",
)  # fmt: skip
"""What `agg=` computes over a segment's rows."""

FRAMING_FUNCTIONS = ("avg", "count", "max", "min", "range", "stddev", "sum")
"""What can decide where an aggregate frame ends."""

AS_THEY_ARE = ("count_distinct", "approx_count_distinct")
"""What takes values of any type, as they are; others read decimals as doubles."""

_CALL = re.compile(r"\s*([A-Za-z_]+)\s*\((.*)\)\s*$", re.DOTALL)
_CUSTOM = re.compile(r"\s*([A-Za-z_][\w.]*:[A-Za-z_][\w.]*)\s*\((.*)\)\s*$", re.DOTALL)

_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`""", re.DOTALL)
_DISTINCT = re.compile(r"distinct(?:\s+|(?=[(`'\"]))(?=\S)", re.IGNORECASE)
_SHARES = ("approx_percentile", "percentile")
_OWN = ("segment", "rows", "status", "gap", "part", "timing")
_EXAMPLE = "sum(volume)"
_UNITS = ("s", "ms", "us", "ns")
_RESULTS = (
    "binary", "bool", "boolean", "date32", "date32[day]", "date64", "date64[ms]", "double", "f2", "f4", "f8", "float",
    "float16", "float32", "float64", "halffloat", "i1", "i2", "i4", "i8", "int16", "int32", "int64", "int8",
    "large_binary", "large_str", "large_string", "large_utf8", "str", "string", "time32[ms]", "time32[s]", "time64[ns]",
    "time64[us]", "u1", "u2", "u4", "u8", "uint16", "uint32", "uint64", "uint8", "utf8",
    *(f"duration[{unit}]" for unit in _UNITS), *(f"timestamp[{unit}]" for unit in _UNITS),
)  # fmt: skip
"""Arrow's names of types."""


def _balanced(text: str) -> bool:
    """Whether parentheses come in pairs; those inside quotes are text."""
    depth = 0
    for c in _QUOTED.sub("", text):
        depth += (c == "(") - (c == ")")
        if depth < 0 or c in "'\"`":
            return False
    return depth == 0


@runtime_checkable
class CustomAggregate(Protocol):
    """What `custom_aggregate` takes: a class with these members.

    A state is made of numbers, text, lists and dictionaries of them, whose keys are text. Rows come in any order and
    any pieces, so nothing may depend on these. `update` is given many values at once, none of them null.
    """

    type: str
    """Of the result, as Arrow calls it: "double", "int64", "bool", "string"."""

    def init(self) -> Any:
        """The state of no rows."""
        ...

    def update(self, state: Any, values: Any) -> Any:
        """The state with these values (a numpy array) added."""
        ...

    def merge(self, state: Any, other: Any) -> Any:
        """The state of the rows of both."""
        ...

    def finish(self, state: Any) -> Any:
        """The result, or None."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class Aggregate:
    """One function over one SQL expression; `argument` is None for `count(*)`.

    >>> Aggregate.parse("avg(speed * 3.6)")
    Aggregate(function='avg', argument='speed * 3.6')
    >>> str(Aggregate.parse("COUNT( * )"))
    'count(*)'
    """

    function: str
    argument: str | None
    share: float | None = None
    """Of a percentile, 0 to 1."""
    custom: type | None = None
    """A user's own, which follows `panewise.CustomAggregate`; `function` is its name."""

    def __repr__(self) -> str:
        """What is not given is not told: checkpoints hold it in these words."""
        share = "" if self.share is None else f", share={self.share!r}"
        custom = "" if self.custom is None else f", custom={class_path(self.custom)!r}"
        return f"Aggregate(function={self.function!r}, argument={self.argument!r}{share}{custom})"

    @staticmethod
    def parse(text: object, name: str = "agg", functions: tuple[str, ...] = FUNCTIONS) -> Aggregate:
        """Read `"sum(volume)"`."""
        custom = _CUSTOM.match(text) if isinstance(text, str) and functions is FUNCTIONS else None
        if custom and _balanced(custom.group(2)):
            return custom_aggregate(class_at(f"`{name}`", custom.group(1), SpecError), custom.group(2), name)
        call = _CALL.match(sql(name, text, _EXAMPLE))
        function = call.group(1).lower() if call else ""
        argument = call.group(2).strip() if call else ""
        known = ", ".join(functions)
        if call is None or not _balanced(argument) or not argument:
            raise SpecError(f'`{name}` ({text!r}) must be one aggregate call such as "{_EXAMPLE}". Functions: {known}.')
        if function not in functions:
            raise SpecError(f"`{name}` ({text!r}): {function} is not an aggregate here. Functions: {known}.")
        distinct = _DISTINCT.match(argument)
        if distinct:
            if function != "count" or functions is not FUNCTIONS:
                raise SpecError(
                    f"`{name}` ({text!r}): distinct is for counts over a segment's rows. Leave distinct out, or count."
                )
            return Aggregate("count_distinct", argument[distinct.end() :])
        if function in _SHARES:
            return Aggregate(function, *_with_share(name, text, argument))
        if function == "median":
            return Aggregate("percentile", argument, 0.5)
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
        return replace(self, argument=f"case when {condition} then {value} end")

    def __str__(self) -> str:
        if self.custom is not None:
            return f"{class_path(self.custom)}({self.argument})"
        if self.function == "count_distinct":
            return f"count(distinct {self.argument})"
        share = "" if self.share is None else f", {self.share}"
        return f"{self.function}({'*' if self.argument is None else self.argument}{share})"


def custom_aggregate(kind: object, argument: str, name: str = "argument") -> Aggregate:
    """Your own aggregate over an SQL expression, for `agg=`; see `CustomAggregate`."""
    lacks = [member for member in ("type", "init", "update", "merge", "finish") if not hasattr(kind, member)]
    if not isinstance(kind, type) or lacks:
        problem = f"it has no `{lacks[0]}`" if isinstance(kind, type) else "it is not a class"
        raise SpecError(
            f"`kind` ({kind!r}) can't aggregate: {problem}. Give a class with type, init, update, merge and finish "
            "(see CustomAggregate)."
        )
    members: Any = kind
    result = members.type
    if not isinstance(result, str) or result not in _RESULTS:
        raise SpecError(
            f"`kind` ({kind!r}) can't aggregate: its `type` ({result!r}) is none that Arrow has a name for. "
            'Give one such as "double", "int64", "bool", "string" or "timestamp[us]".'
        )
    return Aggregate(kind.__name__, sql(name, argument, "speed"), custom=kind)


Aggregates = Mapping[str, str | Aggregate]
"""Names of results, and what each is."""
Calls = tuple[tuple[str, Aggregate], ...]
"""The same, checked."""


def _with_share(name: str, text: object, argument: str) -> tuple[str, float]:
    """The two arguments of a percentile."""
    before, comma, after = argument.rpartition(",")
    try:
        share = float(after) if comma else -1.0
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1 or not before.strip() or not _balanced(before):
        raise SpecError(
            f"`{name}` ({text!r}) needs a share from 0 to 1 after what it is a percentile of. "
            'Write "percentile(speed, 0.95)".'
        )
    return before.strip(), share


def input_columns(calls: Calls) -> tuple[str | None, ...]:
    """The column that each aggregate reads, under its name on the way to the operator; None for count(*).

    Those that take values as they are share none with others.

    >>> input_columns((("n", Aggregate("count", None)), ("a", Aggregate("avg", "x")), ("b", Aggregate("max", "x"))))
    (None, 'a1', 'a1')
    """
    read = [(call.argument, call.function in AS_THEY_ARE) for _, call in calls]
    return tuple(None if each[0] is None else f"a{read.index(each)}" for each in read)


def aggregates(calls: object) -> Calls:
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
        call = text if isinstance(text, Aggregate) else Aggregate.parse(text, f"agg[{name}]")
        result.append((name, call))
    return tuple(result)

"""The [fill] table of a job file, or its [fill.NAME] tables, there and back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from panewise.errors import JobError, SpecError, did_you_mean
from panewise.spec.aggregates import aggregates
from panewise.spec.codec import Table
from panewise.spec.duration import written
from panewise.spec.fill import filling
from panewise.spec.job import FillTable, FillTables, Plot
from panewise.spec.plan import PlanSpec
from panewise.spec.tables import (
    SOURCE_KEYS,
    punctuation_from_table,
    punctuation_to_mapping,
    source_from_table,
    source_to_mapping,
)

__all__ = ["check_fill", "fill_from_table", "fill_to_mapping"]

_OPTIONS = (*SOURCE_KEYS, "at", "by", "where", "widen", "shift", "punctuation", "agg")
_ARGUMENT = re.compile(r"^`([^`]+)`")


def fill_from_table(table: Table, plan: PlanSpec) -> FillTables:
    """What fills the segments of a plan: one source, [fill]; or several, [fill.NAME] each."""
    named = [name for name, value in table.content.items() if name not in _OPTIONS and isinstance(value, dict)]
    own = [name for name in table.content if name in _OPTIONS]
    if named and own:
        near = did_you_mean(named[0], _OPTIONS)
        raise JobError(
            f"`{named[0]}` in [{table.name}] is no option of a fill, and no source of its own beside `{own[0]}`: of "
            f"several sources each has a table such as [{table.name}.{named[0]}]. "
            + (near if near.startswith("Did") else f"Put `{own[0]}` into one of them.")
        )
    kept = table.flag("keep_empty")
    if not named:
        table.only("a fill", [*_OPTIONS, "keep_empty"])
        return FillTables((("", _one(table, plan)),), kept)
    table.only("a fill of several sources", [*named, "keep_empty"])
    tables = [(name, Table(f"{table.name}.{name}", table.content[name])) for name in named]
    for _, each in tables:
        if "keep_empty" in each.content:
            raise JobError(f"`keep_empty` in [{each.name}] is about the segments of all sources. Put it into [fill].")
        each.only("a fill", _OPTIONS)
    return FillTables(tuple((name, _one(each, plan)) for name, each in tables), kept)


def _one(table: Table, plan: PlanSpec) -> FillTable:
    given = {key: value for key, value in table.content.items() if key in SOURCE_KEYS}
    told = table.optional("punctuation", dict)
    with _in(table):
        found = filling(
            plan.keys,
            table.optional("at", str, plan.ordered_by),
            _by(table),
            table.optional("where", str),
            _widen(table),
            table.content.get("shift"),
            None if told is None else punctuation_from_table(Table(f"{table.name}.punctuation", told)),
        )
        calls = aggregates(Table(f"{table.name}.agg", table.content["agg"]).content) if "agg" in table.content else None
    if calls == ():
        raise JobError(f'[{table.name}.agg] names no result. Add one, such as n = "count(*)", or leave it out.')
    source = source_from_table(Table(table.name, given)) if given else None
    return FillTable(found, source, tuple((name, str(call)) for name, call in calls or ()))


@contextmanager
def _in(table: Table) -> Iterator[None]:
    """What is wrong with an argument is wrong in the table."""
    try:
        yield
    except SpecError as e:
        raise JobError(_ARGUMENT.sub(rf"`\1` in [{table.name}]", str(e))) from None


def _by(table: Table) -> object:
    by = table.content.get("by")
    if by is None or isinstance(by, dict):
        return by
    return table.list("by", str)


def _widen(table: Table) -> object:
    if "widen" not in table.content:
        return None
    given = table.content["widen"]
    if not isinstance(given, dict) or not given:
        raise JobError(
            f"`widen` in [{table.name}] ({given!r}) must say how far before and after a segment rows may lie. "
            'Write widen = {before = "30 seconds", after = "10 seconds"}, or one of the two.'
        )
    Table(f"{table.name}.widen", given).only("widen", ("before", "after"))
    return given.get("before"), given.get("after")


def check_fill(fill: FillTables, agg: tuple[tuple[str, str], ...], plot: Plot | None) -> None:
    """Refuse what does not go together: rows and aggregates, or two results of one name."""
    missing = [name for name, table in fill.tables.items() if not table.agg]
    if missing and len(fill.named) > 1:
        raise JobError(
            f"[{missing[0]}.agg] is missing: a job gives the rows of one source, or aggregates over those of several. "
            'Add it, such as n = "count(*)".'
        )
    if missing and fill.keep_empty:
        raise JobError(
            f"`keep_empty` in [fill] keeps segments without rows, and without [{missing[0]}.agg] rows are what is "
            'given. Add that, such as n = "count(*)", or leave `keep_empty` out.'
        )
    if missing and agg:
        raise JobError(
            f"[agg] says something of each segment, and without [{missing[0]}.agg] rows are what is given. "
            "Add that, or leave [agg] out."
        )
    taken: dict[str, str] = {name.lower(): "agg" for name, _ in agg}
    for table, one in fill.tables.items():
        for name, _ in one.agg:
            if name.lower() in taken:
                raise JobError(
                    f"`{name}` in [{table}.agg] is in [{taken[name.lower()]}] too, and results have one column of a "
                    "name. Choose another."
                )
        taken |= {name.lower(): f"{table}.agg" for name, _ in one.agg}
    for name, _ in plot.fill if plot else ():
        known = [name for name, _ in fill.named]
        if name not in known and "" in known:
            raise JobError(f"`fill` in [plot] names {name!r}, and [fill] has no name. Write it as text.")
        if name not in known:
            which = f"({name!r}) is no source of [fill]" if name else "does not say of which source"
            example = f'fill = {{{known[0]} = "x"}}'
            raise JobError(f"`fill` in [plot] {which}. Name one of {', '.join(known)}, as {example}.")


def fill_to_mapping(fill: FillTables, plan: PlanSpec) -> dict[str, Any]:
    """The [fill] table, without what is as in the plan, or default anyway; `fill_from_table` is its inverse."""
    kept = {"keep_empty": True} if fill.keep_empty else {}
    named = {name: _mapping(table, plan) for name, table in fill.named}
    return {**kept, **named.get("", named)}


def _mapping(table: FillTable, plan: PlanSpec) -> dict[str, Any]:
    given = table.filling
    widen = {"before": written(given.before), "after": written(given.after)}
    mapping: dict[str, Any] = {
        "at": None if given.time == plan.time else given.time,
        "by": None if given.keys == plan.keys else list(given.keys),
        "where": given.where,
        "shift": written(given.shift),
        "widen": {side: size for side, size in widen.items() if size is not None} or None,
        "punctuation": None if given.punctuation is None else punctuation_to_mapping(given.punctuation),
        "agg": dict(table.agg) or None,
    }
    source = {} if table.source is None else source_to_mapping(table.source)
    return source | {key: value for key, value in mapping.items() if value is not None}

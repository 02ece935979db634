"""Filling: where the rows of segments come from, which of them count, and how far around a segment they may lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from panewise.errors import InputError, SpecError
from panewise.spec.aggregates import Calls
from panewise.spec.check import column, columns, sql
from panewise.spec.duration import Amount, AmountLike, Duration, amount, same_kind, size
from panewise.spec.frames import RowWindows, WindowScheme
from panewise.spec.plan import PlanSpec
from panewise.spec.punctuate import Punctuation, Scheduled, check_promises
from panewise.spec.punctuate import punctuation as checked_punctuation

__all__ = ["FillOptions", "Filling", "check_keys", "check_parts", "check_windows", "filling", "fuses"]


def check_windows(plan: PlanSpec, live: bool) -> None:
    """Refuse windows that can't be filled: those of rows, and, where both sides are streams, any."""
    if isinstance(plan.scheme, RowWindows):
        raise SpecError(
            "`plan` (row_windows) is bounded by numbers of rows, which the rows of another source do not have. "
            "Use plan.agg for its own rows, or windows on `at`."
        )
    if live and isinstance(plan.scheme, WindowScheme):
        raise SpecError(
            f"`plan` ({type(plan.scheme).__name__}) can't be filled from one stream to another yet: only frames can. "
            "Fill from a stored table, or give the other stream the same windows."
        )


@dataclass(frozen=True)
class Filling:
    """Rows in order of `time`, of the keys in `keys` (named as the plan's are ordered), for which `where` holds."""

    time: str
    keys: tuple[str, ...] = ()
    where: str | None = None
    before: Amount | None = None
    after: Amount | None = None
    shift: Amount | None = None
    punctuation: Punctuation | None = None

    @property
    def ordered_by(self) -> str:
        """The progressing attribute."""
        return self.time

    @property
    def amounts(self) -> tuple[tuple[str, Amount], ...]:
        """What is measured in `at`, under the names that users know."""
        given = (("widen", self.before), ("widen", self.after), ("shift", self.shift))
        promised = () if self.punctuation is None else self.punctuation.amounts
        return (*((name, value) for name, value in given if value is not None), *promised)

    @property
    def reach(self) -> tuple[Amount, Amount]:
        """How far from the start of a segment its rows begin, and from its end they end: shift - before, shift + after.

        >>> Filling("t", before=3, shift=-5).reach
        (-8, -5)
        """
        return self._moved(self.before, -1), self._moved(self.after, 1)

    def _moved(self, side: Amount | None, sign: int) -> Amount:
        given = [each for each in (self.shift, side) if each is not None]
        total = size(self.shift) + sign * size(side)
        return Duration(int(total)) if any(isinstance(each, Duration) for each in given) else total

    @property
    def moves(self) -> bool:
        """Whether rows are taken from elsewhere than the bounds of a segment."""
        return self.before is not None or self.after is not None or self.shift is not None


@dataclass(frozen=True)
class FillOptions:
    """How a fill is run; most of it concerns streams."""

    keep_empty: bool = False
    late: bool = False
    shards: int | None = None
    control: str | None = None
    clock: Any = None
    emit: str = "final"
    fragment_every: AmountLike | None = None

    def framing(self, live: bool) -> dict[str, Any]:
        """What `segments` takes of it: of a stream all, of a table what is sent."""
        given = {**self.of_streams, "shards": self.shards} if live else {}
        sent = {"emit": self.emit, "fragment_every": self.fragment_every}
        return {name: value for name, value in given.items() if value is not None} | sent

    @property
    def of_streams(self) -> dict[str, Any]:
        """What means nothing to tables; None where it is not given."""
        return {"late": self.late or None, "control": self.control, "clock": self.clock}


def filling(
    keys: tuple[str, ...],
    at: object,
    by: object = None,
    where: object = None,
    widen: object = None,
    shift: object = None,
    punctuation: object = None,
) -> Filling:
    """Check what `fill` is given, for segments of these keys.

    >>> filling(("router",), "ts", {"router": "host"}, widen=("30 seconds", None)).keys
    ('host',)
    """
    before, after = _widened(widen)
    moved = None if shift is None else amount("shift", shift, signed=True)
    for given in (after, moved):
        if before is not None and given is not None and not same_kind(before, given):
            raise SpecError(f"`widen` ({before}) and ({given}) are a length of time and a number. Give both alike.")
    found = Filling(
        column("at", at),
        _keys(keys, by),
        None if where is None else sql("where", where),
        before,
        after,
        moved,
        None if punctuation is None else checked_punctuation(punctuation),
    )
    if isinstance(found.punctuation, Scheduled):
        raise SpecError(
            f"`punctuation` (schedule, give_up_after={found.punctuation.give_up_after}) gives up expected readings, "
            "and rows that fill are not expected. Use slack."
        )
    check_promises(found)
    return found


def _keys(keys: tuple[str, ...], by: object) -> tuple[str, ...]:
    if by is None:
        return keys
    if isinstance(by, Mapping):
        unknown = [name for name in by if name not in keys]
        if unknown:
            known = ", ".join(f"`{name}`" for name in keys) or "none"
            raise SpecError(f"`by` ({unknown[0]!r}) is no key of the plan: {known}. Map the plan's keys to columns.")
        return tuple(column("by", by.get(name, name)) for name in keys)
    named = columns("by", by) if not isinstance(by, str) else (column("by", by),)
    if len(named) != len(keys):
        raise SpecError(
            f"`by` ({', '.join(named)}) names {len(named)} columns, and the plan has {len(keys)} keys: a row fills the "
            "segments of its own key. Name one column for each, in the plan's order."
        )
    return named


def _widened(widen: object) -> tuple[Amount | None, Amount | None]:
    if widen is None:
        return None, None
    if isinstance(widen, str) or not isinstance(widen, (tuple, list)) or len(widen) != 2:
        raise SpecError(
            f"`widen` ({widen!r}) must be two amounts: how far before a segment, and how far after it. "
            'Write ("30 seconds", None) for one side only.'
        )
    sides = [None if side is None else amount("widen", side, signed=True) for side in widen]
    return sides[0], sides[1]


def fuses(plan: PlanSpec, given: Filling, calls: Calls) -> bool:
    """Whether what draws segments can compute these over its own rows, on its way.

    Among rows that a condition leaves out, it does not know the first and the last that it leaves in.
    """
    same = not given.moves and given.time == plan.time and given.keys == plan.keys
    return same and (given.where is None or all(call.function not in ("first", "last") for _, call in calls))


def check_keys(name: str, found: str, key: str, segments: str, alike: bool) -> None:
    """Refuse a key column whose values can't equal those of the segments."""
    if not alike:
        raise InputError(
            f"`by` ({name!r}) has type {found}, and the key {key!r} of the segments {segments}: no two could be equal. "
            "Cast one of them, so that both are alike."
        )


def check_parts(given: Filling) -> None:
    """Refuse to widen parts of segments where that would take a row twice, or leave one out."""
    if given.after is not None:
        raise SpecError(
            f"`widen` (after: {given.after}): segments come in parts, and no part knows that it is the last one with "
            'rows. Leave it out, or use emit="final".'
        )
    if size(given.before) < 0:
        raise SpecError(
            f"`widen` (before: {given.before}): segments come in parts, and the first may be shorter than what is "
            'taken off. Leave it out, or use emit="final".'
        )

"""The public constructors of windows: lengths of `at` by a grid, whatever the data do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from numbers import Integral, Real

from panewise.errors import SpecError
from panewise.plan import Plan
from panewise.spec.check import MAX_WHOLE, columns, flag, shown, sql
from panewise.spec.duration import AmountLike, amount, same_kind
from panewise.spec.frames import RowWindows, TupleWindows, Value, Windows

__all__ = [
    "ROW_NUMBER",
    "landmark_windows",
    "row_windows",
    "slide_by_tuple_windows",
    "sliding_windows",
    "tumbling_windows",
    "windows",
]

ROW_NUMBER = "row number"
"""The attribute of `windows` that counts rows."""

Origin = str | int | float | date | datetime


def _origin(origin: object) -> str | int | float | None:
    """An instant, as a job file has it."""
    if origin is None:
        return None
    if isinstance(origin, date):
        return origin.isoformat()
    if isinstance(origin, str):
        try:
            datetime.fromisoformat(origin)
        except ValueError:
            raise SpecError(
                f'`origin` ({origin!r}) can\'t be read: a time reads like "2024-01-01 06:00". '
                "Give one, or a number where `at` is a number."
            ) from None
        return origin
    if isinstance(origin, Integral) and not isinstance(origin, bool):
        return int(origin)
    if isinstance(origin, Real) and not isinstance(origin, bool) and math.isfinite(float(origin)):
        return float(origin)
    raise SpecError(
        f"`origin` ({shown(origin)}) must be an instant. Give a time as text, or a number where `at` is one."
    )


def tumbling_windows(size: AmountLike, *, origin: Origin | None = None, keep_empty: bool = False) -> Plan:
    """One window after another, each row in one of them.

    `keep_empty` reports those without rows too, from the first row of a key on.

    >>> from panewise import segments_local
    >>> import pyarrow as pa
    >>> plan = tumbling_windows(10).at("t")
    >>> found = segments_local(plan, pa.table({"t": [12, 3, 17]}), {"n": "count(*)"})
    >>> found.select(["segment", "n"]).to_pylist()[1]
    {'segment': {'id': 1, 'start': 10, 'end': 20, 'bounds': '[)'}, 'n': 2}
    """
    length = amount("size", size)
    return Plan(Windows(range=length, slide=length, origin=_origin(origin), keep_empty=flag("keep_empty", keep_empty)))


def sliding_windows(
    range: AmountLike, slide: AmountLike, *, origin: Origin | None = None, keep_empty: bool = False
) -> Plan:
    """Windows of one length, one every `slide`: a row is in several where they overlap, in none between them.

    `keep_empty` reports those without rows too, from the first row of a key on.
    """
    length, step = amount("range", range), amount("slide", slide)
    if not same_kind(length, step):
        raise SpecError(
            f"`slide` ({slide}) and `range` ({range}) must be alike: both lengths of time, or both numbers. "
            "Change one of them."
        )
    return Plan(Windows(range=length, slide=step, origin=_origin(origin), keep_empty=flag("keep_empty", keep_empty)))


def landmark_windows(slide: AmountLike, *, origin: Origin | None = None) -> Plan:
    """Windows that all begin at the origin, one ending every `slide`: what there was up to then."""
    return Plan(Windows(range=None, slide=amount("slide", slide), origin=_origin(origin)))


def _whole(name: str, value: object) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or not 1 <= int(value) <= MAX_WHOLE:
        raise SpecError(f"`{name}` ({shown(value)}) must be a number of rows, at least 1. Give one.")
    return int(value)


def row_windows(range: int, slide: int | None = None, *, partitioned: bool = False) -> Plan:
    """Windows of so many rows, in order of `at`, one every `slide` rows; without it, one after another.

    Rows of all keys are numbered together, and what a window has of each key is a result; with `partitioned` the rows
    of each key are numbered by themselves. Where a column holds numbers already, use `sliding_windows` over that.
    """
    length = _whole("range", range)
    step = length if slide is None else _whole("slide", slide)
    return Plan(RowWindows(range=length, slide=step, partitioned=flag("partitioned", partitioned)))


def slide_by_tuple_windows(range: AmountLike, *, every: int = 1, numbered: str | None = None) -> Plan:
    """For every row, what lies in the `range` up to it; or for every so-many-th row, by rank of `at`.

    `numbered` names a column of numbers, such as those of arrival: then for rows whose number `every` divides. Rows
    with one `at` share one window.
    """
    length, count = amount("range", range), _whole("every", every)
    value = None if numbered is None else Value(sql("numbered", numbered, "seq"))
    return Plan(TupleWindows(range=length, every=count, numbered=value))


def windows(
    *,
    range: AmountLike | None = None,
    slide: AmountLike,
    wattr: str | None = None,
    rattr: str | None = None,
    sattr: str | None = None,
    pattr: str | Sequence[str] | None = None,
    origin: Origin | None = None,
    keep_empty: bool = False,
) -> Plan:
    """Any window, by the attributes that its range and slide are measured on; the other constructors are short for it.

    `wattr` is both: a column, or `ROW_NUMBER`, with `pattr` for rows that are numbered by themselves in each
    partition. `rattr` and `sattr` differ where rows end windows: `sattr` is `ROW_NUMBER`, or a column of numbers.

    >>> windows(range="1 hour", slide="1 minute", wattr="ts") == sliding_windows("1 hour", "1 minute").at("ts")
    True
    >>> windows(range=100, slide=10, wattr=ROW_NUMBER, pattr="k") == row_windows(100, 10, partitioned=True).by("k")
    True
    >>> windows(range="5 s", slide=3, rattr="ts", sattr="seq") == (
    ...     slide_by_tuple_windows("5 s", every=3, numbered="seq").at("ts")
    ... )
    True
    """
    if (wattr is None) == (rattr is None) or (rattr is None) != (sattr is None):
        raise SpecError(
            f"`wattr` ({wattr!r}), `rattr` ({rattr!r}) and `sattr` ({sattr!r}): give `wattr`, or both of the others."
        )
    if rattr is not None and rattr == sattr:
        wattr, rattr, sattr = rattr, None, None
    if rattr == ROW_NUMBER:
        raise SpecError(
            f"`rattr` (ROW_NUMBER) and `sattr` ({sattr!r}): windows of so many rows slide by rows too. "
            "Give wattr=ROW_NUMBER, or a column as `rattr`."
        )
    if pattr is not None and wattr != ROW_NUMBER:
        raise SpecError(
            f"`pattr` ({pattr!r}) numbers rows by themselves in each partition, so `wattr` must be ROW_NUMBER. "
            "Leave it out, and name keys with .by()."
        )
    if flag("keep_empty", keep_empty) and (range is None or rattr is not None or wattr == ROW_NUMBER):
        raise SpecError(
            "`keep_empty` (True) is for windows of a length that lie on a grid: of these there are none without rows. "
            "Leave it out."
        )
    if rattr is not None and sattr is not None:
        if range is None:
            raise SpecError("`range` (None) says how far a window reaches back from a row. Give it.")
        if origin is not None:
            raise SpecError(f"`origin` ({origin!r}): rows end these windows, and no grid does. Leave it out.")
        numbered = None if sattr == ROW_NUMBER else sattr
        return slide_by_tuple_windows(range, every=_whole("slide", slide), numbered=numbered).at(rattr)
    if wattr == ROW_NUMBER:
        if origin is not None:
            raise SpecError(f"`origin` ({origin!r}): rows are numbered from 1. Leave it out.")
        rows = row_windows(_whole("range", range), _whole("slide", slide), partitioned=pattr is not None)
        return rows if pattr is None else rows.by(*columns("pattr", pattr))
    assert wattr is not None
    if range is None:
        return landmark_windows(slide, origin=origin).at(wattr)
    return sliding_windows(range, slide, origin=origin, keep_empty=keep_empty).at(wattr)

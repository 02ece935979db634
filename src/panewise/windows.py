"""The public constructors of windows: lengths of `at` by a grid, whatever the data do."""

from __future__ import annotations

import math
from datetime import date, datetime
from numbers import Integral, Real

from panewise.errors import SpecError
from panewise.plan import Plan
from panewise.spec.check import shown
from panewise.spec.duration import AmountLike, amount, same_kind
from panewise.spec.frames import Windows

__all__ = ["landmark_windows", "sliding_windows", "tumbling_windows"]

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


def tumbling_windows(size: AmountLike, *, origin: Origin | None = None) -> Plan:
    """One window after another, each row in one of them.

    >>> from panewise import segments_local
    >>> import pyarrow as pa
    >>> plan = tumbling_windows(10).at("t")
    >>> found = segments_local(plan, pa.table({"t": [12, 3, 17]}), {"n": "count(*)"})
    >>> found.select(["segment", "n"]).to_pylist()[1]
    {'segment': {'id': 1, 'start': 10, 'end': 20, 'bounds': '[)'}, 'n': 2}
    """
    length = amount("size", size)
    return Plan(Windows(range=length, slide=length, origin=_origin(origin)))


def sliding_windows(range: AmountLike, slide: AmountLike, *, origin: Origin | None = None) -> Plan:
    """Windows of one length, one every `slide`: a row is in several where they overlap, in none between them."""
    length, step = amount("range", range), amount("slide", slide)
    if not same_kind(length, step):
        raise SpecError(
            f"`slide` ({slide}) and `range` ({range}) must be alike: both lengths of time, or both numbers. "
            "Change one of them."
        )
    return Plan(Windows(range=length, slide=step, origin=_origin(origin)))


def landmark_windows(slide: AmountLike, *, origin: Origin | None = None) -> Plan:
    """Windows that all begin at the origin, one ending every `slide`: what there was up to then."""
    return Plan(Windows(range=None, slide=amount("slide", slide), origin=_origin(origin)))

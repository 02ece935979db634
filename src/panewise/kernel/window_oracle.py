"""The definitions of windows, executed literally: every window is asked which rows lie in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from panewise.kernel.aggregate_oracle import Number
from panewise.kernel.oracle import Row, Segment, fill
from panewise.spec.aggregates import Calls

__all__ = ["extent", "row_windows", "tuple_windows", "wids", "windows"]


def extent(
    w: int, range: Number | None, slide: Number, origin: Number = 0, begins: bool = False
) -> tuple[Number, Number]:
    """Where window w begins and ends: t lies in it if start <= t < end."""
    end = origin + (w + 1) * slide
    if range is None:
        return origin, end
    start = _real_start(w, range, slide, origin) if isinstance(slide, float) else end - range
    return max(start, origin) if begins else start, end


def _real_start(w: int, range: Number, slide: Number, origin: Number) -> Number:
    """Where a window begins as another ends, both are one number; else it begins between two ends, however rounded."""
    times = round(range / slide)
    if abs(times * slide - range) <= 4 * math.ulp(range):
        return origin + (w + 1 - times) * slide
    j = w - math.floor(range / slide)
    return min(max(origin + (w + 1) * slide - range, origin + j * slide), origin + (j + 1) * slide)


def wids(t: int, range: int, slide: int, origin: int = 0) -> list[int]:
    """The windows of an instant, of whole numbers: (t - origin)/slide - 1 < w <= (t + range - origin)/slide - 1."""
    first, last = (t - origin) // slide, (t + range - origin) // slide - 1
    return [
        w
        for w in _between(first - 2, last + 2)
        if (w + 1) * slide > t - origin and (w + 1) * slide <= t + range - origin
    ]


def _between(first: int, last: int) -> list[int]:
    found = []
    while first <= last:
        found.append(first)
        first += 1
    return found


def windows(
    rows: Sequence[Row],
    range: Number | None,
    slide: Number,
    origin: Number = 0,
    begins: bool = False,
    agg: Calls = (),
    latest: Number | None = None,
    keep_empty: bool = False,
) -> list[Segment]:
    """The windows of one key that have rows, whatever their order; without range, up to that of the latest row.

    To keep those without rows: from the first that ends after the first row, up to the last that begins with the latest
    row of all, or before it.
    """
    begins = begins or range is None
    ats = [row.at for row in rows if row.at is not None and math.isfinite(row.at)]
    ats = [at for at in ats if at >= origin] if begins else ats
    if not ats:
        return []
    top = max(ats) if latest is None or (range is not None and not keep_empty) else latest
    first = math.floor((min(ats) - origin) / slide) - 2
    last = math.floor((top - origin) / slide) + 2 + (0 if range is None else math.ceil(range / slide))
    found = []
    for w in _between(max(first, 0) if begins else first, last):
        start, end = extent(w, range, slide, origin, begins)
        if range is None and origin + w * slide > top:
            continue
        kept = [row for row in rows if not begins or (row.at is not None and row.at >= origin)]
        inside, made = fill((start, end, "[)"), kept, agg)
        kept_without = keep_empty and end > min(ats) and start <= top
        if inside or kept_without:
            found.append(Segment(w, start, end, "[)", len(inside), "final", False, made))
    return found


def row_windows(
    keyed: Sequence[tuple[object, Row]],
    range: int,
    slide: int,
    partitioned: bool,
    agg: Calls = (),
) -> dict[object, list[Segment]]:
    """The windows of rows (each with its key) by their numbers, from 1 in order: of each key, or of all."""
    known = [(key, row) for key, row in keyed if row.at is not None and math.isfinite(row.at)]
    found: dict[object, list[Segment]] = {}
    for key in {key for key, _ in known}:
        sequence = [(k, row) for k, row in known if k == key or not partitioned]
        sequence.sort(key=lambda pair: (pair[1].at, pair[1].tie, pair[0], _rank(pair[1])))
        numbered = [replace(row, at=n) for n, (k, row) in enumerate(sequence, 1) if k == key]
        found[key] = windows(numbered, range, slide, 1, True, agg)
    return found


def _rank(row: Row) -> tuple[tuple[bool, Number], ...]:
    """Rows that nothing else orders are ordered by what is read of them, null first."""
    return tuple((v is not None, 0 if v is None else v) for v in row.inputs)


def tuple_windows(
    rows: Sequence[Row],
    range: Number,
    every: int = 1,
    numbers: Sequence[float | None] | None = None,
    agg: Calls = (),
) -> list[Segment]:
    """The windows that rows of one key end: (at - range, at], for every row, for every n-th in order, or by number."""
    known = [n for n, row in enumerate(rows) if row.at is not None and math.isfinite(row.at)]
    in_order = sorted(known, key=lambda n: rows[n].at)
    if numbers is None:
        ends = {rows[n].at for rank, n in enumerate(in_order, 1) if rank % every == 0}
    else:
        told = {n: numbers[n] for n in known}
        ends = {rows[n].at for n, number in told.items() if number is not None and number % every == 0}
    found: list[Segment] = []
    for at in sorted(ends):
        inside, made = fill((at - range, at, "(]"), rows, agg)
        found.append(Segment(len(found), at - range, at, "(]", len(inside), "final", False, made))
    return found

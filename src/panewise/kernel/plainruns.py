"""Runs that nothing else is asked of, faster: what is under way is in scalars."""

from __future__ import annotations

from typing import Any

from panewise.kernel import segmenting as sg
from panewise.kernel.compiled import compiled
from panewise.kernel.runstate import (
    APART,
    FALLING,
    GAP_LENGTH,
    GAPS,
    LAST,
    NEXT_ID,
    PIECE_BEFORE,
    PIECE_HAS_BEFORE,
    PIECE_PART,
    PIECE_ROWS,
    PIECE_SENT_ROWS,
    PIECE_START,
    RISING,
    RUN_BEFORE,
    RUN_CERTAIN,
    RUN_COUNT,
    RUN_HAS_BEFORE,
    RUN_OPEN,
    RUN_START,
    SEEN,
    SPLIT,
)
from panewise.kernel.segmenting import (
    EMIT,
    EXTENT,
    FINAL,
    HAS_MAX,
    HAS_MIN,
    INVISIBLE,
    LONGEST,
    MAX_ROWS,
    MIN_DURATION,
    MIN_ROWS,
    MISSING,
    NEUTRAL,
    OBSERVED,
    POSSIBLE,
)
from panewise.kernel.spans import span_at_least

__all__ = ["is_plain", "is_simple", "plain_page"]


@compiled
def is_plain(whole: Any, inputs: Any, width: Any) -> bool:
    """Whether runs are all there is, and nothing is aggregated."""
    return len(inputs[0]) == 0 and is_simple(whole, width)


@compiled
def is_simple(whole: Any, width: Any) -> bool:
    """Whether runs come whole, one after another: nothing is missing, and no maximum, gap or part is asked for."""
    return (
        width <= 1
        and whole[MISSING] == 0
        and not whole[HAS_MAX]
        and whole[MAX_ROWS] == 0
        and not whole[LONGEST]
        and not whole[GAPS]
        and whole[EMIT] == FINAL
    )


@compiled
def _plain_rows(
    i: Any, stop: Any, g: Any, done: Any, at: Any, codes: Any, values: Any, bounds: Any, marks: Any, split: Any,
    apart: Any, extent: Any, least: Any, bounded: Any, shortest: Any, is_open: Any, start: Any, before: Any,
    has_before: Any, rows: Any, last: Any, seen: Any, value: Any, next_id: Any,
) -> Any:  # fmt: skip
    """As `_rows`, where `is_plain`: what is under way is in scalars, and comes back."""
    room, width = len(marks) - 4, values.shape[0]
    x = value
    while i < stop:
        code = codes[i]
        if code == INVISIBLE:
            i += 1
            continue
        t = at[i]
        if width:
            x = values[0, i]
        member = code > NEUTRAL or (code == NEUTRAL and is_open)
        goes_on = is_open and member
        if goes_on and split:
            if split == RISING:
                goes_on = x > value
            elif split == FALLING:
                goes_on = x < value
            elif split == APART:
                goes_on = not span_at_least(last, t, apart)
            else:
                goes_on = x == value
        if is_open and not goes_on:
            if done > room:
                break
            is_open = False
            reaches_back = extent == POSSIBLE and has_before != 0
            first, end = before if reaches_back else start, last if extent == OBSERVED else t
            if rows >= least and (not bounded or span_at_least(first, end, shortest)):
                bounds[done, 0] = first
                bounds[done, 1] = end
                marks[done, 0] = g
                marks[done, 1] = (0 if reaches_back else sg.START_INCLUDED) | (
                    sg.END_INCLUDED if extent == OBSERVED else 0
                )
                marks[done, 2] = rows
                marks[done, 3] = next_id
                marks[done, 4] = 0
                next_id += 1
                done += 1
        if goes_on:
            rows += 1
        elif member:
            is_open = True
            start, before, has_before, rows = t, last, seen, 1
        last, seen, value = t, 1, x
        i += 1
    return i, done, is_open, start, before, has_before, rows, last, seen, value, next_id


@compiled
def plain_page(
    at: Any, codes: Any, values: Any, offsets: Any, slots: Any, ends: Any, whole: Any, measured: Any,
    ats: Any, numbers: Any, previous: Any, bounds: Any, marks: Any,
) -> int:  # fmt: skip
    """Take a page, where `is_plain`; there is room for a record of each row, and of each key."""
    done, width = 0, previous.shape[1]
    extent, least, bounded, shortest = whole[EXTENT], whole[MIN_ROWS], whole[HAS_MIN] != 0, measured[MIN_DURATION]
    for g in range(len(slots)):
        k = slots[g]
        value = previous[k, 0] if width else 0.0
        _, done, is_open, start, before, has_before, rows, last, seen, value, next_id = _plain_rows(
            offsets[g], offsets[g + 1], g, done, at, codes, values, bounds, marks, whole[SPLIT], measured[GAP_LENGTH],
            extent, least, bounded, shortest, numbers[k, RUN_OPEN] != 0, ats[k, RUN_START], ats[k, RUN_BEFORE],
            numbers[k, RUN_HAS_BEFORE], numbers[k, RUN_COUNT], ats[k, LAST], numbers[k, SEEN], value,
            numbers[k, NEXT_ID],
        )  # fmt: skip
        reaches_back = extent == POSSIBLE and has_before != 0
        first = before if reaches_back else start
        long = is_open and rows >= least and (not bounded or span_at_least(first, last, shortest))
        if ends[g]:
            if long:
                bounds[done, 0] = first
                bounds[done, 1] = last
                marks[done, 0] = g
                marks[done, 1] = sg.END_INCLUDED | (0 if reaches_back else sg.START_INCLUDED)
                marks[done, 2] = rows
                marks[done, 3] = next_id
                marks[done, 4] = 0
                done += 1
            for c in range(ats.shape[1]):
                ats[k, c] = 0
            for c in range(numbers.shape[1]):
                numbers[k, c] = 0
            continue
        if width:
            previous[k, 0] = value
        ats[k, LAST], numbers[k, SEEN], numbers[k, NEXT_ID] = last, seen, next_id
        numbers[k, RUN_OPEN] = 1 if is_open else 0
        if is_open:
            ats[k, RUN_START], ats[k, RUN_BEFORE], ats[k, PIECE_START], ats[k, PIECE_BEFORE] = (
                start,
                before,
                start,
                before,
            )
            numbers[k, RUN_HAS_BEFORE], numbers[k, PIECE_HAS_BEFORE] = has_before, has_before
            numbers[k, RUN_COUNT], numbers[k, PIECE_ROWS], numbers[k, RUN_CERTAIN] = rows, rows, 1 if long else 0
            numbers[k, PIECE_PART], numbers[k, PIECE_SENT_ROWS] = 0, 0
    return done

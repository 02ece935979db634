"""Runs of many keys whose rows come mixed, in order of time: nothing has to be put in order of keys first."""

from __future__ import annotations

from typing import Any

from panewise.kernel import segmenting as sg
from panewise.kernel.compiled import compiled
from panewise.kernel.folds import add_row
from panewise.kernel.runs import hidden_row
from panewise.kernel.runstate import (
    APART,
    BETWEEN,
    FALLING,
    GAP_LENGTH,
    LAST,
    LATEST,
    NEXT_ID,
    PIECE,
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
    SEED,
    SEEN,
    SPLIT,
)
from panewise.kernel.segmenting import (
    ALL,
    EVERY,
    EXTENT,
    HAS_MIN,
    INVISIBLE,
    MIN_DURATION,
    MIN_ROWS,
    NEUTRAL,
    OBSERVED,
    POSSIBLE,
)
from panewise.kernel.spans import span_at_least

__all__ = ["mixed_page"]


@compiled
def mixed_page(
    at: Any, codes: Any, values: Any, groups: Any, slots: Any, whole: Any, measured: Any, inputs: Any,
    ats: Any, numbers: Any, previous: Any, ff: Any, fi: Any, records: Any,
) -> Any:  # fmt: skip
    """Take a page, where runs are simple (`plainruns.is_simple`); `groups` says of which group each row is.

    slots[g] is the slot of group g. No key has two rows at one instant, and none ends. Returns the records and how many
    there are.
    """
    records = sg.grow(records, len(at) + 1)
    bounds, marks, record_ff, record_fi = records
    split, width, folding = whole[SPLIT], previous.shape[1], len(inputs[0]) > 0
    extent, least, bounded, shortest = whole[EXTENT], whole[MIN_ROWS], whole[HAS_MIN] != 0, measured[MIN_DURATION]
    done, x = 0, 0.0
    for i in range(len(at)):
        code, g = codes[i], groups[i]
        k, t = slots[g], at[i]
        if code == INVISIBLE:
            if folding:
                hidden_row(ats[k], numbers[k], ff[k], fi[k], extent, 0, measured[EVERY], t, inputs, i)
            continue
        if width:
            x = values[0, i]
        is_open = numbers[k, RUN_OPEN] != 0
        member = code > NEUTRAL or (code == NEUTRAL and is_open)
        goes_on = is_open and member
        if goes_on and split:
            if split == RISING:
                goes_on = x > previous[k, 0]
            elif split == FALLING:
                goes_on = x < previous[k, 0]
            elif split == APART:
                goes_on = not span_at_least(ats[k, LAST], t, measured[GAP_LENGTH])
            else:
                goes_on = x == previous[k, 0]
        if goes_on:
            numbers[k, RUN_COUNT] += 1
        elif is_open:
            rows, last = numbers[k, RUN_COUNT], ats[k, LAST]
            numbers[k, RUN_OPEN] = 0
            reaches_back = extent == POSSIBLE and numbers[k, RUN_HAS_BEFORE] != 0
            first, end = ats[k, RUN_BEFORE if reaches_back else RUN_START], last if extent == OBSERVED else t
            if rows >= least and (not bounded or span_at_least(first, end, shortest)):
                bounds[done, 0] = first
                bounds[done, 1] = end
                marks[done, 0] = g
                marks[done, 1] = (0 if reaches_back else sg.START_INCLUDED) | (
                    sg.END_INCLUDED if extent == OBSERVED else 0
                )
                marks[done, 2] = rows
                marks[done, 3] = numbers[k, NEXT_ID]
                marks[done, 4] = 0
                if folding:
                    fold = PIECE + sg.closing_fold(extent, numbers[k, BETWEEN], True, t, ats[k, LATEST], False)
                    record_ff[done] = ff[k, fold]
                    record_fi[done] = fi[k, fold]
                numbers[k, NEXT_ID] += 1
                done += 1
        if member and not goes_on:
            numbers[k, RUN_OPEN], numbers[k, RUN_COUNT], numbers[k, RUN_HAS_BEFORE] = 1, 1, numbers[k, SEEN]
            ats[k, RUN_START], ats[k, RUN_BEFORE] = t, ats[k, LAST]
            if folding:
                sg.start_fold(
                    ff[k, PIECE:], fi[k, PIECE:], ff[k, SEED], fi[k, SEED], extent, numbers[k, SEEN],
                    numbers[k, BETWEEN], t, ats[k, LATEST],
                )  # fmt: skip
        if folding:
            if member:
                add_row(ff[k, PIECE + ALL], fi[k, PIECE + ALL], inputs, i)
            numbers[k, BETWEEN] = 0
        numbers[k, SEEN] = 1
        ats[k, LAST] = t
        if width:
            previous[k, 0] = x
    _settle(slots, whole, measured, ats, numbers)
    return records, done


@compiled
def _settle(slots: Any, whole: Any, measured: Any, ats: Any, numbers: Any) -> None:
    """What follows of runs that are open, which nothing before looks at: they have one piece."""
    for g in range(len(slots)):
        k = slots[g]
        if not numbers[k, RUN_OPEN]:
            continue
        ats[k, PIECE_START], ats[k, PIECE_BEFORE] = ats[k, RUN_START], ats[k, RUN_BEFORE]
        numbers[k, PIECE_HAS_BEFORE], numbers[k, PIECE_ROWS] = numbers[k, RUN_HAS_BEFORE], numbers[k, RUN_COUNT]
        numbers[k, PIECE_PART], numbers[k, PIECE_SENT_ROWS] = 0, 0
        reaches_back = whole[EXTENT] == POSSIBLE and numbers[k, RUN_HAS_BEFORE] != 0
        first = ats[k, RUN_BEFORE if reaches_back else RUN_START]
        numbers[k, RUN_CERTAIN] = sg.long_enough(whole, measured, first, ats[k, LAST], numbers[k, RUN_COUNT])

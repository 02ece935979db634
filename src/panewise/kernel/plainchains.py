"""Chains of frames that a move or a sum alone ends, faster: frame by frame, and of sums in scalars."""

from __future__ import annotations

from typing import Any

from panewise.kernel import folds
from panewise.kernel import segmenting as sg
from panewise.kernel.chainstate import (
    BEFORE,
    CHAINED,
    DECIDED,
    FLAGS,
    HAS_BEFORE,
    INCLUDE,
    LAST,
    NEXT_ID,
    OPEN,
    PART,
    PLACEMENT,
    ROWS,
    SEEN,
    SENT,
    SENT_ROWS,
    SOLO,
    START,
    STATUS,
)
from panewise.kernel.compiled import compiled
from panewise.kernel.progressions import COUNT, DELTA_FIRST, DELTA_RANGE, SUM, begin, passes
from panewise.kernel.segmenting import (
    ALL,
    BREAKS,
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
    OBSERVED,
    OPENING,
    POSSIBLE,
)
from panewise.kernel.spans import span_at_least

__all__ = ["is_plain", "plain_page", "plain_rows"]


@compiled
def is_plain(whole: Any, kind: Any, width: Any) -> bool:
    """Whether one frame follows another, and the move of a value, or a sum, alone ends it: `plain_rows` will do."""
    measure = kind == SUM or kind == COUNT if whole[INCLUDE] else kind <= DELTA_FIRST and width == 1
    return (
        measure
        and whole[PLACEMENT] == CHAINED
        and whole[MISSING] != BREAKS
        and not whole[HAS_MAX]
        and whole[MAX_ROWS] == 0
        and not whole[LONGEST]
        and whole[EMIT] == FINAL
    )


@compiled
def _moving(
    i: Any, stop: Any, at: Any, codes: Any, values: Any, low: Any, high: Any, ranged: Any, limit: Any, strict: Any,
    rows: Any, last: Any, skips: Any,
) -> Any:  # fmt: skip
    """The first row with which a value has moved too far, from i on, and what it has moved before."""
    while i < stop:
        if codes[i] != OPENING:
            if skips and codes[i] == INVISIBLE:
                i += 1
                continue
            break
        x = values[0, i]
        lower, higher = low, abs(x - low)
        moved = higher
        if ranged:
            lower, higher = min(low, x), max(high, x)
            moved = higher - lower
        if moved > limit or (moved == limit and not strict):
            break
        low, high, last = lower, higher, at[i]
        rows += 1
        i += 1
    return i, low, high, rows, last


@compiled
def _summing(
    i: Any, stop: Any, at: Any, codes: Any, values: Any, total: Any, terms: Any, counts: Any, limit: Any, strict: Any,
    rows: Any, last: Any, skips: Any, decided: Any, start: Any, observed: Any, least: Any, longest: Any, bounded: Any,
) -> Any:  # fmt: skip
    """The first row, from i on, before which a minimal frame is complete; the sum, and whether its last row passed."""
    while i < stop:
        if codes[i] != OPENING:
            if skips and codes[i] == INVISIBLE:
                i += 1
                continue
            break
        t = at[i]
        if decided and rows >= least and (not bounded or span_at_least(start, last if observed else t, longest)):
            break
        if counts:
            total += 1.0
        else:
            total += values[0, i]
            terms += 1.0
        decided = total > limit or (total == limit and not strict)
        rows += 1
        last = t
        i += 1
    return i, total, terms, rows, last, decided


@compiled
def _fold_rows(ff: Any, fi: Any, inputs: Any, i: Any, stop: Any) -> None:
    while i < stop:
        folds.add_row(ff, fi, inputs, i)
        i += 1


@compiled
def _plain_close(
    records: Any, done: Any, g: Any, frames: Any, base: Any, s: Any, last: Any, t: Any, whole: Any, measured: Any
) -> Any:
    """Report a frame that ends before a row at t, if it is long enough."""
    bounds, marks, record_ff, record_fi = records
    fa, fn, _, ff, fi = frames
    reaches_back = whole[EXTENT] == POSSIBLE and fn[base, HAS_BEFORE] != 0
    observed = whole[EXTENT] == OBSERVED
    first, end = fa[base, BEFORE] if reaches_back else fa[base, START], last if observed else t
    if not (whole[INCLUDE] or sg.long_enough(whole, measured, first, end, fn[base, ROWS])):
        return done
    bounds[done, 0] = first
    bounds[done, 1] = end
    marks[done, 0] = g
    marks[done, 1] = (0 if reaches_back else sg.START_INCLUDED) | (sg.END_INCLUDED if observed else 0)
    marks[done, 2] = fn[base, ROWS]
    marks[done, 3] = s[NEXT_ID]
    marks[done, 4] = 0
    if ff.shape[2] > 0:
        record_ff[done] = ff[base, ALL]
        record_fi[done] = fi[base, ALL]
    s[NEXT_ID] += 1
    return done + 1


@compiled
def _sum_frames(
    i: Any, stop: Any, g: Any, done: Any, at: Any, codes: Any, values: Any, bounds: Any, marks: Any, counts: Any,
    limit: Any, strict: Any, extent: Any, least: Any, longest: Any, bounded: Any, is_open: Any, start: Any, before: Any,
    has_before: Any, rows: Any, decided: Any, total: Any, terms: Any, last: Any, seen: Any, next_id: Any,
) -> Any:  # fmt: skip
    """Frames of sums, one after another, that aggregate nothing; what is under way is in scalars, and comes back."""
    room = len(marks) - 4
    while i < stop:
        if codes[i] != OPENING:
            if codes[i] == INVISIBLE:
                i += 1
                continue
            break
        t = at[i]
        if is_open and decided and rows >= least:
            reaches_back = extent == POSSIBLE and has_before != 0
            first, end = before if reaches_back else start, last if extent == OBSERVED else t
            if not bounded or span_at_least(first, end, longest):
                if done > room:
                    break
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
                is_open = False
        if is_open:
            rows += 1
            if counts:
                total += 1.0
            else:
                total += values[0, i]
                terms += 1.0
        else:
            is_open = True
            start, before, has_before, rows = t, last, seen, 1
            total, terms = (1.0, 0.0) if counts else (values[0, i], values[0, i])
        decided = total > limit or (total == limit and not strict)
        last, seen = t, 1
        i += 1
    return i, done, is_open, start, before, has_before, rows, decided, total, terms, last, seen, next_id


@compiled
def _move_frames(
    i: Any, stop: Any, g: Any, done: Any, at: Any, codes: Any, values: Any, bounds: Any, marks: Any, ranged: Any,
    limit: Any, strict: Any, solo: Any, extent: Any, least: Any, longest: Any, bounded: Any, is_open: Any, start: Any,
    before: Any, has_before: Any, rows: Any, decided: Any, low: Any, high: Any, last: Any, seen: Any, next_id: Any,
) -> Any:  # fmt: skip
    """Frames of moves, as `_sum_frames`."""
    while i < stop:
        if codes[i] != OPENING:
            if codes[i] == INVISIBLE:
                i += 1
                continue
            break
        t, x = at[i], values[0, i]
        if is_open:
            lower, higher = low, abs(x - low)
            moved = higher
            if ranged:
                lower, higher = min(low, x), max(high, x)
                moved = higher - lower
            if decided or moved > limit or (moved == limit and not strict):
                reaches_back = extent == POSSIBLE and has_before != 0
                first, end = before if reaches_back else start, last if extent == OBSERVED else t
                if rows >= least and (not bounded or span_at_least(first, end, longest)):
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
                is_open = False
            else:
                low, high = lower, higher
                rows += 1
                decided = False
        if not is_open:
            is_open = True
            start, before, has_before, rows = t, last, seen, 1
            low, high = x, x if ranged else 0.0
            decided = solo and (limit < 0.0 or (limit == 0.0 and not strict))
        last, seen = t, 1
        i += 1
    return i, done, is_open, start, before, has_before, rows, decided, low, high, last, seen, next_id


@compiled
def plain_page(
    form: Any, at: Any, codes: Any, values: Any, offsets: Any, slots: Any, whole: Any, measured: Any, ats: Any,
    numbers: Any, bounds: Any, marks: Any, frames: Any, held: Any, held_at: Any, kept_at: Any,
) -> Any:  # fmt: skip
    """Take a page, where `is_plain`, nothing is aggregated and no key ends; there is room for all that may come.

    How many records there are, or -1 where some row is not plain: then nothing has changed.
    """
    kind, limits, strict = form
    for i in range(len(codes)):
        if codes[i] != OPENING and codes[i] != INVISIBLE:
            return -1
    done, base = 0, 0
    fa, fn, states = frames[0], frames[1], frames[2]
    ha, hn, held_states = held[0], held[1], held[2]
    for g in range(len(slots)):
        k, h = slots[g], held_at[g]
        is_open = held_at[g + 1] > h
        start, before, has_before, rows, decided, low, high = ats[k, LAST], ats[k, LAST], 0, 0, False, 0.0, 0.0
        if is_open:
            start, before, has_before, rows = ha[h, START], ha[h, BEFORE], hn[h, HAS_BEFORE], hn[h, ROWS]
            decided, low, high = hn[h, DECIDED] != 0, held_states[h, 0], held_states[h, 1]
        if whole[INCLUDE]:
            _, done, is_open, start, before, has_before, rows, decided, low, high, last, seen, next_id = _sum_frames(
                offsets[g], offsets[g + 1], g, done, at, codes, values, bounds, marks, kind == COUNT, limits[0], strict,
                whole[EXTENT], whole[MIN_ROWS], measured[MIN_DURATION], whole[HAS_MIN] != 0, is_open, start, before,
                has_before, rows, decided, low, high, ats[k, LAST], numbers[k, SEEN], numbers[k, NEXT_ID],
            )  # fmt: skip
        else:
            _, done, is_open, start, before, has_before, rows, decided, low, high, last, seen, next_id = _move_frames(
                offsets[g], offsets[g + 1], g, done, at, codes, values, bounds, marks, kind == DELTA_RANGE, limits[0],
                strict, whole[SOLO] != 0, whole[EXTENT], whole[MIN_ROWS], measured[MIN_DURATION], whole[HAS_MIN] != 0,
                is_open, start, before, has_before, rows, decided, low, high, ats[k, LAST], numbers[k, SEEN],
                numbers[k, NEXT_ID],
            )  # fmt: skip
        ats[k, LAST], numbers[k, SEEN], numbers[k, NEXT_ID] = last, seen, next_id
        if is_open:
            fa[base, START], fa[base, BEFORE], fa[base, SENT] = start, before, 0
            fn[base, HAS_BEFORE], fn[base, ROWS], fn[base, DECIDED] = has_before, rows, 1 if decided else 0
            fn[base, STATUS], fn[base, FLAGS], fn[base, PART], fn[base, SENT_ROWS] = OPEN, 0, 0, 0
            states[base, 0], states[base, 1] = low, high
            for c in range(2, states.shape[1]):
                states[base, c] = 0.0
            base += 1
        kept_at[g + 1] = base
    return done


@compiled
def plain_rows(
    i: Any, stop: Any, g: Any, done: Any, base: Any, count: Any, kind: Any, limits: Any, strict: Any,
    at: Any, codes: Any, values: Any, whole: Any, measured: Any, inputs: Any, a: Any, s: Any, records: Any, frames: Any,
) -> Any:  # fmt: skip
    """As `chain_rows`, for rows that may all start a frame; frame by frame: a call with arrays counts references."""
    include, folding = whole[INCLUDE], len(inputs[0]) > 0
    fa, fn, states, ff, fi = frames
    observed, counts = whole[EXTENT] == OBSERVED, kind == COUNT
    while i < stop and (codes[i] == OPENING or (codes[i] == INVISIBLE and not folding)):
        if done + 4 > len(records[1]):
            break
        if count == 0:
            if codes[i] == INVISIBLE:
                i += 1
                continue
            count = 1
            fa[base, START], fa[base, BEFORE] = at[i], a[LAST]
            fn[base, HAS_BEFORE], fn[base, ROWS], fn[base, STATUS], fn[base, FLAGS] = s[SEEN], 1, OPEN, 0
            fn[base, PART], fn[base, SENT_ROWS] = 0, 0
            for c in range(states.shape[1]):
                states[base, c] = 0.0
            begin(kind, states, base, values, i)
            fn[base, DECIDED] = passes(kind, limits, strict, states, base, values, i) if include or whole[SOLO] else 0
            if folding:
                folds.clear(ff[base, ALL], fi[base, ALL])
                folds.add_row(ff[base, ALL], fi[base, ALL], inputs, i)
            s[SEEN], a[LAST] = 1, at[i]
            i += 1
        first = i
        if include:
            reaches_back = whole[EXTENT] == POSSIBLE and fn[base, HAS_BEFORE] != 0
            start = fa[base, BEFORE] if reaches_back else fa[base, START]
            i, states[base, 0], states[base, 1], fn[base, ROWS], a[LAST], fn[base, DECIDED] = _summing(
                i, stop, at, codes, values, states[base, 0], states[base, 1], counts, limits[0], strict,
                fn[base, ROWS], a[LAST], not folding, fn[base, DECIDED] != 0, start, observed,
                whole[sg.MIN_ROWS], measured[sg.MIN_DURATION], whole[sg.HAS_MIN],
            )  # fmt: skip
        elif not fn[base, DECIDED]:
            i, states[base, 0], states[base, 1], fn[base, ROWS], a[LAST] = _moving(
                i, stop, at, codes, values, states[base, 0], states[base, 1], kind == DELTA_RANGE, limits[0], strict,
                fn[base, ROWS], a[LAST], not folding,
            )  # fmt: skip
        if folding:
            _fold_rows(ff[base, ALL], fi[base, ALL], inputs, first, i)
        if i < stop and codes[i] == OPENING:
            done = _plain_close(records, done, g, frames, base, s, a[LAST], at[i], whole, measured)
            count = 0
    return i, done, count

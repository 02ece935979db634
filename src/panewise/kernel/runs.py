"""The operator of runs: threshold, hysteresis, boundary, trend, session (rulings 7 to 9, 17 to 25).

One pass over rows in order, resumable at any row: all state is in arrays, one row of them per key.
"""

from __future__ import annotations

from typing import Any

from panewise.kernel import folds
from panewise.kernel import segmenting as sg
from panewise.kernel.compiled import compiled
from panewise.kernel.plainruns import is_plain, plain_page
from panewise.kernel.runstate import (
    APART,
    BETWEEN,
    CELLS,
    FALLING,
    GAP,
    GAP_BEFORE,
    GAP_HAS_BEFORE,
    GAP_LENGTH,
    GAP_OPEN,
    GAP_PART,
    GAP_ROWS,
    GAP_SENT,
    GAP_SENT_ROWS,
    GAP_START,
    GAPS,
    HAS_BEST,
    LAST,
    LATEST,
    NEXT_ID,
    PIECE,
    PIECE_BEFORE,
    PIECE_HAS_BEFORE,
    PIECE_PART,
    PIECE_ROWS,
    PIECE_SENT,
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
    STEADY,
)
from panewise.kernel.segmenting import (
    ALL,
    BREAKS,
    EMIT,
    EVERY,
    EXTENT,
    FINAL,
    FRAGMENTS,
    GAP_FLAG,
    HAS_MAX,
    INVISIBLE,
    LONGEST,
    MAX_DURATION,
    MAX_ROWS,
    MISSING,
    NEUTRAL,
    OBSERVED,
    POSSIBLE,
    SATISFIES,
)
from panewise.kernel.spans import missing_between, span_at_least, span_more_than

__all__ = ["hidden_row", "run_page"]


@compiled
def _splits(split: Any, before: Any, values: Any, i: Any, last: Any, at: Any, length: Any) -> Any:
    """Whether row i cannot be in one run with the visible row before it."""
    if split == CELLS:
        for d in range(values.shape[0]):
            if before[d] != values[d, i]:
                return True
        return False
    if split == RISING:
        return not values[0, i] > before[0]
    if split == FALLING:
        return not values[0, i] < before[0]
    if split == STEADY:
        return values[0, i] != before[0]
    if split == APART:
        return span_at_least(last, at, length)
    return False


@compiled
def _close_piece(
    records: Any, to: Any, group: Any, a: Any, s: Any, ff: Any, fi: Any, whole: Any, measured: Any,
    has_next: Any, following: Any, missed: Any, trailing: Any,
) -> None:  # fmt: skip
    extent = whole[EXTENT]
    end, end_in = sg.end_of(extent, a[LAST], has_next, following, missed, trailing, measured[EVERY])
    open_start = extent == POSSIBLE and s[PIECE_HAS_BEFORE]
    start = a[PIECE_BEFORE] if open_start else a[PIECE_START]
    start_in, rows = not open_start, s[PIECE_ROWS]
    if s[PIECE_PART] > 0:
        if end < a[PIECE_SENT]:
            end, end_in = a[PIECE_SENT], True
        if whole[EMIT] == FRAGMENTS:
            start, start_in, rows = a[PIECE_SENT], False, rows - s[PIECE_SENT_ROWS]
    slot = PIECE + sg.closing_fold(extent, s[BETWEEN], has_next, following, a[LATEST], missed)
    sg.write_record(records, to, group, start, start_in, end, end_in, 0, rows, s[PIECE_PART], ff[slot], fi[slot])


@compiled
def _run_passes(a: Any, s: Any, whole: Any, measured: Any, end: Any) -> bool:
    start = a[RUN_BEFORE] if whole[EXTENT] == POSSIBLE and s[RUN_HAS_BEFORE] else a[RUN_START]
    return sg.long_enough(whole, measured, start, end, s[RUN_COUNT])


@compiled
def _close_gap(
    records: Any, to: Any, group: Any, a: Any, s: Any, ff: Any, fi: Any, whole: Any, has_next: Any, following: Any
) -> None:
    extent = whole[EXTENT]
    end, end_in = sg.end_of(extent, a[LAST], has_next, following, False, 0, a[LAST])
    open_start = extent == POSSIBLE and s[GAP_HAS_BEFORE]
    start = a[GAP_BEFORE] if open_start else a[GAP_START]
    start_in, rows = not open_start, s[GAP_ROWS]
    if s[GAP_PART] > 0:
        if end < a[GAP_SENT]:
            end, end_in = a[GAP_SENT], True
        if whole[EMIT] == FRAGMENTS:
            start, start_in, rows = a[GAP_SENT], False, rows - s[GAP_SENT_ROWS]
    slot = GAP + sg.closing_fold(extent, s[BETWEEN], has_next, following, a[LATEST], False)
    sg.write_record(records, to, group, start, start_in, end, end_in, GAP_FLAG, rows, s[GAP_PART], ff[slot], fi[slot])


@compiled
def _commit(records: Any, done: Any, tentative: Any, longest: Any, s: Any) -> Any:
    done, s[HAS_BEST], s[NEXT_ID] = sg.commit(records, done, tentative, longest, s[HAS_BEST], s[NEXT_ID])
    return done, 0


@compiled
def _close_run(
    records: Any, done: Any, tentative: Any, group: Any, a: Any, s: Any, ff: Any, fi: Any, whole: Any, measured: Any,
    has_next: Any, following: Any, missed: Any, trailing: Any,
) -> Any:  # fmt: skip
    """Report the run if it meets the minimums, or leave its rows to the gap."""
    _close_piece(records, done + tentative, group, a, s, ff, fi, whole, measured, has_next, following, missed, trailing)
    s[RUN_OPEN] = 0
    s[RUN_COUNT] += trailing
    passes = s[RUN_CERTAIN]
    if not passes:
        end = sg.end_of(whole[EXTENT], a[LAST], has_next, following, missed, trailing, measured[EVERY])[0]
        passes = _run_passes(a, s, whole, measured, end)
    if not passes:
        s[GAP_OPEN] = whole[GAPS]
        return done
    s[GAP_OPEN] = 0
    return _commit(records, done, tentative + 1, whole[LONGEST], s)[0]


@compiled
def _start_gap(a: Any, s: Any, ff: Any, fi: Any, extent: Any, folding: Any, t: Any) -> None:
    a[GAP_START], a[GAP_BEFORE], s[GAP_HAS_BEFORE], s[GAP_ROWS] = t, a[LAST], s[SEEN], 0
    s[GAP_PART], s[GAP_SENT_ROWS] = 0, 0
    if folding:
        sg.start_fold(ff[GAP:], fi[GAP:], ff[SEED], fi[SEED], extent, s[SEEN], s[BETWEEN], t, a[LATEST])


@compiled
def _start_piece(a: Any, s: Any, ff: Any, fi: Any, extent: Any, folding: Any, t: Any) -> None:
    a[PIECE_START], a[PIECE_BEFORE], s[PIECE_HAS_BEFORE], s[PIECE_ROWS] = t, a[LAST], s[SEEN], 0
    s[PIECE_PART], s[PIECE_SENT_ROWS] = 0, 0
    if folding:
        sg.start_fold(ff[PIECE:], fi[PIECE:], ff[SEED], fi[SEED], extent, s[SEEN], s[BETWEEN], t, a[LATEST])


@compiled
def hidden_row(
    a: Any, s: Any, ff: Any, fi: Any, extent: Any, gaps: Any, every: Any, t: Any, inputs: Any, i: Any
) -> None:
    """Let an invisible row into every fold that it may belong to."""
    first = not s[BETWEEN]
    if s[RUN_OPEN]:
        sg.add_invisible(ff[PIECE:GAP], fi[PIECE:GAP], first, t, a[LATEST], a[LAST], every, inputs, i)
    if gaps and (s[GAP_OPEN] or s[RUN_OPEN]):
        sg.add_invisible(ff[GAP:], fi[GAP:], first, t, a[LATEST], a[LAST], every, inputs, i)
    sg.seed_row(ff[SEED], fi[SEED], extent, s[SEEN], first, t, a[LATEST], a[LAST], inputs, i)
    s[BETWEEN] = 1
    a[LATEST] = t


@compiled
def _rows(
    i: Any, stop: Any, g: Any, done: Any, tentative: Any, at: Any, codes: Any, values: Any, whole: Any, measured: Any,
    inputs: Any, a: Any, s: Any, before: Any, ff: Any, fi: Any, records: Any,
) -> Any:  # fmt: skip
    """Take rows i to stop of one key, as long as there is room for records: no array may change hands in this loop."""
    extent, missing, split, gaps = whole[EXTENT], whole[MISSING], whole[SPLIT], whole[GAPS]
    every = measured[EVERY]
    folding = len(inputs[0]) > 0
    room = len(records[1])
    while i < stop:
        t, code = at[i], codes[i]
        if code == INVISIBLE:
            if folding:
                hidden_row(a, s, ff, fi, extent, gaps, every, t, inputs, i)
            i += 1
            continue
        if done + tentative + 4 > room:
            break
        absent = missing_between(a[LAST], t, every) if missing and s[SEEN] else 0
        missed = missing == BREAKS and absent > 0
        trailing = absent if missing == SATISFIES else 0
        member = code > NEUTRAL or (code == NEUTRAL and s[RUN_OPEN] and not missed)
        goes_on = s[RUN_OPEN] and member and not missed
        if goes_on and split:
            goes_on = not _splits(split, before, values, i, a[LAST], t, measured[GAP_LENGTH])
        if s[RUN_OPEN] and not goes_on:
            done = _close_run(records, done, tentative, g, a, s, ff, fi, whole, measured, True, t, missed, trailing)
            tentative = 0
        if goes_on:
            if (whole[HAS_MAX] and span_more_than(a[PIECE_START], t, measured[MAX_DURATION])) or (
                s[PIECE_ROWS] == whole[MAX_ROWS]
            ):
                _close_piece(records, done + tentative, g, a, s, ff, fi, whole, measured, True, t, False, trailing)
                tentative += 1
                if s[RUN_CERTAIN]:
                    done, tentative = _commit(records, done, tentative, whole[LONGEST], s)
                _start_piece(a, s, ff, fi, extent, folding, t)
            s[RUN_COUNT] += 1 + absent
        elif member:
            if gaps and s[GAP_OPEN]:
                _close_gap(records, done, g, a, s, ff, fi, whole, True, t)
                tentative = 1
            elif gaps:
                _start_gap(a, s, ff, fi, extent, folding, t)
            s[RUN_OPEN], s[RUN_COUNT], s[RUN_CERTAIN] = 1, 1, 0
            a[RUN_START], a[RUN_BEFORE], s[RUN_HAS_BEFORE] = t, a[LAST], s[SEEN]
            _start_piece(a, s, ff, fi, extent, folding, t)
        elif gaps and not s[GAP_OPEN]:
            s[GAP_OPEN] = 1
            _start_gap(a, s, ff, fi, extent, folding, t)
        if member:
            s[PIECE_ROWS] += 1
            if folding:
                folds.add_row(ff[PIECE + ALL], fi[PIECE + ALL], inputs, i)
        if gaps and not (member and s[RUN_CERTAIN]):
            s[GAP_ROWS] += 1
            if folding:
                folds.add_row(ff[GAP + ALL], fi[GAP + ALL], inputs, i)
        s[SEEN], s[BETWEEN], a[LAST] = 1, 0, t
        for d in range(values.shape[0]):
            before[d] = values[d, i]
        if member and not s[RUN_CERTAIN] and _run_passes(a, s, whole, measured, t):
            s[RUN_CERTAIN] = 1
            done, tentative = _commit(records, done, tentative, whole[LONGEST], s)
        i += 1
    return i, done, tentative


@compiled
def _send_part(records: Any, done: Any, group: Any, a: Any, s: Any, ff: Any, fi: Any, whole: Any, measured: Any,
    flags: Any, until: Any, names: Any,
) -> Any:  # fmt: skip
    """Send what is new of the open piece or gap, if it is due; `names` says where its state lies."""
    at_start, at_before, at_sent, has_before, n_rows, n_part, n_sent, fold = names
    extent = whole[EXTENT]
    end, known = sg.part_end(whole, measured, a[LAST], until)
    fresh = s[n_rows] - s[n_sent]
    if not known or not sg.part_due(whole, measured, s[n_part], a[at_sent], end, fresh):
        return done
    open_start = extent == POSSIBLE and s[has_before]
    start, start_in, rows = a[at_before] if open_start else a[at_start], not open_start, s[n_rows]
    if whole[EMIT] == FRAGMENTS and s[n_part] > 0:
        start, start_in, rows = a[at_sent], False, fresh
    slot = fold + sg.part_fold(extent, s[BETWEEN])
    flags |= sg.PARTIAL_FLAG
    sg.write_record(records, done, group, start, start_in, end, True, flags, rows, s[n_part], ff[slot], fi[slot])
    records[1][done, 3] = s[NEXT_ID]
    s[n_part] += 1
    s[n_sent] = s[n_rows]
    a[at_sent] = end
    if whole[EMIT] == FRAGMENTS:
        sg.forget_sent(ff[fold:], fi[fold:], extent, s[BETWEEN])
    return done + 1


@compiled
def _advance(
    records: Any, done: Any, tentative: Any, group: Any, a: Any, s: Any, ff: Any, fi: Any, whole: Any, measured: Any,
    until: Any, soonest: Any,
) -> Any:  # fmt: skip
    """No row of the key comes at or before `until`: close what that ends, and send what is due."""
    if s[RUN_OPEN]:
        last = a[LAST]
        missed = sg.missed_by(whole, measured, last, until, soonest)
        apart = whole[SPLIT] == APART and span_at_least(last, max(soonest, last), measured[GAP_LENGTH])
        if (missed and whole[EXTENT] != POSSIBLE) or (apart and whole[EXTENT] == OBSERVED):
            done = _close_run(records, done, tentative, group, a, s, ff, fi, whole, measured, False, last, missed, 0)
            tentative = 0
    if whole[EMIT] == FINAL:
        return done, tentative
    if s[RUN_OPEN]:
        if not s[RUN_CERTAIN] and _run_passes(a, s, whole, measured, sg.sure_end(whole, measured, a[LAST], soonest)):
            s[RUN_CERTAIN] = 1
            done, tentative = _commit(records, done, tentative, False, s)
        if s[RUN_CERTAIN]:
            names = (PIECE_START, PIECE_BEFORE, PIECE_SENT, PIECE_HAS_BEFORE, PIECE_ROWS, PIECE_PART,
                     PIECE_SENT_ROWS, PIECE)  # fmt: skip
            done = _send_part(records, done, group, a, s, ff, fi, whole, measured, 0, until, names)
    elif whole[GAPS] and s[GAP_OPEN]:
        names = (GAP_START, GAP_BEFORE, GAP_SENT, GAP_HAS_BEFORE, GAP_ROWS, GAP_PART, GAP_SENT_ROWS, GAP)
        done = _send_part(records, done, group, a, s, ff, fi, whole, measured, GAP_FLAG, until, names)
    return done, tentative


@compiled
def run_page(
    at: Any, codes: Any, values: Any, offsets: Any, slots: Any, ends: Any, told: Any, until: Any, soonest: Any,
    waiting: Any, whole: Any, measured: Any,
    inputs: Any, ats: Any, numbers: Any, previous: Any, all_ff: Any, all_fi: Any, records: Any, carried: Any,
) -> Any:  # fmt: skip
    """Take a page; group g is rows offsets[g] to offsets[g + 1] of the key in slot slots[g]; ends[g] ends its stream.

    Where told[g], no further row of it comes at or before until[g]: the next comes at soonest[g] or later.

    `carried[waiting[g]:waiting[g + 1]]` are the records that wait for the group's rows. Returns the records and
    how many there are.
    """
    done = 0
    if is_plain(whole, inputs, len(values)) and waiting[-1] == 0 and (whole[SPLIT] != APART or not told.any()):
        records = sg.grow(records, len(at) + len(slots) + 4)
        return records, plain_page(
            at, codes, values, offsets, slots, ends, whole, measured, ats, numbers, previous, records[0], records[1]
        )
    for g in range(len(slots)):
        k = slots[g]
        a, s, ff, fi = ats[k], numbers[k], all_ff[k], all_fi[k]
        first = done
        tentative = waiting[g + 1] - waiting[g]
        records = sg.grow(records, done + tentative + 4)
        sg.load(records, done, g, carried, waiting[g], tentative)
        if s[HAS_BEST]:
            done += 1
            tentative -= 1
        i = offsets[g]
        while i < offsets[g + 1]:
            i, done, tentative = _rows(
                i, offsets[g + 1], g, done, tentative, at, codes, values, whole, measured,
                inputs, a, s, previous[k], ff, fi, records,
            )  # fmt: skip
            records = sg.grow(records, done + tentative + 4)
        if told[g] and not ends[g]:
            done, tentative = _advance(
                records, done, tentative, g, a, s, ff, fi, whole, measured, until[g], soonest[g]
            )  # fmt: skip
        if ends[g]:
            missed = whole[MISSING] == BREAKS
            if s[RUN_OPEN]:
                done = _close_run(records, done, tentative, g, a, s, ff, fi, whole, measured, False, a[LAST], missed, 0)
            if whole[GAPS] and s[GAP_OPEN]:
                _close_gap(records, done, g, a, s, ff, fi, whole, False, a[LAST])
                done, _ = _commit(records, done, 1, False, s)
            a[:] = 0
            s[:] = 0
        done = sg.settle(records, first, done, tentative, whole[LONGEST], ends[g])
    return records, done

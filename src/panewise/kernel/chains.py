"""The operator of chains: delta, aggregate, custom; one open frame, or several that overlap (rulings 10 to 20, 25).

One pass over rows in order, resumable at any row. The open frames of a key lie in order of their starts in `frames`;
a frame that closed while an earlier one is open waits there too, because ids follow starts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from panewise.kernel import folds
from panewise.kernel import segmenting as sg
from panewise.kernel.chainstate import (
    BEFORE,
    BETWEEN,
    CLOSE,
    CLOSED,
    CONTINUE,
    DECIDED,
    DROP,
    FLAGS,
    GONE,
    HAS_BEFORE,
    HAS_BEST,
    INCLUDE,
    LAST,
    LATEST,
    N_FRAME_ATS,
    N_FRAME_INTS,
    NEXT_ID,
    OPEN,
    PART,
    PLACEMENT,
    REMAINDER,
    ROWS,
    SATURATED,
    SEEN,
    SENT,
    SENT_ROWS,
    SOLO,
    START,
    STATUS,
)
from panewise.kernel.compiled import compiled
from panewise.kernel.plainchains import is_plain, plain_page, plain_rows
from panewise.kernel.progressions import add, begin, breaks, passes
from panewise.kernel.segmenting import (
    ALL,
    BREAKS,
    EMIT,
    EVERY,
    EXTENT,
    FINAL,
    FRAGMENTS,
    HAS_MAX,
    HELD,
    INVISIBLE,
    LONGEST,
    MAX_DURATION,
    MAX_ROWS,
    MISSING,
    OPENING,
    OUT,
    POSSIBLE,
    REMAINDER_FLAG,
)
from panewise.kernel.spans import missing_between, span_more_than

__all__ = ["chain_page", "chain_rows"]

# why a frame closes
STAYS, COMPLETE, STOPPED, BROKEN, OVERLAPPED = range(5)


@compiled
def _grow_frames(frames: Any, needed: Any) -> Any:
    fa, fn, states, ff, fi = frames
    n = len(fn)
    if needed <= n:
        return frames
    room = max(2 * n, needed)
    more = (
        np.empty((room, N_FRAME_ATS), fa.dtype),
        np.empty((room, N_FRAME_INTS), np.int64),
        np.empty((room, states.shape[1]), np.float64),
        np.empty((room, ff.shape[1], ff.shape[2], 3), np.float64),
        np.empty((room, fi.shape[1], fi.shape[2], 2), np.int64),
    )
    more[0][:n] = fa
    more[1][:n] = fn
    more[2][:n] = states
    more[3][:n] = ff
    more[4][:n] = fi
    return more


@compiled
def _move_frame(frames: Any, to: Any, source: Any, f: Any) -> None:
    frames[0][to] = source[0][f]
    frames[1][to] = source[1][f]
    frames[2][to] = source[2][f]
    frames[3][to] = source[3][f]
    frames[4][to] = source[4][f]


@compiled
def _bounds(
    fa: Any, fn: Any, f: Any, a: Any, whole: Any, measured: Any, has_next: Any, following: Any, missed: Any
) -> Any:
    """Start, end and flags of frame f if it closed now."""
    open_start = whole[EXTENT] == POSSIBLE and fn[f, HAS_BEFORE]
    start = fa[f, BEFORE] if open_start else fa[f, START]
    end, end_in = sg.end_of(whole[EXTENT], a[LAST], has_next, following, missed, 0, measured[EVERY])
    return start, end, (0 if open_start else sg.START_INCLUDED) | (sg.END_INCLUDED if end_in else 0)


@compiled
def _close(
    frames: Any, f: Any, why: Any, a: Any, s: Any, whole: Any, measured: Any, has_next: Any, following: Any, missed: Any
) -> None:
    """Give a frame its bounds and its fold, and say whether it will be reported."""
    fa, fn = frames[0], frames[1]
    start, end, flags = _bounds(fa, fn, f, a, whole, measured, has_next, following, missed)
    report = True
    if whole[INCLUDE]:
        if why == BROKEN:
            report = whole[REMAINDER] == 1
            flags |= REMAINDER_FLAG
    else:
        # what has sent parts was certain, and is not taken back
        report = fn[f, PART] > 0 or sg.long_enough(whole, measured, start, end, fn[f, ROWS])
    if fn[f, PART] > 0:
        if end < fa[f, SENT]:
            end, flags = fa[f, SENT], flags | sg.END_INCLUDED
        if whole[EMIT] == FRAGMENTS:
            start, flags = fa[f, SENT], flags & ~sg.START_INCLUDED
            fn[f, ROWS] -= fn[f, SENT_ROWS]
    fn[f, STATUS] = CLOSED if report else GONE
    fn[f, FLAGS] = flags
    slot = sg.closing_fold(whole[EXTENT], s[BETWEEN], has_next, following, a[LATEST], missed)
    if slot != ALL:
        folds.copy(frames[3][f, ALL], frames[4][f, ALL], frames[3][f, slot], frames[4][f, slot])
    fa[f, 0] = start
    fa[f, 1] = end


@compiled
def _completed(
    fa: Any, fn: Any, f: Any, a: Any, whole: Any, measured: Any, has_next: Any, following: Any, missed: Any
) -> bool:
    """Whether minimal frame f was complete with its last row."""
    if not fn[f, DECIDED]:
        return False
    start, end, _ = _bounds(fa, fn, f, a, whole, measured, has_next, following, missed)
    return sg.long_enough(whole, measured, start, end, fn[f, ROWS])


@compiled
def _weed(frames: Any, base: Any, count: Any, include: Any) -> None:
    """Saturated: of frames that closed at one row, drop those inside another or containing another."""
    fn = frames[1]
    if not include:
        for f in range(base + 1, base + count):
            if fn[f, STATUS] == CLOSED:
                fn[f, STATUS] = GONE
        return
    innermost = base - 1
    for f in range(base, base + count):
        if fn[f, STATUS] == CLOSED:
            innermost = f
    for f in range(base, innermost):
        fn[f, STATUS] = GONE


@compiled
def _flush(frames: Any, base: Any, count: Any, records: Any, done: Any, group: Any, s: Any, longest: Any) -> Any:
    """Report closed frames up to the first that is open, and close ranks."""
    fa, fn, _, ff, fi = frames
    kept = 0
    blocked = False
    for f in range(base, base + count):
        status = fn[f, STATUS]
        if status == GONE:
            continue
        if status == CLOSED and not blocked:
            sg.write_record(
                records,
                done,
                group,
                fa[f, 0],
                False,
                fa[f, 1],
                False,
                fn[f, FLAGS],
                fn[f, ROWS],
                fn[f, PART],
                ff[f, ALL],
                fi[f, ALL],
            )
            done, s[HAS_BEST], s[NEXT_ID] = sg.commit(records, done, 1, longest, s[HAS_BEST], s[NEXT_ID])
            continue
        blocked = blocked or status == OPEN
        if base + kept != f:
            _move_frame(frames, base + kept, frames, f)
        kept += 1
    return kept, done


@compiled
def chain_rows(
    i: Any, stop: Any, g: Any, done: Any, base: Any, count: Any, kind: Any, limits: Any, strict: Any, scratch: Any,
    at: Any, codes: Any, values: Any, whole: Any, measured: Any, inputs: Any, a: Any, s: Any,
    seed_ff: Any, seed_fi: Any, records: Any, frames: Any,
) -> Any:  # fmt: skip
    """Take rows i to stop of one key, as long as there is room: no array may change hands in this loop."""
    extent, missing, include, placement = whole[EXTENT], whole[MISSING], whole[INCLUDE], whole[PLACEMENT]
    every = measured[EVERY]
    folding = len(inputs[0]) > 0
    overlapping = placement >= CONTINUE
    fa, fn, states, ff, fi = frames
    frame_room, room = len(fn), len(records[1])
    while i < stop:
        t, code = at[i], codes[i]
        if code == INVISIBLE:
            if folding:
                for f in range(base, base + count):
                    if fn[f, STATUS] == OPEN:
                        sg.add_invisible(ff[f], fi[f], not s[BETWEEN], t, a[LATEST], a[LAST], every, inputs, i)
                sg.seed_row(seed_ff, seed_fi, extent, s[SEEN], not s[BETWEEN], t, a[LATEST], a[LAST], inputs, i)
                s[BETWEEN] = 1
                a[LATEST] = t
            i += 1
            continue
        if base + count + 2 > frame_room or done + count + 4 > room:
            break
        missed = missing == BREAKS and s[SEEN] and missing_between(a[LAST], t, every) > 0
        closing = False
        for f in range(base, base + count):
            if fn[f, STATUS] != OPEN:
                continue
            why = STAYS
            if include:
                if fn[f, DECIDED] and _completed(fa, fn, f, a, whole, measured, True, t, missed):
                    why = COMPLETE
                elif missed or code == OUT:
                    why = BROKEN
            elif missed or code == OUT or fn[f, DECIDED] or breaks(kind, limits, strict, states, f, scratch, values, i):
                why = COMPLETE
            if why == STAYS:
                if (whole[HAS_MAX] and span_more_than(fa[f, START], t, measured[MAX_DURATION])) or (
                    fn[f, ROWS] == whole[MAX_ROWS]
                ):
                    why = STOPPED
                elif code == OPENING and (placement == CLOSE or placement == DROP):
                    why = OVERLAPPED
            if why != STAYS:
                closing = True
                _close(frames, f, why, a, s, whole, measured, True, t, missed)
                if why == OVERLAPPED and placement == DROP:
                    fn[f, STATUS] = GONE
        if closing:
            if placement == SATURATED:
                _weed(frames, base, count, include)
            count, done = _flush(frames, base, count, records, done, g, s, whole[LONGEST])
        for f in range(base, base + count):
            if fn[f, STATUS] != OPEN:
                continue
            fn[f, ROWS] += 1
            fn[f, DECIDED] = 0
            if include:
                add(kind, states, f, values, i)
                fn[f, DECIDED] = passes(kind, limits, strict, states, f, values, i)
            if folding:
                folds.add_row(ff[f, ALL], fi[f, ALL], inputs, i)
        if code == OPENING and (count == 0 or overlapping):
            f = base + count
            for c in range(states.shape[1]):
                states[f, c] = 0.0
            if begin(kind, states, f, values, i):
                count += 1
                fa[f, START], fa[f, BEFORE] = t, a[LAST]
                fn[f, HAS_BEFORE], fn[f, ROWS], fn[f, STATUS], fn[f, FLAGS] = s[SEEN], 1, OPEN, 0
                fn[f, DECIDED], fn[f, PART], fn[f, SENT_ROWS] = 0, 0, 0
                if include or whole[SOLO]:
                    fn[f, DECIDED] = passes(kind, limits, strict, states, f, values, i)
                if folding:
                    sg.start_fold(ff[f], fi[f], seed_ff, seed_fi, extent, s[SEEN], s[BETWEEN], t, a[LATEST])
                    folds.add_row(ff[f, ALL], fi[f, ALL], inputs, i)
        s[SEEN], s[BETWEEN], a[LAST] = 1, 0, t
        i += 1
    return i, done, count


@compiled
def _ended_by(frames: Any, f: Any, a: Any, whole: Any, measured: Any, until: Any, soonest: Any) -> int:
    """Why progress alone ends a frame, whatever row comes next; STAYS where the next one still decides."""
    fa, fn = frames[0], frames[1]
    extent, last = whole[EXTENT], a[LAST]
    missed = sg.missed_by(whole, measured, last, until, soonest)
    if extent == POSSIBLE or (extent == HELD and not missed):
        return STAYS
    if whole[INCLUDE]:
        if _completed(fa, fn, f, a, whole, measured, False, last, missed):
            return STAYS if whole[PLACEMENT] == SATURATED and not missed else COMPLETE
        # a maximum stops a minimal frame only if there is a next row (ruling 12)
        return BROKEN if missed else STAYS
    if missed:
        return COMPLETE
    if whole[PLACEMENT] == SATURATED:
        return STAYS
    if fn[f, DECIDED]:
        return COMPLETE
    if (whole[HAS_MAX] and span_more_than(fa[f, START], max(soonest, last), measured[MAX_DURATION])) or (
        fn[f, ROWS] == whole[MAX_ROWS]
    ):
        return STOPPED
    return STAYS


@compiled
def _send_parts(
    frames: Any, base: Any, count: Any, records: Any, done: Any, group: Any, a: Any, s: Any, whole: Any, measured: Any,
    until: Any, soonest: Any,
) -> Any:  # fmt: skip
    """Send what is new of the open frames that are certain, in order: one that is not holds back those behind it."""
    fa, fn, _, ff, fi = frames
    extent = whole[EXTENT]
    end, known = sg.part_end(whole, measured, a[LAST], until)
    sure = sg.sure_end(whole, measured, a[LAST], soonest)
    for f in range(base, base + count):
        if fn[f, STATUS] != OPEN:
            continue
        open_start = extent == POSSIBLE and fn[f, HAS_BEFORE]
        start = fa[f, BEFORE] if open_start else fa[f, START]
        if not sg.long_enough(whole, measured, start, sure, fn[f, ROWS]):
            break
        fresh = fn[f, ROWS] - fn[f, SENT_ROWS]
        if known and sg.part_due(whole, measured, fn[f, PART], fa[f, SENT], end, fresh):
            start_in, rows = not open_start, fn[f, ROWS]
            if whole[EMIT] == FRAGMENTS and fn[f, PART] > 0:
                start, start_in, rows = fa[f, SENT], False, fresh
            slot = sg.part_fold(extent, s[BETWEEN])
            sg.write_record(
                records, done, group, start, start_in, end, True, sg.PARTIAL_FLAG, rows, fn[f, PART],
                ff[f, slot], fi[f, slot],
            )  # fmt: skip
            records[1][done, 3] = s[NEXT_ID] + f - base
            done += 1
            fn[f, PART] += 1
            fn[f, SENT_ROWS] = fn[f, ROWS]
            fa[f, SENT] = end
            if whole[EMIT] == FRAGMENTS:
                sg.forget_sent(ff[f], fi[f], extent, s[BETWEEN])
        if whole[PLACEMENT] == SATURATED:
            break
    return done


@compiled
def _advance(
    frames: Any, base: Any, count: Any, records: Any, done: Any, group: Any, a: Any, s: Any, whole: Any, measured: Any,
    until: Any, soonest: Any,
) -> Any:  # fmt: skip
    """No row of the key comes at or before `until`: close what that ends, and send what is due."""
    fn = frames[1]
    closing = False
    for f in range(base, base + count):
        if fn[f, STATUS] == OPEN:
            why = _ended_by(frames, f, a, whole, measured, until, soonest)
            if why != STAYS:
                closing = True
                missed = sg.missed_by(whole, measured, a[LAST], until, soonest)
                _close(frames, f, why, a, s, whole, measured, False, a[LAST], missed)
    if closing:
        if whole[PLACEMENT] == SATURATED:
            _weed(frames, base, count, whole[INCLUDE])
        count, done = _flush(frames, base, count, records, done, group, s, whole[LONGEST])
    if whole[EMIT] != FINAL and not whole[INCLUDE] and whole[PLACEMENT] != DROP:
        done = _send_parts(frames, base, count, records, done, group, a, s, whole, measured, until, soonest)
    return count, done


@compiled
def chain_page(
    form: Any, at: Any, codes: Any, values: Any, offsets: Any, slots: Any, ends: Any,
    told: Any, until: Any, soonest: Any, waiting: Any,
    whole: Any, measured: Any, inputs: Any, ats: Any, numbers: Any, seeds_ff: Any, seeds_fi: Any,
    records: Any, carried: Any, frames: Any, held: Any, held_at: Any, kept_at: Any,
) -> Any:  # fmt: skip
    """Take a page; group g is rows offsets[g] to offsets[g + 1] of the key in slot slots[g]; ends[g] ends its stream.

    Where told[g], no further row of it comes at or before until[g]: the next comes at soonest[g] or later.
    `held[held_at[g]:held_at[g + 1]]` are the group's open frames, `carried[waiting[g]:waiting[g + 1]]` its waiting
    record. Returns the records, how many there are, and the frames that stay open (kept_at gives them by group).
    """
    include, placement = whole[INCLUDE], whole[PLACEMENT]
    kind, limits, strict = form
    plain = is_plain(whole, kind, len(values))
    if plain and len(inputs[0]) == 0 and waiting[-1] == 0 and not told.any() and not ends.any():
        records = sg.grow(records, len(at) + len(slots) + 4)
        frames = _grow_frames(frames, len(slots) + 2)
        done = plain_page(
            form, at, codes, values, offsets, slots, whole, measured, ats, numbers, records[0], records[1], frames,
            held, held_at, kept_at,
        )  # fmt: skip
        if done >= 0:
            return records, done, frames
    scratch = np.zeros((1, frames[2].shape[1]), np.float64)
    done = 0
    base = 0
    for g in range(len(slots)):
        k = slots[g]
        a, s = ats[k], numbers[k]
        first = done
        count = held_at[g + 1] - held_at[g]
        records = sg.grow(records, done + count + 4)
        frames = _grow_frames(frames, base + count + 2)
        sg.load(records, done, g, carried, waiting[g], waiting[g + 1] - waiting[g])
        done += waiting[g + 1] - waiting[g]
        for h in range(count):
            _move_frame(frames, base + h, held, held_at[g] + h)
        i = offsets[g]
        while i < offsets[g + 1]:
            if plain and not s[BETWEEN]:
                i, done, count = plain_rows(
                    i, offsets[g + 1], g, done, base, count, kind, limits, strict,
                    at, codes, values, whole, measured, inputs, a, s, records, frames,
                )  # fmt: skip
                records = sg.grow(records, done + count + 4)
            # of rows that are not plain, one at a time
            stop = min(i + 1, offsets[g + 1]) if plain else offsets[g + 1]
            i, done, count = chain_rows(
                i, stop, g, done, base, count, kind, limits, strict, scratch,
                at, codes, values, whole, measured, inputs, a, s, seeds_ff[k], seeds_fi[k], records, frames,
            )  # fmt: skip
            records = sg.grow(records, done + count + 4)
            frames = _grow_frames(frames, base + count + 2)
        if told[g] and not ends[g]:
            records = sg.grow(records, done + 2 * count + 4)
            count, done = _advance(
                frames, base, count, records, done, g, a, s, whole, measured, until[g], soonest[g]
            )  # fmt: skip
        if ends[g]:
            missed = whole[MISSING] == BREAKS
            fa, fn = frames[0], frames[1]
            for f in range(base, base + count):
                if fn[f, STATUS] == OPEN:
                    why = COMPLETE
                    if include and not _completed(fa, fn, f, a, whole, measured, False, a[LAST], missed):
                        why = BROKEN
                    _close(frames, f, why, a, s, whole, measured, False, a[LAST], missed)
            if placement == SATURATED:
                _weed(frames, base, count, include)
            count, done = _flush(frames, base, count, records, done, g, s, whole[LONGEST])
            a[:] = 0
            s[:] = 0
        done = sg.settle(records, first, done, 0, whole[LONGEST], ends[g])
        base += count
        kept_at[g + 1] = base
    return records, done, frames

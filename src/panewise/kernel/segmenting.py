"""What run and chain operators share: codes, bounds of a segment, its records, and the rows between visible ones.

A segment under way keeps its aggregates in folds, because what an invisible row belongs to is known only when
the next visible row comes (rulings 17 and 25): ALL rows so far; OWN, those up to the last visible row's `at`;
BELOW, those below the latest invisible row's `at`; MISSED, those before the next expected reading. A fifth, TAIL,
holds the invisible rows past the last visible one: what is left of ALL once a fragment has been sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from panewise.kernel import folds
from panewise.kernel.compiled import compiled
from panewise.kernel.spans import later, missing_between, span_at_least, span_no_shorter

__all__ = [
    "ALL",
    "BELOW",
    "BREAKS",
    "BRIDGED",
    "CARRIED",
    "EMIT",
    "END_INCLUDED",
    "EVERY",
    "EXTENT",
    "FINAL",
    "FRAGMENTS",
    "GAP_FLAG",
    "HAS_JITTER",
    "HAS_MAX",
    "HAS_MIN",
    "HELD",
    "IGNORED",
    "INVISIBLE",
    "LONGEST",
    "MAX_DURATION",
    "MAX_ROWS",
    "MEMBER",
    "MIN_DURATION",
    "MIN_ROWS",
    "MISSED",
    "MISSING",
    "NEUTRAL",
    "N_FOLDS",
    "N_MEASURED",
    "N_WHOLE",
    "OBSERVED",
    "OPENING",
    "OUT",
    "OWN",
    "PARTIAL_FLAG",
    "PART_EVERY",
    "PATIENCE",
    "POSSIBLE",
    "REMAINDER_FLAG",
    "SATISFIES",
    "START_INCLUDED",
    "TAIL",
    "UPDATES",
    "add_invisible",
    "closing_fold",
    "commit",
    "end_of",
    "forget_sent",
    "grow",
    "load",
    "long_enough",
    "missed_by",
    "part_due",
    "part_end",
    "part_fold",
    "seed_row",
    "settle",
    "start_fold",
    "sure_end",
    "write_record",
]  # fmt: skip

INVISIBLE, OUT, NEUTRAL, MEMBER, OPENING = range(5)
"""Row codes: hidden; in no frame and ending one; belongs if a frame is open; belongs; belongs and may start a frame."""

OBSERVED, HELD, POSSIBLE = range(3)
IGNORED, BREAKS, SATISFIES, BRIDGED = range(4)

FINAL, FRAGMENTS, UPDATES = range(3)
"""What is sent of a segment: its end result, its parts as they become certain, or all of it so far, again and again."""

# whole-number settings
EXTENT, MISSING, HAS_MIN, HAS_MAX, MIN_ROWS, MAX_ROWS, LONGEST, EMIT, HAS_JITTER = range(9)
N_WHOLE = 9
# settings measured in `at`; PATIENCE is the time from a row to when the next one counts as missing
MIN_DURATION, MAX_DURATION, EVERY, PATIENCE, PART_EVERY = range(5)
N_MEASURED = 5

ALL, OWN, BELOW, MISSED, TAIL = range(5)
N_FOLDS = 5

START_INCLUDED, END_INCLUDED, GAP_FLAG, REMAINDER_FLAG, CARRIED, PARTIAL_FLAG = 1, 2, 4, 8, 16, 32


@compiled
def end_of(extent: Any, last: Any, has_next: Any, following: Any, missed: Any, trailing: Any, every: Any) -> Any:
    """Where a segment ends, and whether that instant is included."""
    if extent == OBSERVED:
        if trailing > 0:
            return last + trailing * every, True
        return last, True
    if extent == HELD and missed:
        return later(last, every), False
    if has_next:
        return following, False
    return last, True


@compiled
def long_enough(whole: Any, measured: Any, start: Any, end: Any, rows: Any) -> bool:
    """Whether a segment meets its minimums."""
    if rows < whole[MIN_ROWS]:
        return False
    return not whole[HAS_MIN] or span_at_least(start, end, measured[MIN_DURATION])


@compiled
def add_invisible(
    ff: Any, fi: Any, first: Any, at: Any, latest: Any, last: Any, every: Any, inputs: Any, i: Any
) -> None:
    """Let an invisible row into the folds of a segment under way."""
    if first:
        for slot in range(1, TAIL):
            folds.copy(ff[slot], fi[slot], ff[ALL], fi[ALL])
        folds.clear(ff[TAIL], fi[TAIL])
    elif at > latest:
        folds.copy(ff[BELOW], fi[BELOW], ff[ALL], fi[ALL])
    folds.add_row(ff[ALL], fi[ALL], inputs, i)
    if at <= last:
        folds.add_row(ff[OWN], fi[OWN], inputs, i)
    else:
        folds.add_row(ff[TAIL], fi[TAIL], inputs, i)
    if not span_at_least(last, at, every):
        folds.add_row(ff[MISSED], fi[MISSED], inputs, i)


@compiled
def closing_fold(extent: Any, between: Any, has_next: Any, following: Any, latest: Any, missed: Any) -> int:
    """Which fold holds the rows within the bounds of a segment that closes now."""
    if not between:
        return ALL
    if extent == HELD and missed:
        return MISSED
    if extent == OBSERVED or not has_next:
        return OWN
    return ALL if following > latest else BELOW


@compiled
def missed_by(whole: Any, measured: Any, last: Any, until: Any, soonest: Any) -> Any:
    """Whether progress has passed the reading after `last`: it can't come any more, or its time and jitter are over."""
    if whole[MISSING] != BREAKS:
        return False
    if missing_between(last, soonest, measured[EVERY]) > 0:
        return True
    return whole[HAS_JITTER] == 1 and until > last and span_at_least(last, until, measured[PATIENCE])


@compiled
def sure_end(whole: Any, measured: Any, last: Any, soonest: Any) -> Any:
    """An instant that an open segment reaches at least: its last row, or the soonest that the next one can come."""
    if whole[EXTENT] == OBSERVED or soonest < last:
        return last
    if whole[EXTENT] == HELD and whole[MISSING] == BREAKS:
        return min(soonest, later(last, measured[EVERY]))
    return soonest


@compiled
def part_end(whole: Any, measured: Any, last: Any, until: Any) -> Any:
    """How far a part reaches that is sent now, and whether that is known: a missing reading may end a held one."""
    if whole[EXTENT] == OBSERVED or until < last:
        return last, True
    if whole[EXTENT] == HELD and whole[MISSING] == BREAKS and span_at_least(last, until, measured[EVERY]):
        return last, False
    return until, True


@compiled
def part_due(whole: Any, measured: Any, part: Any, part_end: Any, end: Any, rows: Any) -> Any:
    """Whether there is something new to send, and enough of it."""
    if part == 0:
        return True
    if end <= part_end and rows == 0:
        return False
    return span_at_least(part_end, end, measured[PART_EVERY])


@compiled
def part_fold(extent: Any, between: Any) -> int:
    """Which fold holds the rows of a part that is sent now."""
    return OWN if extent == OBSERVED and between else ALL


@compiled
def forget_sent(ff: Any, fi: Any, extent: Any, between: Any) -> None:
    """After a fragment: of the folds, only invisible rows past the last visible one are left, if it ended there."""
    if extent == OBSERVED and between:
        folds.copy(ff[ALL], fi[ALL], ff[TAIL], fi[TAIL])
        folds.clear(ff[OWN], fi[OWN])
        return
    for slot in range(min(TAIL, len(ff))):
        folds.clear(ff[slot], fi[slot])


@compiled
def seed_row(
    ff: Any, fi: Any, extent: Any, seen: Any, first: Any, at: Any, latest: Any, last: Any, inputs: Any, i: Any
) -> None:
    """Keep an invisible row for the segment that the next visible row may start."""
    reaches_back = extent == POSSIBLE and seen
    if first or (at > latest and not reaches_back):
        folds.clear(ff, fi)
    if not reaches_back or at > last:
        folds.add_row(ff, fi, inputs, i)


@compiled
def start_fold(
    ff: Any, fi: Any, seed_ff: Any, seed_fi: Any, extent: Any, seen: Any, between: Any, at: Any, latest: Any
) -> None:
    """Begin a segment's folds with the invisible rows before it that lie within its bounds."""
    if between and ((extent == POSSIBLE and seen) or at == latest):
        folds.copy(ff[ALL], fi[ALL], seed_ff, seed_fi)
    else:
        folds.clear(ff[ALL], fi[ALL])


@compiled
def write_record(
    records: Any, i: Any, group: Any, start: Any, start_in: Any, end: Any, end_in: Any, flags: Any, rows: Any,
    part: Any, ff: Any, fi: Any,
) -> None:  # fmt: skip
    """Put a segment into the record at i; its id is given when it is certain."""
    bounds, marks, record_ff, record_fi = records
    bounds[i, 0] = start
    bounds[i, 1] = end
    marks[i, 0] = group
    marks[i, 1] = flags | (START_INCLUDED if start_in else 0) | (END_INCLUDED if end_in else 0)
    marks[i, 2] = rows
    marks[i, 3] = -1
    marks[i, 4] = part
    record_ff[i] = ff
    record_fi[i] = fi


@compiled
def grow(records: Any, needed: Any) -> Any:
    """The same records with room for `needed`."""
    bounds, marks, ff, fi = records
    if needed <= len(marks):
        return records
    room = max(2 * len(marks), needed)
    more = (
        np.empty((room, 2), bounds.dtype),
        np.empty((room, 5), np.int64),
        np.empty((room, ff.shape[1], 3), np.float64),
        np.empty((room, fi.shape[1], 2), np.int64),
    )
    n = len(marks)
    more[0][:n] = bounds
    more[1][:n] = marks
    more[2][:n] = ff
    more[3][:n] = fi
    return more


@compiled
def load(records: Any, to: Any, group: Any, carried: Any, first: Any, count: Any) -> None:
    """Bring back records that waited for more rows of a key."""
    for w in range(count):
        records[0][to + w] = carried[0][first + w]
        records[1][to + w] = carried[1][first + w]
        records[1][to + w, 0] = group
        records[1][to + w, 1] &= ~CARRIED
        records[2][to + w] = carried[2][first + w]
        records[3][to + w] = carried[3][first + w]


@compiled
def commit(records: Any, done: Any, tentative: Any, longest: Any, has_best: Any, next_id: Any) -> Any:
    """Make the tentative records behind `done` certain: give them ids, or keep the best of all (just before `done`)."""
    bounds, marks, ff, fi = records
    if not longest:
        for i in range(done, done + tentative):
            marks[i, 3] = next_id
            next_id += 1
        return done + tentative, has_best, next_id
    for i in range(done, done + tentative):
        if has_best:
            best = done - 1
            start, end, best_start, best_end = bounds[i, 0], bounds[i, 1], bounds[best, 0], bounds[best, 1]
            if not span_no_shorter(start, end, best_start, best_end):
                continue
            if span_no_shorter(best_start, best_end, start, end) and marks[i, 2] <= marks[best, 2]:
                continue
        else:
            best = done
            done += 1
            has_best = 1
        if best != i:
            bounds[best] = bounds[i]
            marks[best] = marks[i]
            ff[best] = ff[i]
            fi[best] = fi[i]
    return done, has_best, next_id


@compiled
def settle(records: Any, first: Any, done: Any, tentative: Any, longest: Any, ended: Any) -> Any:
    """At the end of a key's rows in a page: finish its records, or mark those that wait for more rows."""
    marks = records[1]
    if ended:
        if longest and done > first:
            marks[done - 1, 3] = 0
        return done
    waiting_from = first if longest else done
    for i in range(waiting_from, done + tentative):
        marks[i, 1] |= CARRIED
    return done + tentative

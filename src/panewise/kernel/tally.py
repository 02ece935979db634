"""Aggregates that merge: what a segment keeps of rows that come from anywhere, in any order, in any pieces.

A fold (`kernel/folds.py`) takes rows in order. A tally does not care: sums are held to twice the digits of a float64,
or in 128 bits, so that the order in which rows are added does not show; first and last keep the `at` of their row, and
among rows of one `at` the least value is first and the largest last, null before all others. A tally of A aggregates
is float64 [A, 5] and int64 [A, 5]:

===============  ==============================  =========================================
kind             floats                          integers
===============  ==============================  =========================================
COUNT_ROWS, ..   -                               n
SUM_F, AVG       sum, and what it lacks          n
SUM_I            -                               n, sum: low 64 bits, high 64 bits
MIN_F, MAX_F     value                           n
MIN_I, MAX_I     -                               n, value
STDDEV           sum, lack; squares, lack; x0    n
FIRST_F, ..      value                           0 none, 1 value, 2 null; rank of its `at`
FIRST_I, ..      -                               the same; rank; value
===============  ==============================  =========================================

STDDEV holds distances from x0, one of its values: their squares are no larger than what is asked for, by much.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from panewise.kernel.compiled import compiled
from panewise.kernel.folds import (
    AVG,
    COUNT,
    COUNT_ROWS,
    FIRST_F,
    FIRST_I,
    LAST_F,
    LAST_I,
    MAX_F,
    MAX_I,
    MIN_F,
    MIN_I,
    OVERFLOWN,
    STDDEV,
    SUM_F,
    SUM_I,
)
from panewise.kernel.page import Array

__all__ = [
    "N_CELLS",
    "as_folds",
    "merge_into",
    "merge_runs",
    "ranks",
    "row_pairs",
    "tally_owned",
    "tally_ranges",
    "tally_rows",
    "used",
]

N_CELLS = 5
_PAIRS = 8192
"""How many pairs of rows and tallies are found before they are added: they stay in the processor's cache."""
_SPLIT = 134217729.0


_USED = {
    COUNT_ROWS: (0, 1),
    COUNT: (0, 1),
    SUM_F: (2, 1),
    AVG: (2, 1),
    SUM_I: (0, 3),
    MIN_F: (1, 1),
    MAX_F: (1, 1),
    MIN_I: (0, 2),
    MAX_I: (0, 2),
    STDDEV: (5, 1),
    FIRST_F: (1, 2),
    LAST_F: (1, 2),
    FIRST_I: (0, 3),
    LAST_I: (0, 3),
}
"""How many floats and integers each kind has, as in the table above."""


def used(kinds: Array) -> tuple[Array, Array]:
    """Which cells of a tally are used, of all aggregates one after another: floats, integers.

    >>> used(np.array([COUNT_ROWS, AVG]))
    (array([5, 6]), array([0, 5]))
    """
    floats, ints = (
        [a * N_CELLS + cell for a, kind in enumerate(kinds) for cell in range(_USED[int(kind)][which])]
        for which in range(2)
    )
    return np.array(floats, np.int64), np.array(ints, np.int64)


def ranks(at: Array) -> Array:
    """`at` as whole numbers in the same order.

    >>> ranks(np.array([-1.5, 0.0, 2.0])).argsort()
    array([0, 1, 2])
    """
    if at.dtype == np.int64:
        return at
    bits = np.asarray(at + 0.0, np.float64).view(np.int64)
    return np.where(bits < 0, np.iinfo(np.int64).max ^ bits, bits)


@compiled
def _add(high: Any, low: Any, x: Any) -> Any:
    """A sum of twice the digits, and x."""
    s = high + x
    if not np.isfinite(s):
        return s, 0.0
    b = s - high
    low += (high - (s - b)) + (x - b)
    total = s + low
    return total, low - (total - s)


@compiled
def _less(x: Any, y: Any) -> Any:
    """X - y, and what that lacks."""
    d = x - y
    if not np.isfinite(d):
        return d, 0.0
    b = d - x
    return d, (x - (d - b)) - (y + b)


@compiled
def _times(x: Any, y: Any) -> Any:
    """X * y, and what that lacks."""
    p = x * y
    c, d = _SPLIT * x, _SPLIT * y
    if not (np.isfinite(p) and np.isfinite(c) and np.isfinite(d)):
        return p, 0.0
    xh, yh = c - (c - x), d - (d - y)
    xl, yl = x - xh, y - yh
    return p, ((xh * yh - p) + xh * yl + xl * yh) + xl * yl


@compiled
def _add_both(tf: Any, cell: Any, x: Any, lack: Any) -> None:
    """Add a number of twice the digits to a sum."""
    tf[cell], tf[cell + 1] = _add(tf[cell], tf[cell + 1], x)
    tf[cell], tf[cell + 1] = _add(tf[cell], tf[cell + 1], lack)


@compiled
def _add_moved(tf: Any, x0: Any, n: Any, high: Any, low: Any) -> None:
    """Add to a spread what n values are further away that are known by their distances from x0: their sum is given."""
    d, e = _less(x0, tf[4])
    s, lack = _times(n, d)
    _add_both(tf, 0, s, lack + n * e)
    p, lack = _times(2.0 * d, high)
    _add_both(tf, 2, p, lack + 2.0 * (d * low + e * high))
    p, more = _times(d, d)
    q, lack = _times(n, p)
    _add_both(tf, 2, q, lack + n * (more + 2.0 * d * e))


@compiled
def _add_whole(low: Any, high: Any, more_low: Any, more_high: Any) -> Any:
    """128 bits and 128 bits."""
    after = np.uint64(low) + np.uint64(more_low)
    carry = 1 if after < np.uint64(low) else 0
    return np.int64(after), high + more_high + carry


@compiled
def _is_before(rank: Any, null: Any, value: Any, other_rank: Any, other_null: Any, other: Any) -> Any:
    """Whether a row comes before another: by `at`, then null, then by value."""
    if rank != other_rank:
        return rank < other_rank
    if null or other_null:
        return null and not other_null
    return value < other


@compiled
def _end_row(tf: Any, ti: Any, kind: Any, state: Any, rank: Any, real: Any, whole: Any) -> None:
    """Let a row be the first or the last, if it is."""
    floats = kind <= LAST_F
    if ti[0] != 0:
        null, other = state == 2, ti[0] == 2
        ahead = kind == FIRST_F or kind == FIRST_I
        if floats:
            before = _is_before(rank, null, real, ti[1], other, tf[0])
            after = _is_before(ti[1], other, tf[0], rank, null, real)
        else:
            before = _is_before(rank, null, whole, ti[1], other, ti[2])
            after = _is_before(ti[1], other, ti[2], rank, null, whole)
        if not (before if ahead else after):
            return
    ti[0], ti[1] = state, rank
    if floats:
        tf[0] = real
    else:
        ti[2] = whole


@compiled
def _add_pairs(tf: Any, ti: Any, owner: Any, row: Any, n: Any, inputs: Any, rank: Any) -> None:
    """Add row[j] to tally owner[j], one aggregate after another: to choose among them for each row costs more."""
    kinds, lanes, floats, ints, valid = inputs
    for a in range(len(kinds)):
        kind, lane = kinds[a], lanes[a]
        if kind == COUNT_ROWS:
            for j in range(n):
                ti[owner[j], a, 0] += 1
        elif kind == COUNT:
            for j in range(n):
                ti[owner[j], a, 0] += valid[a, row[j]]
        elif kind == SUM_F or kind == AVG:
            for j in range(n):
                s, i = owner[j], row[j]
                if valid[a, i]:
                    ti[s, a, 0] += 1
                    tf[s, a, 0], tf[s, a, 1] = _add(tf[s, a, 0], tf[s, a, 1], floats[lane, i])
        elif kind == SUM_I:
            for j in range(n):
                s, i = owner[j], row[j]
                if valid[a, i]:
                    ti[s, a, 0] += 1
                    term = ints[lane, i]
                    ti[s, a, 1], ti[s, a, 2] = _add_whole(ti[s, a, 1], ti[s, a, 2], term, term >> 63)
        elif kind == MIN_F or kind == MAX_F:
            sign = 1.0 if kind == MIN_F else -1.0
            for j in range(n):
                s, i = owner[j], row[j]
                if valid[a, i]:
                    if ti[s, a, 0] == 0 or sign * floats[lane, i] < sign * tf[s, a, 0]:
                        tf[s, a, 0] = floats[lane, i]
                    ti[s, a, 0] += 1
        elif kind == MIN_I or kind == MAX_I:
            for j in range(n):
                s, i = owner[j], row[j]
                if valid[a, i]:
                    x, y = ints[lane, i], ti[s, a, 1]
                    if ti[s, a, 0] == 0 or (x < y if kind == MIN_I else x > y):
                        ti[s, a, 1] = x
                    ti[s, a, 0] += 1
        elif kind == STDDEV:
            for j in range(n):
                s, i = owner[j], row[j]
                if valid[a, i]:
                    if ti[s, a, 0] == 0:
                        tf[s, a, 4] = floats[lane, i]
                    ti[s, a, 0] += 1
                    _add_moved(tf[s, a], floats[lane, i], 1.0, 0.0, 0.0)
        else:
            for j in range(n):
                s, i = owner[j], row[j]
                real, whole = 0.0, 0
                if kind <= LAST_F:
                    real = floats[lane, i]
                else:
                    whole = ints[lane, i]
                _end_row(tf[s, a], ti[s, a], kind, 1 if valid[a, i] else 2, rank[i], real, whole)


@compiled
def merge_into(tf: Any, ti: Any, kinds: Any, more_f: Any, more_i: Any) -> None:
    """Add one tally to another."""
    for a in range(len(kinds)):
        kind = kinds[a]
        if more_i[a, 0] == 0:
            continue
        if kind >= FIRST_F:
            _end_row(tf[a], ti[a], kind, more_i[a, 0], more_i[a, 1], more_f[a, 0], more_i[a, 2])
            continue
        n = ti[a, 0]
        ti[a, 0] = n + more_i[a, 0]
        if kind == SUM_F or kind == AVG or kind == STDDEV:
            _add_both(tf[a], 0, more_f[a, 0], more_f[a, 1])
            if kind == STDDEV:
                if n == 0:
                    tf[a, 4] = more_f[a, 4]
                _add_both(tf[a], 2, more_f[a, 2], more_f[a, 3])
                _add_moved(tf[a], more_f[a, 4], np.float64(more_i[a, 0]), more_f[a, 0], more_f[a, 1])
        elif kind == SUM_I:
            ti[a, 1], ti[a, 2] = _add_whole(ti[a, 1], ti[a, 2], more_i[a, 1], more_i[a, 2])
        elif kind == MIN_F:
            if n == 0 or more_f[a, 0] < tf[a, 0]:
                tf[a, 0] = more_f[a, 0]
        elif kind == MAX_F:
            if n == 0 or more_f[a, 0] > tf[a, 0]:
                tf[a, 0] = more_f[a, 0]
        elif kind == MIN_I:
            if n == 0 or more_i[a, 1] < ti[a, 1]:
                ti[a, 1] = more_i[a, 1]
        elif kind == MAX_I and (n == 0 or more_i[a, 1] > ti[a, 1]):
            ti[a, 1] = more_i[a, 1]


@compiled
def tally_ranges(tf: Any, ti: Any, first: Any, last: Any, inputs: Any, rank: Any) -> None:
    """Add rows first[s] to last[s] to tally s."""
    owner, row, n = np.empty(_PAIRS, np.int64), np.empty(_PAIRS, np.int64), 0
    for s in range(len(first)):
        for i in range(first[s], last[s]):
            owner[n], row[n] = s, i
            n += 1
            if n == _PAIRS:
                _add_pairs(tf, ti, owner, row, n, inputs, rank)
                n = 0
    _add_pairs(tf, ti, owner, row, n, inputs, rank)


@compiled
def tally_rows(tf: Any, ti: Any, rows: Any, edges: Any, bounds: Any, taken: Any) -> None:
    """Add each row, in whatever order they come, to the tallies that it lies in, and mark those.

    Those of slot k are edges[k] to edges[k + 1], sorted by the first of their bounds; rows of later slots have none.
    The third of the bounds is the furthest that a tally or one before it reaches.
    """
    slots, at, inputs, rank = rows
    lo, hi, furthest = bounds
    # where the row before of a slot lay, the next one is likely to lie
    places = edges[:-1].copy()
    owner, row, n = np.empty(_PAIRS, np.int64), np.empty(_PAIRS, np.int64), 0
    for i in range(len(at)):
        if slots[i] >= len(places):
            continue
        begin, end, t = edges[slots[i]], edges[slots[i] + 1], at[i]
        s = places[slots[i]]
        if s < end and lo[s] <= t:
            s += 1
        if (s < end and lo[s] <= t) or (s > begin and lo[s - 1] > t):
            s = begin + np.searchsorted(lo[begin:end], t, side="right")
        places[slots[i]] = s
        while s > begin and furthest[s - 1] >= t:
            s -= 1
            if hi[s] >= t:
                taken[s] = True
                owner[n], row[n] = s, i
                n += 1
                if n == _PAIRS:
                    _add_pairs(tf, ti, owner, row, n, inputs, rank)
                    n = 0
    _add_pairs(tf, ti, owner, row, n, inputs, rank)


@compiled
def row_pairs(slots: Any, at: Any, edges: Any, bounds: Any) -> Any:
    """Owners and rows that `tally_rows` brings together."""
    lo, hi, furthest = bounds
    owner, row, n = np.empty(len(at), np.int64), np.empty(len(at), np.int64), 0
    for i in range(len(at)):
        if slots[i] >= len(edges) - 1:
            continue
        begin, t = edges[slots[i]], at[i]
        s = begin + np.searchsorted(lo[begin : edges[slots[i] + 1]], t, side="right")
        while s > begin and furthest[s - 1] >= t:
            s -= 1
            if hi[s] >= t:
                if n == len(owner):
                    owner = np.concatenate((owner, np.empty(n + 64, np.int64)))
                    row = np.concatenate((row, np.empty(n + 64, np.int64)))
                owner[n], row[n] = s, i
                n += 1
    return owner[:n], row[:n]


@compiled
def tally_owned(tf: Any, ti: Any, owner: Any, inputs: Any, rank: Any) -> None:
    """Add each row i to tally owner[i]."""
    row = np.empty(_PAIRS, np.int64)
    for first in range(0, len(owner), _PAIRS):
        n = min(_PAIRS, len(owner) - first)
        for j in range(n):
            row[j] = first + j
        _add_pairs(tf, ti, owner[first : first + n], row, n, inputs, rank)


@compiled
def merge_runs(tf: Any, ti: Any, owner: Any, kinds: Any, more_f: Any, more_i: Any) -> None:
    """Add tally i of `more` to tally owner[i]."""
    for i in range(len(owner)):
        merge_into(tf[owner[i]], ti[owner[i]], kinds, more_f[i], more_i[i])


def as_folds(kinds: Array, tf: Array, ti: Array) -> tuple[Array, Array]:
    """Tallies as folds, which results are made of."""
    ff = np.zeros((*tf.shape[:2], 3), np.float64)
    fi = np.zeros((*ti.shape[:2], 2), np.int64)
    ff[..., 0], fi[..., 0] = tf[..., 0], ti[..., 0]
    for a, kind in enumerate(kinds):
        if kind in (MIN_I, MAX_I):
            fi[:, a, 1] = ti[:, a, 1]
        elif kind == SUM_I:
            fi[:, a, 1] = ti[:, a, 1]
            fi[ti[:, a, 2] != ti[:, a, 1] >> 63, a, 0] = OVERFLOWN
        elif kind >= FIRST_I:
            fi[:, a, 1] = ti[:, a, 2]
        elif kind == STDDEV:
            ff[:, a, 1] = _squared_distances(tf[:, a], np.maximum(ti[:, a, 0], 1))
    return ff, fi


@compiled
def _squared_distances(tf: Any, n: Any) -> Any:
    """The sum of squared distances from the mean: squares - sum * sum / n, to twice the digits."""
    found = np.empty(len(tf))
    for i in range(len(tf)):
        high, low = tf[i, 0], tf[i, 1]
        p, e = _times(high, high)
        q = p / n[i]
        t, lack = _times(q, np.float64(n[i]))
        r = ((p - t) - lack + e + 2.0 * high * low) / n[i]
        s, lack = _add(tf[i, 2], tf[i, 3], -q)
        s, lack = _add(s, lack, -r)
        found[i] = s + lack
        if found[i] < 0.0:
            found[i] = 0.0
    return found

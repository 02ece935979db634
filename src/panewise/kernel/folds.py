"""Running aggregates: what a segment keeps of its rows.

What rows bring is a tuple: kinds [A], lanes [A], floats [*, n], ints [*, n], valid [A, n]; an aggregate
reads its lane of the floats or of the ints. A fold of A aggregates is a pair of small arrays, float64 [A, 3] and
int64 [A, 2]:

====================  =======================  ====================
kind                  floats                   integers
====================  =======================  ====================
COUNT_ROWS, COUNT     -                        n
SUM_F, AVG            sum                      n
SUM_I                 -                        n (OVERFLOWN), sum
MIN_F, MAX_F          value                    n
MIN_I, MAX_I          -                        n, value
STDDEV                mean, M2                 n
FIRST_F, LAST_F       value                    0 none, 1 value, 2 null
FIRST_I, LAST_I       -                        the same, value
SPAN                  -                        n, place of the last
====================  =======================  ====================

A SPAN tells which rows there are: those of a fold follow one another.
"""

from __future__ import annotations

from typing import Any

from panewise.kernel.compiled import compiled

__all__ = [
    "AVG", "COUNT", "COUNT_ROWS", "FIRST_F", "FIRST_I", "LAST_F", "LAST_I", "MAX_F", "MAX_I", "MIN_F", "MIN_I",
    "OVERFLOWN",
    "SPAN", "STDDEV", "SUM_F", "SUM_I", "add_row", "clear", "copy",
]  # fmt: skip

COUNT_ROWS, COUNT, SUM_F, SUM_I, MIN_F, MAX_F, MIN_I, MAX_I, AVG, STDDEV = range(10)
FIRST_F, LAST_F, FIRST_I, LAST_I = range(10, 14)
SPAN = 14

OVERFLOWN = -1
"""In place of the count of a sum that went beyond 64 bits on its way."""


@compiled
def clear(ff: Any, fi: Any) -> None:
    """Forget everything."""
    ff[:] = 0.0
    fi[:] = 0


@compiled
def copy(to_ff: Any, to_fi: Any, ff: Any, fi: Any) -> None:
    """Overwrite one fold with another."""
    to_ff[:] = ff
    to_fi[:] = fi


@compiled
def add_row(ff: Any, fi: Any, inputs: Any, i: Any) -> None:
    """Add row i."""
    kinds, lanes, floats, ints, valid = inputs
    for a in range(len(kinds)):
        kind = kinds[a]
        if kind == COUNT_ROWS:
            fi[a, 0] += 1
            continue
        lane = lanes[a]
        if kind == SPAN:
            fi[a, 0] += 1
            fi[a, 1] = ints[lane, i]
            continue
        if kind >= FIRST_F:
            if (kind == FIRST_F or kind == FIRST_I) and fi[a, 0] != 0:  # numba: no tuple membership
                continue
            fi[a, 0] = 1 if valid[a, i] else 2
            if kind <= LAST_F:
                ff[a, 0] = floats[lane, i]
            else:
                fi[a, 1] = ints[lane, i]
            continue
        if not valid[a, i]:
            continue
        n = fi[a, 0]
        fi[a, 0] = n + 1
        if kind == SUM_F or kind == AVG:
            ff[a, 0] += floats[lane, i]
        elif kind == SUM_I:
            term, total = ints[lane, i], fi[a, 1]
            fi[a, 1] = total + term
            if n < 0 or ((fi[a, 1] ^ total) & (fi[a, 1] ^ term)) < 0:
                fi[a, 0] = OVERFLOWN
        elif kind == MIN_F:
            if n == 0 or floats[lane, i] < ff[a, 0]:
                ff[a, 0] = floats[lane, i]
        elif kind == MAX_F:
            if n == 0 or floats[lane, i] > ff[a, 0]:
                ff[a, 0] = floats[lane, i]
        elif kind == MIN_I:
            if n == 0 or ints[lane, i] < fi[a, 1]:
                fi[a, 1] = ints[lane, i]
        elif kind == MAX_I:
            if n == 0 or ints[lane, i] > fi[a, 1]:
                fi[a, 1] = ints[lane, i]
        elif kind == STDDEV:
            x = floats[lane, i]
            d = x - ff[a, 0]
            ff[a, 0] += d / (n + 1)
            ff[a, 1] += d * (x - ff[a, 0])

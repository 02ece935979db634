"""Overlapping runs of tallies, each added up: no tally is added more than twice, however many runs have it."""

from __future__ import annotations

from typing import Any

import numpy as np

from panewise.kernel import tally
from panewise.kernel.compiled import compiled
from panewise.kernel.fill import Tallies
from panewise.kernel.page import Array
from panewise.kernel.reducers import over_runs

__all__ = ["slid"]


@compiled
def _slide(entries: Any, first: Any, end: Any, kinds: Any, out: Any) -> None:
    """Two stacks: of the entries of a run, those up to `turn` are held as sums of all that follow up to there.

    The others are one sum. Neither the first nor the end of a run lies before that of the run before it.
    """
    rows, tf, ti = entries
    out_rows, out_f, out_i = out
    size = 0
    for w in range(len(first)):
        size = max(size, end[w] - first[w])
    held_f, held_i = np.empty((size, tf.shape[1], tf.shape[2])), np.empty((size, ti.shape[1], ti.shape[2]), np.int64)
    held_rows = np.empty(size, np.int64)
    rest_f, rest_i = np.empty((tf.shape[1], tf.shape[2])), np.empty((ti.shape[1], ti.shape[2]), np.int64)
    turn = begun = added = rest_rows = 0
    for w in range(len(first)):
        i, j = first[w], end[w]
        if i == j:
            out_rows[w], out_f[w], out_i[w] = 0, 0.0, 0
            continue
        if i >= turn:
            turn, begun = j, i
            for p in range(j - 1, i - 1, -1):
                to = p - begun
                held_f[to], held_i[to], held_rows[to] = tf[p], ti[p], rows[p]
                if p < j - 1:
                    tally.merge_into(held_f[to], held_i[to], kinds, held_f[to + 1], held_i[to + 1])
                    held_rows[to] += held_rows[to + 1]
            rest_f[:], rest_i[:], rest_rows, added = 0.0, 0, 0, j
        while added < j:
            tally.merge_into(rest_f, rest_i, kinds, tf[added], ti[added])
            rest_rows += rows[added]
            added += 1
        to = i - begun
        out_rows[w] = held_rows[to] + rest_rows
        out_f[w], out_i[w] = held_f[to], held_i[to]
        tally.merge_into(out_f[w], out_i[w], kinds, rest_f, rest_i)


def slid(rows: Array, tallies: Tallies, first: Array, end: Array) -> tuple[Array, Tallies]:
    """The number of rows, and the tally, of each run first[w] to end[w], in order."""
    made, counted = Tallies.empty(len(first), tallies.aggregation), np.empty(len(first), np.int64)
    out = (counted, made.floats, made.ints)
    _slide((rows, tallies.floats, tallies.ints), first, end, tallies.aggregation.kinds, out)
    held = zip(tallies.aggregation.reducers, tallies.reduced, strict=True)
    made.reduced = [over_runs(reducer, states, first, end) for reducer, states in held]
    return counted, made

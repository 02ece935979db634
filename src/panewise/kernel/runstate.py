"""The state of runs: where everything lies in the arrays of a key, and what it says."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from panewise.kernel import segmenting as sg
from panewise.kernel.page import Array
from panewise.kernel.segmenting import (
    EMIT,
    EXTENT,
    FRAGMENTS,
    POSSIBLE,
)

__all__ = [
    "APART",
    "BETWEEN",
    "CELLS",
    "FALLING",
    "FOLD_SLOTS",
    "GAP",
    "GAPS",
    "GAP_BEFORE",
    "GAP_HAS_BEFORE",
    "GAP_LENGTH",
    "GAP_OPEN",
    "GAP_PART",
    "GAP_ROWS",
    "GAP_SENT",
    "GAP_SENT_ROWS",
    "GAP_START",
    "HAS_BEST",
    "LAST",
    "LATEST",
    "NEXT_ID",
    "N_ATS",
    "N_INTS",
    "PIECE",
    "PIECE_BEFORE",
    "PIECE_HAS_BEFORE",
    "PIECE_PART",
    "PIECE_ROWS",
    "PIECE_SENT",
    "PIECE_SENT_ROWS",
    "PIECE_START",
    "RISING",
    "RUN_BEFORE",
    "RUN_CERTAIN",
    "RUN_COUNT",
    "RUN_HAS_BEFORE",
    "RUN_OPEN",
    "RUN_START",
    "SEED",
    "SEEN",
    "SPLIT",
    "STEADY",
    "TOGETHER",
    "fold_slots",
    "forget_stale",
    "has_forgotten",
    "live",
    "starts",
]

# settings beyond the shared ones
SPLIT, GAPS = sg.N_WHOLE, sg.N_WHOLE + 1
GAP_LENGTH = sg.N_MEASURED

TOGETHER, CELLS, RISING, FALLING, STEADY, APART = range(6)
"""When two neighbouring members are in different runs."""

# state of a key, in `at`
(LAST, LATEST, RUN_START, RUN_BEFORE, PIECE_START, PIECE_BEFORE, GAP_START, GAP_BEFORE,
 PIECE_SENT, GAP_SENT) = range(10)  # fmt: skip
N_ATS = 10
# and in whole numbers
(SEEN, BETWEEN, RUN_OPEN, RUN_HAS_BEFORE, RUN_COUNT, RUN_CERTAIN, PIECE_HAS_BEFORE, PIECE_ROWS,
 GAP_OPEN, GAP_HAS_BEFORE, GAP_ROWS, NEXT_ID, HAS_BEST,
 PIECE_PART, PIECE_SENT_ROWS, GAP_PART, GAP_SENT_ROWS) = range(17)  # fmt: skip
N_INTS = 17
# folds: the seed, those of the piece, those of the gap
SEED, PIECE, GAP = 0, 1, 1 + sg.N_FOLDS
FOLD_SLOTS = 1 + 2 * sg.N_FOLDS


def fold_slots(gaps: bool, hides: bool) -> int:
    """How many folds a key needs: fewer where there are no gaps to report, and where no row is invisible."""
    if gaps:
        return FOLD_SLOTS
    return GAP if hides else PIECE + 1


def has_forgotten(numbers: Array) -> Array:
    """Of which keys no run is open, or one that began after another visible row: then nothing before matters."""
    found: Array = numbers[:, SEEN] == 1
    return np.asarray(found & ((numbers[:, RUN_OPEN] == 0) | (numbers[:, RUN_HAS_BEFORE] == 1)))


def forget_stale(state: dict[str, Array]) -> None:
    """Zero what is left over in the state of keys: ids, closed runs, gaps that are decided, folds out of use."""
    a, s, ff, fi = state["ats"], state["numbers"], state["ff"], state["fi"]
    s[:, NEXT_ID] = 0

    def zero(keys: Array, ats: list[int], numbers: list[int], *slots: slice) -> None:
        for number in ats:
            a[keys, number] = 0
        for number in numbers:
            s[keys, number] = 0
        for some in slots:
            ff[keys, some] = 0
            fi[keys, some] = 0

    closed = [RUN_HAS_BEFORE, RUN_COUNT, RUN_CERTAIN, PIECE_HAS_BEFORE, PIECE_ROWS]
    zero(s[:, RUN_OPEN] == 0, [RUN_START, RUN_BEFORE, PIECE_START, PIECE_BEFORE], closed, slice(PIECE, GAP))
    zero(s[:, RUN_CERTAIN] == 1, [RUN_START, RUN_BEFORE], [RUN_COUNT, GAP_OPEN])
    decided = (s[:, RUN_CERTAIN] == 1) | ((s[:, GAP_OPEN] == 0) & (s[:, RUN_OPEN] == 0))
    zero(decided, [GAP_START, GAP_BEFORE], [GAP_HAS_BEFORE, GAP_ROWS], slice(GAP, FOLD_SLOTS))
    hidden = (slice(PIECE + 1, GAP), slice(GAP + 1, FOLD_SLOTS), slice(SEED, SEED + 1))
    zero(s[:, BETWEEN] == 0, [LATEST], [], *hidden)


def live(s: Array, slots: int) -> Array:
    """Which folds of each key are in use, of so many."""
    found = np.zeros((len(s), slots), bool)
    is_open, between = s[:, RUN_OPEN] == 1, s[:, BETWEEN] == 1
    found[:, SEED], found[:, PIECE] = between, is_open
    found[:, PIECE + 1 : GAP] = (is_open & between)[:, None]
    if slots > GAP:
        gap = np.where(is_open, s[:, RUN_CERTAIN] == 0, s[:, GAP_OPEN] == 1)
        found[:, GAP] = gap
        found[:, GAP + 1 :] = (gap & between)[:, None]
    return found


def starts(a: Array, s: Array, whole: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Slots, starts of their open piece and gap, or of what may open next, and whether that instant is excluded."""
    possible, parts = whole[EXTENT] == POSSIBLE, whole[EMIT] == FRAGMENTS
    is_open = s[:, RUN_OPEN] == 1
    # a run that is certain has ended the gap before it
    gap_open = np.where(is_open, s[:, RUN_CERTAIN] == 0, s[:, GAP_OPEN] == 1)
    both = [(is_open, PIECE_START, PIECE_BEFORE, PIECE_SENT, PIECE_HAS_BEFORE, PIECE_PART)]
    if whole[GAPS]:
        both.append((gap_open, GAP_START, GAP_BEFORE, GAP_SENT, GAP_HAS_BEFORE, GAP_PART))
    for chosen, start, before, sent, has_before, part in both:
        slots = np.flatnonzero(chosen)
        reaches_back = possible & (s[slots, has_before] == 1)
        goes_on = parts & (s[slots, part] > 0)
        found = np.where(goes_on, a[slots, sent], np.where(reaches_back, a[slots, before], a[slots, start]))
        yield slots, found, goes_on | reaches_back
    if possible:
        # the next one reaches back to the last row
        seen = np.flatnonzero(s[:, SEEN] == 1)
        yield seen, a[seen, LAST], np.ones(len(seen), bool)

"""The state of chains: where everything lies in the arrays of a key and of a frame, and what it says."""

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
    "BEFORE",
    "BETWEEN",
    "CHAINED",
    "CLOSE",
    "CLOSED",
    "CONTINUE",
    "DECIDED",
    "DROP",
    "FLAGS",
    "GONE",
    "HAS_BEFORE",
    "HAS_BEST",
    "INCLUDE",
    "LAST",
    "LATEST",
    "NEXT_ID",
    "N_ATS",
    "N_FRAME_ATS",
    "N_FRAME_INTS",
    "N_INTS",
    "OPEN",
    "PART",
    "PLACEMENT",
    "REMAINDER",
    "ROWS",
    "SATURATED",
    "SEEN",
    "SENT",
    "SENT_ROWS",
    "SOLO",
    "START",
    "STATUS",
    "forget_stale",
    "starts",
]

# settings beyond the shared ones
INCLUDE, PLACEMENT, REMAINDER, SOLO = range(sg.N_WHOLE, sg.N_WHOLE + 4)
CHAINED, CLOSE, DROP, CONTINUE, SATURATED = range(5)

# state of a key
LAST, LATEST = range(2)
N_ATS = 2
SEEN, BETWEEN, NEXT_ID, HAS_BEST = range(4)
N_INTS = 4

# a frame: in `at`, and in whole numbers. START and BEFORE turn into the bounds when it closes.
START, BEFORE, SENT = range(3)
N_FRAME_ATS = 3
HAS_BEFORE, ROWS, DECIDED, STATUS, FLAGS, PART, SENT_ROWS = range(7)
N_FRAME_INTS = 7
OPEN, CLOSED, GONE = range(3)


def forget_stale(state: dict[str, Array]) -> None:
    """Zero what is left over in the state of keys: ids, and folds out of use."""
    state["numbers"][:, NEXT_ID] = 0
    quiet = state["numbers"][:, BETWEEN] == 0
    state["ats"][quiet, LATEST] = 0
    state["ff"][quiet] = 0
    state["fi"][quiet] = 0
    # nobody has written where a frame ends of which no part was sent
    state["held_0"][state["held_1"][:, PART] == 0, SENT] = 0
    mine = quiet[state["held_owners"]]
    state["held_3"][mine, 1:] = 0
    state["held_4"][mine, 1:] = 0


def starts(
    a: Array, s: Array, slots: Array, fa: Array, fn: Array, whole: Array
) -> Iterator[tuple[Array, Array, Array]]:
    """Slots, starts of their frames, or of what may open next, and whether that instant is excluded."""
    possible, parts = whole[EXTENT] == POSSIBLE, whole[EMIT] == FRAGMENTS
    is_open = fn[:, STATUS] == OPEN
    goes_on = is_open & parts & (fn[:, PART] > 0)
    reaches_back = is_open & possible & (fn[:, HAS_BEFORE] == 1)
    found = np.where(goes_on, fa[:, SENT], np.where(reaches_back, fa[:, BEFORE], fa[:, START]))
    closed_out = ~is_open & ((fn[:, FLAGS] & sg.START_INCLUDED) == 0)
    yield slots, found, goes_on | reaches_back | closed_out
    if possible:
        # the next one reaches back to the last row
        seen = np.flatnonzero(s[:, SEEN] == 1)
        yield seen, a[seen, LAST], np.ones(len(seen), bool)

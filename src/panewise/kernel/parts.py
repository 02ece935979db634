"""Framing where rows lie: a task frames what it has of each key, part by part; parts are joined by key afterwards.

A part is a stretch of one key's rows, in order, that one task has seen. It is framed as if the stream began with it.
What its first rows, its head, have found is not kept but the rows are: joined to what comes before it, the head is
framed again, from the true state, until the operator stands where it stood when the part was framed. From there on
all that the part has found holds, and so does the state that it ended with. Runs that neighbours alone decide stand
the same as soon as one begins after another row, and frames of moves and sums when all that may have been open has come
together (`rivals.py`); of all others the standing is noted at a few marks, and compared. So what is joined is exactly
what one pass finds. A key whose parts overlap, or whose standings do not meet within the head, is named, and left to a
pass over its sorted rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel.bundle import Buffer, as_arrays, as_table, dump, load
from panewise.kernel.compiled import compiled
from panewise.kernel.operator import SegmentOperator, Segments, Snapshot
from panewise.kernel.page import Array
from panewise.kernel.sequence import Reader

__all__ = [
    "FOUND",
    "Found",
    "Parts",
    "all_of",
    "as_columns",
    "at_places",
    "counted",
    "found_in",
    "mark",
    "none_of",
    "ranges",
    "some_of",
]

_FIRST, _FACTOR = 8, 8
"""Marks are at rows 8, 64, 512, ...: heads are short, and marks are few."""
_ARRAYS = ("first", "last", "pieces", "heads", "counts")
_FLAGS = ("sure", "whole", "broken", "signed")
FOUND = ("start", "end", "rows", "ff", "fi")
Found = dict[str, Array]
"""Segments as columns: `group`, `piece` (how many marks had been passed), and what is told of them."""


def mark(number: Any) -> Any:
    """The row before which a piece ends."""
    return _FIRST * _FACTOR**number


@compiled
def ranges(first: Any, count: Any) -> Any:
    """The numbers of all these ranges."""
    found = np.empty(count.sum(), np.int64)
    n = 0
    for i in range(len(first)):
        for j in range(count[i]):
            found[n] = first[i] + j
            n += 1
    return found


def as_columns(found: Segments, group: Array, piece: Array) -> Found:
    """Segments in as few bytes as will do: they are most of what is sent."""
    small: Found = {
        "group": group.astype(np.int32),
        "piece": piece.astype(np.int8),
        "flags": found.flags.astype(np.int8),
    }
    return small | {name: np.ascontiguousarray(getattr(found, name)) for name in FOUND}


def at_places(found: Found, places: Array) -> Found:
    """Some segments."""
    return {name: array[places] for name, array in found.items()}


def all_of(found: Sequence[Found]) -> Found:
    """Segments, one after another."""
    return {name: np.concatenate([each[name] for each in found]) for name in found[0]}


def none_of(operator: SegmentOperator, reader: Reader) -> Found:
    """No segments, in the types of an operator's."""
    nobody = np.empty(0, np.int64)
    return as_columns(operator.on_page(reader.nothing()), nobody, nobody)


def some_of(standing: Snapshot, chosen: Array) -> Snapshot:
    """The standings of some."""
    found, count = {}, len(standing["numbers"])
    place = np.full(count, -1)
    place[chosen] = np.arange(len(chosen))
    for name, array in standing.items():
        kind = next((kind for kind in ("carried", "held") if name.startswith(f"{kind}_")), None)
        if kind is None:
            found[name] = array[chosen]
            continue
        owners = standing[f"{kind}_owners"]
        mine = np.flatnonzero(place[owners] >= 0)
        mine = mine[np.argsort(place[owners[mine]], kind="stable")]
        found[name] = place[owners[mine]] if name.endswith("_owners") else array[mine]
    return found


@dataclass(frozen=True)
class Parts:
    """Parts, as columns; what belongs to one says by its place which."""

    keys: pa.Table
    """k0, ... of each part."""
    first: Array
    last: Array
    """The `at` of its first and of its last row."""
    pieces: Array
    """How many marks it has passed while its head lasted."""
    sure: Array
    """Whether the past is forgotten at the end of its head."""
    whole: Array
    """Whether its head is all of it."""
    broken: Array
    """Whether its order is not known."""
    signed: Array
    """Whether it has negative values, where those behind it are sure only if there are none."""
    head: pa.Table
    """The rows of heads, by part."""
    heads: Array
    """How many each has."""
    noted: tuple[tuple[Array, Snapshot], ...]
    """At each mark, standings and whose they are."""
    found: Found
    """Behind the first mark; `group` is the part."""
    state: Snapshot
    """At the end."""
    counts: Array
    """How many segments it has found in each piece."""

    def __len__(self) -> int:
        return len(self.first)

    def dump(self) -> tuple[bytes, bytes]:
        """As bytes: all but what is found, which says what can be joined; and what is found."""
        arrays = {name: getattr(self, name) for name in (*_ARRAYS, *_FLAGS)}
        arrays |= {f"state_{name}": array for name, array in self.state.items()}
        for i, (whose, standing) in enumerate(self.noted):
            arrays[f"whose{i}"] = whose
            arrays |= {f"noted{i}_{name}": array for name, array in standing.items()}
        plain = {name: array.view(np.uint8) if array.dtype == bool else array for name, array in arrays.items()}
        tables = {"keys": self.keys, "head": self.head, "arrays": as_table(plain)}
        facts = {"marks": len(self.noted), "rows": len(self)}
        return dump(tables, facts, compressed=True), dump({"found": as_table(self.found)}, {}, compressed=True)

    @classmethod
    def load(cls, data: Buffer) -> Parts:
        """The inverse of `dump`, without what is found."""
        tables, facts = load(data)
        arrays = as_arrays(tables["arrays"])

        def of(prefix: str) -> dict[str, Array]:
            return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

        flags = {name: arrays[name].view(bool) for name in _FLAGS}
        own = {name: arrays[name] for name in _ARRAYS}
        noted = tuple((arrays[f"whose{i}"], of(f"noted{i}_")) for i in range(facts["marks"]))
        return cls(tables["keys"], head=tables["head"], noted=noted, found={}, state=of("state_"), **own, **flags)


def found_in(data: Buffer) -> Found:
    """What is found, of `Parts.dump`."""
    return as_arrays(load(data)[0]["found"])


def counted(found: Found, parts: int) -> Array:
    """How many segments each of so many parts has found in each piece."""
    group, piece = found["group"].astype(np.int64), found["piece"].astype(np.int64)
    width = int(piece.max(initial=0)) + 1
    return np.bincount(group * width + piece, minlength=parts * width).reshape(parts, width)

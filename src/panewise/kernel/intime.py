"""One pass over rows of many keys that all come in order of time: each key has a slot, and none is held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from panewise.kernel.framer import Framer
from panewise.kernel.operator import Segments
from panewise.kernel.page import Array
from panewise.kernel.sequence import Layout

__all__ = ["InTime"]


class InTime(Framer):
    """What a task finds in all rows of its keys."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout, earliest=True)
        self._operator = layout.operator
        self._segments: list[Segments] = []

    def found(self) -> Iterator[tuple[list[pa.Array], Segments]]:
        """Keys, and what has been found since; `group` says whose it is."""
        some, self._segments = self._segments, []
        yield from ((self._table.columns, segments) for segments in some if len(segments))

    def finish(self) -> None:
        """No more rows come."""
        count = len(self)
        none = np.empty(0, self._progress.dtype)
        offsets = np.zeros(count + 1, np.int64)
        self._frame_whole(self._reader.empty(), none, np.arange(count), offsets, ends=True)

    def _pass(
        self, rows: pa.Table, order: Array, read: pa.RecordBatch, at: Array, slots: Array, place: Array, ends: Array
    ) -> None:
        self._frame_whole(read, at, slots, np.append(place, ends[-1:]), ends=False)
        self._seen[slots] += ends - place

    def _frame_whole(self, read: pa.RecordBatch, at: Array, slots: Array, offsets: Array, ends: bool) -> None:
        page = self._reader.page(read, at, offsets, slots, np.full(len(slots), ends))
        self._keep(self._operator.on_page(page), slots)

    def _keep(self, found: Segments, slots: Array) -> None:
        self._segments.append(replace(found, group=self._owner[slots[found.group]]))

"""Segments as an Arrow table: key columns, segment, rows, status, aggregates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from panewise.kernel import segmenting as sg
from panewise.kernel.aggregates import Aggregation
from panewise.kernel.operator import Segments
from panewise.kernel.page import Array
from panewise.kernel.progress import Progress
from panewise.spec.emit import FINAL, Emit
from panewise.spec.frames import HysteresisFrames, Scheme, ThresholdFrames

__all__ = ["BOUNDS", "OWN", "STATUS", "Emitter"]

BOUNDS = ("()", "[)", "(]", "[]")
"""What is included, by the flags for start and end."""
STATUS = ("final", "remainder", "partial")
OWN = ("id", "start", "end", "flags", "rows")
"""What is plainly told of a segment."""
_BOUNDS, _STATUS = pa.array(BOUNDS), pa.array(STATUS)


class Emitter:
    """Turns segments into record batches of one schema."""

    def __init__(
        self, scheme: Scheme, keys: Sequence[pa.Field], progress: Progress, aggregation: Aggregation, emit: Emit = FINAL
    ) -> None:
        self._gaps = isinstance(scheme, (ThresholdFrames, HysteresisFrames)) and scheme.gaps
        self.progress = self._progress = progress
        """Of the bounds."""
        self._aggregation, self._parts = aggregation, emit.mode != "final"
        self._segment = pa.struct(
            [
                pa.field("id", pa.int64()),
                pa.field("start", progress.type),
                pa.field("end", progress.type),
                pa.field("bounds", pa.string()),
            ]
        )
        fields = [
            *keys,
            pa.field("segment", self._segment),
            pa.field("rows", pa.int64()),
            pa.field("status", pa.string()),
        ]
        if self._parts:
            fields.append(pa.field("part", pa.int64()))
        if self._gaps:
            fields.append(pa.field("gap", pa.bool_()))
        fields += [pa.field(output.name, output.type) for output in aggregation.outputs]
        self.schema = pa.schema(fields)

    def batch(self, keys: Sequence[pa.Array], found: Segments, named: Array | None = None) -> pa.RecordBatch:
        """One batch; `keys` holds the key of every group of the page. What is not `named` has no id."""
        flags = found.flags
        owner = pa.array(found.group)
        segment = pa.StructArray.from_arrays(
            [
                pa.array(found.ids, mask=None if named is None else ~named),
                self._progress.bounds(found.start),
                self._progress.bounds(found.end),
                _BOUNDS.take(pa.array(flags & (sg.START_INCLUDED | sg.END_INCLUDED))),
            ],
            fields=list(self._segment),
        )
        status = np.where(flags & sg.PARTIAL_FLAG, 2, np.where(flags & sg.REMAINDER_FLAG, 1, 0))
        columns = [*(key.take(owner) for key in keys), segment, pa.array(found.rows)]
        columns.append(_STATUS.take(pa.array(status.astype(np.int8))))
        if self._parts:
            columns.append(pa.array(found.part))
        if self._gaps:
            columns.append(pa.array((flags & sg.GAP_FLAG) != 0))
        columns += self._aggregation.results(found.ff, found.fi, found.reduced)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def plain(self, keys: Sequence[pa.Array], found: Segments) -> pa.RecordBatch:
        """The same in numbers, side by side, for who makes words and structs of them only where they are read."""
        owner = pa.array(found.group)
        columns = [key.take(owner) for key in keys]
        columns += [pa.array(found.ids), self._progress.bounds(found.start), self._progress.bounds(found.end)]
        columns += [pa.array(found.flags.astype(np.int8)), pa.array(found.rows)]
        aggregates = self._aggregation.results(found.ff, found.fi, found.reduced)
        names = [*(f"k{i}" for i in range(len(keys))), *OWN, *(f"a{i}" for i in range(len(aggregates)))]
        return pa.RecordBatch.from_arrays([*columns, *aggregates], names=names)

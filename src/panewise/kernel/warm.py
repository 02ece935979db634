"""Compile the kernels once, into numba's disk cache: `python -m panewise.kernel.warm`."""

from __future__ import annotations

import pyarrow as pa

from panewise.kernel.fill import FillLayout
from panewise.kernel.keys import slots_of
from panewise.kernel.matching import UID, Merger, Taker, chunks, filled, pages, reaching
from panewise.kernel.pack import PROMISE, ROW, Packer
from panewise.kernel.sequence import Layout, Sequence
from panewise.kernel.shard import Shard
from panewise.kernel.sqltypes import is_tidy
from panewise.kernel.windowbatch import merged, partials
from panewise.spec.aggregates import Aggregate
from panewise.spec.fill import Filling
from panewise.spec.frames import DeltaFrames, Scheme, ThresholdFrames, TupleWindows, Value, Windows
from panewise.spec.options import Schedule
from panewise.spec.plan import PlanSpec
from panewise.spec.punctuate import Scheduled

__all__ = ["warm"]


def warm() -> None:
    """Run some rows through each operator, as a batch and as a stream, and fill a segment, for whole and real `at`."""
    once_each = Schedule(1, None, "breaks")
    schemes: list[Scheme] = [
        ThresholdFrames(condition="c", schedule=once_each),
        DeltaFrames(moves=((Value("v"), 1.0),), schedule=once_each),
    ]
    for scheme in schemes:
        for at in (pa.int64(), pa.float64()):
            layout = Layout(PlanSpec(scheme, ("k",), "t", (), "all", Scheduled(1)), (), (pa.int64(),), at, ())
            columns = {"k0": pa.array([0, 0, 0]), "at": pa.array([1, 1, 0], at)}
            columns |= {f"v{i}": pa.array([0.0] * 3) for i in range(len(scheme.values))}
            columns |= {f"c{i}": pa.array([True] * 3) for i in range(len(scheme.conditions))}
            rows = pa.RecordBatch.from_pydict(columns)
            list(Sequence(layout).run([rows.slice(0, 1)]))
            control = {"kind": pa.array([ROW] * 2 + [PROMISE], pa.int8()), "shard": pa.array([0] * 3, pa.int32())}
            elements = pa.RecordBatch.from_pydict({**columns, **control, "clock": pa.nulls(3, pa.int64())})
            pages = [page for _, page in Packer(layout, 1).run([elements])]
            shard = Shard(layout)
            shard.batch(pages)
            Shard(layout, 1, shard.state()).batch(pages)

    for at in (pa.int64(), pa.float64()):
        _fill(at)
        _windows(at)
    for whole, real in ((pa.int32(), pa.float32()), (pa.int64(), pa.float64())):
        slots_of([pa.array([0], whole)], [pa.array([1], whole)], 1, 1)
        is_tidy(pa.array([1.0], real))


def _windows(at: pa.DataType) -> None:
    calls = (("n", Aggregate("count", None)), ("mean", Aggregate("avg", "x")))
    schemes: list[Scheme] = [Windows(range=5, slide=2), TupleWindows(range=3, every=2)]
    for scheme in schemes:
        layout = Layout(PlanSpec(scheme, ("k",), "t"), calls, (pa.int64(),), at, (None, pa.float64()))
        columns = {"k0": pa.array([0, 0]), "at": pa.array([1, 3], at), "a1": pa.array([1.0, 2.0])}
        rows = pa.table({**columns, "shard": pa.array([0, 0], pa.int32())})
        found = [(*piece, None) for piece in partials(layout, rows.to_batches())]
        list(merged(layout, found))


def _fill(at: pa.DataType) -> None:
    calls = (("n", Aggregate("count", None)), ("mean", Aggregate("avg", "x")))
    layout = FillLayout(Filling("t"), calls, (), at, (None, pa.float64()))
    bounds = [pa.array([0]), pa.array([0], at), pa.array([1], at), pa.array(["[]"])]
    segment = pa.StructArray.from_arrays(bounds, ["id", "start", "end", "bounds"])
    segments = pa.table({UID: pa.array([0]), "segment": segment})
    rows = pa.table({"at": pa.array([1, 0], at), "a1": pa.array([1.0, 2.0]), "shard": pa.array([0, 0], pa.int32())})
    taker = Taker(layout, [(0, reaching(layout, segments))])
    taker.take(rows)
    taken = list(taker.partials())
    (chunk,) = chunks(layout, segments.add_column(0, "shard", pa.array([0], pa.int32())).to_batches())
    (page,) = pages(layout, rows.to_batches())
    found = filled(layout, chunk[1], page[1])
    assert found is not None
    schema = pa.schema([*segments.drop_columns([UID]).schema, ("n", pa.int64()), ("mean", pa.float64())])
    list(Merger(layout, (), schema).run([*taken, (0, found)]))


if __name__ == "__main__":
    warm()

"""Compile the kernels once, into numba's disk cache: `python -m panewise.kernel.warm`."""

from __future__ import annotations

import pyarrow as pa

from panewise.kernel.pack import PROMISE, ROW, Packer
from panewise.kernel.sequence import Layout, Sequence
from panewise.kernel.shard import Shard
from panewise.spec.frames import DeltaFrames, Scheme, ThresholdFrames, Value
from panewise.spec.options import Schedule
from panewise.spec.plan import PlanSpec
from panewise.spec.punctuate import Scheduled

__all__ = ["warm"]


def warm() -> None:
    """Run some rows through each operator, as a batch and as a stream, for whole and for real `at`."""
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


if __name__ == "__main__":
    warm()

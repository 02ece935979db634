"""The streams of the experiment, and what early answers to windows over them are worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.kernel.page import Array, in_one
from panewise.local.delivery import Delivered, deliver, punctuated
from panewise.plan import Plan
from panewise.spec.punctuate import in_band

__all__ = ["AGGREGATES", "Answers", "Stream", "answers", "normal", "stream", "uniform"]

AGGREGATES = {"avg": "avg(v)", "max": "max(v)", "sum": "sum(v)", "count": "count(*)"}
_SECOND = 1_000_000


@dataclass(frozen=True)
class Stream:
    """Rows with `t`, `v` and `mark`, when each of them arrives, and how many seconds there are."""

    rows: pa.Table
    arrival: Array
    seconds: float


def stream(at: Array, values: Array, seconds: float, slide: str, delay: Any = 0.0) -> Stream:
    """Rows at these seconds, of a source that knows what it has sent, and says so at the end of each slide."""
    times = pa.array((at * _SECOND).astype(np.int64), pa.timestamp("us"))
    rows, arrival = punctuated(pa.table({"t": times, "v": values}), "t", slide, at + delay)
    return Stream(rows, arrival, seconds)


def uniform(rng: np.random.Generator, count: int) -> Array:
    """Whole numbers from 0 to 999."""
    return rng.integers(0, 1_000, count)


def normal(rng: np.random.Generator, count: int, sd: float) -> Array:
    """About 500."""
    return rng.normal(500, sd, count)


@dataclass(frozen=True)
class Answers:
    """Final answers of whole windows, and of those that have one, the first early answer."""

    finals: pa.Table
    near: pa.Table
    """For each early answer its `number`, how many `seconds` before the final one, its `latency`, and accuracies."""
    of: Array
    """To which of the final answers each belongs."""

    def mean(self, name: str) -> float:
        """The mean accuracy of an aggregate, in percent."""
        return 100 * float(np.mean(self.near.column(name)))

    def worst(self, name: str) -> float:
        """The least, in percent."""
        return 100 * float(np.min(self.near.column(name)))

    @property
    def gain(self) -> float:
        """By how many seconds early answers are earlier."""
        return float(np.mean(self.near.column("seconds")))

    @property
    def share(self) -> float:
        """The same, in percent of the final latency."""
        return 100 * float(np.mean(self.near.column("gain")))

    @property
    def early(self) -> float:
        """The latency of early answers, in seconds."""
        return float(np.mean(self.near.column("latency").to_numpy() - self.near.column("seconds").to_numpy()))

    @property
    def final(self) -> float:
        """The latency of final answers, in seconds."""
        return float(np.mean(self.finals.column("latency")))


def answers(given: Stream, plan: Plan, agg: dict[str, str], prods: Any = True, cost: float = 0.0) -> Answers:
    """Deliver a stream; windows that it begins or ends in tell nothing of prods, and are left out."""
    told = deliver(plan.at("t", in_band("mark")), given.rows, agg, arrival=given.arrival, prods=prods, cost=cost)
    segment = told.results.column("segment")
    start, end = (pc.struct_field(segment, name).cast(pa.int64()) for name in ("start", "end"))
    whole = pc.and_(pc.greater_equal(start, 0), pc.less_equal(end, int(given.seconds * _SECOND)))
    results = told.results.filter(whole)
    near = Delivered(results, told.counts).accuracies()
    finals = results.filter(pc.equal(results.column("timing"), "final"))
    first = pc.equal(near.column("number"), 0)
    of = pc.list_parent_indices(in_one(finals.column("early"))).filter(in_one(first))
    return Answers(finals, near.filter(first), of.to_numpy())

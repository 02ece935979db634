"""A stream as it is delivered: rows arrive when they do, wait for a slow operator, and are answered by a clock.

The clock is simulated: an hour of it takes about a second. Rows are processed in the order in which they arrive, each
of them for `cost` seconds. Prods do not queue: they are answered at once, from all that has been processed by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.errors import InputError, SpecError
from panewise.kernel.compiled import compiled
from panewise.kernel.page import Array, in_one
from panewise.kernel.progress import progress_of
from panewise.kernel.windows import grid_of
from panewise.local.queue import Queue
from panewise.local.runner import condition_of
from panewise.local.stream import LocalStream
from panewise.spec.aggregates import Aggregates
from panewise.spec.aside import checked_set_aside
from panewise.spec.frames import Windows
from panewise.spec.plan import PlanSpec
from panewise.spec.prod import Prods
from panewise.spec.prod import prods as checked_prods
from panewise.spec.punctuate import InBand

__all__ = ["Delivered", "deliver"]

_SECOND = 1_000_000


@compiled
def _finished(arrival: Any, cost: Any) -> Any:
    """When each row has been processed, one after another."""
    found = np.empty(len(arrival))
    free = -np.inf
    for i in range(len(arrival)):
        free = max(free, arrival[i]) + cost
        found[i] = free
    return found


@dataclass(frozen=True)
class Delivered:
    """Results, each with the time at which it came, and the rows that they are made of."""

    results: pa.Table
    """As of the plan, with `clock`, in seconds, and `latency`, from the first arrival in the segment to the result."""
    counts: dict[str, int]

    def accuracies(self) -> pa.Table:
        """Early answers whose final ones came: `number`, `seconds` before, accuracies."""
        finals = self.results.filter(pc.equal(self.results.column("timing"), "final"))
        early = in_one(finals.column("early"))
        told = pc.list_flatten(early)
        of_all = pa.Table.from_struct_array(told)
        near = pa.Table.from_struct_array(in_one(of_all.column("accuracy")))
        owner = pc.list_parent_indices(early)
        latency = in_one(finals.column("latency")).take(owner)
        gain = pc.divide(in_one(of_all.column("seconds")), latency)
        own = {"number": of_all.column("number"), "seconds": of_all.column("seconds"), "latency": latency, "gain": gain}
        return pa.table({**own, **{name: near.column(name) for name in near.column_names}})


def deliver(
    plan: PlanSpec,
    rows: pa.Table,
    agg: Aggregates | None = None,
    *,
    arrival: Sequence[float] | Array,
    prods: Any = True,
    prod_at: Sequence[tuple[float, Any]] = (),
    cost: float = 0.0,
    set_aside: Any = None,
) -> Delivered:
    """Run a plan over rows that arrive at these times, in seconds; rows in an operator's queue wait for it.

    `prods` is as for streams; `prod_at` are prods of a person: when, and up to which `at`. Rows that are `set_aside`
    leave the queue at once, and are processed behind others: one after every so many, all of them while nothing waits.
    """
    arrived = np.asarray(arrival, np.float64)
    if len(arrived) != len(rows):
        raise InputError(f"`arrival` has {len(arrived):,} times for {len(rows):,} rows. Give one for each row.")
    given = checked_prods(prods)
    if given is None:
        raise SpecError("`prods` (None): a delivery is about early answers. Give a prodder, or True.")
    order = np.argsort(arrived, kind="stable")
    rows, arrived = rows.take(pa.array(order)), arrived[order]
    stream = LocalStream(plan, agg, prods=given, set_aside=set_aside)
    spec = checked_set_aside(set_aside, plan.scheme, given)
    if spec is not None:
        results = _queued(plan, stream, rows, Queue(arrived, float(cost), spec), given, prod_at)
        return Delivered(_timed(plan, results, rows, arrived), dict(stream.counts))
    finished = _finished(arrived, float(cost))
    moments = _moments(plan, rows, finished, given, prod_at)
    made, begin = [], 0
    for clock, asked, last in moments:
        end = int(np.searchsorted(finished, clock, side="right"))
        told = [] if asked is None else [{"until": asked[0]}]
        found = stream.feed(rows.slice(begin, end - begin), clock=clock, prod=told, final=last)
        made.append(found.append_column("clock", pa.array(np.full(len(found), clock))))
        begin = end
    results = pa.concat_tables(made)
    return Delivered(_timed(plan, results, rows, arrived), dict(stream.counts))


def _queued(
    plan: PlanSpec,
    stream: LocalStream,
    rows: pa.Table,
    queue: Queue,
    prods: Prods,
    prod_at: Sequence[tuple[float, Any]],
) -> pa.Table:
    """Results of rows some of which are set aside: the stream says which, and the queue when."""
    steps, clock, made = _steps(plan, rows), -np.inf, []
    asked = _Asked(prods, prod_at, float(queue.first))
    while queue:
        behind = int(np.searchsorted(steps, queue.place))
        stop = int(steps[behind]) + 1 if behind < len(steps) else len(rows)
        some = rows.slice(queue.place, stop - queue.place)
        served = queue.serve(stream.sets_aside(some), asked.when)
        clock = max(clock, served.clock)
        told = asked.due(clock)
        found = stream.feed(some.slice(0, served.taken), clock=clock, prod=told, aside=served.low)
        queue.aside = stream.aside
        made.append(found.append_column("clock", pa.array(np.full(len(found), clock))))
    last = stream.feed(rows.slice(0, 0), clock=max(clock, 0.0), final=True)
    return pa.concat_tables([*made, last.append_column("clock", pa.array(np.full(len(last), clock)))])


class _Asked:
    """When the next prod is due, of the clock or of a person."""

    def __init__(self, prods: Prods, prod_at: Sequence[tuple[float, Any]], first: float) -> None:
        self._people = sorted(prod_at, key=lambda each: each[0])
        self._every, self._share, self._slide = np.inf, 0.0, 0
        if prods.prodder is not None:
            self._every, self._share = prods.prodder.every.micros / _SECOND, prods.prodder.aggressiveness or 0.0
            self._slide = int(np.floor(first / self._every))

    @property
    def _ticks(self) -> float:
        return np.inf if self._every == np.inf else self._every * (self._slide - self._share)

    @property
    def when(self) -> float:
        """The time of the next."""
        return min([self._ticks, *(at for at, _ in self._people[:1])])

    def due(self, clock: float) -> list[dict[str, Any]]:
        """What people ask for by now; the stream knows by itself what the clock does."""
        while self._ticks <= clock:
            self._slide += 1
        found = [{"until": until} for at, until in self._people if at <= clock]
        self._people = self._people[len(found) :]
        return found


def _steps(plan: PlanSpec, rows: pa.Table) -> Array:
    """Rows with which results can come."""
    if not isinstance(plan.punctuation, InBand):
        # progress moves with every row: results are timed to a two-thousandth of the whole
        return np.arange(0, len(rows), max(1, len(rows) // 2_000))
    marks = condition_of("condition", plan.punctuation.condition, rows)
    found = np.flatnonzero(np.asarray(pc.fill_null(marks, False).to_numpy(zero_copy_only=False)))
    if isinstance(plan.scheme, Windows):
        # those that complete a window
        column = in_one(rows.column(plan.ordered_by).take(pa.array(found)))
        progress = progress_of(plan.ordered_by, column.type)
        complete = grid_of(plan.scheme, progress).complete(np.maximum.accumulate(progress.numbers(column)), progress)
        found = found[np.diff(complete, prepend=complete[:1] - 1) > 0]
    return found


def _moments(
    plan: PlanSpec, rows: pa.Table, finished: Array, prods: Prods, prod_at: Sequence[tuple[float, Any]]
) -> list[tuple[float, tuple[Any] | None, bool]]:
    """When something can come out: a clock, a prod, whether it is the end."""
    steps = finished[_steps(plan, rows)]
    last = float(finished[-1]) if len(finished) else 0.0
    found: list[tuple[float, tuple[Any] | None, bool]] = [(float(t), None, False) for t in np.unique(steps)]
    if prods.prodder is not None:
        every, share = prods.prodder.every.micros / _SECOND, prods.prodder.aggressiveness or 0.0
        first = float(finished[0]) if len(finished) else 0.0
        slides = np.arange(np.floor(first / every), np.ceil(last / every) + 1) * every - share * every
        found += [(float(t), None, False) for t in slides if t <= last]
    found += [(float(t), (until,), False) for t, until in prod_at]
    return [*sorted(found, key=lambda moment: moment[0]), (last, None, True)]


def _timed(plan: PlanSpec, results: pa.Table, rows: pa.Table, arrived: Array) -> pa.Table:
    """Results with their latencies."""
    if not len(results):
        return results.append_column("latency", pa.array([], pa.float64()))
    column = in_one(rows.column(plan.ordered_by))
    progress = progress_of(plan.ordered_by, column.type)
    at = progress.numbers(column)
    order = np.argsort(at, kind="stable")
    at, arrived = at[order], arrived[order]
    segment = in_one(results.column("segment"))
    start, end = (progress.numbers(pc.struct_field(segment, name)) for name in ("start", "end"))
    low, high = np.searchsorted(at, start, "left"), np.searchsorted(at, end, "right")
    first = np.array([arrived[a:b].min() if b > a else np.nan for a, b in zip(low, high, strict=True)])
    clock = np.asarray(results.column("clock").to_numpy())
    return results.append_column("latency", pa.array(clock - first))

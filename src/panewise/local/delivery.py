"""A stream as it is delivered: rows arrive when they do, wait for a slow operator, and are answered by a clock.

The clock is simulated: an answer takes some milliseconds, so that an hour of windows of a minute, each asked for once,
takes less than a second. Rows are processed in the order in which they arrive, each of them for `cost` seconds. Prods
do not queue: they are answered at once, from all that has been processed by then, and take the operator no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.errors import InputError, SpecError
from panewise.kernel.compiled import compiled
from panewise.kernel.keys import codes
from panewise.kernel.page import Array, in_one
from panewise.kernel.prod import phase_of
from panewise.kernel.progress import Progress, progress_of
from panewise.kernel.windows import grid_of
from panewise.local.queue import Queue
from panewise.local.runner import condition_of
from panewise.local.stream import LocalStream
from panewise.spec.aggregates import Aggregates
from panewise.spec.aside import checked_set_aside
from panewise.spec.duration import AmountLike
from panewise.spec.duration import amount as checked_amount
from panewise.spec.frames import RowWindows, Windows
from panewise.spec.plan import PlanSpec
from panewise.spec.prod import InBandProds, Prodder, on_grid
from panewise.spec.prod import prods as checked_prods
from panewise.spec.punctuate import InBand, SlackTime, per_key

__all__ = ["Delivered", "deliver", "instants", "punctuated"]

Seconds = Union[Sequence[float], Array]
_SECOND = 1_000_000
_STEPS = 2_000
"""How often it is looked what has come out, where it is not known when something may."""
_UNITS = {"micros": 1 / _SECOND, "days": 86_400.0, "whole": 1.0, "real": 1.0}
"""How many seconds of the clock a unit of `at` is."""


@dataclass(frozen=True)
class Delivered:
    """Results, each with the time at which it came, and the rows that they are made of."""

    results: pa.Table
    """As of the plan, with `clock`, in seconds, and `latency`, from the first arrival in the segment to the result."""
    counts: dict[str, int]

    def accuracies(self) -> pa.Table:
        """Early answers whose final ones came: keys, `number`, `seconds` before, accuracies."""
        finals = self.results.filter(pc.equal(self.results.column("timing"), "final"))
        early = in_one(finals.column("early"))
        told = pc.list_flatten(early)
        of_all = pa.Table.from_struct_array(told)
        near = pa.Table.from_struct_array(in_one(of_all.column("accuracy")))
        owner = pc.list_parent_indices(early)
        latency = in_one(finals.column("latency")).take(owner)
        gain = pc.divide(in_one(of_all.column("seconds")), latency)
        names = finals.column_names
        own = {name: in_one(finals.column(name)).take(owner) for name in names[: names.index("segment")]}
        own |= {
            "number": of_all.column("number"),
            "seconds": of_all.column("seconds"),
            "latency": latency,
            "gain": gain,
        }
        return pa.table({**own, **{name: near.column(name) for name in near.column_names}})


def instants(
    seconds: float, rate: float, rng: np.random.Generator, bursts: Sequence[tuple[float, float, float]] = ()
) -> Array:
    """So many rows a second, at random instants; and in each burst (its start, its length, its rate) more of them.

    >>> at = instants(100, 5, np.random.default_rng(1), bursts=[(20, 10, 50)])
    >>> len(at), int(((at >= 20) & (at < 30)).sum())
    (1000, 558)
    """
    found = [rng.random(round(rate * seconds)) * seconds]
    found += [start + rng.random(round(more * length)) * length for start, length, more in bursts]
    return np.sort(np.concatenate(found))


def punctuated(rows: pa.Table, at: str, every: AmountLike, arrival: Seconds) -> tuple[pa.Table, Array]:
    """Rows, and marks of a source that knows what it has sent; and when each arrives.

    A mark (a row whose `mark` is true) says that nothing more comes before a multiple of `every`: once the clock has
    passed it, and all rows before it have arrived.
    """
    column, arrived = in_one(rows.column(at)), np.asarray(arrival, np.float64)
    progress = progress_of(at, column.type)
    numbers, step = progress.numbers(column), progress.amount("every", checked_amount("every", every))
    order = np.argsort(numbers, kind="stable")
    numbers, came = numbers[order], np.maximum.accumulate(arrived[order])
    ends = np.arange(numbers[0] // step + 1, numbers[-1] // step + 2) * step if len(numbers) else numbers
    before = np.searchsorted(numbers, ends) - 1
    told = np.maximum(ends * _UNITS[progress.unit], came[before])
    marks = pa.table({at: progress.bounds(progress.below(ends)), "mark": np.ones(len(ends), bool)})
    both = [rows.append_column("mark", pa.array(np.zeros(len(rows), bool))), marks]
    return pa.concat_tables(both, promote_options="permissive"), np.concatenate([arrived, told])


@compiled
def _finished(arrival: Any, cost: Any) -> Any:
    """When each row has been processed, one after another."""
    found = np.empty(len(arrival))
    free = -np.inf
    for i in range(len(arrival)):
        free = max(free, arrival[i]) + cost
        found[i] = free
    return found


def deliver(
    plan: PlanSpec,
    rows: pa.Table,
    agg: Aggregates | None = None,
    *,
    arrival: Seconds | None = None,
    delay: float | Seconds = 0.0,
    prods: Any = True,
    prod_at: Sequence[tuple[float, Any]] = (),
    cost: float = 0.0,
    set_aside: Any = None,
) -> Delivered:
    """Run a plan over rows that arrive at these times, in seconds; rows in an operator's queue wait for it.

    Without `arrival` a row arrives at its own `at`; `delay`, for all or for each, is added. `prods` is as for streams;
    `prod_at` are prods of a person: when, and up to which `at`. Rows that are `set_aside` leave the queue at once, and
    are processed behind others: one after every so many, all of them while nothing waits.
    """
    chain = plan.chain()
    if any(isinstance(each.scheme, RowWindows) for each in chain):
        raise SpecError(
            "`plan` (row_windows): its windows are bounded by numbers of rows, which says nothing of when their rows "
            "arrive. Give one of times, or LocalStream(plan, prods=True), whose results have a latency."
        )
    given = on_grid(checked_prods(prods), chain[-1].scheme)
    if given is None:
        raise SpecError("`prods` (None): a delivery is about early answers. Give a prodder, or True.")
    if not 0 <= cost < np.inf:
        raise SpecError(f"`cost` ({cost}) must be a number of seconds, at least 0. Give what a row takes.")
    arrived = _arrived(plan, rows, arrival, delay)
    order = np.argsort(arrived, kind="stable")
    rows, arrived = rows.take(pa.array(order)), arrived[order]
    stream = LocalStream(plan, agg, prods=given, set_aside=set_aside, lasting=True)
    elements, marked, asks = stream.read(rows), _where(plan.punctuation, rows), _where(given.in_band, rows)
    places = np.unique(np.concatenate([_places(plan, rows, marked, asks), np.flatnonzero(asks)]))
    progress = progress_of(plan.ordered_by, rows.column(plan.ordered_by).type)
    asked = _Asked(given.prodder, progress, stream, prod_at, float(arrived[0]) if len(arrived) else 0.0)
    spec = checked_set_aside(set_aside, plan.scheme, given)
    if spec is None:
        results = _in_turn(stream, elements, places, _finished(arrived, float(cost)), asked)
    else:
        results = _queued(stream, elements, places, Queue(arrived, float(cost), spec), asked)
    data = ~marked & ~asks & np.asarray(rows.column(plan.ordered_by).is_valid().to_numpy())
    first = _first_arrivals(plan, results, rows.filter(pa.array(data)), arrived[data])
    latency = results.column("clock").to_numpy() - first
    return Delivered(results.drop_columns(["latency"]).append_column("latency", pa.array(latency)), dict(stream.counts))


def _in_turn(stream: LocalStream, elements: pa.Table, places: Array, finished: Array, asked: _Asked) -> pa.Table:
    """Results of rows that are processed one after another, and are by these times."""
    made, begin = [], 0
    for clock, told, last in _moments(finished[places], finished, asked):
        end = int(np.searchsorted(finished, clock, side="right"))
        found = stream.take(elements.slice(begin, end - begin), clock=clock, prod=told, final=last)
        made.append(found.append_column("clock", pa.array(np.full(len(found), clock))))
        begin = end
    return pa.concat_tables(made)


def _queued(stream: LocalStream, elements: pa.Table, places: Array, queue: Queue, asked: _Asked) -> pa.Table:
    """Results of rows some of which are set aside: the stream says which, and the queue when."""
    clock, made = -np.inf, []
    while queue:
        behind = int(np.searchsorted(places, queue.place))
        stop = int(places[behind]) + 1 if behind < len(places) else len(elements)
        some = elements.slice(queue.place, stop - queue.place)
        served = queue.serve(stream.sets_aside(some), asked.when)
        clock = max(clock, served.clock)
        told = asked.due(clock)
        found = stream.take(some.slice(0, served.taken), clock=clock, prod=told, aside=served.low)
        queue.aside = stream.aside
        made.append(found.append_column("clock", pa.array(np.full(len(found), clock))))
    last = stream.take(elements.slice(0, 0), clock=max(clock, 0.0), final=True)
    return pa.concat_tables([*made, last.append_column("clock", pa.array(np.full(len(last), clock)))])


def _arrived(plan: PlanSpec, rows: pa.Table, arrival: Seconds | None, delay: float | Seconds) -> Array:
    if arrival is None:
        column = in_one(rows.column(plan.ordered_by))
        if column.null_count:
            raise InputError(f"`arrival` (None): {column.null_count:,} rows have no {plan.ordered_by}. Give `arrival`.")
        progress = progress_of(plan.ordered_by, column.type)
        arrival = progress.numbers(column) * _UNITS[progress.unit]
    arrived, more = np.asarray(arrival, np.float64), np.asarray(delay, np.float64)
    if len(arrived) != len(rows):
        raise InputError(f"`arrival` has {len(arrived):,} times for {len(rows):,} rows. Give one for each row.")
    if more.shape not in ((), arrived.shape):
        raise InputError(f"`delay` has {more.size:,} times for {len(rows):,} rows. Give one for all, or one for each.")
    found = np.asarray(arrived + more)
    if not np.isfinite(found).all():
        wrong = found[~np.isfinite(found)][0]
        raise InputError(f"`arrival` and `delay` give {wrong} for a row, which is no time. Give finite seconds.")
    return found


def _where(given: object, rows: pa.Table) -> Array:
    """Which rows are punctuations, or prods."""
    if not isinstance(given, (InBand, InBandProds)):
        return np.zeros(len(rows), bool)
    found = condition_of("condition", given.condition, rows)
    return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False))


def _places(plan: PlanSpec, rows: pa.Table, marked: Array, asks: Array) -> Array:
    """The rows with which something final can come out."""
    column = in_one(rows.column(plan.ordered_by))
    progress = progress_of(plan.ordered_by, column.type)
    given, known = plan.punctuation, not column.null_count and not per_key(plan)
    found = np.flatnonzero(marked) if isinstance(given, InBand) else np.arange(len(rows))
    if isinstance(given, InBand):
        if not known or not isinstance(plan.scheme, Windows):
            return found
        promised = progress.numbers(column.filter(pa.array(marked)))
    elif known and isinstance(given, SlackTime) and given.ahead_limit is None and isinstance(plan.scheme, Windows):
        at = np.where(asks, progress.nothing, progress.numbers(column))
        promised = progress.below(progress.earlier(at, progress.amount("slack", given.amount)))
    else:
        return found[:: max(1, len(found) // _STEPS)]
    complete = grid_of(plan.scheme, progress).complete(np.maximum.accumulate(promised), progress)
    return found[np.diff(complete, prepend=complete[:1] - 1) > 0]


def _moments(steps: Array, finished: Array, asked: _Asked) -> Iterator[tuple[float, list[dict[str, Any]], bool]]:
    """When something can come out: a clock, what people ask for, whether it is the end."""
    last, clock = float(finished[-1]) if len(finished) else 0.0, -np.inf
    for moment in [*np.unique(steps).tolist(), last]:
        while asked.when <= moment:
            # an autopilot may just have become more eager
            clock = max(clock, asked.when)
            yield clock, asked.due(clock), False
        clock = max(clock, moment)
        yield clock, [], False
    yield clock, [], True


class _Asked:
    """When the next prod is due, of the clock or of a person; a prodder is as aggressive as it is by now."""

    def __init__(
        self,
        spec: Prodder | None,
        progress: Progress,
        stream: LocalStream,
        prod_at: Sequence[tuple[float, Any]],
        first: float,
    ) -> None:
        self._spec, self._stream = spec, stream
        self._people = sorted(prod_at, key=lambda each: each[0])
        self._every = np.inf if spec is None else spec.every.micros / _SECOND
        self._phase = 0 if spec is None else phase_of(spec, progress)
        self._slide = int((first - self._phase / _SECOND) // self._every)

    @property
    def _tick(self) -> float:
        if self._spec is None:
            return np.inf
        share, every = self._stream.prods.aggressiveness, self._spec.every.micros
        share = (self._spec.aggressiveness if share is None else share) or 0.0
        # in whole microseconds, as the prodder itself counts; its clock begins at 0
        return max(self._slide * every + self._phase - round(share * every), 0) / _SECOND

    @property
    def when(self) -> float:
        """The time of the next."""
        return min([self._tick, *(at for at, _ in self._people[:1])])

    def due(self, clock: float) -> list[dict[str, Any]]:
        """What people ask for by now; the stream knows by itself what the clock does."""
        while self._tick <= clock:
            self._slide += 1
        found = [{"until": until} for at, until in self._people if at <= clock]
        self._people = self._people[len(found) :]
        return found


def _first_arrivals(plan: PlanSpec, results: pa.Table, rows: pa.Table, arrived: Array) -> Array:
    """When the first row of each segment arrived."""
    first = np.full(len(results), np.nan)
    if not len(results) or not len(rows):
        return first
    column = in_one(rows.column(plan.ordered_by))
    progress = progress_of(plan.ordered_by, column.type)
    at, segment = progress.numbers(column), in_one(results.column("segment"))
    start, end = (progress.numbers(pc.struct_field(segment, name)) for name in ("start", "end"))
    closed = np.asarray(pc.ends_with(pc.struct_field(segment, "bounds"), "]").to_numpy(zero_copy_only=False))
    keys = [
        pa.concat_arrays([in_one(table.column(name)) for table in (rows, results)])
        for name in plan.keys
        if name in results.column_names
    ]
    owners, _ = codes(keys, len(rows) + len(results))
    mine, theirs = owners[: len(rows)], owners[len(rows) :]
    order = np.lexsort((at, mine))
    edges = np.searchsorted(mine[order], np.arange(owners.max() + 2))
    for key in np.unique(theirs):
        own, asked = order[edges[key] : edges[key + 1]], np.flatnonzero(theirs == key)
        low = np.searchsorted(at[own], start[asked], "left")
        high = np.where(closed[asked], *(np.searchsorted(at[own], end[asked], side) for side in ("right", "left")))
        first[asked] = _least(arrived[own], low, high)
    return first


def _least(values: Array, low: Array, high: Array) -> Array:
    """The least of the values from `low` on and before `high`; of none, NaN.

    >>> _least(np.array([3.0, 1.0, 2.0]), np.array([0, 2, 1]), np.array([1, 3, 1])).tolist()
    [3.0, 2.0, nan]
    """
    found = np.minimum.reduceat(np.append(values, np.inf), np.stack([low, high], axis=1).ravel())[::2]
    return np.where(high > low, found, np.nan)

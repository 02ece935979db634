"""The segment operator: pages in, segments out, state in arrays; the one protocol is on_page, snapshot, restore."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from panewise.kernel import chainstate, folds, mixedruns, plainruns, runs, runstate
from panewise.kernel import segmenting as sg
from panewise.kernel.aggregate import aggregate
from panewise.kernel.aggregates import Aggregation
from panewise.kernel.boundary import boundary
from panewise.kernel.custom import custom
from panewise.kernel.delta import delta
from panewise.kernel.framing import ChainFraming, Framing, RunFraming, settings
from panewise.kernel.page import Array, Page
from panewise.kernel.pieces import Pieces, Spans
from panewise.kernel.progress import Progress
from panewise.kernel.session import session
from panewise.kernel.threshold import hysteresis, threshold
from panewise.kernel.trend import trend
from panewise.spec.emit import FINAL, Emit
from panewise.spec.frames import (
    AggregateFrames,
    BoundaryFrames,
    ChainFrames,
    CustomFrames,
    DeltaFrames,
    HysteresisFrames,
    Scheme,
    SessionFrames,
    ThresholdFrames,
    TrendFrames,
)
from panewise.spec.options import Chained, Saturated

__all__ = ["FRAMINGS", "SegmentOperator", "Segments", "Snapshot", "joined"]

FRAMINGS: dict[type, Callable[[Any], Framing]] = {
    ThresholdFrames: threshold,
    HysteresisFrames: hysteresis,
    BoundaryFrames: boundary,
    TrendFrames: trend,
    SessionFrames: session,
    DeltaFrames: delta,
    AggregateFrames: aggregate,
    CustomFrames: custom,
}
"""How each scheme reads a page. A new scheme is known everywhere once it stands here."""

Snapshot = dict[str, Array]
_ARRAYS = ("group", "start", "end", "flags", "rows", "ids", "part", "ff", "fi")
Arrays = tuple[Array, ...]


@dataclass(frozen=True)
class Segments:
    """Segments as columns: the group of the page they belong to, bounds, flags, rows, id, folds."""

    group: Array
    start: Array
    end: Array
    flags: Array
    rows: Array
    ids: Array
    part: Array
    ff: Array
    fi: Array
    reduced: tuple[pa.Array, ...] = ()
    """The states of reducers."""

    def __len__(self) -> int:
        return len(self.group)

    def slice(self, first: int, count: int) -> Segments:
        """Some of them, next to each other."""
        made: dict[str, Any] = {name: getattr(self, name)[first : first + count] for name in _ARRAYS}
        return Segments(**made, reduced=tuple(each.slice(first, count) for each in self.reduced))

    def at(self, places: Array) -> Segments:
        """Those in these places."""
        made: dict[str, Any] = {name: getattr(self, name)[places] for name in _ARRAYS}
        return Segments(**made, reduced=tuple(each.take(pa.array(places)) for each in self.reduced))

    def of(self, chosen: Array) -> Segments:
        """Some of them."""
        made: dict[str, Any] = {name: getattr(self, name)[chosen] for name in _ARRAYS}
        return Segments(**made, reduced=tuple(each.filter(pa.array(chosen)) for each in self.reduced))


def joined(some: Sequence[Segments]) -> Segments:
    """Segments, and more segments."""
    made: dict[str, Any] = {name: np.concatenate([getattr(each, name) for each in some]) for name in _ARRAYS}
    states = tuple(pa.concat_arrays(each) for each in zip(*(segments.reduced for segments in some), strict=True))
    return Segments(**made, reduced=states)


def _ragged(slots: Array, owners: Array) -> tuple[Array, Array]:
    """Where each slot's entries lie in a list sorted by owner: their indices slot by slot, and offsets into those."""
    low, high = np.searchsorted(owners, slots, "left"), np.searchsorted(owners, slots, "right")
    counts = high - low
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    index = np.repeat(low - offsets[:-1], counts) + np.arange(offsets[-1])
    return index.astype(np.int64), offsets


class _Waiting:
    """Rows of several arrays that wait for more rows of their key: struct of arrays, sorted by slot."""

    def __init__(self, arrays: Arrays) -> None:
        self.owners = np.empty(0, np.int64)
        self.arrays = arrays

    def take(self, slots: Array) -> tuple[Arrays, Array]:
        """Take out what the slots own."""
        if not len(self.owners):
            return self.arrays, np.zeros(len(slots) + 1, np.int64)
        index, offsets = _ragged(slots, self.owners)
        taken = tuple(array[index] for array in self.arrays)
        rest = np.ones(len(self.owners), bool)
        rest[index] = False
        self.owners = self.owners[rest]
        self.arrays = tuple(array[rest] for array in self.arrays)
        return taken, offsets

    def put(self, owners: Array, arrays: Arrays) -> None:
        """Put back what goes on waiting."""
        if not len(owners):
            return
        owners = np.concatenate([self.owners, owners])
        order = np.argsort(owners, kind="stable")
        self.owners = owners[order]
        self.arrays = tuple(np.concatenate([a, b])[order] for a, b in zip(self.arrays, arrays, strict=True))


class SegmentOperator:
    """Finds the segments of one scheme, page after page, for any number of keys."""

    def __init__(self, scheme: Scheme, progress: Progress, aggregation: Aggregation, emit: Emit = FINAL) -> None:
        self._framing = framing = FRAMINGS[type(scheme)](scheme)
        self._aggregation = aggregation
        whole, measured = settings(scheme, progress, emit, framing.fewest if isinstance(framing, RunFraming) else 1)
        self._pieces = Pieces(aggregation.reducers) if aggregation.reducers else None
        self._width = folding = len(aggregation) + (self._pieces is not None)
        dtype = progress.dtype
        hides = scheme.nulls == "invisible"
        self._folds = sg.N_FOLDS if hides else 1
        self._dtype = dtype
        if isinstance(framing, RunFraming):
            whole += [framing.split, int(framing.gaps)]
            measured.append(0 if framing.apart is None else progress.amount("gap", framing.apart))
            slots = runstate.fold_slots(framing.gaps, hides)
            shapes = {
                "ats": ((runstate.N_ATS,), dtype),
                "numbers": ((runstate.N_INTS,), np.int64),
                "previous": ((framing.width,), np.float64),
                "ff": ((slots, folding, 3), np.float64),
                "fi": ((slots, folding, 2), np.int64),
            }
        else:
            assert isinstance(scheme, ChainFrames)
            whole += [int(scheme.closing == "include"), _placement(scheme), int(scheme.remainder), int(framing.solo)]
            self._form = (framing.kind, np.asarray(framing.bounds, np.float64), framing.strict)
            shapes = {
                "ats": ((chainstate.N_ATS,), dtype),
                "numbers": ((chainstate.N_INTS,), np.int64),
                "ff": ((folding, 3), np.float64),
                "fi": ((folding, 2), np.int64),
            }
            self._held = _Waiting(self._no_frames(0))
        self._shapes = shapes
        self._state = {name: np.zeros((0, *shape), kind) for name, (shape, kind) in shapes.items()}
        self._carried = _Waiting(self._no_records(0))
        self._whole, self._measured = np.asarray(whole, np.int64), np.asarray(measured, dtype)

    def _no_records(self, room: int) -> Arrays:
        n = self._width
        return (
            np.empty((room, 2), self._dtype),
            np.empty((room, 5), np.int64),
            np.empty((room, n, 3), np.float64),
            np.empty((room, n, 2), np.int64),
        )

    def _no_frames(self, room: int) -> Arrays:
        assert isinstance(self._framing, ChainFraming)
        n = self._width
        return (
            np.empty((room, chainstate.N_FRAME_ATS), self._dtype),
            np.empty((room, chainstate.N_FRAME_INTS), np.int64),
            np.empty((room, self._framing.cells), np.float64),
            np.empty((room, self._folds, n, 3), np.float64),
            np.empty((room, self._folds, n, 2), np.int64),
        )

    def _reserve(self, slots: int) -> None:
        have = len(self._state["numbers"])
        if slots > have:
            room = max(slots, 2 * have)
            for name, (shape, kind) in self._shapes.items():
                more = np.zeros((room, *shape), kind)
                more[:have] = self._state[name]
                self._state[name] = more

    @property
    def takes_mixed(self) -> bool:
        """Whether rows of several keys may come in order of time, as they are: see `on_mixed`."""
        if self._pieces is not None or not isinstance(self._framing, RunFraming):
            return False
        return bool(plainruns.is_simple(self._whole, self._framing.width))

    def on_mixed(self, page: Page, groups: Array) -> Segments:
        """The same as `on_page`, of rows in order of time: `groups` says of which group each is, and `offsets` nothing.

        No key ends, has two rows at one instant, or was promised anything.
        """
        codes, values = self._framing.read(page)
        self._reserve(int(page.slots.max()) + 1 if len(page.slots) else 0)
        inputs, _ = self._inputs(page)
        state = self._state
        records, count = mixedruns.mixed_page(
            page.at, codes, np.ascontiguousarray(values), groups, page.slots, self._whole, self._measured, inputs,
            state["ats"], state["numbers"], state["previous"], state["ff"], state["fi"], self._no_records(1),
        )  # fmt: skip
        # there was room for every row, and what is found is kept
        return _segments(*(array[:count].copy() for array in records))

    def on_page(self, page: Page) -> Segments:
        """Take the next rows of some keys and give the segments that became certain."""
        framing = self._framing
        codes, values = framing.read(page)
        self._reserve(int(page.slots.max()) + 1 if len(page.slots) else 0)
        inputs, places = self._inputs(page)
        carried, waiting = self._carried.take(page.slots)
        told, until, soonest = page.told, page.until, page.soonest
        if told is None or until is None or soonest is None:
            told, until = np.zeros(len(page.slots), bool), np.zeros(len(page.slots), self._dtype)
            soonest = until
        rows = (
            page.at, codes, np.ascontiguousarray(values), page.offsets, page.slots, page.ends, told, until, soonest,
            waiting,
        )  # fmt: skip
        records: Any = self._no_records(64 + len(page) // 16)
        state = self._state
        if isinstance(framing, RunFraming):
            records, count = runs.run_page(
                *rows, self._whole, self._measured, inputs,
                state["ats"], state["numbers"], state["previous"], state["ff"], state["fi"], records, carried,
            )  # fmt: skip
        else:
            held, held_at = self._held.take(page.slots)
            kept_at = np.zeros(len(page.slots) + 1, np.int64)
            records, count, frames = framing.operator(
                self._form, *rows, self._whole, self._measured, inputs,
                state["ats"], state["numbers"], state["ff"], state["fi"],
                records, carried, self._no_frames(64), held, held_at, kept_at,
            )  # fmt: skip
            kept = int(kept_at[-1])
            self._held.put(np.repeat(page.slots, np.diff(kept_at)), tuple(array[:kept] for array in frames))
        bounds, marks, ff, fi = (array[:count] for array in records)
        waits = (marks[:, 1] & sg.CARRIED) != 0
        if waits.any():
            self._carried.put(page.slots[marks[waits, 0]], (bounds[waits], marks[waits], ff[waits], fi[waits]))
            bounds, marks, ff, fi = bounds[~waits], marks[~waits], ff[~waits], fi[~waits]
        reduced: list[pa.Array] = []
        if self._pieces is not None:
            reduced = self._pieces.cut(page, places, Spans(fi[:, -1]), Spans(self._live()))
            ff, fi = ff[:, :-1], fi[:, :-1]
        return _segments(bounds, marks, ff, fi, reduced)

    def _inputs(self, page: Page) -> tuple[Arrays, Array]:
        """What folds read; where there are reducers, also which rows there are."""
        aggregation, valid, ints = self._aggregation, page.valid, page.ints
        if self._pieces is None:
            return (aggregation.kinds, aggregation.lanes, page.floats, ints, valid), np.empty(0, np.int64)
        places = self._pieces.places(page)
        kinds, lanes = np.append(aggregation.kinds, folds.SPAN), np.append(aggregation.lanes, len(ints))
        every = np.ones((1, len(page)), np.uint8)
        return (kinds, lanes, page.floats, np.vstack([ints, places[None]]), np.vstack([valid, every])), places

    def _live(self) -> Array:
        """The rows of all folds that are in use, as a fold has them."""
        numbers, fi = self._state["numbers"], self._state["fi"][..., -1, :]
        if isinstance(self._framing, RunFraming):
            found = [fi[runstate.live(numbers, fi.shape[1])]]
        else:
            between = numbers[:, chainstate.BETWEEN] == 1
            held = self._held.arrays[4][..., -1, :]
            found = [fi[between], held[:, 0], held[between[self._held.owners], 1:].reshape(-1, 2)]
        return np.concatenate([*found, self._carried.arrays[3][:, -1]])

    def standing(self) -> Snapshot:
        """The snapshot of a single key without what no later row can see: equal standings have equal futures."""
        found = self.snapshot()
        settle = runstate.forget_stale if isinstance(self._framing, RunFraming) else chainstate.forget_stale
        settle(found)
        if self._pieces is not None:
            self._pieces.standing(found)
        return found

    def has_forgotten(self, standing: Snapshot) -> bool:
        """Whether a single key would stand the same whatever came before its rows; False where that is unsure."""
        return self.forgets and bool(runstate.has_forgotten(standing["numbers"])[0])

    @property
    def forgets(self) -> bool:
        """Whether there are rows after which nothing before them matters."""
        framing = self._framing
        return isinstance(framing, RunFraming) and framing.local and not framing.gaps

    def forgotten(self, slots: Array) -> Array:
        """For which of these slots nothing matters that came before the first row that they have seen."""
        return runstate.has_forgotten(self._state["numbers"][slots])

    @property
    def open(self) -> int:
        """How many segments are open."""
        if isinstance(self._framing, RunFraming):
            return int(self._state["numbers"][:, runstate.RUN_OPEN].sum())
        return len(self._held.owners)

    def promise_of_new(self, until: Any, progress: Progress, ends: bool = False) -> Any:
        """The same of a key that has had no row."""
        return until

    def promise(self, until: Array, progress: Progress, ends: bool = False) -> Array:
        """For each slot, whose rows have come up to `until`, an instant at or before which nothing to come starts.

        Nor does it end there, but that more can't be said of ends.
        """
        self._reserve(len(until))
        bound = until.copy()
        starts = list(self._starts(len(until)))
        owners, arrays = self._carried.owners, self._carried.arrays
        starts.append((owners, arrays[0][:, 0], (arrays[1][:, 1] & sg.START_INCLUDED) == 0))
        for slots, start, excluded in starts:
            np.minimum.at(bound, slots, np.where(excluded, start, progress.below(start)))
        return bound

    def _starts(self, slots: int) -> Iterator[tuple[Array, Array, Array]]:
        """Slots, starts of what is open there, or may open, and whether that instant is excluded."""
        a, s = self._state["ats"][:slots], self._state["numbers"][:slots]
        if isinstance(self._framing, RunFraming):
            yield from runstate.starts(a, s, self._whole)
            return
        held, fa, fn = self._held.owners, self._held.arrays[0], self._held.arrays[1]
        yield from chainstate.starts(a, s, held, fa, fn, self._whole)

    def state(self, slots: int) -> Snapshot:
        """All state of the first slots, as named arrays that go on being used."""
        self._reserve(slots)
        return self._named(slots)

    def snapshot(self) -> Snapshot:
        """All state, as named arrays of its own."""
        return {name: array.copy() for name, array in self._named(None).items()}

    def _named(self, slots: int | None) -> Snapshot:
        found = {name: array[:slots] for name, array in self._state.items()}
        found["carried_owners"] = self._carried.owners
        found |= {f"carried_{i}": array for i, array in enumerate(self._carried.arrays)}
        if isinstance(self._framing, ChainFraming):
            found["held_owners"] = self._held.owners
            found |= {f"held_{i}": array for i, array in enumerate(self._held.arrays)}
        return found if self._pieces is None else found | self._pieces.state()

    def snapshot_of(self, slots: Array) -> Snapshot:
        """The state of some slots, which are numbered anew, from 0."""
        self._reserve(int(slots.max(initial=-1)) + 1)
        found = {name: array[slots] for name, array in self._state.items()}
        for name, waiting in self._waiting.items():
            index, offsets = _ragged(slots, waiting.owners)
            found[f"{name}_owners"] = np.repeat(np.arange(len(slots)), np.diff(offsets))
            found |= {f"{name}_{i}": array[index] for i, array in enumerate(waiting.arrays)}
        return found

    def standing_of(self, slots: Array) -> Snapshot:
        """The same without what no later row can see: where two are equal, so are their futures."""
        found = self.snapshot_of(slots)
        (runstate.forget_stale if isinstance(self._framing, RunFraming) else chainstate.forget_stale)(found)
        return found

    def overwrite(self, slots: Array, snapshot: Snapshot) -> None:
        """Put the state of others in the place of some slots."""
        self._reserve(int(slots.max(initial=-1)) + 1)
        for name, array in self._state.items():
            array[slots] = snapshot[name]
        for name, waiting in self._waiting.items():
            waiting.take(slots)
            arrays = tuple(snapshot[f"{name}_{i}"] for i in range(len(waiting.arrays)))
            waiting.put(slots[snapshot[f"{name}_owners"]], arrays)

    @property
    def _waiting(self) -> dict[str, _Waiting]:
        """What waits for more rows, by its name in a snapshot."""
        held = {} if isinstance(self._framing, RunFraming) else {"held": self._held}
        return {"carried": self._carried, **held}

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot."""
        self.resume({name: array.copy() for name, array in snapshot.items()})

    def resume(self, snapshot: Snapshot) -> None:
        """Go on from a state that nobody else uses."""
        self._state = {name: _fitted(snapshot[name], shape) for name, (shape, _) in self._shapes.items()}
        self._carried.owners = snapshot["carried_owners"]
        self._carried.arrays = tuple(snapshot[f"carried_{i}"] for i in range(4))
        if isinstance(self._framing, ChainFraming):
            self._held.owners = snapshot["held_owners"]
            self._held.arrays = tuple(snapshot[f"held_{i}"] for i in range(5))
        if self._pieces is not None:
            self._pieces.resume(snapshot)


def _segments(bounds: Array, marks: Array, ff: Array, fi: Array, reduced: Sequence[pa.Array] = ()) -> Segments:
    """What records say."""
    return Segments(
        marks[:, 0], bounds[:, 0], bounds[:, 1], marks[:, 1], marks[:, 2], marks[:, 3], marks[:, 4], ff, fi,
        tuple(reduced),
    )  # fmt: skip


def _fitted(array: Array, shape: tuple[int, ...]) -> Array:
    """With room for what has been added at the end since it was written: zeros."""
    if array.shape[1:] == shape:
        return array
    found = np.zeros((len(array), *shape), array.dtype)
    found[tuple(slice(0, size) for size in array.shape)] = array
    return found


def _placement(scheme: ChainFrames) -> int:
    if isinstance(scheme.placement, Chained):
        return chainstate.CHAINED
    if isinstance(scheme.placement, Saturated):
        return chainstate.SATURATED
    return {"close": chainstate.CLOSE, "drop": chainstate.DROP, "continue": chainstate.CONTINUE}[
        scheme.placement.on_overlap
    ]

"""How good early answers were, once the final ones are known: until then they are kept, to be compared with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.errors import DataError, InputError, did_you_mean
from panewise.kernel.keys import codes
from panewise.kernel.page import Array, in_one
from panewise.kernel.progress import Progress

__all__ = ["KEPT", "Learned", "Ledger", "accuracy", "check_measures", "early_type", "joined"]

Measure = Callable[[Array, Array, Array], Array]
"""Early values, final values, and the seconds between the two, to accuracies."""
About = tuple[Array, Array, Array]
"""What answers are about: slots, starts, and which of those that start there, of windows by their ids."""

_SECOND = 1_000_000
KEPT = 16
"""How many early answers about one segment are kept, to be compared with the final one: the first, and the latest."""


def accuracy(early: Array, final: Array, seconds: Array) -> Array:
    """How near early values are to final ones: max(0, 1 - |F - E| / |F|); of a final 0, whether the early one is too.

    So it is of a final one that is infinite, or no number.

    >>> accuracy(np.array([110.0, 0.0, 1.0]), np.array([135.0, 0.0, 0.0]), np.zeros(3)).round(3).tolist()
    [0.815, 1.0, 0.0]
    >>> accuracy(np.array([np.inf, 1.0, np.nan]), np.array([np.inf, np.inf, np.nan]), np.zeros(3)).tolist()
    [1.0, 0.0, 1.0]
    """
    exact = (final == 0) | ~np.isfinite(final)
    same = (early == final) | (np.isnan(early) & np.isnan(final))
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(final - early) / np.where(exact, 1, np.abs(final))
        return np.asarray(np.where(exact | np.isnan(off), same, np.maximum(0.0, 1.0 - off)), np.float64)


@dataclass(frozen=True)
class Learned:
    """Early answers whose final ones came: how aggressive the prodder was, and accuracies.

    It is 0 for what had ended when it asked, and NaN for other prods.
    """

    share: Array
    accuracy: Array
    """A row for each answer, a column for each aggregate; NaN where there was neither value."""


def joined(first: Learned, more: Learned) -> Learned:
    """All of it."""
    return Learned(np.concatenate([first.share, more.share]), np.concatenate([first.accuracy, more.accuracy]))


def early_type(outputs: pa.Schema) -> pa.DataType:
    """What is told with a final answer of the early ones: their number, how long before, and how near they were."""
    near = pa.struct([(field.name, pa.float64()) for field in outputs])
    return pa.list_(pa.struct([("number", pa.int64()), ("seconds", pa.float64()), ("accuracy", near)]))


class Ledger:
    """Early answers that wait for their final ones, a few for each segment, and what has come of those that met."""

    def __init__(self, outputs: pa.Schema, progress: Progress, measure: Any = None, windows: bool = False) -> None:
        self._outputs, self._progress, self._windows = outputs, progress, windows
        named: dict[str, Measure] = measure if isinstance(measure, dict) else {}
        other = accuracy if measure is None or named else measure
        self._measures = [named.get(name, other) for name in outputs.names]
        self.held = self._empty()
        self.totals: dict[str, Any] = {"early": 0, "matched": 0}
        self.means: dict[str, list[float]] = {name: [0, 0.0, math.inf] for name in outputs.names}
        """Of each aggregate: how many early answers met their final ones, the sum of accuracies, and the worst."""
        self.latencies: list[float] = [0, 0.0, 0.0, 0.0]
        """Of how many both latencies are known; the sums of early ones, of final ones, and of gains."""

    def _empty(self) -> pa.Table:
        own = [("slot", pa.int64()), ("start", pa.from_numpy_dtype(self._progress.dtype)), ("which", pa.int64())]
        told = [("number", pa.int64()), ("clock", pa.int64()), ("share", pa.float64())]
        # under names of their own: an aggregate may have any
        values = [(f"a{i}", field.type) for i, field in enumerate(self._outputs)]
        return pa.schema([*own, *told, *values]).empty_table()

    def about(self, slots: Array, start: Array, ids: Array) -> About:
        """What all answers of a time are about."""
        if self._windows:
            return slots, start, ids
        # the id of a frame may still change; those that start at one instant come in their order
        found, _ = codes([pa.array(slots), pa.array(start)], len(slots))
        order = np.argsort(found, kind="stable")
        which = np.empty(len(slots), np.int64)
        which[order] = np.arange(len(slots)) - np.searchsorted(found[order], found[order])
        return slots, start, which

    def _beside(self, given: Sequence[Array]) -> tuple[Array, Array]:
        """A number for each that is given, and one for each that is held: equal if they are, in what is given."""
        named = zip(given, ("slot", "start", "which"), strict=False)
        both = [pa.concat_arrays([pa.array(each), in_one(self.held.column(name))]) for each, name in named]
        count = len(given[0])
        found, _ = codes(both, count + len(self.held))
        return found[:count], found[count:]

    def put(self, about: About, values: Sequence[pa.Array], clock: int, share: Array) -> Array:
        """Early answers; the number of each among those about the same segment.

        `share` is how aggressive the prodder was that asked for it, 0 after its end; NaN if it was another prod.
        """
        mine, others = self._beside(about)
        count = len(mine)
        before = np.full(count + len(others), -1)
        np.maximum.at(before, others, np.asarray(self.held.column("number").to_numpy()))
        number = before[mine] + 1
        told = [pa.array(number), pa.array(np.full(count, clock)), pa.array(share, mask=np.isnan(share))]
        more = pa.Table.from_arrays([*map(pa.array, about), *told, *values], schema=self.held.schema)
        self.held = pa.concat_tables([self._without_old(mine, others, number), more]).combine_chunks()
        self.totals["early"] += count
        return number

    def _without_old(self, mine: Array, others: Array, number: Array) -> pa.Table:
        """What is held, but for those between the first and the latest that make room for these."""
        newest = np.zeros(len(mine) + len(others), np.int64)
        newest[mine] = number
        held = np.asarray(self.held.column("number").to_numpy())
        stays = (held == 0) | (held > newest[others] + 1 - KEPT)
        return self.held if stays.all() else self.held.filter(pa.array(stays))

    def match(self, about: About, values: Sequence[pa.Array], clock: int, latency: Array) -> tuple[pa.Array, Learned]:
        """Final answers; of each, what is told of the early ones, and what a prodder learns from them."""
        kind, held, count = early_type(self._outputs), self.held, len(about[0])
        if not len(held) or not count:
            return pa.nulls(count, kind), Learned(np.empty(0), np.empty((0, len(self._outputs))))
        start = np.asarray(held.column("start").to_numpy())
        # most are about other times
        some = np.flatnonzero((about[1] >= start.min()) & (about[1] <= start.max()))
        mine, others = self._beside([each[some] for each in about])
        finals = np.full(len(some) + len(held), -1)
        finals[mine] = some
        owner = finals[others]
        self.held = held.filter(pa.array(owner < 0)).combine_chunks()
        met = np.flatnonzero(owner >= 0)
        # those of one segment one after another, in their order
        met = met[np.lexsort((np.asarray(held.column("number").to_numpy())[met], owner[met]))]
        owner, taken = owner[met], held.take(pa.array(met))
        self._move_up(about)
        then = np.asarray(taken.column("clock").to_numpy())
        # before the clock had begun no time is known
        seconds = np.where(then < 0, 0.0, (clock - then) / _SECOND)
        self._gain(seconds, np.where(then < 0, np.nan, latency[owner]))
        near = self._near(taken, [in_one(final).take(pa.array(owner)) for final in values], seconds)
        self.totals["matched"] += len(met)
        told = [in_one(taken.column("number")), pa.array(seconds)]
        of_each = kind.value_type.field("accuracy").type
        told.append(
            pa.StructArray.from_arrays(near, fields=list(of_each)) if near else pa.array([{}] * len(met), of_each)
        )
        rows = pa.StructArray.from_arrays(told, fields=list(kind.value_type))
        counts = np.bincount(owner, minlength=count)
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        lists = pa.ListArray.from_arrays(offsets, rows, type=kind, mask=pa.array(counts == 0))
        share = np.asarray(taken.column("share").to_numpy(zero_copy_only=False), np.float64)
        of_all = np.array([each.to_numpy(zero_copy_only=False) for each in near], np.float64)
        learned = Learned(share, of_all.reshape(len(near), len(met)).T)
        return lists, learned

    def _move_up(self, finals: About) -> None:
        """Of those that start at one instant, so many fewer are to come."""
        if self._windows or not len(self.held):
            return
        mine, others = self._beside(finals[:2])
        fewer = np.bincount(mine, minlength=len(mine) + len(others))[others]
        which = pa.array(np.asarray(self.held.column("which").to_numpy()) - fewer)
        self.held = self.held.set_column(self.held.column_names.index("which"), "which", which)

    def _gain(self, seconds: Array, final: Array) -> None:
        """Count latencies, where a final one is known and is none."""
        known = final > 0
        gained = (seconds[known] / final[known]).sum()
        for i, more in enumerate((known.sum(), (final - seconds)[known].sum(), final[known].sum(), gained)):
            self.latencies[i] += more.item()

    def _near(self, early: pa.Table, finals: Sequence[pa.Array], seconds: Array) -> list[pa.Array]:
        """Accuracies of each aggregate, counted."""
        found = []
        each = zip(self._outputs, finals, self._measures, strict=True)
        for i, (field, final, measure) in enumerate(each):
            one = _accuracies(in_one(early.column(f"a{i}")), final, seconds, measure)
            found.append(one)
            known = np.asarray(one.drop_null())
            if len(known):
                count, total, worst = self.means[field.name]
                total, worst = total + float(known.sum()), min(worst, float(known.min()))
                self.means[field.name] = [count + len(known), total, worst]
        return found

    def forget(self, passed: Array) -> None:
        """Of each slot, no segment that starts at or before `passed` comes any more."""
        if len(self.held):
            start = np.asarray(self.held.column("start").to_numpy())
            slots = np.asarray(self.held.column("slot").to_numpy())
            # one that starts just after an instant has that for its start, not included
            self.held = self.held.filter(pa.array(start >= passed[slots])).combine_chunks()

    def facts(self) -> dict[str, Any]:
        """What was counted, as JSON takes it."""
        return {"totals": self.totals, "means": self.means, "latencies": self.latencies}

    def restore(self, facts: Mapping[str, Any], held: pa.Table | None) -> None:
        """Go on from `facts` and what was held."""
        self.totals, self.means = {**self.totals, **facts["totals"]}, {**self.means, **facts["means"]}
        self.latencies = facts["latencies"]
        self.held = self.held if held is None else held.rename_columns(self.held.column_names)


def _accuracies(early: pa.Array, final: pa.Array, seconds: Array, measure: Measure) -> pa.Array:
    """Accuracies; what is no number is right or wrong, and where only one of the two is there, it is wrong."""
    numbers = pa.types.is_integer(early.type) or pa.types.is_floating(early.type) or pa.types.is_decimal(early.type)
    absent = np.asarray(pc.and_(early.is_null(), final.is_null()).to_numpy(zero_copy_only=False))
    lone = np.asarray(pc.xor(early.is_null(), final.is_null()).to_numpy(zero_copy_only=False))
    if numbers:
        a, b = (
            np.asarray(pc.fill_null(x.cast(pa.float64(), safe=False), 0).to_numpy(zero_copy_only=False))
            for x in (early, final)
        )
        found = _measured(measure, a, b, seconds)
    else:
        same = pc.fill_null(pc.equal(early, final), False)
        found = np.asarray(same.to_numpy(zero_copy_only=False), np.float64)
    # what a measure does not know is not counted: no answer is worth a query
    return pa.array(np.where(lone, 0.0, found), mask=absent | (~lone & ~np.isfinite(found)))


def _measured(measure: Measure, early: Array, final: Array, seconds: Array) -> Array:
    found = np.asarray(measure(early, final, seconds), np.float64)
    if found.shape != early.shape:
        raise DataError(
            f"`accuracy` ({getattr(measure, '__name__', measure)}) must give a number for each early value; of "
            f"{len(early)} it gave {found.tolist()[:5] if found.ndim else found.item()}. Make it work on arrays."
        )
    return found


def check_measures(given: Any, names: Sequence[str]) -> None:
    """Refuse measures of aggregates that there are not, and those that do not work on arrays."""
    measures: dict[str, Measure] = given if isinstance(given, dict) else {} if given is None else {"": given}
    for name, measure in measures.items():
        if name and name not in names:
            raise InputError(f"`accuracy` ({name!r}): there is no such aggregate. {did_you_mean(name, names)}")
        some = np.array([1.0, 2.0])
        try:
            _measured(measure, some, some + 1, some)
        except DataError:
            raise
        except Exception as e:
            raise InputError(
                f"`accuracy` ({getattr(measure, '__name__', measure)}) must be a function of early values, final "
                f"values and the seconds between them, as arrays; tried on two of each, it failed: {e}. Correct it."
            ) from e

"""The scan lane of frames: where rows are nothing but Parquet files, Python workers read and frame them.

Row groups are dealt to tasks. Where their statistics say that each begins when the one before has ended, a task has the
rows of a stretch of time, all in order: no key can have rows in it that another task should have seen. Keys with few
rows each are looked for, because their rows are better dealt than framed there. What is not certain to mean the same on
Arrow as in Spark takes the general path, and `explain` says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import expm1, inf, prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panewise.errors import DataError, InputError
from panewise.kernel.framer import Framer
from panewise.kernel.keys import codes
from panewise.kernel.order import is_sorted
from panewise.kernel.page import Array, in_one
from panewise.kernel.progress import aligned
from panewise.kernel.sequence import Layout
from panewise.local.runner import apply_local
from panewise.spark.parquet import Group, Parquet
from panewise.spark.scan import as_spark_has, files_of, two_rows, why_not
from panewise.spec.aggregates import Calls
from panewise.spec.plan import PlanSpec
from panewise.spec.punctuate import InBand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FEW", "FrameScan", "Work", "alike", "frame_scan_of", "scan_of_files", "texts_of"]

_WHOLE = 1 << 22
"""How many rows a row group has at most that may be put in order as a whole."""

FEW = 16
"""How many keys are few: what is found of each may be joined by several tasks."""

_FEW, _SOME = 64, 512
"""How many rows of a key in a task are few; and where its first rows do not soon say what is open behind them."""

_SAMPLE = 1 << 20
"""Of how many rows keys are counted."""

_GLANCE = 1 << 16
"""Of how many rows at the beginning, and at the end, it is asked which key has most."""

_LARGEST, _HEAVIEST = 16, 1 << 23
"""A key with more than this part of all rows, or more rows than that, is not dealt: a task has all of it at once."""

_PIECE = 1 << 18
"""How many rows are looked at at a time: what is done with them stays in the caches of a core."""


@dataclass(frozen=True)
class Work:
    """What a task reads: row groups, each with a number that changes where it may not follow the one before."""

    groups: tuple[tuple[str, int], ...]
    numbers: tuple[int, ...]
    earliest: bool
    """Whether no other has earlier rows."""
    since: Any = None
    until: Any = None
    """From which instant on rows are taken, and before which; None for all."""
    spans: Array | None = None
    """Between which instants the rows of each group are, where that is relied on."""


@dataclass(frozen=True)
class FrameScan:
    """Rows of Parquet files that are framed."""

    rows: Parquet
    layout: Layout
    elements: pa.Schema
    """Of what the operator sees."""
    at: str
    key_names: tuple[str, ...]
    groups: tuple[Group, ...]
    spans: Array | None
    """From when to when the rows of each group are; None where some do not say."""
    keys: float
    """How many there are at most, as far as statistics say."""

    @cached_property
    def always_joins(self) -> bool:
        """Whether parts can be joined whatever is in them, if they do not overlap."""
        return Framer(self.layout).always_joins

    @property
    def few_keys(self) -> bool:
        """Whether statistics say that there are."""
        return self.keys <= FEW

    @property
    def ordered(self) -> bool:
        """Whether each group begins when the one before has ended, or at that instant."""
        if self.spans is None or any(group.rows > _WHOLE for group in self.groups):
            return False
        return bool((self.spans[1:, 0] >= self.spans[:-1, 1]).all())

    @cached_property
    def count(self) -> int:
        """How many rows there are."""
        return sum(group.rows for group in self.groups)

    def work(self, cores: int) -> list[Work]:
        """What each task reads, of about the same size."""
        sizes = np.array([group.size for group in self.groups])
        count = min(self.rows.count(cores, self.count), len(sizes))
        place = (np.cumsum(sizes) - sizes / 2) / max(sizes.sum(), 1) * count
        edges = np.searchsorted(np.minimum(place.astype(np.int64), count - 1), np.arange(count + 1))
        edges = np.unique(edges)
        pairs = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
        if not self.ordered:
            return self._apart(pairs)
        between = [self._between(*pair) for pair in pairs]
        # all that a group has at one instant may belong to the next task
        return [work for work in between if work.since is None or work.since != work.until]

    def _between(self, first: int, last: int) -> Work:
        """Those of a stretch of time; the instant at which it begins may have rows in groups before."""
        assert self.spans is not None
        since = self.spans[first, 0] if first else None
        until = self.spans[last, 0] if last < len(self.groups) else None
        while first and self.spans[first - 1, 1] == since:
            first -= 1
        groups = tuple((group.path, group.number) for group in self.groups[first:last])
        return Work(groups, (0,) * len(groups), since is None, since, until, self.spans[first:last])

    def _apart(self, pairs: Sequence[tuple[int, int]]) -> list[Work]:
        """Those next to each other; a file goes on from the one before if it has nothing earlier."""
        begins, number, numbers, latest = self._begins(), 0, [], None
        for i, group in enumerate(self.groups):
            if i and group.path != self.groups[i - 1].path:
                number += latest is None or begins[group.path] < latest
            numbers.append(number)
            if self.spans is not None:
                latest = self.spans[i, 1] if latest is None else max(latest, self.spans[i, 1])
        groups = [(group.path, group.number) for group in self.groups]
        known = self.spans is not None
        return [Work(tuple(groups[a:b]), tuple(numbers[a:b]), known and a == 0) for a, b in pairs]

    def _begins(self) -> dict[str, Any]:
        """The earliest instant of each file."""
        found: dict[str, Any] = {}
        for group, span in zip(self.groups, () if self.spans is None else self.spans, strict=False):
            found[group.path] = min(span[0], found.get(group.path, span[0]))
        return found

    def has_sparse_keys(self, tasks: int) -> bool:
        """Whether keys have so few rows in each of so many tasks that little is gained by framing these by themselves.

        Where statistics leave it open, a stretch of n rows is looked at: of k keys, some k (1 - exp(-n / k)) are there.
        """
        most = self.count / (tasks * (_FEW if self.always_joins else _SOME))
        if not self.key_names or most >= self.keys:
            return False
        seen, firsts = self._keys_of(len(self.groups) // 2, min(int(2 * most) + 1, _SAMPLE))
        if len(firsts) <= -most * expm1(-len(seen) / most):
            return False
        share = min(1 / _LARGEST, _HEAVIEST / self.count)
        behind = np.cumsum([group.rows for group in reversed(self.groups)])
        last = max(len(self.groups) - 1 - int(np.searchsorted(behind, _GLANCE)), 0)
        looked = (seen, *(self._keys_of(place, _GLANCE)[0] for place in (0, last)))
        return all(np.bincount(some).max(initial=0) <= share * len(some) for some in looked)

    def _keys_of(self, first: int, count: int) -> tuple[Array, Array]:
        """The keys of so many rows, from a group on, as numbers; and those at which each comes first."""
        schema = pa.schema([self.rows.schema.field(name) for name in self.key_names])
        groups = [(group.path, group.number) for group in self.groups[first:]]
        held, rows = list[pa.Table](), 0
        for some in chain.from_iterable(replace(self.rows, schema=schema).read_groups(groups, count)):
            held.append(some)
            rows += len(some)
            if rows >= count:
                break
        seen = pa.concat_tables(held).slice(0, count)
        return codes([in_one(column) for column in seen.columns], len(seen))

    def in_time(self) -> FrameScan:
        """The same, by time if that puts all rows in order; else the files by their beginnings."""
        if self.spans is None:
            return self
        found = self._placed(np.lexsort((self.spans[:, 1], self.spans[:, 0])))
        begins = self._begins()
        order = np.argsort(np.array([begins[group.path] for group in self.groups]), kind="stable")
        return found if found.ordered else self._placed(order)

    def _placed(self, order: Array) -> FrameScan:
        assert self.spans is not None
        return replace(self, groups=tuple(self.groups[i] for i in order.tolist()), spans=self.spans[order])

    def tables(self, work: Work) -> Iterator[tuple[int, pa.Table, bool]]:
        """What the operator sees of the rows, with a number that changes where they may not follow.

        And whether the last instant has no more rows in what comes next.
        """
        read = self.rows.read_groups(work.groups, *([] if work.spans is None else [_WHOLE]))
        for i, (number, tables) in enumerate(zip(work.numbers, read, strict=True)):
            unsure = ((table, False) for table in tables)
            for table, over in unsure if work.spans is None else self._in_order(tables, work, i):
                found = apply_local(self.layout.plan, self.layout.agg, table).rows
                if found.column("at").null_count:
                    found = found.filter(pc.is_valid(found.column("at")))
                yield number, found, over

    def _in_order(self, tables: Iterator[pa.Table], work: Work, i: int) -> Iterator[tuple[pa.Table, bool]]:
        """The rows of a group that a task is to read, by `at`, as they stand where that is the same."""
        whole = pa.concat_tables([*tables])
        if whole.column(self.at).null_count:
            whole = whole.filter(pc.is_valid(whole.column(self.at)))
        at = self._numbers(in_one(whole.column(self.at)))
        if not is_sorted(at):
            order = np.argsort(at, kind="stable")
            whole, at = whole.take(pa.array(order)), at[order]
        assert work.spans is not None
        if len(at) and (at[0] < work.spans[i, 0] or at[-1] > work.spans[i, 1]):
            path, number = work.groups[i]
            raise DataError(
                f"`{path}` has rows beyond what row group {number} says of {self.at!r}: it has changed while it was to "
                "be read, or its statistics are wrong. Read the files anew, or write them anew."
            )
        first = 0 if work.since is None else int(np.searchsorted(at, work.since))
        last = len(at) if work.until is None else int(np.searchsorted(at, work.until))
        # only the last instant of all may go on in the next group
        goes_on = i + 1 < len(work.spans) and last and work.spans[i + 1, 0] == at[last - 1]
        while first < last:
            end = int(np.searchsorted(at[:last], at[min(first + _PIECE, last) - 1], "right"))
            yield whole.slice(first, end - first), end < last or not goes_on
            first = end

    def _numbers(self, at: pa.Array) -> Array:
        return self.layout.progress.numbers(aligned(at, self.layout.at_type))


def frame_scan_of(df: DataFrame, layout: Layout) -> FrameScan | str:
    """How Python workers can read and frame the rows of a DataFrame themselves; or why they can't."""
    plan, calls = layout.plan, layout.agg
    if isinstance(plan.punctuation, InBand):
        return "some rows are punctuations"
    texts = texts_of(plan, calls)
    rows = files_of(df, (plan.ordered_by, *plan.keys, *plan.tie_break), texts)
    if isinstance(rows, str):
        return rows
    try:
        tried = apply_local(plan, calls, two_rows(rows.schema))
    except (InputError, DataError, pa.ArrowException) as e:
        return why_not(e)
    if not alike(tried.layout, layout):
        return "types differ from those of Spark"
    return scan_of_files(rows, layout, tried.rows.schema)


def texts_of(plan: PlanSpec, calls: Calls) -> list[str]:
    """What a plan asks of rows, as SQL."""
    texts = [*(value.text for value in plan.scheme.values), *plan.scheme.conditions]
    return texts + [call.argument for _, call in calls if call.argument is not None]


def scan_of_files(rows: Parquet, layout: Layout, seen: pa.Schema) -> FrameScan:
    """How workers read files; the operator sees columns of these types."""
    at = next(name for name in rows.schema.names if name.lower() == layout.plan.ordered_by.lower())
    keys = [next(name for name in rows.schema.names if name.lower() == key.lower()) for key in layout.plan.keys]
    groups = rows.groups([at, *keys])
    spans = _spans(groups, layout, rows.schema.field(at).type)
    most = prod(_values([group.spans[1 + i] for group in groups]) for i in range(len(keys)))
    elements = pa.schema(list(zip(seen.names, as_spark_has(seen.types), strict=True)))
    return FrameScan(rows, layout, elements, at, tuple(keys), tuple(groups), spans, float(most)).in_time()


def _values(spans: Sequence[pa.Array | None]) -> float:
    """How many values there may be between the least and the largest, or more than `FEW`; and null is one.

    >>> _values([pa.array([1, 2]), pa.array([2, 4])]), _values([pa.array(["a", "a"])] * 2), _values([None])
    (5.0, 2, inf)
    """
    known = [each for each in spans if each is not None]
    if not known or len(known) < len(spans):
        return inf
    values = [value for each in known for value in each.to_pylist() if value is not None]
    if pa.types.is_integer(known[0].type) and values:
        return float(max(values) - min(values) + 2)
    return len(set(values)) + 1 if all(len(set(each.to_pylist())) == 1 for each in known) else inf


def _spans(groups: Sequence[Group], layout: Layout, kind: pa.DataType) -> Array | None:
    """From when to when the rows of each group are; None if some do not say, or may have what is no number."""
    known = [group.spans[0] for group in groups if group.spans[0] is not None]
    if len(known) < len(groups) or not known or pa.types.is_floating(kind):
        return None
    numbers = [layout.progress.numbers(aligned(each.cast(kind, safe=False), layout.at_type)) for each in known]
    return np.array(numbers)


def alike(found: Layout, layout: Layout) -> bool:
    """Whether Arrow finds a layout that is Spark's, but for the zone of times."""
    types = as_spark_has(found.key_types), as_spark_has([found.at_type])[0], as_spark_has(found.input_types)
    return replace(found, key_types=types[0], at_type=types[1], input_types=types[2]) == layout

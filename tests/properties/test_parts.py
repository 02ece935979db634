"""Parts: rows framed where they lie, in any tasks, and joined by key, are what one pass over sorted rows finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import isfinite
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import panewise as pw
from panewise.kernel import parts as module
from panewise.kernel.framer import Framer
from panewise.kernel.intime import InTime
from panewise.kernel.joiner import Joiner
from panewise.kernel.operator import joined
from panewise.kernel.oracle import Row
from panewise.kernel.parts import Parts, found_in
from panewise.kernel.rivals import rivals_of
from panewise.local.runner import apply_local
from panewise.spec.aggregates import Aggregate
from panewise.spec.options import CHAINED, Limits
from panewise.spec.plan import PlanSpec
from properties.streams import AGG, BUILDERS, kernel, null, plans, same
from properties.test_streams import arrivals, by_key, cut, fewer, table

ALL = st.just("all")


def stretches(draw: st.DrawFn, rows: list[tuple[int, Row]]) -> Iterator[list[list[tuple[int, Row]]]]:
    """Rows by task, in stretches that are not known to follow one another."""
    some = cut(draw, rows)
    owners = [draw(st.integers(0, 2)) for _ in some]
    for task in range(3):
        yield [mine for mine, owner in zip(some, owners, strict=True) if owner == task]


def framed(draw: st.DrawFn, plan: PlanSpec, rows: list[tuple[int, Row]], real: bool) -> tuple[list[dict], set[int]]:
    """What is found in the keys that can be joined, and those that can't."""
    layout = apply_local(plan, plan.asked(AGG), table(plan, [], real)).layout
    several = 1 if plan.scheme.longest else draw(st.integers(1, 3))
    joiner, held = Joiner(layout), list[list[tuple[int, bytes]]]([[] for _ in range(several)])
    for task in stretches(draw, rows):
        framer = Framer(layout)
        for stretch in task:
            seen = apply_local(plan, plan.asked(AGG), table(plan, stretch, real)).rows
            framer.cut()
            for page in pages(draw, seen.filter(pc.is_valid(seen.column("at")))):
                framer.take(page)
        for _, found in framer.parts(draw(st.sampled_from([1, 2]))):
            told, segments = found.dump()
            held[draw(st.integers(0, several - 1))].append((sum(map(len, held)), segments))
            joiner.add(Parts.load(told))
    bad = joiner.join()
    rows = []
    for i, some in enumerate(held):
        known = ((place, found_in(data)) for place, data in some)
        for segments in joiner.segments(known, made=not i):
            rows += layout.emitter.batch(joiner.keys, segments).to_pylist()
    names = joiner.keys[0].to_pylist()
    return sorted(rows, key=lambda row: row["segment"]["id"]), {names[i] for i in bad}


def pages(draw: st.DrawFn, rows: pa.Table) -> Iterator[pa.Table]:
    edges = [0, *sorted(draw(st.lists(st.integers(0, len(rows)), max_size=2))), len(rows)]
    yield from (rows.slice(a, b - a).combine_chunks() for a, b in pairwise(edges) if a < b)


@pytest.mark.parametrize("scheme", sorted(BUILDERS))
@fewer
@given(data=st.data())
def test_what_is_joined_is_what_one_pass_finds(scheme: str, data: st.DataObject) -> None:
    plan = replace(data.draw(plans(scheme, ALL)), keys=("k",))
    keys, arrived, real = data.draw(arrivals(plan))
    # so that streams of a few rows have marks
    first, factor = data.draw(st.sampled_from([(1, 2), (2, 2), (8, 8)]))
    with mock.patch.multiple(module, _FIRST=first, _FACTOR=factor):
        found, bad = framed(data.draw, plan, arrived, real)
    told, expected = by_key(found, len(keys)), kernel(plan, keys)
    for key in range(len(keys)):
        assert (told[key] == []) if key in bad else same(told[key], expected[key])


@pytest.mark.parametrize("scheme", sorted(BUILDERS))
@fewer
@given(data=st.data())
def test_one_pass_over_keys_that_come_mixed(scheme: str, data: st.DataObject) -> None:
    """Rows of all keys in order of time, page by page; those of a key at one instant are in one page."""
    plan = replace(data.draw(plans(scheme, ALL)), keys=("k",))
    keys, _, real = data.draw(arrivals(plan))
    rows = [(k, row) for k, of_key in enumerate(keys) for row in of_key if not null(row.at) and isfinite(row.at)]
    rows = sorted(data.draw(st.permutations(rows)), key=lambda pair: pair[1].at)
    seen = apply_local(plan, plan.asked(AGG), table(plan, rows, real))
    one, found, before = InTime(seen.layout), list[dict](), 0
    for end in sorted({*data.draw(st.lists(st.integers(0, len(rows)), max_size=4)), len(rows)}):
        while 0 < end < len(rows) and rows[end][1].at == rows[end - 1][1].at:
            end += 1
        if before < end:
            one.take(seen.rows.slice(before, end - before).combine_chunks())
        before = max(before, end)
    one.finish()
    for columns, segments in one.found():
        found += seen.layout.emitter.batch(columns, segments).to_pylist()
    kept = [[row for row in of_key if not null(row.at) and isfinite(row.at)] for of_key in keys]
    expected = kernel(plan, kept)
    assert all(same(a, b) for a, b in zip(by_key(found, len(keys)), expected, strict=True))


@pytest.mark.parametrize("scheme", ["threshold", "boundary", "session", "delta", "aggregate"])
@fewer
@given(data=st.data())
def test_stretches_in_order_are_joined(scheme: str, data: st.DataObject) -> None:
    """Where neighbours alone decide, or rivals are followed, a key needs no other pass if its parts do not overlap."""
    plan = replace(data.draw(plans(scheme, ALL)), keys=("k",))
    if scheme == "delta":
        plain = {"limits": Limits(), "placement": CHAINED, "nulls": "invisible", "schedule": None}
        plan = replace(plan, scheme=replace(plan.scheme, moves=plan.scheme.moves[:1], **plain))
        assume(rivals_of(plan.scheme) is not None)  # not if the amount is 0
    if scheme == "aggregate":
        plain = {"limits": Limits(), "placement": CHAINED, "nulls": "invisible", "schedule": None, "closing": "include"}
        plan = replace(plan, scheme=replace(plan.scheme, aggregate=Aggregate("sum", "v"), **plain))
    keys, _, real = data.draw(arrivals(plan))
    rows = [(k, row) for k, of_key in enumerate(keys) for row in of_key if not null(row.at) and isfinite(row.at)]
    if scheme == "aggregate":
        # where some are negative, it depends
        rows = [(k, replace(row, values=tuple(None if null(v) else abs(v) for v in row.values))) for k, row in rows]
    once = {(k, row.at): (k, row) for k, row in rows}
    rows = sorted(once.values(), key=lambda pair: pair[1].at)
    kept = [[row for k, row in rows if k == key] for key in range(len(keys))]
    found, bad = framed(data.draw, plan, rows, real)
    assert not bad
    assert all(same(a, b) for a, b in zip(by_key(found, len(keys)), kernel(plan, kept), strict=True))


@pytest.mark.parametrize(
    ("call", "reaches", "values"),
    [
        ("sum(v)", 25, [2 + i % 3 - 20 * (i == 20) for i in range(400)]),
        ("sum(v)", 25, [1] * 9_000),
        ("count(*)", 300, [1] * 1_200),
    ],
)
def test_heads_end_where_rivals_do_not_meet(call: str, reaches: int, values: list[int]) -> None:
    """A negative value that comes late, and frames that never come together: the key is joined exactly, or named."""
    plan = pw.aggregate_frames(call, reaches=reaches).by("k").at("t")
    rows = pa.table({"k": [0] * len(values), "t": range(len(values)), "v": values})
    applied = apply_local(plan, (), rows)
    joiner, held, half = Joiner(applied.layout), [], len(values) // 2
    for part in (applied.rows.slice(0, half), applied.rows.slice(half)):
        framer = Framer(applied.layout)
        framer.take(part.combine_chunks())
        for _, found in framer.parts(1):
            assert found.heads.max() <= module.mark(3)
            told, some = found.dump()
            joiner.add(Parts.load(told))
            held.append(found_in(some))
    if not len(joiner.join()):
        found = joined([*joiner.segments(enumerate(held))])
        found = found.at(found.start.argsort())
        expected = pw.segments_local(plan, rows).to_pylist()
        assert applied.layout.emitter.batch(joiner.keys, found).to_pylist() == expected

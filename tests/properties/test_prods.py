"""Prods: final answers never depend on them, and an early one is the definition applied to the rows so far.

What it calls certain comes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import panewise as pw
from panewise.local.stream import LocalStream
from panewise.spec.plan import PlanSpec
from properties.streams import AGG, BUILDERS, _close, plans
from properties.test_streams import arrivals, cut, lateness, table, unlongest
from properties.test_window_ids import grids, plan_of, without_free_origin

fewer = settings(max_examples=max(settings.default.max_examples * 3 // 10, 1))
TOLD = ("timing", "number", "certain", "latency", "early", "status")


def bare(row: dict[str, Any], ids: bool) -> dict[str, Any]:
    """A result without what prods tell of it."""
    segment = dict(row["segment"])
    if not ids:
        segment.pop("id")
    return {name: value for name, value in row.items() if name not in TOLD} | {"segment": segment}


def missing(wanted: list[dict], found: list[dict]) -> list[dict]:
    """What of the one is not in the other."""
    left, lacking = list(found), []
    for row in wanted:
        same = next((i for i, other in enumerate(left) if _alike(row, other)), None)
        if same is None:
            lacking.append(row)
        else:
            del left[same]
    return lacking


def _alike(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(_close(a[name], b[name], 1e-9) for name in a)


def check(plan: PlanSpec, batches: list[pa.Table], prods: list[Any], shards: int) -> None:
    """All of it, of rows in micro-batches, each with a prod behind it or none."""
    asked, quiet = LocalStream(plan, AGG, shards=shards, prods=True), LocalStream(plan, AGG, shards=shards)
    of_rows = replace(plan, punctuation=None)
    seen, sent, sure = batches[0].slice(0, 0), [], []
    for rows, prod in zip(batches, prods, strict=True):
        told = asked.feed(rows, prod=prod).to_pylist()
        finals = [bare(row, ids=True) for row in told if row["timing"] == "final"]
        others = [bare(row, ids=True) for row in quiet.feed(rows).to_pylist()]
        assert not missing(finals, others)
        assert not missing(others, finals)
        seen, sent = pa.concat_tables([seen, rows]), sent + finals
        early = [row for row in told if row["timing"] == "early"]
        assert all(row["segment"]["id"] is not None or not row["certain"] for row in early)
        sure += [_named(row) for row in early if row["certain"]]
        so_far = [bare(row, ids=False) for row in pw.segments_local(of_rows, seen, AGG).to_pylist()]
        open_ones = missing(so_far, [bare(row, ids=False) for row in sent])
        if prod is not None:
            wanted = [row for row in open_ones if _asks(prod, row)]
            answers = [bare(row, ids=False) for row in early]
            assert not missing(wanted, answers)
            assert not missing(answers, wanted)
        else:
            assert not early
    ends = [bare(row, ids=True) for row in asked.finish().to_pylist()]
    others = [bare(row, ids=True) for row in quiet.finish().to_pylist()]
    assert not missing(ends, others)
    assert not missing(others, ends)
    assert set(sure) <= {_named(row) for row in sent + ends}


def _named(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["k"], row["segment"]["id"], row["segment"]["start"]


def _asks(prod: dict[str, Any], row: dict[str, Any]) -> bool:
    until, key = prod.get("until"), prod.get("k")
    return (until is None or row["segment"]["end"] <= until) and (key is None or row["k"] == key)


def asking(draw: st.DrawFn, count: int, real: bool) -> list[Any]:
    """Prods behind some of the micro-batches: for all, up to somewhere, of a key."""
    until = st.integers(-8, 14).map(float if real else int)
    one = st.fixed_dictionaries({}, optional={"until": until, "k": st.integers(0, 3)})
    return [draw(st.none() | one) for _ in range(count)]


@pytest.mark.parametrize("scheme", sorted(BUILDERS))
@fewer
@given(data=st.data())
def test_frames(scheme: str, data: st.DataObject) -> None:
    plan = unlongest(data.draw(plans(scheme, ties=st.sampled_from(["all", "first", "last"]))))
    _, rows, real = data.draw(arrivals(plan))
    worst = lateness(rows)
    plan = replace(plan, punctuation=pw.slack(worst + (0.5 if real else 0)))
    batches = [table(plan, some, real) for some in [[], *cut(data.draw, rows)]]
    check(plan, batches, asking(data.draw, len(batches), real), data.draw(st.sampled_from([1, 2, 4])))


@fewer
@given(data=st.data())
def test_windows(data: st.DataObject) -> None:
    grid = without_free_origin(data.draw(grids()))
    one = st.tuples(
        st.integers(0, 2), st.integers(-30, 30), st.none() | st.integers(-9, 9).map(float), st.integers(-9, 9)
    )
    rows = data.draw(st.lists(one, max_size=12))
    if grid.begins:
        rows = [row for row in rows if row[1] >= grid.origin]
    highest, worst = None, 0
    for _, t, _, _ in rows:
        highest = t if highest is None else max(highest, t)
        worst = max(worst, highest - t)
    plan = plan_of(grid, pw.slack(worst))
    names = {"k": pa.int64(), "t": pa.int64(), "x": pa.float64(), "i": pa.int64()}
    batches = [
        pa.table({name: pa.array([row[i] for row in some], kind) for i, (name, kind) in enumerate(names.items())})
        for some in [[], *cut(data.draw, rows)]
    ]
    check(plan, batches, asking(data.draw, len(batches), False), data.draw(st.sampled_from([1, 2, 4])))

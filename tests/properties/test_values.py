"""Aggregates that keep values, over any segments: against the oracle, in any pages, in streams, windows and fills."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import panewise as pw
from panewise.local.stream import LocalStream
from panewise.spec.aggregates import aggregates
from properties import streams as shared
from properties.streams import AGG, BUILDERS, VALUES, expected, kernel, merged, plans, same, streams
from properties.test_streams import arrivals, by_key, cut, lateness, same_keys, table, unlongest

SCHEMES = sorted(BUILDERS)
fewer = settings(max_examples=max(settings.default.max_examples * 3 // 10, 1))


@contextmanager
def values() -> Iterator[None]:
    """All that is shared by properties, with more aggregates."""
    more = {**AGG, **VALUES}
    with patch.multiple(shared, AGG=more, CALLS=aggregates(more)):
        yield


@pytest.mark.parametrize("scheme", SCHEMES)
@fewer
@given(data=st.data())
def test_any_pages_equal_the_oracle(scheme: str, data: st.DataObject) -> None:
    with values():
        plan = data.draw(plans(scheme))
        real = data.draw(st.booleans())
        keys = data.draw(st.lists(streams(plan, real=real), min_size=1, max_size=3))
        found = kernel(plan, keys, data.draw(st.integers(1, 9)))
        for rows, of_key in zip(keys, found, strict=True):
            assert same(of_key, expected(plan, rows), 1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
@fewer
@given(data=st.data())
def test_parts_merge(scheme: str, data: st.DataObject) -> None:
    with values():
        plan = data.draw(plans(scheme))
        rows = data.draw(streams(plan, max_size=30))
        cuts = data.draw(st.lists(st.integers(1, 29), max_size=5))
        assert merged(plan, rows, cuts, data.draw(st.booleans())) == kernel(plan, [rows])[0]


@pytest.mark.parametrize("scheme", SCHEMES)
@fewer
@given(data=st.data())
def test_streams_find_what_batches_find(scheme: str, data: st.DataObject) -> None:
    with values():
        plan = unlongest(data.draw(plans(scheme)))
        keys, arrived, real = data.draw(arrivals(plan))
        slack = lateness(arrived)
        plan = replace(plan, punctuation=pw.slack(math.nextafter(slack, math.inf) if real else slack))
        stream = LocalStream(plan, shared.AGG, shards=data.draw(st.sampled_from([1, 2, 4])))
        batches = [[], *cut(data.draw, arrived)]
        found = [row for rows in batches for row in stream.feed(table(plan, rows, real)).to_pylist()]
        assert same_keys(by_key(found + stream.finish().to_pylist(), len(keys)), kernel(plan, keys))


@fewer
@given(
    data=st.data(),
    rows=st.lists(st.tuples(st.integers(0, 1), st.integers(-9, 30), st.integers(-3, 3)), min_size=1, max_size=25),
    plan=st.sampled_from(
        [
            pw.sliding_windows(9, 2),
            pw.sliding_windows(5, 3, keep_empty=True),
            pw.tumbling_windows(4),
            pw.landmark_windows(6, origin=-9),
            pw.slide_by_tuple_windows(5),
            pw.row_windows(4, 2),
        ]
    ),
)
def test_windows_are_filled_with_what_lies_in_them(
    data: st.DataObject, rows: list[tuple[int, int, int]], plan: pw.Plan
) -> None:
    """Windows by panes, in streams and in memory, and the same windows filled by their bounds, one by one."""
    columns = zip(*rows, strict=True)
    source = pa.table([pa.array(list(column), pa.int64()) for column in columns], names=["k", "t", "i"])
    source = source.append_column("x", source["i"].cast(pa.float64()))
    plan = plan.by("k").at("t")
    found = pw.segments_local(plan, source, VALUES)
    shuffled = source.take(data.draw(st.permutations(range(len(source)))))
    stream = LocalStream(plan.at("t", pw.slack(40)), VALUES, shards=data.draw(st.sampled_from([1, 2])))
    half = len(source) // 2
    pieces = [stream.feed(shuffled.slice(0, half)), stream.feed(shuffled.slice(half)), stream.finish()]
    assert sorted(map(repr, pa.concat_tables(pieces).to_pylist())) == sorted(map(repr, found.to_pylist()))
    if "row_windows" not in repr(plan) and not plan.one_sequence:
        filled = pw.fill_local(plan, source, source, VALUES, keep_empty=True)
        assert sorted(map(repr, filled.to_pylist())) == sorted(map(repr, found.to_pylist()))

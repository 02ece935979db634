"""Prods through plans over plans: finals never depend on them, and an early answer counts every row so far, once."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import panewise as pw
from panewise.local.stream import LocalStream
from properties.test_follow import AGG, FIRSTS, LAST, seconds
from properties.test_prods import bare, missing

fewer = settings(max_examples=max(settings.default.max_examples // 2, 1))
ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(-15, 30), st.integers(-2, 4)), min_size=1, max_size=20)
THIRD = pw.tumbling_windows(10).agg(most="max(n)", in_all="sum(busy)", f="first(n)", l="last(n)")


def _bare(rows: pa.Table, ids: bool) -> list[dict[str, Any]]:
    return [bare(row, ids) for row in rows.to_pylist()]


@fewer
@given(
    first=st.sampled_from(FIRSTS), second=st.sampled_from(seconds("whole")), third=st.booleans(),
    keys=st.sampled_from([(), ("k",), ("k", "cell")]), rows=ROWS, orderly=st.booleans(), shards=st.sampled_from([1, 3]),
    data=st.data(),
)  # fmt: skip
def test_every_row_counts_once_at_every_level(
    first: pw.Plan, second: pw.Plan, third: bool, keys: tuple[str, ...], rows: list[tuple[int, int, int]],
    orderly: bool, shards: int, data: st.DataObject,
) -> None:  # fmt: skip
    both = first.by("k").at("t").agg(AGG).then(second.by(*keys).agg(LAST))
    both = both.then(THIRD) if third else both
    rows = sorted(rows, key=lambda row: row[1]) if orderly else rows
    table = pa.table({name: pa.array([row[i] for row in rows], pa.int64()) for i, name in enumerate("ktv")})
    at = [row[1] for row in rows]
    plan = replace(both, punctuation=pw.slack(max(top - t for top, t in zip(accumulate(at, max), at, strict=True))))
    quiet, asked = LocalStream(plan, shards=shards), LocalStream(plan, shards=shards, prods=True)
    place, sent = 0, []
    while place < len(rows):
        count = data.draw(st.integers(1, 6))
        some, place = table.slice(place, count), place + count
        prod = data.draw(st.sampled_from([None, {}, {}]))
        told = asked.feed(some, prod=prod).to_pylist()
        finals = [bare(row, ids=True) for row in told if row["timing"] == "final"]
        others = _bare(quiet.feed(some), ids=True)
        assert not missing(finals, others)
        assert not missing(others, finals)
        sent += [bare(row, ids=False) for row in told if row["timing"] == "final"]
        answers = [bare(row, ids=False) for row in told if row["timing"] == "early"]
        wanted = [] if prod is None else missing(_bare(pw.segments_local(both, table.slice(0, place)), ids=False), sent)
        assert not missing(wanted, answers)
        assert not missing(answers, wanted)
    ends, others = _bare(asked.finish(), ids=True), _bare(quiet.finish(), ids=True)
    assert not missing(ends, others)
    assert not missing(others, ends)

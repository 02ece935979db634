"""Fill: in memory or as streams, in any order and any pieces, each segment gets the rows within its bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import panewise as pw
from panewise.errors import SpecError
from panewise.kernel import matching
from panewise.kernel.bundle import dump
from panewise.kernel.fill import FillLayout
from panewise.kernel.fillshard import FillShard, FillSpec
from panewise.kernel.oracle import Row
from panewise.kernel.pack import Packer
from panewise.local import fill as local
from panewise.local.fill import apply_filling
from panewise.local.fill_stream import LocalFill
from panewise.local.runner import apply_local
from panewise.local.stream import tagged, with_control
from panewise.spec.aggregates import aggregates
from panewise.spec.fill import filling
from properties.fills import (
    Case,
    alike,
    batches,
    cases,
    chunk_bytes,
    few,
    fewer,
    filling_of,
    in_parts,
    in_time,
    live,
    made,
    marked,
    name,
    options,
    pairs_in,
    pieces_of,
    run,
    slack_of,
)
from properties.streams import AGG, null, with_inputs
from properties.test_streams import blank

# ---- tables in memory --------------------------------------------------------------------------------------------


@given(case=cases(), keep_empty=st.booleans(), stored=st.booleans())
def test_segments_have_the_rows_within_their_bounds(case: Case, keep_empty: bool, stored: bool) -> None:
    segments = pw.segments_local(case.plan, case.framed()).replace_schema_metadata(None)
    framing = segments if stored else case.framed()
    found = pw.fill_local(case.plan, framing, case.fills(), AGG, **case.how, keep_empty=keep_empty).to_pylist()
    assert alike(found, case.expected(segments.to_pylist(), keep_empty), 1e-12)
    rows = pw.fill_local(case.plan, framing, case.fills(), **case.how).to_pylist()
    assert pairs_in(rows) == case.pairs(segments.to_pylist())


@fewer
@given(case=cases(), data=st.data())
def test_no_order_and_no_page_shows(case: Case, data: st.DataObject) -> None:
    x = data.draw(st.lists(st.integers(-(10**6), 10**6).map(lambda n: n / 1000), min_size=len(case.filling)))
    rows = [(k, with_inputs(r, x[j], r.inputs[9])) for j, (k, r) in enumerate(case.filling)]
    expected = replace(case, filling=rows).local()
    other = replace(case, filling=data.draw(st.permutations(rows)))
    sizes = [data.draw(st.integers(1, 6)) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        for piece, size in zip(("pages", "chunks"), sizes, strict=True):
            patch.setattr(local, piece, smaller(getattr(matching, piece), size))
        patch.setattr(local, "Taker", data.draw(st.sampled_from([matching.Taker, InTurns, ByPages])))
        if data.draw(st.booleans()):
            patch.setattr(matching, "PIECE_ROWS", 0)
        found = other.local()
        pairs = pairs_in(other.local(None))
    assert repr(found) == repr(expected)
    assert pairs == pairs_in(case.local(None))


class InTurns(matching.Taker):
    """Takes rows one after another, into segments of several shards."""

    def __init__(self, layout: FillLayout, given: list[tuple[int, pa.Table]]) -> None:
        super().__init__(layout, in_pieces(given))

    def take(self, rows: pa.Table) -> None:
        for i in range(len(rows)):
            super().take(rows.slice(i, 1))


class ByPages:
    """Lets chunks and pages meet, as they do after a join."""

    def __init__(self, layout: FillLayout, given: list[tuple[int, pa.Table]]) -> None:
        self._layout = layout
        self._given = [(shard, dump({"segments": part}, {})) for shard, part in in_pieces(given)]

    def take(self, rows: pa.Table) -> None:
        dealt = rows.append_column("shard", pa.array([0] * len(rows), pa.int32()))
        self._pages = [page for _, page, _, _ in local.pages(self._layout, dealt.to_batches())]

    def partials(self, keep_empty: bool) -> Iterator[tuple[int, bytes]]:
        pages = [*([None] if keep_empty else []), *self._pages]
        found = [(shard, matching.filled(self._layout, chunk, page)) for shard, chunk in self._given for page in pages]
        return ((shard, partial) for shard, partial in found if partial is not None)


def in_pieces(given: list[tuple[int, pa.Table]]) -> list[tuple[int, pa.Table]]:
    """Segments in shards of two."""
    return [(i // 2, table.slice(i, 2)) for _, table in given for i in range(0, len(table), 2)]


def smaller(pieces: object, rows: int) -> object:
    """Pages or chunks of so many rows each."""

    def made(layout: object, batches: list[pa.RecordBatch]) -> Iterator:
        return pieces(layout, (b.slice(i, 1) for b in batches for i in range(len(b))), rows)

    return made


def test_keys_that_do_not_fit_match_nothing() -> None:
    plan = pw.threshold_frames("c").by("k").at("t")
    for narrow, wide, other in (
        (pa.int32(), pa.int64(), 2**32 + 1),
        (pa.uint8(), pa.int16(), 257),
        (pa.int64(), pa.uint64(), 2**64 - 1),
        (pa.uint64(), pa.int64(), -1),
    ):
        keys = [1, None, 2**64 - 1 if narrow == pa.uint64() else 2]
        framing = pa.table({"k": pa.array(keys, narrow), "t": [1, 1, 1], "c": [True] * 3})
        rows = pa.table({"k": pa.array([1, other, None], wide), "t": [1, 1, 1]})
        found = pw.fill_local(plan, framing, rows, {"n": "count(*)"}, keep_empty=True).to_pylist()
        assert {row["k"]: row["n"] for row in found} == {1: 1, None: 1, keys[2]: 0}


@pytest.mark.parametrize("key", ["shard", "slot", "lo", "hi0", "k0", "n", "at", "number"])
def test_keys_may_have_any_name(key: str) -> None:
    plan = pw.threshold_frames("c").by(key).at("t", pw.slack(0))
    framing = pa.table({key: [1, 1, 2], "t": [1, 2, 3], "c": [True] * 3})
    rows = pa.table({key: [1, 2, 2], "t": [1, 2, 3]})
    stream = LocalFill(plan, filling((key,), "t", punctuation=pw.slack(0)), {"m": "sum(t)"}, framing[:0], rows[:0])
    for found in (
        pw.fill_local(plan, framing, rows, {"m": "sum(t)"}).to_pylist(),
        stream.feed(framing, rows).to_pylist() + stream.finish().to_pylist(),
    ):
        assert {row[key]: row["m"] for row in found} == {1: 1, 2: 3}


def test_rows_have_a_column_of_their_own() -> None:
    plan = pw.threshold_frames("c").by("row").at("t")
    framing = pa.table({"row": [1], "t": [1], "c": [True]})
    with pytest.raises(SpecError, match=r"`agg` \(None\) adds a column `row`, and segments have one"):
        pw.fill_local(plan, framing, framing.select(["row", "t"]))


# ---- streams -----------------------------------------------------------------------------------------------------


@fewer
@given(case=live(), keep_empty=st.booleans(), data=st.data())
def test_streams_fill_as_tables_do(case: Case, keep_empty: bool, data: st.DataObject) -> None:
    stream = made(case, data.draw, keep_empty=keep_empty)
    found = run(case, data.draw, stream, batches(data.draw, case.framing), batches(data.draw, case.filling))
    assert alike(found, case.local(keep_empty=keep_empty))


@few
@given(case=live(), data=st.data())
def test_streams_match_the_rows_that_tables_do(case: Case, data: st.DataObject) -> None:
    stream = made(case, data.draw, None)
    found = run(case, data.draw, stream, batches(data.draw, case.framing), batches(data.draw, case.filling))
    assert pairs_in(found) == pairs_in(case.local(None))


@few
@given(case=live(), data=st.data())
def test_promises_of_filling_rows(case: Case, data: st.DataObject) -> None:
    """In-band punctuations that hold, of single keys or of all, on both sides."""
    marks = [bool(case.plan.keys) and data.draw(st.booleans()) for _ in range(2)]
    left, right = (pw.in_band("mark", per_key=per_key) for per_key in marks)
    case = replace(case, plan=replace(case.plan, punctuation=left))
    of_framing = Row(0, *blank(case.plan))
    of_filling = Row(0, (None,), (), (None,) * len(AGG), (-1,))
    stream = made(case, data.draw, given=filling_of(case, punctuation=right))
    found = run(
        case,
        data.draw,
        stream,
        marked(data.draw, case.framing, marks[0], of_framing),
        marked(data.draw, case.filling, marks[1], of_filling),
    )
    assert alike(found, case.local())


def test_a_promise_is_about_its_own_key_whatever_where_says() -> None:
    plan = pw.threshold_frames("c").by("k").at("t", pw.slack(0))
    framing = pa.table({"k": pa.array([1, 1], pa.int32()), "t": [1, 2], "c": [True, False]})
    given = filling(("k",), "t", where="ok", punctuation=pw.in_band("mark", per_key=True))

    def rows(k: int, t: int, ok: bool | None, mark: bool) -> pa.Table:
        return pa.table({"k": [k], "t": [t], "ok": pa.array([ok], pa.bool_()), "mark": [mark]})

    stream = LocalFill(plan, given, {"n": "count(*)"}, framing[:0], rows(1, 1, True, False)[:0])
    assert not len(stream.feed(framing, rows(2**32 + 1, 9, None, True), framing_until=9))
    assert not len(stream.feed(None, rows(1, 1, True, False)))
    assert stream.feed(None, rows(1, 9, None, True)).column("n").to_pylist() == [1]


@few
@given(case=live(), data=st.data())
def test_each_key_in_order_needs_nothing_else(case: Case, data: st.DataObject) -> None:
    """ordered_per the key: a segment is complete once a row of its key lies beyond it, whatever others do."""
    in_order: list[tuple[int, Row]] = []
    for k in range(4):
        in_order += sorted(((k, r) for key, r in case.filling if key == k and not null(r.at)), key=lambda x: x[1].at)
    turns = data.draw(st.permutations([k for k, _ in in_order]))
    mine = {k: iter([row for row in in_order if row[0] == k]) for k in range(4)}
    plan = replace(case.plan, keys=("k",))
    case = replace(case, plan=plan, filling=[next(mine[k]) for k in turns])
    stream = made(case, data.draw, given=filling_of(case, punctuation=pw.ordered_per("h")))
    found = run(case, data.draw, stream, batches(data.draw, case.framing), batches(data.draw, case.filling))
    assert alike(found, case.local())


@few
@given(case=live(), data=st.data())
def test_two_sources_fill_the_same_segments(case: Case, data: st.DataObject) -> None:
    """Each as if it were the only one; a segment is complete when it is so for both."""
    some = [row for row in case.filling if data.draw(st.booleans())]
    other = replace(case, options=data.draw(options(case.real)), filling=in_time(data.draw, some))
    more = {"other": "count(*)", "of_other": "sum(i)"}
    plan = replace(case.plan, punctuation=slack_of(case.framing, case.real))
    of_segments = apply_local(plan, (), case.framed([])).layout
    sides = [(filling_of(case), aggregates(AGG)), (filling_of(other), aggregates(more))]

    def elements(turn: int, rows: list[tuple[int, Row]], final: bool = False) -> tuple[object, list[bytes]]:
        if turn == 0:
            layout, table = of_segments, tagged(plan, apply_local(plan, (), case.framed(rows)).rows, None, 1, None)
        else:
            given, calls = sides[turn - 1]
            schema = of_segments.emitter.schema
            found, layout = apply_filling(given, calls, case.fills(rows), schema, plan.keys, with_rows=False)
            table = tagged(given, found, None, 1, None)
        packer = Packer(layout, 1, side=None if turn == 0 else turn - 1)
        return layout, [page for _, page in packer.run(with_control(table, None, None, final).to_batches())]

    spec = FillSpec(of_segments, (elements(1, [])[0], elements(2, [])[0]), plan.keys, 1)
    store: dict[str, bytes] = {}
    state, found = None, []
    fed = [pieces_of(data.draw, rows) for rows in (case.framing, case.filling, other.filling)]
    with chunk_bytes(data.draw(st.sampled_from([1, 1000]))):
        while True:
            turns = [turn for turn in range(3) if fed[turn]]
            if turns:
                turn = data.draw(st.sampled_from(turns))
                pages = elements(turn, fed[turn].pop(0))[1]
            else:
                pages = [page for turn in range(3) for page in elements(turn, [], final=True)[1]]
            shard = FillShard(spec, store, state)
            outcome = shard.batch(pages)
            state = shard.state()
            assert outcome.counts["late"] == outcome.counts["filling_late"] == 0
            found += [] if outcome.found is None else outcome.found.to_pylist()
            if not turns:
                break
    assert not store
    expected = {name(row): row for row in case.local(keep_empty=True)}
    for row in other.local(more, keep_empty=True):
        expected[name(row)] |= {key: row[key] for key in more}
    assert alike(found, list(expected.values()))


@few
@given(case=live(), data=st.data())
def test_parts_are_filled_by_themselves(case: Case, data: st.DataObject) -> None:
    every = data.draw(st.sampled_from([None, None, 1, 3]))
    case = in_parts(case)
    stream = made(case, data.draw, keep_empty=True, emit="fragments", fragment_every=every)
    found = run(case, data.draw, stream, batches(data.draw, case.framing), batches(data.draw, case.filling))
    bare = [{k: v for k, v in row.items() if k not in AGG} for row in found]
    assert alike(found, case.expected(bare, keep_empty=True), 1e-12)
    # progress alone may have met the minimum of a held frame that the end of the stream then cuts short
    scheme = case.plan.scheme
    unsure = 2 if scheme.extent != "observed" and scheme.limits.min_duration is not None else 0
    check_sums(case, found, case.local(keep_empty=True), unsure)


def check_sums(case: Case, found: list[dict], whole: list[dict], unsure: int) -> None:
    """What parts count and sum makes up what their segment does."""
    segments = {name(segment)[:2]: segment for segment in whole}
    last = Counter(name(segment)[0] for segment in whole)
    parts: dict[tuple, list[dict]] = {}
    for part in sorted(found, key=name):
        parts.setdefault(name(part)[:2], []).append(part)
    for (key, id_), of_segment in parts.items():
        if id_ >= last[key] - unsure:
            continue
        segment, end = segments[key, id_], of_segment[-1]
        if end["segment"]["end"] != segment["segment"]["end"] and case.plan.scheme.extent != "observed":
            continue
        for each in ("n", "there", "whole"):
            assert sum(part[each] or 0 for part in of_segment) == (segment[each] or 0)


@few
@given(case=cases(), keep_empty=st.booleans(), data=st.data())
def test_segments_that_were_found_before(case: Case, keep_empty: bool, data: st.DataObject) -> None:
    segments = pw.segments_local(case.plan, case.framed()).replace_schema_metadata(None)
    with chunk_bytes(data.draw(st.sampled_from([1, 1000, 100_000]))):
        stream = made(case, data.draw, framing=segments, keep_empty=keep_empty)
    found = run(case, data.draw, stream, [], batches(data.draw, case.filling))
    assert alike(found, case.local(keep_empty=keep_empty))

"""Chunks of what waits: whatever is put in and let go of, what is asked for is found, and little else is kept."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from panewise.kernel.bundle import load
from panewise.kernel.chunks import SegmentChunks, WaitingRows
from properties.fills import chunk_bytes, fewer

SLOTS = 3
ROOM = st.sampled_from([1, 60, 200, 100_000])
ATS = st.integers(0, 20)


@fewer
@given(size=ROOM, data=st.data())
def test_rows_wait_until_they_are_let_go(size: int, data: st.DataObject) -> None:
    store: dict[str, bytes] = {}
    rows = WaitingRows(store, "r:", WaitingRows.empty(np.int64))
    limit = np.full(SLOTS, -1)
    waiting: list[tuple[int, int, int]] = []
    number = 0
    with chunk_bytes(size):
        for _ in range(data.draw(st.integers(1, 6))):
            limit = np.maximum(limit, data.draw(st.lists(ATS, min_size=SLOTS, max_size=SLOTS)))
            rows.let_go(limit)
            waiting = [row for row in waiting if row[1] > limit[row[0]]]
            found = sorted(data.draw(st.lists(st.tuples(st.integers(0, SLOTS - 1), ATS), max_size=8)))
            fresh = [(slot, at, number + i) for i, (slot, at) in enumerate(found) if at > limit[slot]]
            number += len(found)
            if fresh:
                slots, ats, numbers = (np.array(column) for column in zip(*fresh, strict=True))
                rows.add(pa.table({"row": numbers}), slots, ats, limit)
            waiting += fresh
            check_rows(rows, store, limit, waiting)
            wanted = data.draw(st.lists(st.tuples(st.integers(0, SLOTS - 1), ATS, st.integers(0, 4)), min_size=1))
            slots, lo, length = np.array(wanted).T
            got = list(rows.within(slots, lo, lo + length, SLOTS))
            inside = {n for slot, at, n in waiting if any(slot == s and a <= at <= a + d for s, a, d in wanted)}
            assert inside <= {row for chunk in got for row in chunk.column("row").to_pylist()}
            for chunk in got:
                pairs = list(zip(chunk.column("slot").to_pylist(), chunk.column("number").to_pylist(), strict=True))
                assert pairs == sorted(pairs)


def check_rows(rows: WaitingRows, store: dict[str, bytes], limit: np.ndarray, waiting: list[tuple]) -> None:
    held = [row for data in store.values() for row in load(data)[0]["chunk"].column("row").to_pylist()]
    assert len(held) == len(set(held))
    assert {number for _, _, number in waiting} <= set(held)
    index = rows.index.to_pylist()
    assert {f"r:{entry['chunk']}" for entry in index} == set(store)
    assert all(entry["most"] > limit[entry["slot"]] for entry in index)
    assert len(waiting) <= len(rows) <= len(held)


@fewer
@given(size=ROOM, sides=st.integers(1, 2), data=st.data())
def test_segments_wait_until_they_are_complete(size: int, sides: int, data: st.DataObject) -> None:
    """Each chunk is touched that holds a segment which rows may enter, or which is complete."""
    store: dict[str, bytes] = {}
    segments = SegmentChunks(store, "s:", SegmentChunks.empty(np.int64, sides))
    reaches = st.lists(st.tuples(ATS, st.integers(-1, 6)), min_size=sides, max_size=sides)
    waiting: dict[int, list[tuple[int, int]]] = {}
    with chunk_bytes(size):
        for _ in range(data.draw(st.integers(1, 6))):
            spans = [data.draw(st.none() | st.tuples(ATS, ATS).map(lambda x: (min(x), max(x)))) for _ in range(sides)]
            until = data.draw(ATS)
            due = {n for n, reach in waiting.items() if max(hi for _, hi in reach) <= until}
            entered = {n for n, reach in waiting.items() if any(map(meets, reach, spans))}
            seen = []
            for number, piece in segments.touched(spans, until):
                seen += piece.column("segment").to_pylist()
                stays = piece.filter(pa.array([n not in due for n in piece.column("segment").to_pylist()]))
                if len(stays):
                    segments.write(number, stays)
            assert due | entered <= set(seen)
            waiting = {n: reach for n, reach in waiting.items() if n not in due}
            fresh = data.draw(st.lists(reaches, max_size=6))
            first = max(waiting, default=0) + 1
            added = {first + i: [(lo, lo + length) for lo, length in reach] for i, reach in enumerate(fresh)}
            if added:
                put(segments, added, sides)
            waiting |= added
            held = [n for data_ in store.values() for n in load(data_)[0]["chunk"].column("segment").to_pylist()]
            assert sorted(held) == sorted(waiting)
            assert len(segments) == len(waiting)


def meets(reach: tuple[int, int], span: tuple[int, int] | None) -> bool:
    return span is not None and reach[0] <= reach[1] and reach[0] <= span[1] and span[0] <= reach[1]


def put(segments: SegmentChunks, added: dict[int, list[tuple[int, int]]], sides: int) -> None:
    columns = {"segment": pa.array(list(added))}
    bounds = [[np.array([reach[i][end] for reach in added.values()]) for end in range(2)] for i in range(sides)]
    for i, (lo, hi) in enumerate(bounds):
        columns |= {f"panewise lo{i}": pa.array(lo), f"panewise hi{i}": pa.array(hi)}
    segments.add(pa.table(columns), [lo for lo, _ in bounds], [hi for _, hi in bounds])

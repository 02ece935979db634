"""The state of a shard: what was kept goes on as if nothing had happened; what does not fit is refused."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import panewise as pw
from kernel.states.write import FOLDER, STORIES, Batch, Story, plain
from panewise.errors import StateError
from panewise.kernel.operator import FRAMINGS
from panewise.kernel.shard import TOTALS, Shard
from panewise.kernel.state import VERSION, pack_state, unpack_state
from panewise.spec.frames import RowWindows, TupleWindows, Windows

NAMES = sorted(STORIES)
STORED = sorted(FOLDER.glob("v*-*.bin"))


def test_every_scheme_has_a_story() -> None:
    assert {type(story.plan.scheme) for story in STORIES.values()} == {*FRAMINGS, Windows, RowWindows, TupleWindows}


@pytest.mark.parametrize("name", NAMES)
def test_state_goes_there_and_back(name: str) -> None:
    """After every micro-batch a shard that was made from the state stands as the one that wrote it, and goes on so."""
    story = STORIES[name]
    living, restored = story.shard(), story.shard()
    waited = opened = 0
    for batch in (*story.before, *story.after):
        one, other = plain(story.feed(living, batch)), plain(story.feed(restored, batch))
        assert one == other
        state = living.state()
        restored = story.shard(state)
        assert restored.state() == state
        waited, opened = max(waited, one["counts"]["waiting"]), max(opened, one["counts"]["open"])
    # windows take rows as they come
    assert waited > 0 or isinstance(story.plan.scheme, (Windows, TupleWindows))
    assert opened > 0
    assert one["counts"]["waiting"] == 0
    # those that begin at the origin never end
    assert one["counts"]["open"] == 0 or name == "landmark"


@pytest.mark.parametrize("name", ["windows", "tuples", "row_windows", "landmark"])
def test_keys_that_have_a_window_are_counted_once(name: str) -> None:
    story = STORIES[name]
    shard = story.shard()
    for batch in (*story.before, *story.after):
        story.feed(shard, batch)
        shard = story.shard(shard.state())
    assert shard.totals["keys_found"] == 2


@pytest.mark.parametrize("name", [name for name in NAMES if STORIES[name].emit == "final"])
def test_stories_tell_what_a_batch_tells(name: str) -> None:
    """The stories themselves are right."""
    story = STORIES[name]
    told = story.told(story.shard(), [*story.before, *story.after])
    late = [row["row"]["t"] for batch in told for row in batch["late"]]
    table = story.table()
    kept = table.filter(pa.array([str(t) not in late for t in table["t"].to_pylist()]))
    wanted = json.loads(json.dumps(pw.segments_local(story.plan, kept, story.agg).to_pylist(), default=str))
    assert _sorted([row for batch in told for row in batch["segments"]]) == _sorted(wanted)


def _sorted(rows: list[dict]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


# ---- states that were written once


@pytest.mark.parametrize("path", STORED, ids=[path.stem for path in STORED])
def test_a_stored_state_goes_on(path: Path) -> None:
    version, name = path.stem.split("-")
    assert int(version[1:]) <= VERSION
    story = STORIES[name]
    shard = story.shard(path.read_bytes())
    # what was not counted then begins at nothing
    assert set(shard.totals) == set(TOTALS)
    told, wanted = story.told(shard, story.after), json.loads(path.with_suffix(".json").read_text())
    for now, then in zip(told, wanted, strict=True):
        # what is counted since counts nothing of it
        assert {**now, "counts": {count: now["counts"][count] for count in then["counts"]}} == then


def test_this_version_is_among_them() -> None:
    assert {path.stem for path in STORED} >= {f"v{VERSION}-{name}" for name in NAMES}
    assert all(path.stat().st_size < 16_384 for path in STORED)


# ---- states that do not fit


def state_of(story: Story) -> bytes:
    shard = story.shard()
    story.told(shard, story.before)
    return shard.state()


@pytest.mark.parametrize("data", [b"", b"pane", b"PAR1\x00\x00\x00\x00", b"\x80\x04N.", b"ARROW1"])
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(StateError) as caught:
        STORIES["delta"].shard(data)
    assert str(caught.value) == (
        "The checkpoint holds state that is not panewise's. Point the query at its own checkpoint, or at a new one."
    )


def test_a_later_version_is_refused() -> None:
    state = state_of(STORIES["delta"])
    assert state[:6] == struct.pack("<4sH", b"pane", VERSION)
    with pytest.raises(StateError) as caught:
        STORIES["delta"].shard(struct.pack("<4sH", b"pane", VERSION + 1) + state[6:])
    assert str(caught.value) == (
        f"The checkpoint was written by a later panewise (state version {VERSION + 1}; this one reads up to "
        f"{VERSION}). Install that version, or start with a new checkpoint."
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_state_of_nothing(name: str) -> None:
    story = STORIES[name]
    empty = story.shard().state()
    assert story.shard(empty).state() == empty
    batches = [*story.before, *story.after]
    assert story.told(story.shard(empty), batches) == story.told(story.shard(), batches)


def test_tables_and_facts_come_back() -> None:
    tables, facts = unpack_state(pack_state({"some": pa.table({"x": [1, None]})}, {"n": 3, "who": "é"}))
    assert tables == {"some": pa.table({"x": [1, None]})}
    assert facts == {"n": 3, "who": "é"}
    assert unpack_state(pack_state({}, {})) == ({}, {})


DELTA = pw.delta_frames({"v": 3}, nulls="invisible").by("k").at("t", pw.slack(4))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"plan": pw.delta_frames({"v": 4}, nulls="invisible").by("k").at("t", pw.slack(4))}, "`moves` was"),
        (
            {"plan": pw.delta_frames({"v": 3}, nulls="breaks").by("k").at("t", pw.slack(4))},
            "`nulls` was \"'invisible'\"",
        ),
        ({"plan": DELTA.by("site")}, "`by` was 'k string' and is 'site string'"),
        ({"plan": DELTA.at("i", pw.slack(4))}, "`at` was 't int64' and is 'i int64'"),
        (
            {"plan": DELTA.at("t", pw.slack(4), tie_break="i", ties="first")},
            "`tie_break` was '' and is 'i'; `ties` was 'all' and is 'first'",
        ),
        ({"agg": {"n": "count(*)"}}, "`agg` was 'n = count(*) of None, there"),
        ({"emit": "final"}, "`emit` was 'fragments' and is 'final'"),
        (
            {"plan": pw.session_frames(3).by("k").at("t", pw.slack(4))},
            "`scheme` was 'DeltaFrames' and is 'SessionFrames'",
        ),
    ],
    ids=["amounts", "nulls", "by", "at", "ties", "agg", "emit", "scheme"],
)
def test_another_plan_is_told_by_name(changes: dict, told: str) -> None:
    story = STORIES["delta"]
    with pytest.raises(StateError) as caught:
        replace(story, **changes).shard(state_of(story))
    assert f"The checkpoint belongs to another plan: {told}" in str(caught.value)


def test_another_type_is_told_by_name() -> None:
    story = STORIES["delta"]
    shorter = [
        Batch(b.rows.set_column(b.rows.column_names.index("i"), "i", b.rows["i"].cast(pa.int32())))
        for b in story.before
    ]
    with pytest.raises(StateError, match=r"`agg` was .* sum\(i\) of int64.* and is .* sum\(i\) of int32"):
        replace(story, before=shorter).shard(state_of(story))


def test_another_number_of_shards_is_told() -> None:
    story = STORIES["delta"]
    with pytest.raises(StateError) as caught:
        Shard(story.layout, 2, state_of(story))
    assert "`shards` was '1' and is '2'" in str(caught.value)


# ---- what may change


PUNCTUATIONS = {
    "slack": pw.slack(4),
    "slack in rows": pw.slack(rows=9),
    "slack per key": pw.slack(4, per="k", ahead_limit=50),
    "in band per key": pw.in_band("v > 100", per_key=True),
    "in order per key": pw.ordered_per("k"),
    "in order per site": pw.ordered_per("site"),
    "in order per number": pw.ordered_per("i"),
    "in order per site and key": pw.ordered_per("site", "k"),
}


@pytest.mark.parametrize("after", PUNCTUATIONS)
@pytest.mark.parametrize("before", PUNCTUATIONS)
def test_how_progress_is_known_may_change(before: str, after: str) -> None:
    """In order, so that every punctuation keeps every row: the new one takes over, and nothing is lost."""
    plan = pw.threshold_frames("v > 1", min_rows=2).by("k")
    tables = [
        STORIES["threshold"].table().sort_by([("t", "ascending"), ("k", "ascending")]).slice(n, 20)
        for n in (0, 20, 40, 60)
    ]
    batches = [Batch(table) for table in tables]
    one = Story(plan.at("t", PUNCTUATIONS[before]), batches, [], {"n": "count(*)", "mean": "avg(v)"})
    other = replace(one, plan=plan.at("t", PUNCTUATIONS[after]))
    shard = one.shard()
    told = one.told(shard, batches[:2])
    shard = other.shard(shard.state())
    told += other.told(shard, batches[2:])
    if after != "in band per key":
        assert told[-1]["counts"]["waiting"] < 20
    told += other.told(shard, [Batch(batches[0].rows.slice(0, 0), final=True)])
    assert sum(batch["counts"]["late"] for batch in told) == 0
    found = [row for batch in told for row in batch["segments"]]
    assert _sorted(found) == _sorted(pw.segments_local(one.plan, pa.concat_tables(tables), one.agg).to_pylist())


@pytest.mark.parametrize("late", [False, True])
def test_late_rows_may_be_wanted_or_no_longer(late: bool) -> None:
    story = replace(STORIES["threshold"], late=late)
    shard = story.shard()
    told = story.told(shard, story.before)
    changed = replace(story, late=not late)
    told += changed.told(changed.shard(shard.state()), changed.after)
    again = story.told(story.shard(), [*story.before, *story.after])
    assert [batch["segments"] for batch in told] == [batch["segments"] for batch in again]


def test_rows_may_have_more_columns() -> None:
    """What the plan does not name may come and go, also where late rows are wanted whole."""
    story = STORIES["threshold"]
    shard = story.shard()
    story.told(shard, story.before)
    more = [replace(b, rows=b.rows.append_column("more", pa.array([1] * len(b.rows), pa.int64()))) for b in story.after]
    told = story.told(story.shard(shard.state()), more)
    assert [b["segments"] for b in told] == [b["segments"] for b in story.told(shard, story.after)]

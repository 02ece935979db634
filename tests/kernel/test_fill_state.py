"""The state of a fill: what was kept goes on as if nothing had happened; what does not fit is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import panewise as pw
from kernel.states.fills import AFTER, BEFORE, PLAN, STORED, Fill, read
from panewise.errors import StateError
from panewise.kernel.state import VERSION

FIRST, SECOND = Fill().fillings


def test_the_story_is_right() -> None:
    """What is filled in steps is what a table fills; and where the stream is cut, rows and segments wait."""
    fill = Fill()
    told = fill.told(BEFORE)
    assert told[-1]["counts"]["rows_waiting"] > 0
    assert told[-1]["counts"]["segments_waiting"] > 0
    told += fill.told(AFTER)
    assert told[-1]["counts"]["rows_waiting"] == told[-1]["counts"]["segments_waiting"] == 0
    assert fill.store == {}
    assert sum(batch["counts"]["filling_late"] for batch in told) == 0
    found = [row for batch in told for row in batch["segments"]]
    rows = pa.concat_tables([batch.rows for batch in (*BEFORE, *AFTER)])
    options: list[dict[str, Any]] = [{"where": "i > 0", "widen": (2, None)}, {"shift": 1}]
    for agg, given in zip(fill.aggs, options, strict=True):
        wanted = pw.fill_local(PLAN, rows, rows.slice(0), agg, keep_empty=True, **given).to_pylist()
        ours = [{name: row[name] for name in wanted[0]} for row in found]
        assert _sorted(ours) == _sorted(wanted)


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)


@pytest.mark.parametrize("path", STORED, ids=[path.stem for path in STORED])
def test_a_stored_state_goes_on(path: Path) -> None:
    told, wanted = read(path).told(AFTER), json.loads(path.with_suffix(".json").read_text())
    for now, then in zip(told, wanted, strict=True):
        # what is counted since counts nothing of it
        assert {**now, "counts": {count: now["counts"][count] for count in then["counts"]}} == then


def test_this_version_is_among_them() -> None:
    assert f"fill-v{VERSION}" in {path.stem for path in STORED}
    assert all(path.stat().st_size < 65_536 for path in STORED)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"fillings": (replace(FIRST, where="i > 1"), SECOND)}, "`filling 0 where` was 'i > 0' and is 'i > 1'"),
        ({"fillings": (replace(FIRST, before=3), SECOND)}, "`filling 0 widen` was '2, None' and is '3, None'"),
        ({"fillings": (FIRST, replace(SECOND, shift=None))}, "`filling 1 shift` was '1' and is 'None'"),
        ({"fillings": (FIRST, replace(SECOND, time="i"))}, "`filling 1 at` was 't int64' and is 'i int64'"),
        ({"fillings": (FIRST, replace(SECOND, keys=("site",)))}, "`filling 1 by` was 'k string' and is 'site string'"),
        ({"aggs": (Fill().aggs[0], {"others": "count(v)"})}, "`filling 1 agg` was 'others = count(*)"),
        ({"fillings": (FIRST,)}, "`filling 1 by` was 'k string' and is ''"),
        ({"shards": 2}, "`shards` was '1' and is '2'"),
    ],
)
def test_a_changed_fill_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(StateError) as caught:
        read(STORED[-1], **changed).shard()
    assert str(caught.value).startswith("The checkpoint belongs to another plan: ")
    assert said in str(caught.value)


def test_how_progress_is_known_may_change() -> None:
    slower = (replace(FIRST, punctuation=pw.slack(12)), replace(SECOND, punctuation=pw.slack(5)))
    told = read(STORED[-1], fillings=slower).told(AFTER)
    wanted = read(STORED[-1]).told(AFTER)
    both = [[row for batch in each for row in batch["segments"]] for each in (told, wanted)]
    assert _sorted(both[0]) == _sorted(both[1])

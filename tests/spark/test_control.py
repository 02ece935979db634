"""Commands to a running query: what is written, and that it arrives as it was meant."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import panewise as pw
from panewise.spark.control import _written
from spark.tables import rows, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2024, 3, 31, 12, 0, 0, 123456)
PLAN = pw.threshold_frames("v > 1").by("k").at("t", pw.in_band("false"))


def written(folder: Path) -> list[dict[str, Any]]:
    """The commands in a folder, the oldest first."""
    files = sorted(folder.glob("part-*"), key=lambda file: file.stat().st_mtime_ns)
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_commands_are_files(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "control"
    control = pw.Control(spark, str(folder))
    assert [file.name for file in folder.iterdir() if not file.name.startswith(("_", "."))] == []
    control.punctuate(5)
    pw.Control(spark, control.folder).punctuate(NOON)
    control.punctuate(0.1)
    control.finish()
    assert written(folder) == [
        {"kind": "punctuation", "until": 5},
        {"kind": "punctuation", "until": "2024-03-31T12:00:00.123456"},
        {"kind": "punctuation", "until": 0.1},
        {"kind": "final"},
    ]
    # nothing half-written stays, and nothing that a stream of files would take for a command
    assert {file.name for file in folder.iterdir() if not file.name.endswith((".json", ".crc"))} == {"_SUCCESS"}
    control.clear()
    assert written(folder) == []
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("until", "text"),
    [
        (NOON.replace(tzinfo=UTC), "2024-03-31T12:00:00.123456Z"),
        (NOON.replace(tzinfo=timezone(timedelta(hours=2))), "2024-03-31T10:00:00.123456Z"),
        (datetime(2024, 3, 31), "2024-03-31T00:00:00.000000"),
        (date(2024, 3, 31), "2024-03-31"),
        (2**63 - 1, 2**63 - 1),
        (-3.0, -3),
        (1e300, 1e300),
    ],
)
def test_what_is_promised(until: Any, text: Any) -> None:
    assert _written(until) == text
    assert type(_written(until)) is type(text)


@pytest.mark.parametrize("until", [None, True, "2024-01-01", float("inf"), float("nan"), 2**63])
def test_what_is_no_promise(until: Any) -> None:
    with pytest.raises(pw.InputError) as error:
        _written(until)
    assert str(error.value) == (
        f"`until` ({until!r}) must be a datetime, a date or a finite number, as `at` is. Give one."
    )


def test_a_folder_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("'a' as k", "timestamp as t", "value as v")
    with pytest.raises(pw.InputError) as error:
        PLAN.segments(stream, control=f"{tmp_path}/none")
    assert str(error.value) == (
        f"`control` ('{tmp_path}/none'): there is no such folder yet. "
        f"Make it with pw.Control(spark, '{tmp_path}/none')."
    )


@pytest.mark.parametrize(
    ("kind", "until"),
    [
        ("timestamp", NOON.replace(tzinfo=UTC)),
        pytest.param("timestamp_ntz", NOON, marks=pytest.mark.slow),
    ],
)
def test_a_query_is_told_to_the_microsecond(spark: SparkSession, tmp_path: Path, kind: str, until: datetime) -> None:
    path = str(tmp_path / "rows")
    with settings(spark, session_timeZone="America/New_York"):
        # three rows up to noon, of which the last is the microsecond that is promised, and one just after
        at = [
            f"{kind}'2024-03-31 12:00:00.{micros}{'Z' if kind == 'timestamp' else ''}'"
            for micros in ("000000", "123455", "123456", "123457")
        ]
        rising = ", ".join(f"('a', {time}, {v})" for time, v in zip(at, (1, 2, 2, 1), strict=True))
        spark.sql(f"select * from values {rising} as t(k, t, v)").coalesce(1).write.parquet(path)
        batch = spark.read.parquet(path)
        control = pw.Control(spark, str(tmp_path / "control"))
        found = PLAN.segments(spark.readStream.schema(batch.schema).parquet(path), shards=1, control=control.folder)
        query = found.writeStream.format("memory").queryName(f"told_{kind}").start()
        try:
            query.processAllAvailable()
            told = pw.progress(query)
            assert (told.until, told.waiting, told.rows) == (None, 4, 4)
            control.punctuate(until)
            query.processAllAvailable()
            told = pw.progress(query)
            assert (told.until, told.waiting, told.open, told.closed) == (until, 1, 1, 0)
            control.finish()
            query.processAllAvailable()
            told = pw.progress(query)
            assert (told.until, told.waiting, told.open, told.closed, told.ended) == (None, 0, 0, 1, True)
        finally:
            query.stop()
        assert rows(spark.table(f"told_{kind}").toArrow()) == rows(PLAN.segments(batch).toArrow())

"""The local runner on every kind of table and column: the same segments, and refusals in words of our own."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import panewise as pw

HOT = pw.threshold_frames("temp > 32").by("k").at("t")
AGG = {"n": "count(*)", "top": "max(temp)", "mean": "avg(temp)"}
DATA: dict[str, list[Any]] = {
    "k": ["a", "a", "b", "a", None, "b", "a", None],
    "t": [4, 1, 2, 2, 1, 1, 3, 2],
    "temp": [30.0, 33.0, 40.0, 35.0, 50.0, 20.0, None, 51.0],
}
FOUND = [
    {"k": None, "id": 0, "start": 1, "end": 2, "rows": 2, "n": 2, "top": 51.0, "mean": 50.5},
    {"k": "a", "id": 0, "start": 1, "end": 2, "rows": 2, "n": 2, "top": 35.0, "mean": 34.0},
    {"k": "b", "id": 0, "start": 2, "end": 2, "rows": 1, "n": 1, "top": 40.0, "mean": 40.0},
]
SEVERAL = "several columns have this name. Rename them, so that each has its own."
PLAIN = "which is not a plain value. Use its parts as columns of their own, or cast it."
ORDER = "rows are ordered by a timestamp, a date, an integer or a floating number. Cast it, or choose another column."
TYPES = "Give its values one type that Arrow has, or cast it."


class Frame(pd.DataFrame):
    """As geopandas has one."""


def arrow() -> pa.Table:
    return pa.table(DATA)


KINDS: dict[str, Callable[[], Any]] = {
    "arrow": arrow,
    "batch": lambda: arrow().to_batches()[0],
    "chunked": lambda: pa.concat_tables([arrow().slice(0, 3), arrow().slice(3, 0), arrow().slice(3)]),
    "dictionary": lambda: arrow().set_column(0, "k", arrow()["k"].dictionary_encode()),
    "dictionaries": lambda: pa.concat_tables(
        [arrow().slice(i, 4).set_column(0, "k", arrow()["k"].slice(i, 4).dictionary_encode()) for i in (0, 4)]
    ),
    "view": lambda: arrow().set_column(0, "k", arrow()["k"].cast(pa.string_view())),
    "large": lambda: arrow().set_column(0, "k", arrow()["k"].cast(pa.large_string())),
    "runs": lambda: arrow().set_column(0, "k", pc.run_end_encode(arrow()["k"].combine_chunks())),
    "pandas": lambda: pd.DataFrame(DATA),
    "pandas subclass": lambda: Frame(DATA),
    "pandas category": lambda: pd.DataFrame(DATA).astype({"k": "category"}),
    "pandas arrow": lambda: pd.DataFrame(DATA).convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda: pl.DataFrame(DATA),
    "polars lazy": lambda: pl.LazyFrame(DATA),
    "polars category": lambda: pl.DataFrame(DATA).with_columns(pl.col("k").cast(pl.Categorical)),
}


def told(plan: pw.Plan, table: Any, agg: dict[str, str] | None = None, **options: Any) -> list[dict[str, Any]]:
    """The segments in flat rows, without what is the same in all of them."""
    rows = [{**row, **row["segment"]} for row in pw.segments_local(plan, table, agg, **options).to_pylist()]
    return [{n: v for n, v in row.items() if n not in ("segment", "bounds", "status")} for row in rows]


def sorted_by_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["k"] or "")


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_gives_the_same(kind: str) -> None:
    assert sorted_by_key(told(HOT, KINDS[kind](), AGG)) == FOUND
    assert sorted_by_key(told(HOT, KINDS[kind](), AGG, page_rows=1)) == FOUND


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_and_one(kind: str) -> None:
    table = KINDS[kind]()
    empty, one = (table.slice(0, 0), table.slice(1, 1)) if "pandas" not in kind else (table.iloc[:0], table.iloc[1:2])
    found = pw.segments_local(HOT, empty, AGG)
    assert found.num_rows == 0
    assert found.schema.names == ["k", "segment", "rows", "status", "n", "top", "mean"]
    assert found.schema.metadata == {b"null_at": b"0"}
    only = {"k": "a", "id": 0, "start": 1, "end": 1, "rows": 1, "n": 1, "top": 33.0, "mean": 33.0}
    assert told(HOT, one, AGG) == [only]


def test_rows_without_an_at_are_counted() -> None:
    for at in (
        pa.array([1.0, None, math.nan, math.inf, -math.inf, 2.0]),
        pa.array([1.0, None, math.nan, math.inf, -math.inf, 2.0], pa.float32()),
        pd.Series([1.0, None, math.nan, math.inf, -math.inf, 2.0]),
    ):
        table = (
            pa.table({"t": at, "ok": [True] * 6}) if isinstance(at, pa.Array) else pd.DataFrame({"t": at, "ok": True})
        )
        found = pw.segments_local(pw.threshold_frames("ok").at("t"), table)
        assert found.schema.metadata == {b"null_at": b"4"}
        assert [row["segment"]["end"] for row in found.to_pylist()] == [2.0]
        assert found["rows"].to_pylist() == [2]


NEW_YEAR = datetime(2024, 1, 1)
ATS: list[tuple[pa.Array, Any, Any, pa.DataType]] = [
    *((pa.array([3, 1], kind), 1, 3, pa.int64()) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *((pa.array([3, 1], kind), 1, 3, pa.int64()) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    *((pa.array([1.5, -0.5], kind), -0.5, 1.5, pa.float64()) for kind in (pa.float32(), pa.float64())),
    (pa.array([1.5, -0.5]).cast(pa.float16()), -0.5, 1.5, pa.float64()),
    *(
        (pa.array([0, 1_704_067_200], pa.timestamp("s")).cast(pa.timestamp(unit)), datetime(1970, 1, 1), NEW_YEAR, us)
        for unit in ("s", "ms", "us", "ns")
        for us in (pa.timestamp("us"),)
    ),
    (
        pa.array([0, 1], pa.timestamp("ns", "UTC")),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        pa.timestamp("us", "UTC"),
    ),
    # rounded down, before 1970 too
    (
        pa.array([-1, 1_999], pa.timestamp("ns")),
        datetime(1969, 12, 31, 23, 59, 59, 999_999),
        datetime(1970, 1, 1, 0, 0, 0, 1),
        pa.timestamp("us"),
    ),
    (pa.array([1, -1], pa.date32()), date(1969, 12, 31), date(1970, 1, 2), pa.date32()),
    (pa.array([86_400_000, -1], pa.int64()).cast(pa.date64()), date(1969, 12, 31), date(1970, 1, 2), pa.date32()),
    (pa.array([3, 1]).dictionary_encode(), 1, 3, pa.int64()),
]


@pytest.mark.parametrize(("at", "start", "end", "kind"), ATS, ids=[str(at.type) for at, *_ in ATS])
def test_every_type_of_at(at: pa.Array, start: Any, end: Any, kind: pa.DataType) -> None:
    found = pw.segments_local(pw.threshold_frames("ok").at("t"), pa.table({"t": at, "ok": [True, True]}))
    assert found.schema.field("segment").type.field("start").type == kind
    assert [(row["segment"]["start"], row["segment"]["end"]) for row in found.to_pylist()] == [(start, end)]


def test_times_of_pandas_and_polars() -> None:
    plan = pw.threshold_frames("ok", min_duration="1 day").at("t")
    times = [datetime(2024, 1, 3), NEW_YEAR]
    for table in (
        pd.DataFrame({"t": times, "ok": True}),
        pl.DataFrame({"t": times, "ok": [True, True]}),
        pl.DataFrame({"t": times, "ok": [True, True]}).with_columns(pl.col("t").cast(pl.Datetime("ns"))),
        pa.table({"t": times, "ok": [True, True]}),
    ):
        assert told(plan, table) == [{"id": 0, "start": NEW_YEAR, "end": times[0], "rows": 2}]


def test_times_are_rounded_down_wherever_they_are_read() -> None:
    nanos = pa.array([-1_001, -1, 999], pa.timestamp("ns"))
    table = pa.table({"t": [1, 2, 3], "ts": nanos})
    moved = pw.delta_frames({"ts": "1 microsecond"}).by("ts").at("t")
    keys = [datetime(1969, 12, 31, 23, 59, 59, 999_998), datetime(1969, 12, 31, 23, 59, 59, 999_999)]
    found = told(moved, table, {"low": "min(ts)"})
    assert [(row["ts"], row["low"]) for row in found] == [(k, k) for k in [*keys, datetime(1970, 1, 1)]]


def test_names_are_found_but_for_case() -> None:
    table = pa.table({"K": ["a"], "Time": [1], "Seq": [1], "Ok": [True]})
    plan = pw.threshold_frames("ok").by("k").at("TIME", tie_break="seq")
    assert told(plan, table) == [{"k": "a", "id": 0, "start": 1, "end": 1, "rows": 1}]


KEYS = [
    pa.array([b"a", b"b"], pa.binary_view()),
    pa.array([b"a", b"b"], pa.binary()),
    pa.array([True, False]),
    pa.array([1, 2], pa.decimal128(5, 1)),
    pa.array([1, 2], pa.uint64()),
    pa.array([1, 2], pa.duration("s")),
    pa.array([1, 2], pa.time64("us")),
    pa.array([1, None], pa.date64()),
    pa.array([1.0, None], pa.float64()).cast(pa.float16()),
    pa.nulls(2),
]


@pytest.mark.parametrize("key", KEYS, ids=[str(key.type) for key in KEYS])
def test_plain_values_are_keys_and_break_ties(key: pa.Array) -> None:
    table = pa.table({"k": key, "t": [1, 2], "ok": [True, True]})
    plan = pw.threshold_frames("ok").at("t", tie_break="k")
    assert sum(row["rows"] for row in told(plan.by("k"), table)) == 2
    assert [row["rows"] for row in told(plan, table)] == [2]


def test_what_aggregates_read() -> None:
    table = pa.table(
        {
            "t": [1, 2, 3],
            "ok": [True, True, True],
            "list": [[1], None, []],
            "struct": [{"a": 1}, {"a": None}, None],
            "nothing": pa.nulls(3),
            "view": pa.array(["x", None, None], pa.string_view()),
        }
    )
    agg = {
        "lists": "count(list)",
        "structs": "count(struct)",
        "views": "count(view)",
        "total": "sum(nothing)",
        "top": "max(nothing)",
        "none": "count(nothing)",
    }
    found = pw.segments_local(pw.threshold_frames("ok").at("t"), table, agg)
    assert found.schema.field("total").type == found.schema.field("top").type == pa.float64()
    (row,) = found.to_pylist()
    assert {name: row[name] for name in agg} == {
        "lists": 2,
        "structs": 2,
        "views": 1,
        "total": None,
        "top": None,
        "none": 0,
    }


def test_decimals_and_unsigned_integers_are_counted_exactly() -> None:
    digits = [Decimal(text) for text in ("12345678901234567890.01", "12345678901234567890.02", "1.00", "1")]
    table = pa.table(
        {
            "t": [1, 2, 3, 4],
            "ok": [True] * 4,
            "d": pa.array(digits, pa.decimal128(22, 2)),
            "u": pa.array([2**64 - 1, 2**64 - 2, 1, 1], pa.uint64()),
        }
    )
    agg = {
        "low": "min(d)",
        "n": "count(distinct d)",
        "total": "sum(d)",
        "near": "approx_count_distinct(d)",
        "some": "count(distinct case when t < 3 then d end)",
        "u": "count(distinct u)",
        "u_near": "approx_count_distinct(u)",
        "high": "max(u)",
    }
    wanted = {"low": 1.0, "n": 3, "total": 24691357802469135782.03, "near": 3, "some": 2, "u": 3, "u_near": 3}
    for plan in (pw.threshold_frames("ok").at("t"), pw.tumbling_windows(10).at("t")):
        (row,) = pw.segments_local(plan, table, agg).to_pylist()
        assert {name: row[name] for name in agg} == {**wanted, "high": 2.0**64}
    (row,) = pw.fill_local(plan, table, table, agg, at="t").to_pylist()
    assert {name: row[name] for name in agg} == {**wanted, "high": 2.0**64}


def test_big_integers_frame_as_the_nearest_number() -> None:
    table = pa.table({"t": [1, 2, 3], "v": [2**62 + 1, 2**62 + 2, 2**62 + 4096]})
    assert [row["rows"] for row in told(pw.delta_frames({"v": 1024}).at("t"), table)] == [2, 1]


def test_big_amounts_and_the_type_of_at() -> None:
    plan = pw.threshold_frames("ok", min_duration=2**64).at("t")
    assert told(plan, pa.table({"t": [1.0], "ok": [True]})) == []
    for given in (2**64, 1e300):
        with pytest.raises(pw.InputError) as error:
            told(pw.threshold_frames("ok", min_duration=given).at("t"), pa.table({"t": [1], "ok": [True]}))
        assert str(error.value) == (
            f"`min_duration` ({given}) is more than a 64-bit integer, which `at` is. Give less, or cast `at` to double."
        )


def test_columns_that_nobody_reads_may_be_anything() -> None:
    frame = pd.DataFrame(DATA).assign(mixed=[1, "a", 2, 3, 4, 5, 6, 7], odd=[object()] * 8)
    assert sorted_by_key(told(HOT, frame, AGG)) == FOUND
    twice = pa.table([*arrow().columns, *arrow().columns[:2]], names=["k", "t", "temp", "x", "X"])
    assert sorted_by_key(told(HOT, twice, AGG)) == FOUND
    objects = pl.DataFrame(DATA).with_columns(pl.Series("odd", [object()] * 8, dtype=pl.Object))
    assert sorted_by_key(told(HOT, objects, AGG)) == FOUND


def named(*names: str) -> pa.Table:
    return pa.table([pa.array([1])] * len(names), names=list(names))


ON = pw.threshold_frames("v > 0").at("t")
NESTED = pa.table(
    {"t": [1], "v": [1], "l": [[1]], "s": [{"a": 1}], "m": pa.array([[("a", 1)]], pa.map_("string", "int8"))}
)

CASES: list[tuple[pw.Plan, Any, str]] = [
    (
        ON.at("ts"),
        pd.DataFrame({"v": [1]}, index=pd.Index([1], name="ts")),
        "`at` ('ts') is the index of the pandas table, not a column. Give table.reset_index().",
    ),
    (ON.at("tt"), named("t", "v"), "`at` ('tt'): no such column. Did you mean `t`?"),
    (ON, named("t", "v", "t"), f"`at` ('t'): {SEVERAL}"),
    (ON, named("t", "v", "T"), f"`at` ('t'): {SEVERAL}"),
    (ON.by("k"), named("t", "v", "k", "k"), f"`by` ('k'): {SEVERAL}"),
    (ON.at("t", tie_break="k"), named("t", "v", "K", "k"), f"`tie_break` ('k'): {SEVERAL}"),
    (ON, pd.DataFrame([[1, 1, 1]], columns=["t", "v", "t"]), f"`at` ('t'): {SEVERAL}"),
    *(
        (ON.by(name), NESTED, f"`by` ({name!r}) has type {NESTED.schema.field(name).type}, {PLAIN}")
        for name in ("l", "s", "m")
    ),
    (ON.at("t", tie_break="l"), NESTED, f"`tie_break` ('l') has type {NESTED.schema.field('l').type}, {PLAIN}"),
    (ON.at("l"), NESTED, f"`at` ('l') has type {NESTED.schema.field('l').type}; {ORDER}"),
    (
        ON,
        pa.table({"t": pa.array([2**63], pa.uint64()), "v": [1]}),
        "`at` ('t') holds 9223372036854775808, which is more than a signed 64-bit integer. "
        "Cast it to double, or subtract where it begins.",
    ),
    (ON, pa.table({"t": ["1"], "v": [1]}), f"`at` ('t') has type string; {ORDER}"),
    (ON, pa.table({"t": pa.nulls(1), "v": [1]}), f"`at` ('t') has type null; {ORDER}"),
    (ON, pa.table({"t": pa.array([True]), "v": [1]}), f"`at` ('t') has type bool; {ORDER}"),
    (
        ON,
        pa.table({"t": pa.array([10**17], pa.timestamp("s")), "v": [1]}),
        "`table`: the column 't' can't be read: Casting from timestamp[s] to timestamp[us] would result in "
        f"out of bounds timestamp: 100000000000000000. {TYPES}",
    ),
    (
        ON,
        pd.DataFrame({"t": [1, 2], "v": [1, "a"]}),
        "`table`: the column 'v' can't be read: Could not convert 'a' with type str: tried to convert to int64. "
        f"{TYPES}",
    ),
    (
        ON,
        pl.DataFrame([pl.Series("t", [1]), pl.Series("v", [object()], dtype=pl.Object)]),
        f"`table`: the column 'v' can't be read: it holds Python objects. {TYPES}",
    ),
    (
        ON,
        pd.Series([1]),
        "`table` (a pandas Series) is one column, but rows need an `at` beside it. Give a DataFrame with both columns.",
    ),
    (
        ON,
        pl.Series([1]),
        "`table` (a polars Series) is one column, but rows need an `at` beside it. Give a DataFrame with both columns.",
    ),
    (
        ON,
        [1],
        "`table` (list) must be an Arrow, pandas or polars table. For a Spark DataFrame use plan.segments(df).",
    ),
    (
        pw.threshold_frames("u = u").at("t"),
        pa.table({"t": [1], "u": pa.array([b"a" * 16], pa.uuid())}),
        "`condition` ('u = u') can't be evaluated in memory: Function 'equal' has no kernel matching input types "
        "(extension<arrow.uuid>, extension<arrow.uuid>). Cast what it reads, or use plan.segments on Spark.",
    ),
]


@pytest.mark.parametrize(("plan", "table", "message"), CASES, ids=[message[:60] for *_, message in CASES])
def test_tables_that_do_not_fit(plan: pw.Plan, table: Any, message: str) -> None:
    with pytest.raises(pw.InputError) as error:
        pw.segments_local(plan, table)
    assert str(error.value) == message


def test_what_is_no_plan_and_no_page() -> None:
    with pytest.raises(pw.InputError) as error:
        pw.segments_local(arrow(), HOT)  # type: ignore[arg-type]  # wrong on purpose
    assert str(error.value) == (
        "`plan` (Table) must be a plan; the table comes after it. "
        'Give one, such as threshold_frames("speed > 30").at("time").'
    )
    for rows in (0, -1, 2.5, True):
        with pytest.raises(pw.InputError) as error:
            pw.segments_local(HOT, arrow(), page_rows=rows)
        assert str(error.value) == (
            f"`page_rows` ({rows!r}) must be a whole number, at least 1. Leave it out, or give one."
        )
    with pytest.raises(pw.SpecError, match="must map names of results"):
        pw.segments_local(HOT, arrow(), "sum(temp)")  # type: ignore[arg-type]  # wrong on purpose

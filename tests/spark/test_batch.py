"""Batch on Spark: the same segments as in memory, however the rows lie, and nothing done behind the user's back."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import panewise as pw
from conformance.schemes import Doubling
from panewise.data import router, traffic
from spark.tables import assert_same, rows, settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AGG = {
    "n": "count(*)",
    "there": "count(speed)",
    "vehicles": "sum(volume)",
    "moved": "sum(speed)",
    "slowest": "min(speed)",
    "most": "max(volume)",
    "mean": "avg(speed)",
    "spread": "stddev(speed)",
    "head": "first(speed)",
    "tail": "last(volume)",
    "until": "max(ts)",
}


class DoublingSpeed(Doubling):
    values = ("speed",)


PLANS = {
    "threshold": pw.threshold_frames("speed < 50", min_rows=2, gaps=True),
    "hysteresis": pw.threshold_frames(open="speed < 45", close="speed > 50", max_duration="30 minutes"),
    "delta": pw.delta_frames({"speed": 5, "volume": 12}),
    "delta, saturated": pw.delta_frames({"speed": 5}, overlap="saturated", closing="include"),
    "boundary": pw.boundary_frames({"speed": 4.25, "volume": [3, 9]}, extent="possible"),
    "aggregate": pw.aggregate_frames("sum(volume)", reaches=25, remainder=True),
    "trend": pw.trend_frames("speed", "falling", min_rows=3),
    "session": pw.session_frames("1 minute", longest=True),
    "custom": pw.custom_frames(DoublingSpeed),
}
PLANS = {name: plan.by("sensor").at("ts") for name, plan in PLANS.items()}


@cache
def stream(size: int) -> pa.Table:
    """Reports of road detectors, shuffled: some twice at one time with other values, some without a time or key."""
    rng = np.random.default_rng(7)
    table = traffic.table(size, sensors=23, seed=3)
    again = table.take(pa.array(rng.integers(0, size, size // 10)))
    again = again.set_column(2, "speed", pa.array(np.round(rng.uniform(20, 70, len(again)), 1)))
    both = pa.concat_tables([table, again, table.slice(0, size // 50)])
    drawn = rng.random((2, len(both)))
    both = both.set_column(0, table.schema.field("sensor"), _holes(both["sensor"], drawn[0] < 0.01))
    both = both.set_column(1, table.schema.field("ts"), _holes(both["ts"], drawn[1] < 0.01))
    return both.take(pa.array(rng.permutation(len(both)))).combine_chunks()


def _holes(column: pa.ChunkedArray, where: np.ndarray) -> pa.ChunkedArray:
    return pc.if_else(pa.array(where), pa.scalar(None, column.type), column)


@cache
def in_memory(name: str, size: int) -> list[str]:
    found = pw.segments_local(PLANS[name], stream(size), AGG)
    assert len(found) > 20
    return rows(found)


def together(df: DataFrame, names: Iterable[str] = PLANS) -> dict[str, list[str]]:
    """What several plans find, in one job."""
    from pyspark.sql import functions as F

    parts = []
    for name in names:
        found = PLANS[name].segments(df, AGG).withColumn("plan", F.lit(name))
        parts.append(found if "gap" in found.columns else found.withColumn("gap", F.lit(None).cast("boolean")))
    table = reduce(lambda a, b: a.unionByName(b), parts).toArrow()
    told = {}
    for name in names:
        own = table.filter(pc.equal(table["plan"], name)).drop_columns(["plan"])
        told[name] = rows(own if own["gap"].null_count == 0 else own.drop_columns(["gap"]))
    return told


# ---- (a) however the rows lie ------------------------------------------------------------------------------------


TINY = pytest.param(1, 1, 1_000, marks=pytest.mark.slow)
LARGE = pytest.param(7, 10_000, 20_000, marks=pytest.mark.slow)


@pytest.mark.parametrize(("partitions", "batch", "size"), [TINY, (2, 7, 5_000), LARGE])
def test_partitions_and_arrow_batches_change_nothing(
    spark: SparkSession, partitions: int, batch: int, size: int
) -> None:
    df = spark.createDataFrame(stream(size)).repartition(5)
    wanted = {"shuffle_partitions": partitions, "execution_arrow_maxRecordsPerBatch": batch}
    with settings(spark, **wanted, adaptive_enabled="false"):
        assert together(df) == {name: in_memory(name, size) for name in PLANS}


@pytest.mark.slow
def test_more_partitions_than_keys(spark: SparkSession) -> None:
    """A task costs Spark some 30 ms, rows or not: one plan is enough."""
    with settings(spark, shuffle_partitions=200, adaptive_enabled="false"):
        found = together(spark.createDataFrame(stream(20_000)), ["aggregate"])
    assert found == {"aggregate": in_memory("aggregate", 20_000)}


@pytest.mark.slow
def test_adaptive_plans_change_nothing(spark: SparkSession) -> None:
    with settings(spark, shuffle_partitions=200, adaptive_enabled="true"):
        found = together(spark.createDataFrame(stream(20_000)).sort("speed"))
    assert found == {name: in_memory(name, 20_000) for name in PLANS}


def test_files_of_the_router_generator(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the generator says it has hidden is what comes out."""
    path = tmp_path_factory.mktemp("router") / "reports"
    router.write(path, 60_000, routers=30, files=3)
    plan = pw.threshold_frames("drop_pct > 0.3").by("router").at("rpt_time")
    found = plan.segments(spark.read.parquet(str(path)), {"pkts": "sum(total_pkts)"}).toArrow()
    truth = router.truth(60_000, routers=30)
    segment = found["segment"].combine_chunks()
    columns = [found["router"], segment.field("start"), segment.field("end"), found["rows"], found["pkts"]]
    assert rows(pa.table(columns, names=truth.column_names)) == rows(truth)


# ---- (b) types and names -----------------------------------------------------------------------------------------

NAN = math.nan
KEYS: dict[str, tuple[str, list[Any], pa.DataType]] = {
    "string": ("string", ["b", "a", "", None, "Ä", "a "], pa.string()),
    "byte": ("tinyint", [1, -1, 0, None, 127, -128], pa.int8()),
    "int": ("int", [1, -1, 0, None, 2**31 - 1, 7], pa.int32()),
    "long": ("bigint", [1, -1, 0, None, 2**63 - 1, -(2**63)], pa.int64()),
    "float": ("float", [0.5, -0.0, 0.0, None, NAN, math.inf], pa.float32()),
    "double": ("double", [0.1, -0.0, 0.0, None, NAN, -math.inf], pa.float64()),
    "date": (
        "date",
        [date(2024, 1, 1), date(1969, 12, 31), date(1, 1, 1), None, date(9999, 12, 31), None],
        pa.date32(),
    ),
    "timestamp": (
        "timestamp",
        [
            datetime(2024, 1, 1, 1, 2, 3, 4, UTC),
            datetime(1969, 12, 31, tzinfo=UTC),
            None,
            None,
            datetime(2024, 1, 1, tzinfo=UTC),
            None,
        ],
        pa.timestamp("us", "UTC"),
    ),
    "timestamp_ntz": ("timestamp_ntz", [datetime(2024, 1, 1), datetime(1969, 12, 31), None] * 2, pa.timestamp("us")),
    "boolean": ("boolean", [True, False, None] * 2, pa.bool_()),
    "decimal": (
        "decimal(20,3)",
        [Decimal(v) if v else None for v in ("1.5", "-1.500", "", "1.501", "0", "99999999999999999")],
        pa.decimal128(20, 3),
    ),
    "binary": ("binary", [b"a", b"", b"\x00", None, b"\xff\xfe", b"ab"], pa.binary()),
    "interval": ("interval day to second", [timedelta(1), timedelta(0), None] * 2, pa.duration("us")),
    "nothing": ("void", [None] * 6, pa.null()),
}


def _keyed(kinds: list[str]) -> tuple[pa.Table, str]:
    """Forty rows of each of six keys, in no order."""
    rng = random.Random(1)
    picks = [rng.randrange(6) for _ in range(240)]
    columns = {f"k{i}": pa.array([KEYS[kind][1][p] for p in picks], KEYS[kind][2]) for i, kind in enumerate(kinds)}
    columns["t"] = pa.array([rng.randrange(100) for _ in picks])
    columns["x"] = pa.array([rng.choice([None, NAN, -0.0, 0.0, 1.5, 2.25, -3.0]) for _ in picks])
    ddl = "".join(f"k{i} {KEYS[kind][0]}, " for i, kind in enumerate(kinds)) + "t bigint, x double"
    return pa.table(columns), ddl


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type(spark: SparkSession, kind: str) -> None:
    table, ddl = _keyed([kind])
    plan = pw.delta_frames({"x": 2}).by("k0").at("t")
    df = spark.createDataFrame(table, ddl)
    assert assert_same(plan, df, table, {"s": "sum(x)", "f": "first(x)"}) > (20 if kind != "nothing" else 5)
    assert plan.segments(df).schema["k0"].dataType == df.schema["k0"].dataType


@pytest.mark.parametrize("kinds", [[], ["string", "double"], ["double", "boolean", "date"]])
def test_any_number_of_keys(spark: SparkSession, kinds: list[str]) -> None:
    table, ddl = _keyed(kinds)
    plan = pw.threshold_frames("x > 0", gaps=True).by(*(f"k{i}" for i in range(len(kinds)))).at("t")
    assert assert_same(plan, spark.createDataFrame(table, ddl), table, {"s": "sum(x)"}) > 10


def test_null_nan_and_zero_keys(spark: SparkSession) -> None:
    """NaN is null, both zeros are one, and null is a key."""
    df = spark.sql("select * from values (0d, 1), (-0d, 2), (double('nan'), 3), (null, 4) as v(k, t)")
    found = pw.session_frames(100).by("k").at("t").segments(df).select("k", "rows").collect()
    assert sorted(map(repr, found)) == ["Row(k=0.0, rows=2)", "Row(k=None, rows=2)"]


EPOCH = datetime(1970, 1, 1)
ATS: dict[str, tuple[str, pa.Array, Any]] = {
    "timestamp": ("timestamp", lambda n: (EPOCH + timedelta(seconds=n)).replace(tzinfo=UTC), "3 seconds"),
    "timestamp_ntz": ("timestamp_ntz", lambda n: EPOCH + timedelta(milliseconds=n), "3 ms"),
    "date": ("date", lambda n: date(1970, 1, 1) + timedelta(days=n), "3 days"),
    "byte": ("tinyint", lambda n: n, 3),
    "short": ("smallint", lambda n: n * 100, 300),
    "int": ("int", lambda n: n * 10**7, 3 * 10**7),
    "long": ("bigint", lambda n: n + 2**62, 3),
    "float": ("float", lambda n: n / 4, 0.75),
    "double": ("double", lambda n: {5: NAN, 6: math.inf, 7: -math.inf}.get(n, n / 10), 0.3),
}
ARROW = {
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "date": pa.date32(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}


@pytest.mark.parametrize("kind", ATS)
def test_at_of_every_type(spark: SparkSession, kind: str) -> None:
    ddl, make, three = ATS[kind]
    rng = random.Random(2)
    numbers = [rng.choice([None, *range(-100, 100)]) for _ in range(200)]
    table = pa.table(
        {
            "t": pa.array([None if n is None else make(n) for n in numbers], ARROW[kind]),
            "ok": pa.array([rng.random() < 0.7 for _ in numbers]),
        }
    )
    df = spark.createDataFrame(table, f"t {ddl}, ok boolean")
    for plan in (
        pw.threshold_frames("ok", min_duration=three, gaps=True).at("t"),
        pw.threshold_frames("ok", expect_every=three, missing="satisfies", extent="held").at("t"),
        pw.session_frames(three).at("t"),
    ):
        assert assert_same(plan, df, table, {"n": "count(*)", "low": "min(t)"}) > 2
        bounds = plan.segments(df).schema["segment"].dataType
        wider = {"byte": "bigint", "short": "bigint", "int": "bigint", "float": "double"}.get(kind, ddl)
        assert bounds.simpleString() == f"struct<id:bigint,start:{wider},end:{wider},bounds:string>"


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_framing_by_times(spark: SparkSession, kind: str) -> None:
    ddl, make, _ = ATS[kind]
    rng = random.Random(3)
    table = pa.table(
        {
            "i": pa.array(range(200)),
            "t": pa.array([make(rng.choice([n, n, n + 40])) for n in range(-100, 100)], ARROW[kind]),
        }
    )
    days = {"timestamp": "7 seconds", "timestamp_ntz": "7 ms", "date": "7 days"}[kind]
    df = spark.createDataFrame(table, f"i bigint, t {ddl}")
    assert assert_same(pw.delta_frames({"t": days}).at("i"), df, table) > 20
    assert assert_same(pw.boundary_frames({"t": days}).at("i"), df, table) > 20


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
def test_the_session_time_zone_moves_no_segment(spark: SparkSession, zone: str) -> None:
    table = stream(1_000)
    with settings(spark, session_timeZone=zone):
        assert assert_same(PLANS["threshold"], spark.createDataFrame(table), table, AGG) > 20


NAMES = ["a.b", "the time", "TIE", "back`tick", "select", "x/y", "Größe"]


def test_names_that_need_quoting(spark: SparkSession) -> None:
    key, at, tie, _, word, *_ = NAMES
    rng = random.Random(4)
    table = pa.table({name: pa.array([rng.randrange(3 if name == key else 40) for _ in range(300)]) for name in NAMES})
    plan = pw.delta_frames({"`back``tick`": 9, "`Größe` / 2": 15}).by(key, word).at(at, tie_break=tie)
    agg = {"dotted.name": "sum(`x/y`)", "Upper": "max(`select`)", "a b": "min(`a.b`)", "q`q": "first(`back``tick`)"}
    df = spark.createDataFrame(table)
    found = plan.segments(df, agg)
    assert found.columns == ["a.b", "select", "segment", "rows", "status", *agg]
    plain = {name: f"c{i}" for i, name in enumerate(NAMES)}
    simple = pw.delta_frames({"c3": 9, "c6 / 2": 15}).by("c0", "c4").at("c1", tie_break="c2")
    same = pw.segments_local(
        simple, table.rename_columns(plain), {"s": "sum(c5)", "u": "max(c4)", "a": "min(c0)", "q": "first(c3)"}
    )
    assert rows(found.toArrow()) == rows(same.rename_columns(found.columns))
    assert rows(pw.segments_local(plan, table, agg)) == rows(same.rename_columns(found.columns))


def test_case_is_spark_s_business(spark: SparkSession) -> None:
    table = pa.table({"T": [1, 2, 3], "K": ["a", "a", "b"], "Ok": [True, True, True]})
    df = spark.createDataFrame(table)
    found = pw.threshold_frames("oK").by("k").at("t").segments(df, {"n": "max(t)"})
    assert found.columns == ["k", "segment", "rows", "status", "n"]
    assert sorted(row["n"] for row in found.collect()) == [2, 3]
    twice = df.selectExpr("T", "K", "'z' as k", "Ok")
    with settings(spark, caseSensitive="true"):
        assert {row["k"] for row in pw.threshold_frames("Ok").by("k").at("T").segments(twice).collect()} == {"z"}


def test_columns_inside_structs(spark: SparkSession) -> None:
    df = spark.sql(
        "select named_struct('speed', speed, 'at', ts) as car, ts, sensor from values"
        " (1d, 1, 'a'), (5d, 2, 'a'), (6d, 3, 'a') as v(speed, ts, sensor)"
    )
    found = pw.threshold_frames("car.speed > 4").by("sensor").at("ts").segments(df, {"top": "max(car.speed)"})
    assert [(row["rows"], row["top"]) for row in found.collect()] == [(2, 6.0)]


def test_what_has_no_order_can_be_counted(spark: SparkSession) -> None:
    kinds = ["array(1)", "map(1, 2)", "named_struct('a', 1)", "parse_json('1')", "interval 1 month", "make_interval(1)"]
    for kind in kinds:
        df = spark.range(4).selectExpr("id as t", f"if(id < 3, {kind}, null) as v")
        assert pw.session_frames(9).at("t").segments(df, {"n": "count(v)"}).collect()[0]["n"] == 3, kind


def test_integers_beyond_the_exact_doubles(spark: SparkSession) -> None:
    table = pa.table({"t": [1, 2, 3, 4], "i": [2**62, 2**62 + 1, -(2**62), 2**63 - 1]})
    plan = pw.delta_frames({"i": 2**61}).at("t")
    agg = {"mean": "avg(i)", "low": "min(i)", "spread": "stddev(i)"}
    assert assert_same(plan, spark.createDataFrame(table), table, agg) == 3


# ---- (c) what only Spark can evaluate ----------------------------------------------------------------------------


def test_conditions_that_only_spark_can_evaluate(spark: SparkSession) -> None:
    spark.udf.register("panewise_odd", lambda n: n is not None and n % 2 == 1, "boolean")
    rng = random.Random(5)
    words = [rng.choice(["GET /a", "POST /b", "PUT", "get /c", None]) for _ in range(120)]
    lists = [[rng.randrange(9) for _ in range(rng.randrange(4))] for _ in words]
    table = pa.table(
        {
            "t": pa.array(range(120)),
            "line": pa.array(words),
            "codes": pa.array(lists, pa.list_(pa.int64())),
            "ok": pa.array([rng.random() < 0.8 for _ in words]),
        }
    )
    df = spark.createDataFrame(table)
    by_hand = {
        "line rlike '^(GET|PUT)'": [None if w is None else w[:3] in ("GET", "PUT") for w in words],
        "regexp_like(line, '(?i)get')": [None if w is None else "get" in w.lower() for w in words],
        "exists(codes, c -> c > 6)": [any(c > 6 for c in codes) for codes in lists],
        "aggregate(codes, 0L, (a, c) -> a + c) >= 8": [sum(codes) >= 8 for codes in lists],
        "panewise_odd(size(codes))": [len(codes) % 2 == 1 for codes in lists],
        "lag(ok) over (order by t)": [None, *table["ok"].to_pylist()[:-1]],
        "t in (select id from range(0, 120, 3))": [t % 3 == 0 for t in range(120)],
        "xxhash64(line) is not null and (t & 4) = 4": [t & 4 == 4 for t in range(120)],
    }
    for text, holds in by_hand.items():
        wanted = pw.segments_local(
            pw.threshold_frames("holds").at("t"), table.append_column("holds", pa.array(holds, pa.bool_()))
        )
        assert len(wanted) > 5
        assert rows(pw.threshold_frames(text).at("t").segments(df).toArrow()) == rows(wanted), text


# ---- (d) observation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("real", [False, True])
def test_observation_counts_rows_and_those_without_at(spark: SparkSession, real: bool) -> None:
    from pyspark.sql import Observation

    values = "(1d, true), (double('nan'), true), (double('-inf'), true), (null, true), (2d, false)"
    df = spark.sql(f"select {'t' if real else 'try_cast(t as int) as t'}, ok from values {values} as v(t, ok)")
    seen = Observation("read")
    found = pw.threshold_frames("ok").at("t").segments(df, observation=seen).collect()
    assert len(found) == 1
    assert seen.get == {"rows": 5, "null_at": 3}


# ---- (e) builders are pure ---------------------------------------------------------------------------------------


def test_building_runs_no_job_and_changes_no_setting(spark: SparkSession) -> None:
    context = spark.sparkContext
    df = spark.createDataFrame(stream(1_000))
    before = dict(spark.conf.getAll)
    try:
        context.setJobGroup("building", "nothing may run here")
        found = [plan.segments(df, AGG) for plan in PLANS.values()]
        assert all(f.columns for f in found)
        with pytest.raises(pw.InputError):
            pw.threshold_frames("nope > 1").at("ts").segments(df)
        assert list(context.statusTracker().getJobIdsForGroup("building")) == []
        found[0].collect()
        assert list(context.statusTracker().getJobIdsForGroup("building")) != []
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.description", None)
    assert dict(spark.conf.getAll) == before


# ---- (f) hardly any rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANS)
def test_hardly_any_rows(spark: SparkSession, name: str) -> None:
    plan = PLANS[name]
    whole = traffic.table(40, sensors=1, outages=False)
    timeless = whole.set_column(1, whole.schema.field("ts"), pa.nulls(40, whole.schema.field("ts").type))
    valueless = whole.set_column(2, "speed", pa.nulls(40, pa.float64()))
    for table in (whole.slice(0, 0), whole.slice(0, 1), timeless, valueless):
        df = spark.createDataFrame(table, "sensor int, ts timestamp, speed double, volume bigint")
        count = assert_same(plan, df, table, AGG)
        assert count == 0 or len(table) > 0
        assert count == 0 or table["ts"].null_count == 0


# ---- (g) the result ----------------------------------------------------------------------------------------------


def test_the_schema_is_as_documented(spark: SparkSession) -> None:
    df = spark.sql(
        "select 'r' router, timestamp'2024-01-01' ts, true ok, date'2024-01-01' g,"
        " 1Y b, 2S h, 3 i, 4L l, 5f f, 6d d, 7.5 c"
    )
    plan = pw.threshold_frames("ok", gaps=True).by("router", "c").at("ts")
    numbers = {
        f"{function}_{column}": f"{function}({column})" for function in ("sum", "avg", "min") for column in "bhilfdc"
    }
    agg = {
        "n": "count(*)",
        "m": "count(router)",
        "first_g": "first(g)",
        "last_ts": "last(ts)",
        "max_ok": "max(ok)",
    } | numbers
    found = plan.segments(df, agg)
    assert [(f.name, f.dataType.simpleString()) for f in found.schema] == [
        ("router", "string"),
        ("c", "decimal(2,1)"),
        ("segment", "struct<id:bigint,start:timestamp,end:timestamp,bounds:string>"),
        ("rows", "bigint"),
        ("status", "string"),
        ("gap", "boolean"),
        ("n", "bigint"),
        ("m", "bigint"),
        ("first_g", "date"),
        ("last_ts", "timestamp"),
        ("max_ok", "boolean"),
        *((f"sum_{c}", "bigint") for c in "bhil"),
        *((f"sum_{c}", "double") for c in "fdc"),
        *((f"avg_{c}", "double") for c in "bhilfdc"),
        ("min_b", "tinyint"),
        ("min_h", "smallint"),
        ("min_i", "int"),
        ("min_l", "bigint"),
        ("min_f", "float"),
        ("min_d", "double"),
        ("min_c", "double"),
    ]
    assert all(field.nullable for field in found.schema)
    row = found.toArrow().to_pylist()[0]
    at = datetime(2024, 1, 1, tzinfo=UTC)
    assert row["segment"] == {"id": 0, "start": at, "end": at, "bounds": "[]"}
    told = {
        "rows": 1,
        "status": "final",
        "gap": False,
        "n": 1,
        "first_g": date(2024, 1, 1),
        "last_ts": at,
        "max_ok": True,
    }
    assert {name: row[name] for name in told} == told
    assert row["sum_c"] == 7.5
    assert "gap" not in pw.threshold_frames("ok").at("ts").segments(df).columns


def test_ids_count_from_zero_and_keys_with_ids_are_unique(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    found = PLANS["delta"].segments(spark.createDataFrame(stream(5_000)))
    per_key = found.groupBy("sensor").agg(
        F.min("segment.id"), F.max("segment.id") + 1 - F.count("*"), F.count_distinct("segment.id") - F.count("*")
    )
    assert {tuple(row)[1:] for row in per_key.collect()} == {(0, 0, 0)}


def test_results_are_a_dataframe_like_any_other(spark: SparkSession) -> None:
    """Written, read, joined and filtered by Spark."""
    found = PLANS["threshold"].segments(spark.createDataFrame(stream(5_000)), AGG)
    found.createOrReplaceTempView("found_segments")
    try:
        counted = spark.sql("select count(*), sum(rows), sum(n) from found_segments where not gap and segment.id > 2")
        some = counted.collect()[0]
    finally:
        spark.catalog.dropTempView("found_segments")
    wanted = pw.segments_local(PLANS["threshold"], stream(5_000), AGG).to_pylist()
    own = [row for row in wanted if not row["gap"] and row["segment"]["id"] > 2]
    assert tuple(some) == (len(own), sum(row["rows"] for row in own), sum(row["n"] for row in own))

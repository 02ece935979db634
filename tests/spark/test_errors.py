"""Data that does not fit the plan: every refusal on Spark, word for word, before any job runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import panewise as pw
from spark.tables import settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {
    "t": ("1L", pa.array([1])),
    "ts": ("timestamp'2024-01-01'", pa.array([0], pa.timestamp("us", "UTC"))),
    "day": ("date'2024-01-01'", pa.array([0], pa.date32())),
    "router": ("'r1'", pa.array(["r1"])),
    "drop_pct": ("0.5d", pa.array([0.5])),
    "ok": ("true", pa.array([True])),
}
TABLE = pa.table({name: array for name, (_, array) in COLUMNS.items()})
ODD = {
    "money": "cast(1.5 as decimal(10,2))",
    "list": "array(1, 2)",
    "nested": "named_struct('a', 1)",
    "pairs": "map('a', 1)",
    "json": "parse_json('1')",
    "months": "interval 1 month",
    "nothing": "null",
    "letters": "'a' collate UTF8_LCASE",
}

ORDER = "rows are ordered by a timestamp, a date, an integer or a floating number. Cast it, or choose another column."
PLAIN = "which is not a plain value. Use its parts as columns of their own, or cast it."
BOOLEAN = 'not boolean. Write a comparison, such as "speed > 30".'
SUMS = "takes numbers. Cast it, or aggregate something else."
KEEPS = "takes numbers, times, dates and booleans. Cast it, or aggregate something else."
SEVERAL = "several columns have this name. Rename them, so that each has its own."

ok = pw.threshold_frames("ok")
in_order = ok.at("t", pw.slack(0))


def at_t(plan: pw.Plan) -> pw.Plan:
    return plan.at("t")


def threshold(condition: str, **options: object) -> pw.Plan:
    return pw.threshold_frames(condition, **options).at("t")


BOTH: list[tuple[pw.Plan, dict[str, str], str]] = [
    # ---- columns that are not there
    (
        threshold("drop_pctt > 0.3"),
        {},
        "`condition` ('drop_pctt > 0.3'): no column `drop_pctt`. Did you mean `drop_pct`?",
    ),
    (
        threshold("zzz"),
        {},
        "`condition` ('zzz'): no column `zzz`. Known: `day`, `drop_pct`, `ok`, `router`, `t`, `ts`.",
    ),
    (
        at_t(pw.threshold_frames(open="ok", close="drop_pc > 1")),
        {},
        "`close` ('drop_pc > 1'): no column `drop_pc`. Did you mean `drop_pct`?",
    ),
    (
        at_t(pw.delta_frames({"drop_pc": 1})),
        {},
        "`amounts` ('drop_pc'): no column `drop_pc`. Did you mean `drop_pct`?",
    ),
    (at_t(pw.boundary_frames({"drops": 1})), {}, "`cells` ('drops'): no column `drops`. Did you mean `drop_pct`?"),
    (
        at_t(pw.aggregate_frames("sum(drops)", reaches=1)),
        {},
        "`aggregate` ('drops'): no column `drops`. Did you mean `drop_pct`?",
    ),
    (at_t(pw.trend_frames("drops", "rising")), {}, "`value` ('drops'): no column `drops`. Did you mean `drop_pct`?"),
    (
        at_t(pw.delta_frames({"drop_pct": 1}, starts="okk")),
        {},
        "`starts` ('okk'): no column `okk`. Did you mean `ok`?",
    ),
    (threshold("ok"), {"x": "sum(drops)"}, "`agg[x]` ('drops'): no column `drops`. Did you mean `drop_pct`?"),
    (ok.by("routr").at("t"), {}, "`by` ('routr'): no such column. Did you mean `router`?"),
    (ok.at("time"), {}, "`at` ('time'): no such column. Known: `day`, `drop_pct`, `ok`, `router`, `t`, `ts`."),
    (ok.at("t", tie_break="routers"), {}, "`tie_break` ('routers'): no such column. Did you mean `router`?"),
    # ---- names that would meet in the result
    (
        ok.by("router").at("t"),
        {"router": "count(*)"},
        "`agg` ('router') can't name a result: it is a key column. Choose another name.",
    ),
    # ---- amounts that do not fit the data
    (
        threshold("ok", min_duration="2 minutes"),
        {},
        "`min_duration` (2 minutes) is a length of time, but `at` is a number. Give a number in the unit of `at`.",
    ),
    (
        threshold("ok", max_duration=1.5),
        {},
        "`max_duration` (1.5) must be a whole number, because `at` is an integer. Round it, or cast `at`.",
    ),
    (
        pw.session_frames(5).at("ts"),
        {},
        '`gap` (5) is a number, but `at` is a timestamp. Give a length of time, such as "2 minutes".',
    ),
    (
        pw.threshold_frames("ok", expect_every=1).at("day"),
        {},
        '`expect_every` (1) is a number, but `at` is a date. Give a length of time, such as "2 minutes".',
    ),
    (
        pw.session_frames("36 hours").at("day"),
        {},
        "`gap` (36 hours) must be whole days, because `at` is a date. Give days, or use a timestamp.",
    ),
    (
        at_t(pw.delta_frames({"drop_pct": "5 minutes"})),
        {},
        "`amounts` ('drop_pct') has type double, but its amount is a length of time. "
        "Give a number, or a column of times.",
    ),
    # ---- aggregates
    (
        threshold("ok"),
        {"x": "sum(router)"},
        f"`agg[x]` (sum(router)): router has type string; sum {SUMS}",
    ),
    (
        threshold("ok"),
        {"x": "last(router)"},
        f"`agg[x]` (last(router)): router has type string; last {KEEPS}",
    ),
    (
        threshold("ok"),
        {"x": "mode(drop_pct)"},
        "`agg[x]` ('mode(drop_pct)'): mode is not an aggregate here. "
        "Functions: approx_count_distinct, approx_percentile, avg, count, first, last, max, median, min, percentile, "
        "stddev, sum, variance.",
    ),
    (ok.by("router"), {}, '`at` is not set: a plan needs the column that orders its rows. Add .at("column").'),
]

SPARK: list[tuple[pw.Plan, dict[str, str], str]] = [
    # ---- texts
    (
        threshold("drop_pct >"),
        {},
        "`condition` ('drop_pct >') is not an SQL expression: Syntax error at or near end of input. Correct the text.",
    ),
    (
        threshold("5 minutes"),
        {},
        "`condition` ('5 minutes') has type int, " + BOOLEAN,
    ),
    (
        threshold("drop_pct > 1, ok"),
        {},
        "`condition` ('drop_pct > 1, ok') is not an SQL expression: Syntax error at or near ','. Correct the text.",
    ),
    (threshold("*"), {}, "`condition` ('*') must be one SQL expression. Write one, such as \"speed > 30\"."),
    (
        threshold("ok > router + 1"),
        {},
        "`condition` ('ok > router + 1') can't be evaluated: Cannot resolve \"(ok > (router + 1))\" due to data type "
        "mismatch: the left and right operands of the binary operator have incompatible types "
        '("BOOLEAN" and "BIGINT"). Correct the text.',
    ),
    (
        threshold("sum(drop_pct) > 1"),
        {},
        "`condition` ('sum(drop_pct) > 1') is an aggregate, but each row needs a value of its own. "
        "Use a column, or add an OVER clause.",
    ),
    (
        threshold("ok"),
        {"x": "sum(explode(list))"},
        "`agg[x]` ('explode(list)') makes many rows of one, but each row needs one value. "
        "Apply it to the DataFrame before.",
    ),
    # ---- types
    (threshold("drop_pct"), {}, "`condition` ('drop_pct') has type double, " + BOOLEAN),
    (threshold("router"), {}, "`condition` ('router') has type string, " + BOOLEAN),
    (
        at_t(pw.delta_frames({"drop_pct": 1}, starts="t + 1")),
        {},
        "`starts` ('t + 1') has type bigint, " + BOOLEAN,
    ),
    (
        at_t(pw.delta_frames({"ts": 5})),
        {},
        "`amounts` ('ts') has type timestamp, but its amount is a number. "
        'Give a length of time, such as "5 minutes".',
    ),
    (
        at_t(pw.boundary_frames({"day": [1, 2]})),
        {},
        "`cells` ('day') has type date, but its amount is a number. Give a length of time, such as \"5 minutes\".",
    ),
    (
        at_t(pw.trend_frames("ts", "rising")),
        {},
        "`value` ('ts') has type timestamp, not a number. Cast it, or choose another value.",
    ),
    (
        at_t(pw.aggregate_frames("max(router)", reaches=1)),
        {},
        "`aggregate` ('router') has type string, not a number. Cast it, or choose another value.",
    ),
    *(
        (pw.threshold_frames("ok").at(name), {}, f"`at` ({name!r}) has type {kind}; {ORDER}")
        for name, kind in [
            ("router", "string"),
            ("ok", "boolean"),
            ("money", "decimal(10,2)"),
            ("list", "array<int>"),
            ("nested", "struct<a:int>"),
            ("pairs", "map<string,int>"),
            ("json", "variant"),
            ("months", "interval month"),
            ("nothing", "void"),
        ]
    ),
    *(
        (plan, {}, f"`{role}` ({name!r}) has type {kind}, {PLAIN}")
        for name, kind in [
            ("list", "array<int>"),
            ("nested", "struct<a:int>"),
            ("pairs", "map<string,int>"),
            ("json", "variant"),
            ("months", "interval month"),
        ]
        for role, plan in [("by", ok.by(name).at("t")), ("tie_break", ok.at("t", tie_break=name))]
    ),
    (
        ok.by("letters").at("t"),
        {},
        "`by` ('letters') has type string collate UTF8_LCASE, but keys are told apart letter by letter. "
        "Use lower(letters), or collate(letters, 'UTF8_BINARY'), as a column of its own.",
    ),
    (
        threshold("ok"),
        {"x": "min(list)"},
        f"`agg[x]` (min(list)): list has type array<int>; min {KEEPS}",
    ),
    (threshold("ok"), {"x": "avg(ts)"}, f"`agg[x]` (avg(ts)): ts has type timestamp; avg {SUMS}"),
]


@pytest.fixture(scope="module")
def df(spark: SparkSession) -> DataFrame:
    columns = {name: text for name, (text, _) in COLUMNS.items()}
    return spark.range(1).selectExpr(*(f"{text} as {name}" for name, text in columns.items()))


@pytest.fixture(scope="module")
def odd(df: DataFrame) -> DataFrame:
    return df.selectExpr("*", *(f"{text} as {name}" for name, text in ODD.items()))


@pytest.mark.parametrize(("plan", "agg", "message"), BOTH, ids=[message[:60] for *_, message in BOTH])
def test_what_spark_and_the_local_runner_refuse_alike(
    df: DataFrame, plan: pw.Plan, agg: dict[str, str], message: str
) -> None:
    with pytest.raises((pw.InputError, pw.SpecError)) as on_spark:
        plan.segments(df, agg)
    assert str(on_spark.value) == message
    with pytest.raises(type(on_spark.value)) as in_memory:
        pw.segments_local(plan, TABLE, agg)
    assert str(in_memory.value) == message


@pytest.mark.parametrize(("plan", "agg", "message"), SPARK, ids=[message[:60] for *_, message in SPARK])
def test_what_spark_refuses(odd: DataFrame, plan: pw.Plan, agg: dict[str, str], message: str) -> None:
    with pytest.raises(pw.InputError) as error:
        plan.segments(odd, agg)
    assert str(error.value) == message
    assert isinstance(error.value, ValueError)


def test_unknown_functions(odd: DataFrame) -> None:
    """Spark lists where it has looked, which depends on the session."""
    with pytest.raises(pw.InputError) as error:
        threshold("risky(ok)").segments(odd)
    said = str(error.value)
    assert said.startswith(
        "`condition` ('risky(ok)') can't be evaluated: Cannot resolve routine `risky` on search path "
    )
    assert said.endswith("]. Correct the text.")


def test_keys_that_are_named_like_the_result(spark: SparkSession) -> None:
    df = spark.sql("select 1L t, true ok, 'a' status, 'b' gap")
    with pytest.raises(pw.SpecError) as error:
        ok.by("status").at("t").segments(df)
    assert str(error.value) == (
        "`by` ('status') can't be a key: segment, rows, status are the segment's own. Rename the column."
    )
    assert ok.by("gap").at("t").segments(df).columns == ["gap", "segment", "rows", "status"]
    with pytest.raises(pw.SpecError) as error:
        pw.threshold_frames("ok", gaps=True).by("gap").at("t").segments(df)
    assert str(error.value) == (
        "`by` ('gap') can't be a key: segment, rows, status, gap are the segment's own. Rename the column."
    )


def test_names_that_several_columns_share(spark: SparkSession) -> None:
    df = spark.sql("select 1L t, true ok, 'a' k, 'b' K, 1d x, 2d x")
    for plan, message in [
        (ok.by("k").at("t"), f"`by` ('k'): {SEVERAL}"),
        (ok.by("K").at("t"), f"`by` ('K'): {SEVERAL}"),
        (ok.at("x"), f"`at` ('x'): {SEVERAL}"),
        (ok.at("t", tie_break="x"), f"`tie_break` ('x'): {SEVERAL}"),
        (
            threshold("x > 1"),
            "`condition` ('x > 1') can't be evaluated: Reference `x` is ambiguous, could be: [`x`, `x`]. "
            "Correct the text.",
        ),
    ]:
        with pytest.raises(pw.InputError) as error:
            plan.segments(df)
        assert str(error.value) == message
    assert len(ok.at("t").segments(df).collect()) == 1
    with settings(spark, caseSensitive="true"):
        assert ok.by("K").at("t").segments(df).collect()[0]["K"] == "b"


STREAMS: list[tuple[pw.Plan, dict[str, Any], str]] = [
    (
        threshold("ok", longest=True),
        {},
        "`longest` (True) needs a finished stream: on an unbounded one a longer frame may always come. "
        "Leave it out, or read the source as a batch.",
    ),
    (
        threshold("ok"),
        {},
        "`punctuation` (None): a stream must say how it is known that rows have come, or no segment could ever close. "
        'Add it to `at`, such as .at("time", pw.slack("10 seconds")).',
    ),
    # ---- punctuations that do not fit
    (
        ok.at("t", pw.slack("10 seconds")),
        {},
        "`slack` (10 seconds) is a length of time, but `at` is a number. Give a number in the unit of `at`.",
    ),
    (
        ok.at("day", pw.slack("10 seconds")),
        {},
        "`slack` (10 seconds) must be whole days, because `at` is a date. Give days, or use a timestamp.",
    ),
    (
        ok.at("ts", pw.ordered_per("router", ahead_limit=5)),
        {},
        '`ahead_limit` (5) is a number, but `at` is a timestamp. Give a length of time, such as "2 minutes".',
    ),
    (
        ok.at("t", pw.slack(10, per="routr", ahead_limit=5)),
        {},
        "`per` ('routr'): no such column. Did you mean `router`?",
    ),
    (ok.at("t", pw.in_band("drop_pct")), {}, "`condition` ('drop_pct') has type double, " + BOOLEAN),
    (
        ok.at("t", pw.in_band("okk")),
        {},
        "`condition` ('okk'): no column `okk`. Did you mean `ok`?",
    ),
    (
        ok.at("t", pw.in_band("ok", per_key=True)),
        {},
        "`per_key` (True) promises for one key at a time, and the plan has no keys. "
        'Add .by("column"), or leave `per_key` out.',
    ),
    (
        ok.at("t", pw.schedule(give_up_after=60)),
        {},
        "`give_up_after` (60) gives up expected readings, and the scheme expects none. "
        "Add `expect_every` to it, or use slack instead of schedule.",
    ),
    # ---- options
    *(
        (
            in_order,
            {"shards": shards},
            f"`shards` ({shards!r}) must be a power of two, from 1 to 1024: keys are dealt to them for good. "
            "Give one, or leave it out for 16.",
        )
        for shards in (0, 3, 2048, -4, True, 4.0, "4")
    ),
    (
        in_order,
        {"emit": "fragments", "fragment_every": "1 minute"},
        "`fragment_every` (1 minute) is a length of time, but `at` is a number. Give a number in the unit of `at`.",
    ),
]


@pytest.fixture(scope="module")
def stream(spark: SparkSession) -> DataFrame:
    rate = spark.readStream.format("rate").load()
    return rate.selectExpr(
        "value as t", "timestamp as ts", "date(timestamp) as day", "'r1' as router", "0.5d as drop_pct", "value > 1 ok"
    )


@pytest.mark.parametrize(("plan", "options", "message"), STREAMS, ids=[message[:60] for *_, message in STREAMS])
def test_what_streams_refuse(stream: DataFrame, plan: pw.Plan, options: dict[str, Any], message: str) -> None:
    with pytest.raises((pw.InputError, pw.SpecError)) as error:
        plan.segments(stream, **options)
    assert str(error.value) == message


def test_what_only_one_of_batch_and_stream_has(df: DataFrame, stream: DataFrame) -> None:
    from pyspark.sql import Observation

    for option, value in [("late", True), ("shards", 4), ("control", "out/control"), ("clock", stream)]:
        with pytest.raises(pw.InputError) as error:
            in_order.segments(df, **{option: value})
        assert str(error.value) == (
            f"`{option}` is for a stream, and `df` is a batch. Leave it out, or use spark.readStream."
        )
    with pytest.raises(pw.InputError) as error:
        in_order.segments(stream, observation=Observation())
    assert str(error.value) == (
        "`observation` is for a batch; a stream is watched while it runs. Use pw.progress(query)."
    )


def test_a_clock_that_nobody_needs(stream: DataFrame) -> None:
    with pytest.raises(pw.SpecError) as error:
        in_order.segments(stream, clock=stream)
    assert (
        str(error.value)
        == "`clock` ticks for `idle_after`, a prodder and `set_aside`, and there is none of them. Leave it out."
    )


def test_another_stream_without_the_column(stream: DataFrame) -> None:
    with pytest.raises(pw.InputError) as error:
        ok.at("t", pw.external(stream, "upto")).segments(stream)
    assert str(error.value) == "`at` ('upto'): the punctuation's stream has no such column. Name one of its own."


def test_another_state_store(spark: SparkSession, stream: DataFrame) -> None:
    other = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    with settings(spark, streaming_stateStore_providerClass=other), pytest.raises(pw.InputError) as error:
        in_order.segments(stream)
    assert str(error.value) == (
        f"`spark.sql.streaming.stateStore.providerClass` ({other}): Spark keeps the state of such a stream in "
        "RocksDB only. Use pw.session(), or set it to "
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider."
    )


def test_rows_that_break_a_rule_say_so_through_spark(spark: SparkSession) -> None:
    """Spark wraps what its workers raise; the sentence is in it."""
    from pyspark.errors import PythonException

    df = spark.sql("select * from values ('a', 1), ('b', 2), ('b', 2) as v(k, t)")
    with pytest.raises(PythonException) as error:
        pw.session_frames(5).by("k").at("t", ties="error").segments(df).collect()
    assert (
        "panewise.errors.DataError: `ties` (\"error\"): two rows of k='b' have the same `t` (2). "
        'Add tie_break columns, or choose ties="first" or "last".'
    ) in str(error.value)


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def test_nothing_is_logged_and_the_logger_is_as_it_was(df: DataFrame) -> None:
    from pyspark.errors import AnalysisException
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    handlers, filters, heard = list(logger.handlers), list(logger.filters), _Heard()
    try:
        for handler in handlers:
            logger.removeHandler(handler)
        logger.addHandler(heard)
        for text in ("nope > 1", "ok >", "ok + 1", "sum(drop_pct) > 1"):
            with pytest.raises(pw.InputError):
                threshold(text).segments(df)
        assert heard.records == []
        assert logger.filters == filters
        with pytest.raises(AnalysisException):
            df.selectExpr("nope > 1")
        assert len(heard.records) == 1, "the user's own errors are logged as ever"
    finally:
        logger.removeHandler(heard)
        for handler in handlers:
            logger.addHandler(handler)

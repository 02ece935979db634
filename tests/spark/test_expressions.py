"""What workers evaluate on Arrow is what Spark makes of it: expressions that are generated, over odd values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from panewise.errors import DataError, InputError
from panewise.kernel.apply import evaluate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EACH = 40
"""How many expressions Spark evaluates at once."""
TYPES = {
    "i": "int", "j": "int", "h": "smallint", "l": "bigint", "x": "double", "y": "double", "f": "float",
    "d": "decimal(10,2)", "e": "decimal(20,6)", "p": "boolean", "q": "boolean", "s": "string", "z": "string",
    "t": "timestamp", "u": "timestamp", "n": "timestamp_ntz", "g": "date",
}  # fmt: skip
NUMBERS = "ijhlxyfde"
LITERALS = ("0", "1", "-1", "3", "7", "10", "2.5", "-0.25", "0.1", "100.00", "1e2", "1e-3", "2147483648")
TEXTS = ("'abc'", "'12'", "''", "'Ä b'", "'-3.5'", "'2024-03-10'", "'2024-03-10 02:30:00'", "'true'", "'x%'")
DAYS = ("date '2024-03-10'", "date '1969-12-31'")
TIMES = ("timestamp '2024-03-10 12:00:00'", "timestamp '1969-12-31 23:59:59.5'")
NTZ = ("timestamp_ntz '2024-03-10 02:30:00'", "timestamp_ntz '2024-11-03 01:30:00'")


class Grammar:
    """Expressions of the subset, by the kind of their value; some are out of it, which must be said and not guessed."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def any(self, depth: int) -> str:
        return self._of(
            self._random.choice(("number", "number", "truth", "truth", "text", "time", "ntz", "day")), depth
        )

    def _of(self, kind: str, depth: int) -> str:
        return str(getattr(self, f"_{kind}")(depth))

    def _one(self, *choices: Any) -> str:
        chosen = self._random.choice(choices)
        return str(chosen() if callable(chosen) else chosen)

    def _common(self, kind: str, depth: int) -> list[Any]:
        def of(other: str = kind) -> str:
            return self._of(other, depth - 1)

        return [
            lambda: f"coalesce({of()}, {of()})",
            lambda: f"nullif({of()}, {of()})",
            lambda: f"if({of('truth')}, {of()}, {of()})",
            lambda: f"case when {of('truth')} then {of()} when {of('truth')} then {of()} else {of()} end",
            lambda: f"case when {of('truth')} then {of()} end",
            lambda: f"{self._random.choice(('least', 'greatest'))}({of()}, {of()})",
        ]

    def _number(self, depth: int) -> str:
        if depth <= 0:
            return self._one(*NUMBERS, *NUMBERS, *LITERALS)

        def of(kind: str = "number") -> str:
            return self._of(kind, depth - 1)

        arithmetic = [lambda op=op: f"({of()} {op} {of()})" for op in "++--**/%"]
        return self._one(
            *arithmetic,
            *self._common("number", depth),
            lambda: f"-({of()})",
            lambda: f"{self._random.choice(('abs', 'floor', 'ceil', 'round'))}({of()})",
            lambda: f"round({of()}, {self._random.choice((1, 2, -1))})",
            lambda: f"try_divide({of()}, {of()})",
            lambda: f"cast({of()} as {self._random.choice(('int', 'bigint', 'smallint', 'double', 'float'))})",
            lambda: f"try_cast({of('text')} as {self._random.choice(('int', 'bigint', 'double'))})",
            lambda: f"cast({of('truth')} as int)",
            lambda: f"unix_micros({of('time')})",
        )

    def _truth(self, depth: int) -> str:
        if depth <= 0:
            return self._one("p", "q", "true", "false", "p", "q")
        kind = self._random.choice(("number", "number", "number", "text", "time", "ntz", "day"))

        def of(other: str = kind) -> str:
            return self._of(other, depth - 1)

        compared = [lambda op=op: f"({of()} {op} {of()})" for op in ("=", "<>", "<", "<=", ">", ">=", "<=>")]
        return self._one(
            *compared,
            *self._common("truth", depth)[:5],
            lambda: f"({of('truth')} and {of('truth')})",
            lambda: f"({of('truth')} or {of('truth')})",
            lambda: f"(not {of('truth')})",
            lambda: f"({of()} between {of()} and {of()})",
            lambda: f"({of()} not between {of()} and {of()})",
            lambda: f"({of()} in ({of()}, {of()}))",
            lambda: f"({of()} is null)",
            lambda: f"({of()} is not null)",
            lambda: f"isnull({of()})",
            lambda: f"({of('text')} like {self._random.choice(TEXTS)})",
        )

    def _text(self, depth: int) -> str:
        if depth <= 0:
            return self._one("s", "z", "s", "z", *TEXTS)
        return self._one(
            *self._common("text", depth),
            lambda: f"{self._random.choice(('lower', 'upper'))}({self._text(depth - 1)})",
            lambda: f"cast({self._random.choice('ijhlpg')} as string)",
        )

    def _time(self, depth: int) -> str:
        if depth <= 0:
            return self._one("t", "u", "t", "u", *TIMES)
        return self._one(
            *self._common("time", depth),
            lambda: f"({self._time(depth - 1)} {self._sign()} interval {self._span()})",
            lambda: f"cast({self._of(self._random.choice(('day', 'ntz')), depth - 1)} as timestamp)",
            lambda: f"try_cast({self._text(depth - 1)} as timestamp)",
        )

    def _ntz(self, depth: int) -> str:
        if depth <= 0:
            return self._one("n", "n", *NTZ)
        return self._one(
            *self._common("ntz", depth),
            lambda: f"({self._ntz(depth - 1)} {self._sign()} interval {self._span()})",
            lambda: f"cast({self._of(self._random.choice(('day', 'time')), depth - 1)} as timestamp_ntz)",
        )

    def _day(self, depth: int) -> str:
        if depth <= 0:
            return self._one("g", "g", *DAYS)
        return self._one(
            *self._common("day", depth),
            lambda: f"cast({self._of(self._random.choice(('time', 'ntz')), depth - 1)} as date)",
            lambda: f"({self._day(depth - 1)} {self._sign()} {self._random.choice(('1', '31', 'h'))})",
        )

    def _sign(self) -> str:
        return self._random.choice("+-")

    def _span(self) -> str:
        return self._random.choice(("1 hour", "90 minutes", "2 days", "500 milliseconds", "1 week", "1 month"))


VALUES: dict[str, list[Any]] = {
    "int": [0, 1, -1, 7, -7, 12, 2**31 - 1, -(2**31)],
    "smallint": [0, 1, -1, 30, 32767, -32768],
    "bigint": [0, 1, -5, 10**12, 2**53 + 1, 2**63 - 1, -(2**63)],
    "double": [0.0, -0.0, 0.1, 0.3, -2.5, 1.5, 1e20, -1e300, math.inf, -math.inf, math.nan, 5e-324],
    "float": [0.0, -0.0, 0.1, 0.5, -3.0, 16777217.0, math.inf, math.nan],
    "decimal(10,2)": [Decimal(v) for v in ("0.00", "0.30", "-1.05", "7.00", "99999999.99", "-0.01")],
    "decimal(20,6)": [Decimal(v) for v in ("0.000000", "0.300000", "-2.500001", "12345678901234.567890")],
    "boolean": [True, False],
    "string": ["", "abc", "Äb", "12", " 12 ", "-3.5", "x", "1e3", "2024-03-10", "2024-03-10T02:30:00Z", "true", "ß"],
    "timestamp": [
        datetime(2024, 3, 10, 6, 59, 59, 999999), datetime(2024, 3, 10, 7), datetime(2024, 11, 3, 5, 30),
        datetime(2024, 11, 3, 6, 30), datetime(1969, 12, 31, 23, 59, 59, 500000), datetime(1970, 1, 1),
    ],
    "timestamp_ntz": [
        datetime(2024, 3, 10, 2, 30), datetime(2024, 11, 3, 1, 30), datetime(1969, 12, 31, 23, 59, 59, 500000),
    ],
    "date": [date(2024, 3, 10), date(2024, 2, 29), date(1969, 12, 31), date(1970, 1, 1)],
}  # fmt: skip


def table_of(random: Random, zone: str, extreme: bool) -> pa.Table:
    """Some rows, with nulls; those that are `extreme` make most arithmetic fail."""
    rows, columns = 12, {}
    kinds = {"int": pa.int32(), "smallint": pa.int16(), "bigint": pa.int64(), "double": pa.float64()}
    kinds |= {"float": pa.float32(), "decimal(10,2)": pa.decimal128(10, 2), "decimal(20,6)": pa.decimal128(20, 6)}
    kinds |= {"boolean": pa.bool_(), "string": pa.string(), "timestamp": pa.timestamp("us", "UTC")}
    kinds |= {"timestamp_ntz": pa.timestamp("us"), "date": pa.date32()}
    for name, told in TYPES.items():
        known = VALUES[told] if extreme or told not in ("int", "smallint", "bigint") else [-7, -2, 1, 2, 3, 12]
        values = [None if random.random() < 0.2 else random.choice(known) for _ in range(rows)]
        column = pa.array(values, kinds[told])
        columns[name] = column.cast(pa.timestamp("us", zone)) if told == "timestamp" else column
    return pa.table(columns)


@contextmanager
def session_zone(spark: SparkSession, zone: str) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def seen_by_spark(spark: SparkSession, table: pa.Table, file: Path) -> DataFrame:
    """The same rows from a file, with null for NaN, as panewise reads every column."""
    from pyspark.sql import functions as F

    pq.write_table(table, file)
    given = spark.read.parquet(str(file))
    assert [(name, kind) for name, kind in given.dtypes] == list(TYPES.items())
    return given.withColumns({name: F.nanvl(name, F.lit(None)) for name in "xyf"})


def plain(values: list[Any], zone: str) -> list[Any]:
    """Values that can be compared: NaN is itself, and so are instants in any zone."""
    own = ZoneInfo(zone)

    def one(value: Any) -> Any:
        if isinstance(value, float):
            return "NaN" if math.isnan(value) else value
        if isinstance(value, datetime) and value.tzinfo is not None:
            return value.astimezone(own) - datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC")) + timedelta(0)
        return value

    return [one(value) for value in values]


class Compared(NamedTuple):
    """How many expressions both evaluated; how many of those that fail in memory Spark tried, and evaluated."""

    good: int
    failed: int
    alone: int
    wrong: list[str]


def compared(spark: SparkSession, folder: Path, seed: int) -> Compared:
    """Evaluate expressions in memory, and in Spark."""
    from pyspark.errors import PySparkException

    random = Random(seed)
    zone = random.choice(("UTC", "America/New_York"))
    table = table_of(random, zone, extreme=seed % 3 == 0)
    grammar = Grammar(random)
    good, failed = [], []
    with session_zone(spark, zone):
        df = seen_by_spark(spark, table, folder / f"{seed}.parquet")
        while len(good) + len(failed) < EACH:
            text = grammar.any(random.choice((1, 1, 2, 2, 3)))
            try:
                good.append((text, evaluate("value", text, table, exact=True)))
            except InputError:
                continue
            except DataError:
                failed.append(text)
        try:
            told = df.selectExpr(*(f"{text} as c{n}" for n, (text, _) in enumerate(good))).toArrow().columns
        except PySparkException:
            told = [_alone(df, text) for text, _ in good]
        wrong = []
        for (text, own), theirs in zip(good, told, strict=True):
            if isinstance(theirs, str):
                wrong.append(f"{text}: Spark fails ({theirs}), in memory {own.to_pylist()}")
                continue
            if _kind(theirs.type) != _kind(own.type):
                wrong.append(f"{text}: Spark {theirs.type}, in memory {own.type}")
            elif plain(theirs.to_pylist(), zone) != plain(own.to_pylist(), zone):
                wrong.append(f"{text}: Spark {theirs.to_pylist()}, in memory {own.to_pylist()}")
        alone = [text for text in failed[:3] if not isinstance(_alone(df, text), str)]
    return Compared(len(good), len(failed[:3]), len(alone), [f"seed {seed}, {each}" for each in wrong])


def _alone(df: DataFrame, text: str) -> Any:
    from pyspark.errors import PySparkException

    try:
        return df.selectExpr(f"{text} as c").toArrow().column(0)
    except PySparkException as e:
        return str(e).splitlines()[0]


def _kind(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def check(spark: SparkSession, folder: Path, seeds: range) -> None:
    found = [compared(spark, folder, seed) for seed in seeds]
    wrong = [each for some in found for each in some.wrong]
    assert not wrong, "\n".join(wrong)
    assert sum(some.good for some in found) >= EACH * len(seeds) // 2
    # Spark does not fail with what it leaves out: an operand beside a null, or what its optimizer does not need
    assert sum(some.alone for some in found) <= max(sum(some.failed for some in found) // 5, 2)


def test_generated_expressions(spark: SparkSession, tmp_path: Path) -> None:
    check(spark, tmp_path, range(4))


@pytest.mark.slow
def test_more_generated_expressions(spark: SparkSession, tmp_path: Path) -> None:
    check(spark, tmp_path, range(4, 154))

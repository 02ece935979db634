"""Apply without Spark: `EXPRESSIONS` and `FAILURES` over `TABLE` are also what Spark is compared with."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from panewise.errors import DataError, InputError
from panewise.kernel.apply import evaluate

NAN = float("nan")

TABLE = pa.table(
    {
        "i": pa.array([7, -7, 0, None, 2147483647], pa.int32()),
        "j": pa.array([3, 3, -2, 1, None], pa.int32()),
        "l": pa.array([1, -5, None, 9223372036854775807, 0], pa.int64()),
        "x": pa.array([0.3, -2.5, NAN, None, 1e20], pa.float64()),
        "y": pa.array([2.0, 0.5, 1.0, None, 0.0], pa.float64()),
        "f": pa.array([0.5, 1.25, None, -3.0, NAN], pa.float32()),
        "d": pa.array([Decimal(v) if v else None for v in ("0.30", "-1.05", "", "2.00", "7.00")], pa.decimal128(10, 2)),
        "p": pa.array([True, True, False, None, None]),
        "s": pa.array(["abc", "Äb", "", None, "12"]),
        "t": pa.array(
            [
                datetime(2024, 1, 31, 12),
                datetime(2024, 1, 31),
                datetime(1969, 12, 31, 23, 59, 59, 500000),
                None,
                datetime(2024, 2, 1),
            ],
            pa.timestamp("us", "UTC"),
        ),
        "g": pa.array([date(2024, 1, 31), date(2024, 2, 1), date(1969, 12, 31), None, date(2024, 1, 31)]),
        "A b": pa.array([1, 2, 3, 4, 5], pa.int32()),
    }
)

EXPRESSIONS: list[tuple[str, list[object]]] = [
    # numbers
    ("i + j", [10, -4, -2, None, None]),
    ("i - j", [4, -10, 2, None, None]),
    ("i + l", [8, -12, None, None, 2147483647]),
    ("l - 1", [0, -6, None, 9223372036854775806, -1]),
    ("i / j", [7 / 3, -7 / 3, 0.0, None, None]),
    ("i % j", [1, -1, 0, None, None]),
    ("l % -3", [1, -2, None, 1, 0]),
    ("x % 2", [0.3, -0.5, None, None, 0.0]),
    ("-i", [-7, 7, 0, None, -2147483647]),
    ("- -3", [3, 3, 3, 3, 3]),
    ("-2147483648", [-2147483648] * 5),
    ("2147483648", [2147483648] * 5),
    ("x + i", [7.3, -9.5, None, None, 1e20 + 2147483647]),
    ("y / x", [2.0 / 0.3, -0.2, None, None, 0.0]),
    ("f + 1", [1.5, 2.25, None, -2.0, None]),
    ("f * f", [0.25, 1.5625, None, 9.0, None]),
    ("1e3", [1000.0] * 5),
    ("5L + 1", [6] * 5),
    ("1.5D + 1", [2.5] * 5),
    ("null / 0", [None] * 5),
    ("-null", [None] * 5),
    # decimals are exact among themselves and integers, doubles next to a double
    ("0.1 + 0.2 = 0.3", [True] * 5),
    ("i * 0.1", [0.7, -0.7, 0.0, None, 214748364.7]),
    ("i * 0.1 > 0.7", [False, False, False, None, True]),
    ("i / 1.5", [4.666667, -4.666667, 0.0, None, 1431655764.666667]),
    ("d > 0.3", [False, False, None, True, True]),
    ("d * 3 = 0.9", [True, False, None, False, False]),
    ("d + 1", [1.3, -0.05, None, 3.0, 8.0]),
    ("d / 3", [0.1, -0.35, None, 0.666667, 2.333333]),
    ("3 / d", [10.0, -2.85714285714, None, 1.5, 0.42857142857]),
    ("d % 0.7", [0.3, -0.35, None, 0.6, 0.0]),
    ("d / null", [None] * 5),
    ("d + x", [0.6, -3.55, None, None, 1e20]),
    ("d * d * d * d * d", [0.00243, -1.276281, None, 32.0, 16807.0]),
    ("99999999999999999999 = l", [False, False, None, False, False]),
    # comparisons
    ("x > 0.3", [False, False, None, None, True]),
    ("x >= 0.3", [True, False, None, None, True]),
    ("x < i", [True, False, None, None, False]),
    ("x <= -2.5", [False, True, None, None, False]),
    ("i = 7", [True, False, False, None, False]),
    ("i == 7", [True, False, False, None, False]),
    ("i != 7", [False, True, True, None, True]),
    ("i <> 7", [False, True, True, None, True]),
    ("i > 0.3", [True, False, False, None, True]),
    ("f > 0.4", [True, True, None, False, None]),
    ("i between -7 and 7", [True, True, True, None, False]),
    ("i not between j and 100", [False, True, False, None, True]),
    ("i in (7, 0)", [True, False, True, None, False]),
    ("i in (7, null)", [True, None, None, None, None]),
    ("i not in (7, null)", [False, None, None, None, None]),
    ("i in (7, 0.5)", [True, False, False, None, False]),
    ("s in ('abc', '12')", [True, False, False, None, True]),
    ("x <=> null", [False, False, True, True, False]),
    ("i <=> j", [False] * 5),
    ("i is distinct from 7", [False, True, True, True, True]),
    ("i is not distinct from 7", [True, False, False, False, False]),
    ("null = 1", [None] * 5),
    ("sqrt(-1) = sqrt(-1)", [True] * 5),
    ("sqrt(x) > 5", [False, True, None, None, True]),
    # conditions
    ("not p", [False, False, True, None, None]),
    ("!p", [False, False, True, None, None]),
    ("p and null", [None, None, False, None, None]),
    ("p or null", [True, True, None, None, None]),
    ("p < true", [False, False, True, None, None]),
    ("i is null", [False, False, False, True, False]),
    ("i is not null", [True, True, True, False, True]),
    ("isnull(x)", [False, False, True, True, False]),
    ("isnotnull(x)", [True, True, False, False, True]),
    ("p is true", [True, True, False, False, False]),
    ("p is not true", [False, False, True, True, True]),
    ("p is false", [False, False, True, False, False]),
    ("isnan(x)", [False] * 5),
    ("isnan(sqrt(x))", [False, True, False, False, False]),
    # what is not asked for does not fail
    ("i <> 0 and 10 / i > 1", [True, False, False, None, False]),
    ("i = 0 or 10 / i > 1", [True, False, True, None, False]),
    ("if(i <> 0, 10 / i, 0)", [10 / 7, -10 / 7, 0.0, 0.0, 10 / 2147483647]),
    ("case when i = 0 then null else 10 % i end", [3, 3, None, None, 10]),
    ("coalesce(i, 1 / (j - 3))", [7.0, -7.0, 0.0, -0.5, 2147483647.0]),
    ("coalesce(i, s)", [7, -7, 0, None, 2147483647]),
    ("if(s = '12', s, i)", [7, -7, 0, None, 12]),
    # choices
    ("case when i > 0 then 1 when i < 0 then -1 else 0.5 end", [1.0, -1.0, 0.5, 0.5, 1.0]),
    ("case i when 7 then 'seven' when 0 then 'zero' end", ["seven", None, "zero", None, None]),
    ("if(p, i, x)", [7.0, -7.0, None, None, 1e20]),
    ("coalesce(i, j, 5)", [7, -7, 0, 1, 2147483647]),
    ("coalesce(x, i)", [0.3, -2.5, 0.0, None, 1e20]),
    ("nvl(s, 'none')", ["abc", "Äb", "", "none", "12"]),
    ("ifnull(i, 0)", [7, -7, 0, 0, 2147483647]),
    ("nullif(i, 7)", [None, -7, 0, None, 2147483647]),
    ("10 / nullif(i, 0)", [10 / 7, -10 / 7, None, None, 10 / 2147483647]),
    ("try_divide(10, i)", [10 / 7, -10 / 7, None, None, 10 / 2147483647]),
    ("least(i, j, l)", [1, -7, -2, 1, 0]),
    ("greatest(i, x)", [7.0, -2.5, 0.0, None, 1e20]),
    ("least(sqrt(x), 1.0)", [0.3**0.5, 1.0, 1.0, 1.0, 1.0]),
    # functions
    ("abs(i)", [7, 7, 0, None, 2147483647]),
    ("abs(x)", [0.3, 2.5, None, None, 1e20]),
    ("abs(d)", [0.3, 1.05, None, 2.0, 7.0]),
    ("ceil(x / 100)", [1, 0, None, None, 1000000000000000000]),
    ("floor(x / 100)", [0, -1, None, None, 1000000000000000000]),
    ("floor(-9223372036854775808D)", [-9223372036854775808] * 5),
    ("ceil(sqrt(-1))", [0] * 5),
    ("ceil(i)", [7, -7, 0, None, 2147483647]),
    ("ceil(d)", [1.0, -1.0, None, 2.0, 7.0]),
    ("floor(d)", [0.0, -2.0, None, 2.0, 7.0]),
    ("sqrt(y)", [2**0.5, 0.5**0.5, 1.0, None, 0.0]),
    ("round(x)", [0.0, -3.0, None, None, 1e20]),
    ("round(y * 1.25D, 1)", [2.5, 0.6, 1.3, None, 0.0]),
    ("round(x, -1)", [0.0, 0.0, None, None, 1e20]),
    ("round(i)", [7, -7, 0, None, 2147483647]),
    ("lower(s)", ["abc", "äb", "", None, "12"]),
    ("upper(s)", ["ABC", "ÄB", "", None, "12"]),
    ("length(s)", [3, 2, 0, None, 2]),
    ("s like 'a%'", [True, False, False, None, False]),
    ("s like '_b'", [False, True, False, None, False]),
    ("s not like '%'", [False, False, False, None, False]),
    ("s > 'B'", [True, True, False, None, False]),
    ("`A b` > 2", [False, False, True, True, True]),
    ("`a B` - I", [-6, 9, 3, None, -2147483642]),
    ("unix_micros(t)", [1706702400000000, 1706659200000000, -500000, None, 1706745600000000]),
    # casts
    ("cast(y as bigint)", [2, 0, 1, None, 0]),
    ("cast(-2.9 as int)", [-2] * 5),
    ("cast(d as int)", [0, -1, None, 2, 7]),
    ("cast(i as double)", [7.0, -7.0, 0.0, None, 2147483647.0]),
    ("cast(i as string)", ["7", "-7", "0", None, "2147483647"]),
    ("cast(p as string)", ["true", "true", "false", None, None]),
    ("cast(i as boolean)", [True, True, False, None, True]),
    ("cast(p as int)", [1, 1, 0, None, None]),
    ("cast(' 12 ' as int)", [12] * 5),
    ("cast('1e3' as double)", [1000.0] * 5),
    ("cast('1.5d' as double)", [1.5] * 5),
    ("cast('Yes' as boolean)", [True] * 5),
    ("cast(null as int)", [None] * 5),
    ("try_cast(s as int)", [None, None, None, None, 12]),
    ("try_cast(x as int)", [0, -2, None, None, None]),
    ("cast(t as bigint)", [1706702400, 1706659200, -1, None, 1706745600]),
    ("cast(t as double)", [1706702400.0, 1706659200.0, -0.5, None, 1706745600.0]),
    # times
    ("t > '2024-01-31'", [True, False, False, None, True]),
    ("t = '2024-01-31 12:00:00.000'", [True, False, False, None, False]),
    ("t >= timestamp'2024-01-31 12:00:00'", [True, False, False, None, True]),
    ("t > '2024-01-31T12:00:00+01:00'", [True, False, False, None, True]),
    ("t > date'2024-01-31'", [True, False, False, None, True]),
    ("g = date'2024-01-31'", [True, False, False, None, True]),
    ("g > '2024-01-31'", [False, True, False, None, False]),
    ("g <= t", [True, False, True, None, True]),
    ("t - timestamp'2024-01-31 00:00:00' > interval 1 hour", [True, False, False, None, True]),
    ("t + interval '12' hours > '2024-01-31 12:00:00'", [True, False, False, None, True]),
    ("t - interval 1 day < '2024-01-30 00:00:00'", [False, False, True, None, False]),
]

FAILURES: list[tuple[str, str]] = [
    ("10 / i", "a division by zero. Use try_divide(a, b), or nullif(b, 0) for the divisor."),
    ("10 % i", "a division by zero. Use try_divide(a, b), or nullif(b, 0) for the divisor."),
    ("x / y", "a division by zero. Use try_divide(a, b), or nullif(b, 0) for the divisor."),
    ("d / 0", "a division by zero. Use try_divide(a, b), or nullif(b, 0) for the divisor."),
    ("i <> 5 and 10 / i > 1", "a division by zero. Use try_divide(a, b), or nullif(b, 0) for the divisor."),
    ("i * 2", "an integer overflow. Cast to a wider type, such as bigint or double."),
    ("l + 1", "an integer overflow. Cast to a wider type, such as bigint or double."),
    ("ceil(x)", "an integer overflow. Cast to a wider type, such as bigint or double."),
    ("floor(9223372036854775807D)", "an integer overflow. Cast to a wider type, such as bigint or double."),
    ("-(-2147483648)", "an integer overflow. Cast to a wider type, such as bigint or double."),
    ("cast(x as int)", "1e+20 is out of the range of int. Use a wider type, or try_cast."),
    ("cast(s as int)", "'abc' can't be cast to int. Correct the value, or use try_cast."),
    ("cast('1.5' as bigint)", "'1.5' can't be cast to bigint. Correct the value, or use try_cast."),
    ("s = 12", "'abc' can't be cast to bigint. Correct the value, or use try_cast."),
    ("t > 'noon'", "'noon' can't be cast to timestamp. Correct the value, or use try_cast."),
]


@pytest.mark.parametrize(("text", "expected"), EXPRESSIONS, ids=[text for text, _ in EXPRESSIONS])
def test_expressions(text: str, expected: list[object]) -> None:
    got = evaluate("value", text, TABLE).to_pylist()
    assert [type(v) for v in got] == [type(v) for v in expected]
    assert got == [pytest.approx(v, rel=1e-15) if isinstance(v, float) else v for v in expected]


@pytest.mark.parametrize(("text", "message"), FAILURES, ids=[text for text, _ in FAILURES])
def test_rows_that_fail(text: str, message: str) -> None:
    with pytest.raises(DataError) as error:
        evaluate("value", text, TABLE)
    assert str(error.value) == f"`value` ({text!r}): {message}"


@pytest.mark.parametrize("text", [text for text, _ in EXPRESSIONS + FAILURES if "noon" not in text])
def test_no_rows_cannot_fail(text: str) -> None:
    assert evaluate("value", text, TABLE.slice(0, 0)).to_pylist() == []


@pytest.mark.parametrize("text", [text for text, _ in EXPRESSIONS])
def test_chunks_do_not_matter(text: str) -> None:
    parts = pa.concat_tables([TABLE.slice(0, 2), TABLE.slice(2, 0), TABLE.slice(2)])
    assert str(evaluate("value", text, parts).to_pylist()) == str(evaluate("value", text, TABLE).to_pylist())


BOTH = [(a, b) for a in (True, False, None) for b in (True, False, None)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a and b", [True, False, None, False, False, False, None, False, None]),
        ("a or b", [True, True, True, True, False, None, True, None, None]),
        ("a = b", [True, False, None, False, True, None, None, None, None]),
        ("a <=> b", [True, False, False, False, True, False, False, False, True]),
        ("not a", [False, False, False, True, True, True, None, None, None]),
    ],
)
def test_three_valued_logic(text: str, expected: list[bool | None]) -> None:
    table = pa.table({"a": pa.array([a for a, _ in BOTH]), "b": pa.array([b for _, b in BOTH])})
    assert evaluate("condition", text, table).to_pylist() == expected


def test_nan_is_null_before_anything_else() -> None:
    table = pa.table({"x": [NAN, 1.0]})
    assert evaluate("condition", "x > 0", table).to_pylist() == [None, True]
    assert evaluate("value", "coalesce(x, -1)", table).to_pylist() == [-1.0, 1.0]
    assert evaluate("value", "x", table).to_pylist() == [None, 1.0]


def test_column_types_become_those_of_spark() -> None:
    table = pa.table(
        {
            "u": pa.array([200, 255], pa.uint8()),
            "w": pa.array([2**64 - 1, 0], pa.uint64()),
            "h": pa.array(["a", "b"]).dictionary_encode(),
            "v": pa.array(["a", None], pa.large_string()),
            "n": pa.array([1_500, -1_500], pa.timestamp("ns")),
        }
    )
    assert evaluate("value", "u + u", table).to_pylist() == [400, 510]
    assert evaluate("value", "w > 5", table).to_pylist() == [True, False]
    assert evaluate("value", "h = v", table).to_pylist() == [True, None]
    assert evaluate("value", "unix_micros(n)", table).to_pylist() == [1, -1]


def test_times_without_a_zone_are_read_as_they_stand() -> None:
    table = pa.table({"t": pa.array([datetime(2024, 1, 1, 12)], pa.timestamp("us"))})
    assert evaluate("condition", "t >= '2024-01-01 12:00:00'", table).to_pylist() == [True]
    assert evaluate("condition", "t > timestamp'2024-01-01 12:00:00'", table).to_pylist() == [False]


def test_texts_without_a_zone_are_in_the_zone_of_the_columns() -> None:
    table = pa.table({"t": pa.array([datetime(2024, 3, 10, 6, 30)], pa.timestamp("us", "America/New_York"))})
    assert evaluate("condition", "t = '2024-03-10 01:30:00'", table).to_pylist() == [True]
    assert evaluate("condition", "t = '2024-03-10 06:30:00Z'", table).to_pylist() == [True]
    assert evaluate("condition", "cast(t as date) = date'2024-03-10'", table).to_pylist() == [True]


ONLY_SPARK = "Use plan.segments on Spark, which takes any SQL expression."


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("percentile(x, 0.5)", "`PERCENTILE(x, 0.5)`"),
        ("x & 1", "`x & 1`"),
        ("a.b", "the nested column `a.b`"),
        ("s rlike 'a'", "`s RLIKE 'a'`"),
        ("cast(x as string)", "a cast from double to string"),
        ("cast(x as decimal(10, 2))", "a cast to decimal(10, 2)"),
        ("interval 1 month", "`INTERVAL '1' MONTH`"),
        ("ceil(x, 1)", "`CEIL(x, 1)`"),
        ("p + 1", "bool in arithmetic"),
        ("i and p", "`i` as a condition"),
        ("if(p, 1)", "`IF(p, 1)`"),
        ("l < 9223372036854775808", "`l < 9223372036854775808`"),
        ("p = 1", "bool together with int32"),
        (r"s like 'a\_'", "a backslash"),
        ("t > '2024-01'", "the time '2024-01'; write it in full, such as '2024-01-31 12:00:00'"),
    ],
)
def test_what_only_spark_can_evaluate(text: str, what: str) -> None:
    with pytest.raises(InputError) as error:
        evaluate("value", text, TABLE)
    assert str(error.value) == f"`{text}`: the local runner can't evaluate {what}. {ONLY_SPARK}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drop_pctt > 0.3", "`condition` ('drop_pctt > 0.3'): no column `drop_pctt`. Did you mean `drop_pct`?"),
        (
            "case_ > 1",
            "`condition` ('case_ > 1'): several columns are called `case_`, but for case. Rename one of them.",
        ),
        (
            "drop_pct >",
            "`condition` ('drop_pct >') is not an SQL expression: it can't be read near '>'. Correct the text.",
        ),
        ("'abc", "`condition` (\"'abc\") is not an SQL expression: it can't be read. Correct the text."),
        (
            "5 minutes",
            "`condition` ('5 minutes') is not an SQL expression: it can't be read near 'minutes'. Correct the text.",
        ),
        ("a, b", "`condition` ('a, b') must be one SQL expression. Write one, such as \"speed > 30\"."),
        ("a from t", "`condition` ('a from t') must be one SQL expression. Write one, such as \"speed > 30\"."),
        ("", "`condition` ('') must be one SQL expression. Write one, such as \"speed > 30\"."),
    ],
)
def test_texts_that_are_no_expressions_of_the_table(text: str, message: str) -> None:
    table = pa.table({"drop_pct": [0.1], "case_": [1], "Case_": [2]})
    with pytest.raises(InputError) as error:
        evaluate("condition", text, table)
    assert str(error.value) == message

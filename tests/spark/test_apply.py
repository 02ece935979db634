"""Apply in memory means what Spark means: every expression of the kernel's tests, evaluated by Spark."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kernel.test_apply import EXPRESSIONS, FAILURES, TABLE
from panewise.kernel.apply import evaluate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DDL = "i int, j int, l bigint, x double, y double, f float, d decimal(10,2), p boolean, s string, t timestamp, g date"


@pytest.fixture(scope="module")
def df(spark: SparkSession) -> DataFrame:
    """The table, with null for NaN, as panewise reads every column."""
    from pyspark.sql import functions as F

    given = spark.createDataFrame(TABLE, f"{DDL}, `A b` int")
    return given.withColumns({name: F.nanvl(name, F.lit(None)) for name in "xyf"})


def test_expressions(df: DataFrame) -> None:
    table = df.selectExpr(*(f"{text} as c{n}" for n, (text, _) in enumerate(EXPRESSIONS))).toArrow()
    wrong = []
    for (text, expected), column in zip(EXPRESSIONS, table.columns, strict=True):
        told = [float(v) if isinstance(v, Decimal) else v for v in column.to_pylist()]
        wanted = [pytest.approx(v, rel=1e-15, nan_ok=True) if isinstance(v, float) else v for v in expected]
        if told != wanted or [type(v) for v in told] != [type(v) for v in expected]:
            wrong.append(f"{text}: Spark {told}, in memory {expected}")
        kind = pa.float64() if pa.types.is_decimal(column.type) else column.type
        if kind != (own := evaluate("value", text, TABLE).type):
            wrong.append(f"{text}: Spark {kind}, in memory {own}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("text", [text for text, _ in FAILURES[:10]])
def test_rows_that_fail(df: DataFrame, text: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException):
        df.selectExpr(text).collect()

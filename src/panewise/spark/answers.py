"""How near each early answer was to its final one, as a table of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from panewise.errors import InputError
from panewise.kernel.prod import TOLD
from panewise.spark.source import named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["accuracies"]

_OWN = ("segment", "number", "seconds", "latency", "gain")


def accuracies(df: DataFrame) -> DataFrame:
    """One row for each early answer whose final one is in `df`, results of `segments(..., prods=...)`, stored or not.

    Keys, `segment`, `number`, how many `seconds` before the final one it came, the `latency` of that one (seconds from
    the first row's arrival), the share of it that was gained, and the accuracy of each aggregate under its name.
    """
    missing = [name for name in ("segment", *TOLD) if name not in df.columns]
    if missing:
        raise InputError(
            f"`df` has no column {missing[0]!r}: it does not tell of early answers. Ask for them: "
            "segments(..., prods=True)."
        )
    keys = df.columns[: df.columns.index("segment")]
    finals = df.filter("timing = 'final' and early is not null")
    one = finals.select(*map(named, keys), "segment", "latency", F.explode("early").alias("early"))
    of_each = one.schema["early"].dataType
    assert isinstance(of_each, T.StructType)
    near = of_each["accuracy"].dataType
    assert isinstance(near, T.StructType)
    for name in (*keys, *near.names):
        if name.lower() in _OWN:
            raise InputError(
                f"`df` has a key or an aggregate called {name!r}: {', '.join(_OWN)} tell of each early answer. "
                "Rename it in the plan."
            )
    gain = F.when(F.col("latency") > 0, F.col("early.seconds") / F.col("latency"))
    told: list[Column | str] = ["early.number", "early.seconds", "latency", gain.alias("gain")]
    each = [f"early.accuracy.{named(name)}" for name in near.names]
    return one.select(*map(named, keys), "segment", *told, *each)

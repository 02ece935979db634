"""The two outputs of a stream, told apart: segments, and the rows that broke a promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import types as T

from panewise.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Outputs", "outputs"]


class Outputs(NamedTuple):
    """What a micro-batch brings."""

    segments: DataFrame
    late: DataFrame
    """`reason` (`late_reason`, where the rows have a `reason` of their own), then the columns of the rows.

    Of a fill, `reason`, then `row` for a row that draws segments, and a column for each source of rows that fill them.
    """


def outputs(df: DataFrame) -> Outputs:
    """Split what `segments(..., late=True)` or a fill gave, one micro-batch of it, into results and late rows.

    `query = found.writeStream.foreachBatch(lambda df, batch: pw.outputs(df).late.show())`
    """
    if df.isStreaming:
        raise InputError(
            "`df` is a stream, and two outputs of it would be two queries, each with a state of its own. "
            "Use writeStream.foreachBatch, and split each micro-batch."
        )
    found = [field.dataType for field in df.schema.fields if field.name == "late"]
    kind = found[0] if len(found) == 1 else None
    if not isinstance(kind, T.StructType) or kind.names[:1] != ["reason"] or len(kind) < 2:
        raise InputError("`df` has no late rows to split off. Ask for them: segments(..., late=True).")
    if kind.names != ["reason", "row"]:
        return Outputs(df.filter("late is null").drop("late"), df.filter("late is not null").select("late.*"))
    row = kind["row"].dataType
    own = {name.lower() for name in row.names} if isinstance(row, T.StructType) else set()
    reason = "late_reason" if "reason" in own else "reason"
    return Outputs(
        df.filter("late is null").drop("late"),
        df.filter("late is not null").selectExpr(f"late.reason as {reason}", "late.row.*"),
    )

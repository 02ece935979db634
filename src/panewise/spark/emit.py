"""Results of a batch, as Spark makes them of plain columns: words and structs only for who reads them.

What Python gives Spark is copied column by column, whoever needs it. So segments come as numbers side by side
(`Emitter.plain`), and Spark says what they mean: what a query does not read is then never made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from panewise.kernel.emit import BOUNDS, OWN, STATUS
from panewise.kernel.segmenting import GAP_FLAG, REMAINDER_FLAG
from panewise.kernel.sequence import Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["plain_schema", "worded"]


_OF_BOUNDS = " ".join(f"when {bits} then '{text}'" for bits, text in enumerate(BOUNDS))
_SEGMENT = (
    f"named_struct('id', id, 'start', start, 'end', `end`, 'bounds', case flags & {len(BOUNDS) - 1} {_OF_BOUNDS} end)"
)
_STATUS = f"if(flags & {REMAINDER_FLAG} != 0, '{STATUS[1]}', '{STATUS[0]}')"
_WORDED = {"segment": _SEGMENT, "rows": "rows", "status": _STATUS, "gap": f"flags & {GAP_FLAG} != 0"}


def plain_schema(layout: Layout, result: T.StructType) -> T.StructType:
    """Of what comes from Python, for these results."""
    keys, _, aggregates = _cut(layout, result)
    segment = result["segment"].dataType
    assert isinstance(segment, T.StructType)
    own = [segment["id"].dataType, segment["start"].dataType, segment["end"].dataType, T.ByteType(), T.LongType()]
    fields = [T.StructField(f"k{i}", field.dataType, field.nullable) for i, field in enumerate(keys)]
    fields += [T.StructField(name, kind) for name, kind in zip(OWN, own, strict=True)]
    fields += [T.StructField(f"a{i}", field.dataType) for i, field in enumerate(aggregates)]
    return T.StructType(fields)


def worded(layout: Layout, plain: DataFrame, result: T.StructType) -> DataFrame:
    """Segments as `result` has them."""
    keys, own, aggregates = _cut(layout, result)
    made = [F.col(f"k{i}").alias(field.name, metadata=field.metadata) for i, field in enumerate(keys)]
    # nullable, as they are whichever way rows go
    made += [F.expr(f"case when true then {_WORDED[field.name]} end").alias(field.name) for field in own]
    made += [F.col(f"a{i}").alias(field.name) for i, field in enumerate(aggregates)]
    return plain.select(*made)


def _cut(layout: Layout, result: T.StructType) -> tuple[list[T.StructField], ...]:
    """Keys, the segment's own columns, aggregates."""
    first, last = len(layout.key_types), len(result) - len(layout.agg)
    return result.fields[:first], result.fields[first:last], result.fields[last:]

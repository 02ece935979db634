"""The scan lane of frames: where rows are nothing but Parquet files, Python workers read and frame them.

What is not certain to mean the same on Arrow as in Spark takes the general path, and `explain` says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from panewise.errors import DataError, InputError
from panewise.kernel.sequence import Layout
from panewise.local.runner import apply_local
from panewise.spark.parquet import Parquet, Unit
from panewise.spark.scan import as_spark_has, files_of, two_rows, why_not
from panewise.spec.punctuate import InBand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FrameScan", "frame_scan_of"]


@dataclass(frozen=True)
class FrameScan:
    """Rows of Parquet files that are framed."""

    rows: Parquet
    layout: Layout
    order: Mapping[str, int]
    """A number for each file, the same where files follow one another; 0 where nothing is before."""

    def is_earliest(self, units: Sequence[Unit]) -> bool:
        """Whether no other units have earlier rows."""
        first = self.rows.files[0][0]
        return self.order[first] == 0 and units[0][:2] == (first, 0.0)

    def tables(self, units: Sequence[Unit]) -> Iterator[tuple[int, pa.Table]]:
        """What the operator sees of the rows of these files, and a number that changes where they may not follow."""
        for unit in units:
            for table in self.rows.read([unit]):
                found = apply_local(self.layout.plan, self.layout.agg, table).rows
                if found.column("at").null_count:
                    found = found.filter(pc.is_valid(found.column("at")))
                yield self.order[unit[0]], found


def frame_scan_of(df: DataFrame, layout: Layout) -> FrameScan | str:
    """How Python workers can read and frame the rows of a DataFrame themselves; or why they can't."""
    plan, calls = layout.plan, layout.agg
    if isinstance(plan.punctuation, InBand):
        return "some rows are punctuations"
    texts = [*(value.text for value in plan.scheme.values), *plan.scheme.conditions]
    texts += [call.argument for _, call in calls if call.argument is not None]
    rows = files_of(df, (plan.ordered_by, *plan.keys, *plan.tie_break), texts)
    if isinstance(rows, str):
        return rows
    try:
        found = apply_local(plan, calls, two_rows(rows.schema)).layout
    except (InputError, DataError, pa.ArrowException) as e:
        return why_not(e)
    if not _alike(found, layout):
        return "types differ from those of Spark"
    (at,) = (name for name in rows.schema.names if name.lower() == plan.ordered_by.lower())
    files, order = rows.in_order(at)
    return FrameScan(files, layout, order)


def _alike(found: Layout, layout: Layout) -> bool:
    types = as_spark_has(found.key_types), as_spark_has([found.at_type])[0], as_spark_has(found.input_types)
    return replace(found, key_types=types[0], at_type=types[1], input_types=types[2]) == layout

"""A stream from files, one after another, on one checkpoint: what comes out of each run, and what it observed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import panewise as pw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Replay"]


class Replay:
    """Rows are added as files; a run reads the files that are new, a micro-batch each.

    Workers read them in one run, Spark in the next: a checkpoint serves both.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self._files, self._runs = spark, folder, 0, 0
        self._schema: Any = None
        self.observed: list[dict[str, Any]] = []
        """What each micro-batch counted."""
        for name in ("in", "control"):
            (folder / name).mkdir(parents=True)

    def add(self, *tables: pa.Table) -> None:
        """A file, and so a micro-batch, for each table."""
        for table in tables:
            path = self._folder / "in" / f"{self._files:05d}.parquet"
            pq.write_table(table, path)
            # Spark takes files in the order of these times
            os.utime(path, (1_700_000_000 + self._files,) * 2)
            self._files += 1

    @property
    def rows(self) -> DataFrame:
        """All rows, as a batch."""
        return self._spark.read.parquet(str(self._folder / "in"))

    def run(self, plan: pw.Plan, agg: dict[str, str] | None = None, **options: Any) -> list[pa.Table]:
        """What comes of the new files, a table for each micro-batch."""
        if self._schema is None:
            self._schema = self.rows.schema
        read = self._spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1)
        df = read.parquet(str(self._folder / "in"))
        self._runs += 1
        if self._runs % 2 == 0:
            df = df.where("true")
        found: list[pa.Table] = []
        query = (
            plan.segments(df, agg, control=str(self._folder / "control"), **options)
            .writeStream.option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(lambda batch, _: found.append(batch.toArrow()))
            .start()
        )
        query.awaitTermination()
        for batch in query.recentProgress:
            self.observed += [
                row.asDict() for name, row in batch.observedMetrics.items() if name.startswith("panewise")
            ]
        return found

    def finish(self, plan: pw.Plan, agg: dict[str, str] | None = None, **options: Any) -> list[pa.Table]:
        """The end of the stream: everything closes."""
        (self._folder / "control" / "final.json").write_text(json.dumps({"kind": "final"}))
        return self.run(plan, agg, **options)

    def counted(self, name: str) -> int:
        """A count over all micro-batches."""
        return sum(row[name] for row in self.observed)

"""What shards report of a micro-batch: it travels beside their pages, and is observed there, before there are rows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from panewise.kernel.answers import how, is_whole
from panewise.kernel.arrivals import REASONS
from panewise.kernel.bundle import dump
from panewise.kernel.shard import TOTALS
from panewise.spark.worker import settle

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["ANSWERS", "OBSERVED", "STAGED", "SUMS", "Report", "staged"]

OBSERVED = "panewise"
"""How the names begin under which a query's progress holds what `pw.progress` reads; each plan has one of its own."""

_COUNTS = ("rows", *REASONS, "segments", "parts", "open", "waiting", "aside", "keys", "state_bytes")

SUMS = (*_COUNTS, *(f"total_{name}" for name in TOTALS))
"""What is observed as a sum over the shards: what each counts in a micro-batch, and from the first one on."""

ANSWERS = "answers"
"""The names of aggregates whose early values are compared with their final ones, as JSON."""

STAGED = "page binary, told string"
"""What comes out of the stateful stage, of each shard."""

_NUMBERS = itertools.count(1)


def staged(tables: Mapping[str, pa.Table | pa.RecordBatch], facts: Mapping[str, Any]) -> pd.DataFrame:
    """The results of a shard, and what it reports."""
    import pandas as pd

    made = pd.DataFrame({"page": [dump(tables, {})], "told": [json.dumps(facts)]})
    settle("shard")
    return made


@dataclass(frozen=True)
class Report:
    """How the reports of all shards are put together.

    `answers` are the names of aggregates whose early values are compared with their final ones.
    """

    sums: tuple[str, ...] = SUMS
    answers: tuple[str, ...] | None = None

    def observed(self, stage: DataFrame) -> DataFrame:
        """Pages alone; what was told beside them goes into the query's progress."""
        figures = {} if self.answers is None else how(len(self.answers))
        numbers = [T.StructField(n, T.LongType() if is_whole(n) else T.DoubleType()) for n in (*self.sums, *figures)]
        texts = [T.StructField(name, T.StringType()) for name in ("until", "filling_until", "sources")]
        others = [T.StructField("ended", T.BooleanType()), T.StructField("behind", T.DoubleType())]
        read = F.from_json("told", T.StructType([*numbers, *texts, *others]))
        # what a shard does not count, because it finds no segments itself, it has none of
        columns = {name: F.sum(F.coalesce(name, F.lit(0))) for name in self.sums}
        columns |= {
            # as text: of a time the query's progress tells the second only, and no zone
            # the same in all shards, unless each key has its own
            "until": F.coalesce(F.min_by("until", "behind"), F.max("until")),
            "per_key": F.max("behind").isNotNull(),
            "filling_until": F.max("filling_until"),
            "sources": F.max("sources"),
            "ended": F.bool_or("ended"),
        }
        if self.answers is not None:
            columns[ANSWERS] = F.max(F.lit(json.dumps(self.answers)))
            columns |= {name: getattr(F, way)(name) for name, way in figures.items()}
        # Spark takes a name once in a query, and a query may hold several plans
        told = stage.select("page", read.alias("told")).select("page", "told.*")
        metrics = [column.alias(name) for name, column in columns.items()]
        return told.observe(f"{OBSERVED}-{next(_NUMBERS)}", *metrics).select("page")

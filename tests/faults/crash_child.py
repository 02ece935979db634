"""The stream that `test_crash.py` kills: one run over the files that there are, to the end if it is left alone.

python crash_child.py JOB, where JOB is a JSON object: what `Job` holds.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import panewise as pw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["AGG", "AROUND", "FILL_AGG", "PLAN", "SCHEMA", "Job", "run", "stream"]

PLAN = pw.threshold_frames("speed <= 45", min_rows=6).by("sensor").at("ts", pw.slack("30 minutes"))
AGG = {
    "mean": "avg(speed)",
    "slowest": "min(speed)",
    "volume": "sum(volume)",
    "n": "count(*)",
    "spread": "stddev(speed)",
}
AROUND = ("5 minutes", "1 minute")
"""How far around a segment rows of another stream are taken from."""
FILL_AGG = {**AGG, "at_first": "first(speed)", "at_last": "last(speed)"}
SCHEMA = "sensor int, ts timestamp, speed double, volume bigint"
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


@dataclass(frozen=True)
class Job:
    """Where a run reads and writes."""

    rows: str
    """A folder of Parquet files."""
    folder: str
    """Everything that the run writes: checkpoint, control, out, scratch."""
    sink: str
    """"files", Spark's own file sink; or "batches", segments and late rows, overwritten by batch id."""
    emit: str = "final"
    files: int = 1
    """How many files make a micro-batch."""
    shards: int = 4
    filling: str = ""
    """A folder of Parquet files whose rows fill the segments, or none."""
    final: bool = False
    """Whether everything closes after the last file."""
    prods: bool = False
    """Whether rows with a negative volume ask for an early answer."""

    @property
    def checkpoint(self) -> Path:
        return Path(self.folder, "checkpoint")

    @property
    def control(self) -> Path:
        return Path(self.folder, "control")

    @property
    def out(self) -> Path:
        return Path(self.folder, "out")

    @property
    def late(self) -> bool:
        return self.sink == "batches"


def run(job: Job) -> None:
    """The job in a session of its own."""
    scratch = Path(job.folder, "scratch")
    scratch.mkdir(parents=True, exist_ok=True)
    places = {
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={scratch}",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    spark = pw.session("local[2]", "panewise-crash", **SETTINGS, **places)
    stream(spark, job)
    spark.stop()


def stream(spark: SparkSession, job: Job) -> None:
    """All files that are new, then the final punctuation, if it is wanted and another run has not given it."""
    job.control.mkdir(parents=True, exist_ok=True)
    _to_the_end(spark, job)
    if job.final:
        final = job.control / "final.json"
        if not final.exists():
            written = job.control / ".final"
            written.write_text(json.dumps({"kind": "final"}))
            written.rename(final)
        _to_the_end(spark, job)


def _to_the_end(spark: SparkSession, job: Job) -> None:
    read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", job.files).parquet(job.rows)
    options = {"emit": job.emit, "late": job.late, "shards": job.shards, "control": str(job.control)}
    if job.filling:
        other = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", job.files).parquet(job.filling)
        fill = PLAN.fill(read, other, widen=AROUND, punctuation=PLAN.punctuation, keep_empty=True, **options)
        found = fill.agg(FILL_AGG)
    else:
        found = PLAN.segments(read, AGG, prods=pw.prods_in("volume < 0") if job.prods else None, **options)
    writer = found.writeStream.option("checkpointLocation", str(job.checkpoint)).trigger(availableNow=True)
    if job.sink == "files":
        query = writer.format("parquet").start(str(job.out))
    else:
        query = writer.foreachBatch(lambda batch, number: _overwrite(batch, job.out, number)).start()
    query.awaitTermination()


def _overwrite(batch: DataFrame, out: Path, number: int) -> None:
    batch.persist()
    batch.where("late is null").drop("late").write.mode("overwrite").parquet(f"{out}/segments/batch={number}")
    batch.where("late is not null").select("late.*").write.mode("overwrite").parquet(f"{out}/late/batch={number}")
    batch.unpersist()


if __name__ == "__main__":
    run(Job(**json.loads(sys.argv[1])))

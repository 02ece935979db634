"""The client half of test_connect: a process of its own, because one process has classic sessions or Connect ones."""

from __future__ import annotations

import math
import sys
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import Observation, SparkSession

import panewise as pw
from conformance.schemes import Doubling
from spark.tables import assert_same

SIZE = 400
SOON = 120
AGG = {"n": "count(*)", "low": "min(v)", "mean": "avg(v)", "spread": "stddev(v)", "whole": "sum(i)", "until": "last(t)"}
PLANS = {
    "threshold": pw.threshold_frames("v > 1", gaps=True, min_duration=3),
    "delta": pw.delta_frames({"v": 1.5, "i % 7": 4}, closing="include", remainder=True),
    "custom": pw.custom_frames(Doubling),
}


def _table() -> pa.Table:
    wave = [3 * math.sin(n / 5) for n in range(SIZE)]
    return pa.table(
        {
            "k": pa.array([None if n % 97 == 0 else f"k{n % 3}" for n in range(SIZE)]),
            "t": pa.array([None if n % 53 == 0 else n * 7 % SIZE for n in range(SIZE)], pa.int64()),
            "v": pa.array([None if n % 11 == 0 else math.nan if n % 13 == 0 else v for n, v in enumerate(wave)]),
            "i": pa.array(range(SIZE), pa.int64()),
        }
    )


def _stream(spark: SparkSession, folder: str) -> None:
    """A stream of files, told to end, and heard of through the server."""
    plan = pw.threshold_frames("i % 5 > 1").by("k").at("t", pw.slack(5))
    spark.range(60).selectExpr("id % 2 as k", "id as t", "id as i").coalesce(1).write.parquet(f"{folder}/rows")
    batch = spark.read.parquet(f"{folder}/rows")
    rows = spark.readStream.schema(batch.schema).parquet(f"{folder}/rows")
    try:
        plan.segments(rows, control=f"{folder}/control")
    except pw.InputError as e:
        print("refused", str(e).replace(folder, "."))
    control = pw.Control(spark, f"{folder}/control")
    writer = plan.segments(rows, shards=2, control=control.folder).writeStream.format("parquet")
    writer = writer.option("path", f"{folder}/out").option("checkpointLocation", f"{folder}/checkpoint")
    with pw.Watch(spark, lambda _, seen: print("heard of", seen.batch, seen.rows)) as watch:
        for finish in (False, True):
            if finish:
                control.finish()
            query = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(SOON)
            assert watch.settled(query.runId, SOON)
    told = pw.progress(query)
    found = [table.toArrow().to_pylist() for table in (spark.read.parquet(f"{folder}/out"), plan.segments(batch))]
    print("streamed", told.rows, told.closed, told.reached, sorted(map(repr, found[0])) == sorted(map(repr, found[1])))


def main(url: str) -> None:
    """Say what was found; whatever is wrong ends the process."""
    spark = SparkSession.builder.remote(url).getOrCreate()
    table = _table()
    df = spark.createDataFrame(table)
    before = dict(spark.conf.getAll)
    for name, plan in PLANS.items():
        print(name, assert_same(plan.by("k").at("t"), df, table, AGG))
    seen = Observation("read")
    PLANS["delta"].at("t").segments(df, observation=seen).collect()
    print("observed", seen.get["rows"], seen.get["null_at"])
    for text in ("nope > 1", "v >", "v", "v > array(1)", "sum(v) > 1"):
        try:
            pw.threshold_frames(text).at("t").segments(df)
        except pw.InputError as e:
            print("refused", e)
    with TemporaryDirectory() as folder:
        _stream(spark, folder)
    assert dict(spark.conf.getAll) == before, "a setting has changed"
    assert SparkContext._gateway is None, "a Connect client needs no JVM"
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])

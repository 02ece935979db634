"""Do stretches above a series' 99th percentile touch the anomalies that people labelled? NAB, 47 real series.

Framing: value above the 99th percentile of its series for at least three readings. Filling: the labelled flags of the
same series, from a table of their own. `python experiments/nab_anomalies.py DATA.parquet` prints the table as Markdown.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import panewise as pw

HIGH = pw.threshold_frames("value > p99", min_rows=3).by("series").at("event_time", tie_break="seq")


def shares(spark: SparkSession, path: str) -> DataFrame:
    """For each series: readings, frames, those that touch a labelled window, and how many readings in them are."""
    readings = spark.read.parquet(path)
    limits = readings.groupBy("series").agg(F.percentile("value", 0.99).alias("p99"), F.count("*").alias("readings"))
    labels = readings.select("series", "event_time", "in_anomaly_window")
    filled = HIGH.fill(readings.join(F.broadcast(limits), "series"), labels, keep_empty=True).agg(
        labelled="sum(cast(in_anomaly_window as int))", flags="count(*)"
    )
    found = filled.groupBy("series").agg(
        F.count("*").alias("frames"),
        F.count_if(F.col("labelled") > 0).alias("touching"),
        F.sum("labelled").alias("labelled"),
        F.sum("flags").alias("flags"),
    )
    return limits.join(found, "series", "left").fillna(0).orderBy("series")


def main() -> int:
    """Print the table."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).exists():
        print("Give the path of the NAB table, nab_real.parquet.", file=sys.stderr)
        return 2
    spark = pw.session("local[2]", **{"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"})
    rows = shares(spark, sys.argv[1]).collect()
    print("| series | readings | frames | touch a label | share | readings in frames | labelled |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for row in [*rows, _total(rows)]:
        share = f"{row['touching'] / row['frames']:.0%}" if row["frames"] else ""
        told = [row[name] for name in ("readings", "frames", "touching")]
        print(
            f"| {row['series']} | {' | '.join(f'{n:,}' for n in told)} | {share} "
            f"| {row['flags']:,} | {row['labelled']:,} |"
        )
    spark.stop()
    return 0


def _total(rows: list) -> dict:
    sums = {name: sum(row[name] for row in rows) for name in ("readings", "frames", "touching", "flags", "labelled")}
    return {"series": "**all**", **sums}


if __name__ == "__main__":
    sys.exit(main())

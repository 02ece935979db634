"""Flink's MATCH_RECOGNIZE over files of traffic reports; runs in Flink's own environment (scripts/flink.sh).

Usage: flink_peer.py FILES OUT JOB TIMES. What is found is written to OUT as CSV, once, and then goes nowhere
(`blackhole`), so many times; prints the seconds of each as JSON.
"""

from __future__ import annotations

import json
import sys
import time

from pyflink.table import EnvironmentSettings, TableEnvironment

PATTERNS = {
    # a pattern may not end with what takes as much as it can: so a run ends with the row after it
    "threshold": ("A{6,} B", "A as A.speed > 60, B as (B.speed > 60) is not true", "last(A.ts)", "count(A.ts)"),
    "volume": (
        "A* B",
        "A as sum(A.volume) < 25, B as coalesce(sum(A.volume), 0) + B.volume >= 25",
        "last(B.ts)",
        "count(A.ts) + 1",
    ),
}
FIRST = {"threshold": "first(A.ts)", "volume": "coalesce(first(A.ts), last(B.ts))"}
COLUMNS = "sensor int, `start` timestamp(3), `end` timestamp(3), `rows` bigint"


def main() -> None:
    """Run it."""
    files, out, job, times = sys.argv[1:]
    settings = EnvironmentSettings.in_batch_mode()
    flink = TableEnvironment.create(settings)
    config = flink.get_config()
    config.set("parallelism.default", "2")
    config.set("table.local-time-zone", "UTC")
    flink.execute_sql(
        "create table reports (sensor int, ts timestamp(3), speed double, volume bigint, watermark for ts as ts) "
        f"with ('connector' = 'filesystem', 'path' = 'file://{files}', 'format' = 'parquet')"
    )
    flink.execute_sql(
        f"create table found ({COLUMNS}) with ('connector' = 'filesystem', 'path' = 'file://{out}', 'format' = 'csv')"
    )
    flink.execute_sql(f"create table nowhere ({COLUMNS}) with ('connector' = 'blackhole')")
    pattern, define, end, count = PATTERNS[job]
    found = (
        "select * from reports match_recognize (partition by sensor order by ts "
        f"measures {FIRST[job]} as `start`, {end} as `end`, {count} as `rows` "
        f"one row per match after match skip past last row pattern ({pattern}) define {define})"
    )
    seconds = []
    for table in ["found", *["nowhere"] * int(times)]:
        began = time.perf_counter()
        flink.execute_sql(f"insert into {table} {found}").wait()
        seconds.append(time.perf_counter() - began)
    print(json.dumps(seconds[1:]))


if __name__ == "__main__":
    main()

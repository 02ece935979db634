"""Counts per window of streams that came out of order, under several slacks: what is missing, and how long it took.

Zeek logs (a line is written once its log has seen as late a time) and flights (known when they have left), replayed in
the order of arrival. Slack 0, the median delay, its 99th percentile, and the longest.
`python experiments/late_windows.py DATA_FOLDER [MICRO_BATCHES]` prints the table as Markdown.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import panewise as pw
from panewise.local.stream import LocalStream

BATCHES = 4_000
WINDOWS = {"zeek": ("1 minute", 60), "flights": ("1 hour", 3_600)}


def zeek(folder: Path) -> pa.Table:
    """Twelve logs, each in its own order of writing."""
    table = pq.read_table(folder / "zeek_wrccdc_2018.parquet", columns=["log", "arrival_seq", "event_time"])
    table = table.set_column(0, "log", table["log"].cast(pa.string()))
    table = table.sort_by([("log", "ascending"), ("arrival_seq", "ascending")])
    at = table["event_time"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    edges = [0, *(np.flatnonzero(np.diff(table["arrival_seq"].to_numpy()) < 0) + 1), len(table)]
    written = np.concatenate([np.maximum.accumulate(at[a:b]) for a, b in pairwise(edges)])
    return pa.table({"at": pa.array(at[np.argsort(written, kind="stable")])})


def flights(folder: Path) -> pa.Table:
    """By scheduled departure, in the order of departure; those that never left have no place in it."""
    names = ["arrival_seq", "event_time", "arrival_time"]
    table = pq.read_table(folder / "flights_nyc_2013.parquet", columns=names)
    table = table.filter(table["arrival_time"].is_valid()).sort_by("arrival_seq")
    return pa.table({"at": table["event_time"].cast(pa.timestamp("us")).cast(pa.int64())})


def measured(rows: pa.Table, size: int, slack: int, batches: int) -> tuple[float, float, int, float]:
    """Mean and worst error of a window's count, late rows, and how far the stream was past a window that it sent."""
    plan = pw.tumbling_windows(size)
    stream = LocalStream(plan.at("at", pw.slack(slack)), {"n": "count(*)"})
    found, waits, newest = {}, [], -(2**62)
    edges = [len(rows) * i // batches for i in range(batches + 1)]
    for a, b in pairwise(edges):
        batch = rows.slice(a, b - a)
        newest = max(newest, int(batch["at"].to_numpy().max()))
        for row in stream.feed(batch).to_pylist():
            found[row["segment"]["id"]] = row["n"]
            waits.append(newest - row["segment"]["end"])
    found |= {row["segment"]["id"]: row["n"] for row in stream.finish().to_pylist()}
    whole = pw.segments_local(plan.at("at"), rows, {"n": "count(*)"}).to_pylist()
    errors = [1 - found.get(row["segment"]["id"], 0) / row["n"] for row in whole]
    return float(np.mean(errors)), max(errors), stream.counts["late"], float(np.median(waits)) / 1e6


def main() -> int:
    """Print the table."""
    if len(sys.argv) not in (2, 3) or not Path(sys.argv[1]).is_dir():
        print("Give the folder of the real data.", file=sys.stderr)
        return 2
    batches = int(sys.argv[2]) if len(sys.argv) > 2 else BATCHES
    print("| stream | rows | window | slack | late rows | mean error | worst error | median delay of a result |")
    print("|---|---:|---|---:|---:|---:|---:|---:|")
    for name, rows in {"zeek": zeek(Path(sys.argv[1])), "flights": flights(Path(sys.argv[1]))}.items():
        at = rows["at"].to_numpy()
        behind = np.maximum.accumulate(at) - at
        window, seconds = WINDOWS[name]
        slacks = {"0": 0, **{n: int(np.quantile(behind, q, method="higher")) for n, q in _QUANTILES.items()}}
        for called, slack in slacks.items():
            mean, worst, late, wait = measured(rows, seconds * 1_000_000, slack, batches)
            told = f"{called}, {slack / 1e6:,.0f} s" if slack else called
            print(
                f"| {name} | {len(rows):,} | {window} | {told} | {late:,} | {mean:.2%} | {worst:.2%} | {wait:,.0f} s |"
            )
    return 0


_QUANTILES = {"median": 0.5, "99th percentile": 0.99, "longest": 1.0}


if __name__ == "__main__":
    sys.exit(main())

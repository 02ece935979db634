"""Real series with labelled anomalies: frames of high values, filled with the labels, against a plain loop."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import polars as pl
import pytest

import panewise as pw

DATA = Path(__file__).parents[3] / "shared" / "data" / "nab_real.parquet"
PLAN = pw.threshold_frames("high", min_rows=3).by("series").at("event_time", tie_break="seq")


@pytest.mark.skipif(not DATA.exists(), reason="the real data are not here")
def test_frames_above_the_99th_percentile_touch_these_labels() -> None:
    readings = pl.read_parquet(DATA).with_columns(
        high=pl.col("value") > pl.col("value").quantile(0.99, "linear").over("series")
    )
    labels = readings.select("series", "event_time", label=pl.col("in_anomaly_window").cast(pl.Int64))
    found = pw.fill_local(PLAN, readings, labels, {"labelled": "sum(label)", "n": "count(*)"}, keep_empty=True)
    ours = {
        (row["series"], row["segment"]["start"], row["segment"]["end"]): (row["n"], row["labelled"])
        for row in found.to_pylist()
    }
    theirs = {}
    for (series,), rows in readings.sort("event_time", "seq").group_by("series"):
        by_time = rows.to_dicts()
        for high, run in groupby(by_time, key=lambda row: row["high"]):
            stretch = list(run)
            if high and len(stretch) >= 3:
                start, end = stretch[0]["event_time"], stretch[-1]["event_time"]
                inside = [row["in_anomaly_window"] for row in by_time if start <= row["event_time"] <= end]
                theirs[series, start, end] = (len(inside), sum(inside))
    assert ours == theirs
    assert (len(ours), sum(labelled > 0 for _, labelled in ours.values())) == (195, 71)

"""Data that nobody here made: known numbers, and Spark and the local runner row by row."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import panewise as pw
from spark.tables import assert_same

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = Path(os.environ.get("PANEWISE_DATA") or Path(__file__).parents[3] / "shared" / "data")


def _path(name: str) -> str:
    path = FOLDER / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"there is no {path}: set PANEWISE_DATA to the folder of real data")
    return str(path)


@pytest.fixture(scope="module")
def glider(spark: SparkSession) -> tuple[DataFrame, pa.Table]:
    """Five dives; `segment` is what a result calls its own."""
    path = _path("glider_seaexplorer_2020")
    return (
        spark.read.parquet(path).withColumnRenamed("segment", "dive"),
        pq.read_table(path).rename_columns({"segment": "dive"}),
    )


@pytest.fixture(scope="module")
def soccer(spark: SparkSession) -> tuple[DataFrame, pa.Table]:
    """The rows of one match that belong to an object and a half."""
    path = _path("soccer_skillcorner_match2417")
    table = pq.read_table(path)
    return (
        spark.read.parquet(path).where("object_id is not null and period is not null"),
        table.filter(pc.and_(table["object_id"].is_valid(), table["period"].is_valid())),
    )


@pytest.mark.parametrize("order", ["seq", "event_time"])
def test_chlorophyll_episodes_of_a_glider(glider: tuple[DataFrame, pa.Table], order: str) -> None:
    """The clock steps back three times, by 0.3 s at most: `seq` is the order of measuring, and the episodes agree."""
    df, table = glider
    plan = pw.threshold_frames("chl_fluorescence_ug_l > 1", nulls="invisible").by("dive").at(order, tie_break="seq")
    agg = {
        "n": "count(*)",
        "readings": "count(chl_fluorescence_ug_l)",
        "peak": "max(chl_fluorescence_ug_l)",
        "mean": "avg(chl_fluorescence_ug_l)",
        "oxygen": "avg(oxygen_umol_l)",
        "deepest": "max(ctd_pressure_dbar)",
        "until": "last(event_time)",
    }
    assert assert_same(plan, df, table, agg) == 14


def test_cells_of_a_pitch(soccer: tuple[DataFrame, pa.Table]) -> None:
    df, table = soccer
    assert len(table) == 512_792
    plan = pw.boundary_frames({"x_m + 52.5": 4.2, "y_m + 34": 4.25}).by("object_id").at("frame")
    agg = {"n": "count(*)", "x": "avg(x_m)", "y": "stddev(y_m)", "clock": "min(match_clock_s)"}
    assert assert_same(plan, df, table, agg) == 53_528

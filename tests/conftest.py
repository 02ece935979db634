"""What every test shares: one Spark session, and how hard hypothesis tries."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
# Spark's workers import what the tests define, such as custom schemes
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))

VENV = Path(__file__).parents[1] / ".venv"
JARS = {VENV / "kafka": "spark", VENV / "s3": "jars"}
"""What `scripts/kafka.sh` and `scripts/s3.sh` fetched for Spark, if they did: they say so in these folders."""

settings.register_profile("quick", deadline=None, derandomize="CI" in os.environ, max_examples=60)
settings.register_profile("thorough", deadline=None, derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use Spark's session: they run in one process."""
    for item in items:
        told_on_spark = "conformance" in item.path.parts and " - local" not in item.name
        if "spark" in getattr(item, "fixturenames", ()) or told_on_spark:
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests; made when the first of them asks."""
    from panewise.spark.session import session

    wanted = {
        # many small jobs: what the second compiler and parallel collection cost, they never earn back
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.ui.enabled": "false",
    }
    # a session takes jars when it starts, and there is one session
    fetched = [jar for home, jars in JARS.items() if (home / ".ready").exists() for jar in (home / jars).glob("*.jar")]
    if fetched:
        wanted["spark.jars"] = ",".join(map(str, sorted(fetched)))
    made = session("local[2]", "panewise-tests", **wanted)
    yield made
    made.stop()

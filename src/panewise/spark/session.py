"""A Spark session with the settings that panewise runs best with."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Mapping
from weakref import WeakSet

from pyspark.sql import SparkSession

__all__ = ["ROCKSDB", "SETTINGS", "advise", "session"]

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

SETTINGS = {
    # the default measures every row on its way to Python, which costs more than the transfer
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # over TCP the last bytes of a task wait 40 ms for an acknowledgement, twice in every micro-batch
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    # by default no file below 4 MB is shared by two cores, and rows that compress well are millions in that
    "spark.sql.files.openCostInBytes": "1048576",
    "spark.sql.session.timeZone": "UTC",
    # streams keep their state there: Spark's other store has no place for it
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.ui.showConsoleProgress": "false",
    # by default workers give memory back to the system as soon as a few MB are free, and ask for it again
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": "268435456",
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": "33554432",
}
"""What differs from Spark's defaults."""

_LOCAL = {
    # for each file of a checkpoint on a local disk the default starts ten processes, this one two
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""What differs too where the master is local: checkpoints are taken to be on a disk of this machine."""


def session(master: str | None = None, name: str = "panewise", **settings: str) -> SparkSession:
    """Get or make a session; further settings go by their Spark names.

    `session("local[2]", **{"spark.sql.shuffle.partitions": "4"})`
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in _settings(master, settings).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _settings(master: str | None, given: Mapping[str, str]) -> dict[str, str]:
    """All settings: what is given comes before our own.

    >>> [name] = _LOCAL
    >>> name in _settings("local[2]", {}), name in _settings("spark://host:7077", {}), name in _settings(None, {})
    (True, False, False)
    >>> _settings("local", {name: "mine"})[name]
    'mine'
    """
    local = _LOCAL if master is not None and master.startswith("local") else {}
    return {**SETTINGS, **local, **given}


_COSTS = {
    "spark.sql.execution.arrow.maxBytesPerBatch": "rows take several times as long from Spark to Python",
    "spark.python.unix.domain.socket.enabled": "each micro-batch waits some 80 ms for its last bytes",
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": "workers may spend a quarter of their time on asking for memory again",
}
"""What it costs where a session lacks one of the settings."""
_LOG = logging.getLogger("panewise")
_advised: WeakSet[SparkSession] = WeakSet()


def advise(spark: SparkSession) -> None:
    """Say once what it costs that a session was made without our settings."""
    if spark in _advised:
        return
    _advised.add(spark)
    classic = hasattr(spark, "_jsparkSession")
    # what runs through Connect was set where the server was started
    costs = {name: cost for name, cost in _COSTS.items() if classic or ".sql." in name}
    # a session that was there before is told what workers should have, and they do not hear of it
    started = spark.sparkContext.getConf() if classic else None
    lacking = [
        f"{name} is {found or 'not set'}, not {SETTINGS[name]}: {cost}"
        for name, cost in costs.items()
        if (found := (spark.conf if started is None or ".sql." in name else started).get(name, "")) != SETTINGS[name]
    ]
    if lacking:
        _LOG.warning("%s. pw.session() sets what is missing; so can you, when the session is made.", "; ".join(lacking))

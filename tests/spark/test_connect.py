"""Spark Connect: the same segments and the same errors through a server, from a client without a JVM."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from panewise.spark.session import ROCKSDB

TESTS = Path(__file__).parent.parent
ENVIRONMENT = {**os.environ, "PYSPARK_PYTHON": sys.executable}
SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.ui.enabled": "false",
}
STARTS_WITHIN = 120
ENDS_WITHIN = 300


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A Connect server on loopback, for as long as the test."""
    port = _free_port()
    wanted = SETTINGS | {
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    submit = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        "--master",
        "local[2]",
        "--driver-memory",
        "1g",
    ]
    settings = [word for name, value in wanted.items() for word in ("--conf", f"{name}={value}")]
    service = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    log = tmp_path / "server.log"
    with log.open("wb") as told:
        process = subprocess.Popen(
            [*submit, *settings, *service], cwd=tmp_path, env=ENVIRONMENT, stdout=told, stderr=subprocess.STDOUT
        )
        try:
            late = time.monotonic() + STARTS_WITHIN
            while not _answers(port):
                assert process.poll() is None, f"the server has ended:\n{log.read_text()}"
                assert time.monotonic() < late, f"the server does not answer:\n{log.read_text()}"
                time.sleep(0.1)
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.mark.slow
def test_segments_and_errors_through_connect(server: str) -> None:
    client = subprocess.run(
        [sys.executable, "-m", "spark.connect_client", server],
        cwd=TESTS,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN,
    )
    assert client.returncode == 0, client.stderr
    assert client.stdout.splitlines() == [
        "threshold 50",
        "delta 142",
        "custom 4",
        "observed 400 8",
        "refused `condition` ('nope > 1'): no column `nope`. Known: `i`, `k`, `t`, `v`.",
        "refused `condition` ('v >') is not an SQL expression: Syntax error at or near end of input. Correct the text.",
        "refused `condition` ('v') has type double, not boolean. Write a comparison, such as \"speed > 30\".",
        "refused `condition` ('v > array(1)') can't be evaluated: Cannot resolve \"(v > array(1))\" due to data type "
        "mismatch: the left and right operands of the binary operator have incompatible types "
        '("DOUBLE" and "ARRAY<INT>"). Correct the text.',
        "refused `condition` ('sum(v) > 1') is an aggregate, but each row needs a value of its own. "
        "Use a column, or add an OVER clause.",
        "refused `control` ('./control'): there is no such folder yet. Make it with pw.Control(spark, './control').",
        "heard of 0 60",
        "heard of 1 60",
        "streamed 60 24 everything, the stream has ended True",
    ]
    assert client.stderr == ""

"""The broker that the Kafka tests and the demo run on, and Spark's connectors to it."""

from __future__ import annotations

import io
import json
from datetime import datetime, timedelta
from pathlib import Path

import fastavro
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.avro.functions import from_avro

from kafka_broker import Broker, BrokerError

PARTITIONS = 4
NOON = 1704110400000  # 2024-01-01 12:00 UTC, in ms


def produce(broker: Broker, topic: str, numbers: range, encode=lambda row: json.dumps(row).encode()) -> None:
    """Number n goes to partition n % 4, n seconds after noon."""
    producer = Producer({"bootstrap.servers": broker.servers, "log_level": 0})
    for n in numbers:
        producer.produce(topic, encode({"n": n}), key=f"k{n}", partition=n % PARTITIONS, timestamp=NOON + 1000 * n)
    assert producer.flush(30) == 0


def options(broker: Broker, topic: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.servers, "subscribe": topic, **more}


def numbers(rows: DataFrame) -> list[int]:
    return sorted(json.loads(row.value)["n"] for row in rows.select("value").collect())


def test_rows_are_read_from_where_they_were_put_and_on_after_a_restart(kafka: Broker, spark: SparkSession) -> None:
    kafka.create_topic("restart", PARTITIONS)
    produce(kafka, "restart", range(20))

    rows = spark.read.format("kafka").options(**options(kafka, "restart")).load()
    seen = {json.loads(row.value)["n"]: row for row in rows.collect()}
    assert sorted(seen) == list(range(20))
    for n, row in seen.items():
        assert row.key == f"k{n}".encode()
        assert row.partition == n % PARTITIONS
        assert row.timestamp.replace(tzinfo=None) == datetime(2024, 1, 1, 12) + timedelta(seconds=n)

    servers = kafka.servers
    kafka.restart()
    assert kafka.servers == servers

    produce(kafka, "restart", range(20, 28))
    ends = json.dumps({"restart": {str(partition): 5 for partition in range(PARTITIONS)}})
    new = spark.read.format("kafka").options(**options(kafka, "restart", startingOffsets=ends)).load()
    assert numbers(new) == list(range(20, 28))
    assert numbers(rows) == list(range(28))


@pytest.mark.slow
def test_a_stream_goes_on_after_the_broker_was_killed(kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    kafka.create_topic("kill", PARTITIONS)

    def run() -> list[int]:
        source = options(kafka, "kill", startingOffsets="earliest")
        rows = spark.readStream.format("kafka").options(**source).load()
        sink = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = sink.trigger(availableNow=True).start(str(tmp_path / "out"))
        assert query.awaitTermination(120)
        return numbers(spark.read.parquet(str(tmp_path / "out")))

    produce(kafka, "kill", range(12))
    assert run() == list(range(12))
    kafka.kill()
    kafka.start()
    produce(kafka, "kill", range(12, 16))
    assert run() == list(range(16))


def test_avro_values_are_read_back(kafka: Broker, spark: SparkSession) -> None:
    schema = {"type": "record", "name": "reading", "fields": [{"name": "n", "type": "long"}]}

    def encode(row: dict[str, int]) -> bytes:
        value = io.BytesIO()
        fastavro.schemaless_writer(value, schema, row)
        return value.getvalue()

    kafka.create_topic("avro", PARTITIONS)
    produce(kafka, "avro", range(8), encode)
    rows = spark.read.format("kafka").options(**options(kafka, "avro")).load()
    read = rows.select(from_avro("value", json.dumps(schema)).alias("row")).select("row.n").collect()
    assert sorted(row.n for row in read) == list(range(8))


def test_what_it_refuses_says_why(kafka: Broker, tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="has no address yet: start it first"):
        _ = Broker(tmp_path).servers
    with pytest.raises(BrokerError, match=r"holds no Kafka server: run scripts/kafka\.sh"):
        Broker(tmp_path, jars=tmp_path).start()
    with pytest.raises(BrokerError, match="runs already: stop it first"):
        kafka.start()
    kafka.create_topic("twice")
    with pytest.raises(BrokerError, match=r"'twice' was not created: .*already exists"):
        kafka.create_topic("twice")


def test_a_failed_start_shows_the_log_and_leaves_no_process(kafka: Broker, tmp_path: Path) -> None:
    # the settings of the running broker: its ports are taken
    taken = kafka.folder.joinpath("server.properties").read_text()
    tmp_path.joinpath("server.properties").write_text(taken.replace(str(kafka.folder), str(tmp_path)))
    second = Broker(tmp_path)
    with pytest.raises(BrokerError, match=r"ended\. The end of .*broker\.log:\n"):
        second.start()
    assert second.process is None

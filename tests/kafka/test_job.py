"""Kafka through a job file: `panewise run` reads a topic to its end and finds what a batch finds in the same rows."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import panewise as pw
from kafka.readings import AVRO, NOON
from kafka_broker import Broker
from panewise.cli.main import app
from panewise.jobs import read_job
from spark.tables import rows

PARTITIONS = 3
DEVICES = 4
Reading = dict[str, Any]

COLUMNS = pa.schema(
    [
        ("device", pa.int32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("value", pa.float64()),
        ("kafka_partition", pa.int32()),
    ]
)

JOB = """
[source]
format = "kafka"
servers = "{servers}"
topic = "{topic}"
value = "{form}"
schema = '{schema}'
options = {{maxOffsetsPerTrigger = "90"}}

[plan]
scheme = "threshold_frames"
condition = "value > 20"
by = ["device"]
at = "ts"
punctuation = {{kind = "ordered_per", sources = ["kafka_partition"], expect = 3}}

[agg]
top = "max(value)"
mean = "avg(value)"

[stream]
checkpoint = "{folder}/checkpoint"
shards = 2
late = "{folder}/late"

[sink]
format = "parquet"
path = "{folder}/out"
"""


def as_json(reading: Reading) -> bytes:
    return json.dumps({**reading, "ts": reading["ts"].isoformat()}).encode()


def as_avro(reading: Reading) -> bytes:
    value = io.BytesIO()
    fastavro.schemaless_writer(value, AVRO, reading)
    return value.getvalue()


def readings() -> list[Reading]:
    """Sixty steps of every device; step n is on partition n % 3, so that no partition has all of a device."""
    return [
        {
            "device": device,
            "ts": NOON + timedelta(seconds=step, milliseconds=device),
            "value": (30.0 if step // (device + 2) % 2 else 10.0) + step % 7 / 10,
        }
        for step in range(60)
        for device in range(DEVICES)
    ]


def partition_of(place: int) -> int:
    return place // DEVICES % PARTITIONS


def send(broker: Broker, topic: str, values: list[bytes], strays: list[bytes | None]) -> None:
    """The values, each partition in order; the strays come in the middle of the last one."""
    broker.create_topic(topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.servers, "log_level": 0})
    for n, value in enumerate(values):
        producer.produce(topic, value, partition=partition_of(n))
        if n == len(values) // 2:
            for stray in strays:
                producer.produce(topic, stray, partition=PARTITIONS - 1)
    assert producer.flush(60) == 0


@pytest.mark.parametrize(
    ("form", "schema", "encode", "cut_off"),
    [
        pytest.param("json", "device int, ts timestamp, value double", as_json, b'{"device": 1, "ts', id="json"),
        pytest.param("avro", json.dumps(AVRO), as_avro, b"\x02\x80", id="avro", marks=pytest.mark.slow),
    ],
)
def test_a_topic_read_to_its_end(
    kafka: Broker,
    spark: SparkSession,
    tmp_path: Path,
    form: str,
    schema: str,
    encode: Callable[[Reading], bytes],
    cut_off: bytes,
) -> None:
    made, topic = readings(), f"job-{form}"
    send(kafka, topic, [encode(reading) for reading in made], [cut_off, None])
    file = tmp_path / "job.toml"
    text = JOB.format(servers=kafka.servers, topic=topic, form=form, schema=schema, folder=tmp_path)
    file.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["run", str(file), "--live"])
    assert (result.exit_code, result.exception) == (0, None), result.output

    job = read_job(file)
    sent = [{**reading, "kafka_partition": partition_of(n)} for n, reading in enumerate(made)]
    wanted = pw.segments_local(job.plan, pa.Table.from_pylist(sent, COLUMNS), dict(job.agg))
    found = spark.read.parquet(f"{tmp_path}/out").drop("micro_batch")
    assert rows(found.toArrow()) == rows(wanted)
    count = f"{len(wanted)} segments"
    summary = rf"{count} in 4 keys, written to \S+/out; 242 rows read, 2 without ts; \d+\.\d s\n"
    assert re.fullmatch(summary, result.stdout)
    # segments close while rows still come
    *before, last = result.stderr.splitlines()
    assert f"; {count} closed, 0 open; 2 without ts; progress everything" in last
    assert len(before) > 1
    assert " 0 segments closed" not in before[-1]

    late = spark.read.parquet(f"{tmp_path}/late").orderBy("kafka_offset").collect()
    assert [(row.reason, row.device, row.ts, row.value, row.kafka_partition) for row in late] == [
        ("null_at", None, None, None, PARTITIONS - 1)
    ] * 2

"""Devices report through Kafka: one partition falls silent, another's clock is hours ahead, and the broker restarts."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

import panewise as pw
from kafka.readings import AVRO, NOON
from kafka_broker import Broker
from panewise.kernel.arrivals import REASONS
from panewise.spark.watch import At
from spark.tables import rows

PARTITIONS = 4
NORMAL, AHEAD, SILENT = (0, 2), 1, 3
DEVICES = 8
EVERY = timedelta(seconds=10)
HOURS_AHEAD = timedelta(hours=5)
LIMIT = timedelta(minutes=1)
AGG = {"n": "count(*)", "top": "max(value)", "mean": "avg(value)", "last": "max(offset)"}
PATIENCE = 180
"""Seconds: far more than anything here takes, even where others keep the machine busy."""


class Json:
    @staticmethod
    def written(reading: dict[str, Any]) -> bytes:
        return json.dumps({**reading, "ts": reading["ts"].isoformat()}).encode()

    @staticmethod
    def read(value: Column) -> Column:
        return F.from_json(value.cast("string"), "device int, ts timestamp, value double")


class Avro:
    @staticmethod
    def written(reading: dict[str, Any]) -> bytes:
        value = io.BytesIO()
        fastavro.schemaless_writer(value, AVRO, reading)
        return value.getvalue()

    @staticmethod
    def read(value: Column) -> Column:
        return from_avro(value, json.dumps(AVRO))


Form = type[Json] | type[Avro]


class Devices:
    """Eight devices, each on the partition of its number modulo four; a partition's are in step with each other."""

    def __init__(self, broker: Broker, topic: str, form: Form) -> None:
        broker.create_topic(topic, PARTITIONS)
        self.servers, self.topic, self.form = broker.servers, topic, form
        # what is sent again because an answer got lost must not be there twice
        self._producer = Producer({"bootstrap.servers": broker.servers, "enable.idempotence": True, "log_level": 0})
        self.step = dict.fromkeys(range(PARTITIONS), 0)
        self.sent = 0

    def at(self, partition: int) -> datetime:
        """When the partition reports next, by its own clock."""
        return NOON + EVERY * self.step[partition] + (HOURS_AHEAD if partition == AHEAD else timedelta())

    def report(self, *partitions: int, flush: bool = True) -> None:
        """One reading of every device of the partitions; without `flush` it may take its time to arrive."""
        for partition in partitions:
            at, step = self.at(partition), self.step[partition]
            for device in range(partition, DEVICES, PARTITIONS):
                # runs above 20, of three readings and more, and spikes of one
                high = step // (device // 2 + 3) % 2 or step % 17 == 5
                reading = {"device": device, "ts": at, "value": (30 if high else 10) + step % 7 / 10}
                self._producer.produce(self.topic, self.form.written(reading), partition=partition)
                self.sent += 1
            self.step[partition] += 1
        if flush:
            self.flush()

    def flush(self) -> None:
        assert self._producer.flush(PATIENCE) == 0

    def of(self, *partitions: int) -> set[int]:
        return {device for device in range(DEVICES) if device % PARTITIONS in partitions}


class Stream:
    """A query over the devices' topic, and what came of it; a micro-batch that is run again counts once."""

    def __init__(self, spark: SparkSession, devices: Devices, folder: Path, idle_after: str) -> None:
        self._spark, self._devices, self._checkpoint = spark, devices, str(folder / "checkpoint")
        self._control = pw.Control(spark, str(folder / "control"))
        punctuation = pw.ordered_per("partition", idle_after=idle_after, expect=PARTITIONS, ahead_limit=LIMIT)
        self.plan = pw.threshold_frames("value > 20", min_duration="30 seconds").by("device").at("ts", punctuation)
        self.seen = pw.StreamProgress()
        self.restarts = 0
        self._out: dict[int, pa.Table] = {}

    def __enter__(self) -> Stream:
        self._watch = pw.Watch(self._spark)
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.stop()
        self.stop()

    def _read(self, reader: Any, **options: str) -> DataFrame:
        where = {"kafka.bootstrap.servers": self._devices.servers, "subscribe": self._devices.topic}
        raw = reader.format("kafka").options(**where, **options).load()
        read = self._devices.form.read(F.col("value")).alias("reading")
        return raw.select("partition", "offset", read).select("reading.*", "partition", "offset")

    @property
    def topic(self) -> DataFrame:
        """All rows there are, as a batch."""
        return self._read(self._spark.read)

    def _start(self) -> None:
        df = self._read(self._spark.readStream, startingOffsets="earliest")
        found = self.plan.segments(df, AGG, late=True, shards=2, control=self._control.folder)
        writer = found.writeStream.option("checkpointLocation", self._checkpoint).trigger(processingTime="1 second")
        self._query = writer.foreachBatch(self._take).start()

    def _take(self, batch: DataFrame, number: int) -> None:
        self._out[number] = batch.toArrow()

    def _look(self) -> None:
        """See what the query tells; one that is over goes on from its checkpoint."""
        self.seen = self._watch.known(str(self._query.id)) or self.seen
        if not self._query.isActive:
            self.restarts += 1
            assert self.restarts <= 5, self._query.exception()
            self._start()

    def stop(self) -> None:
        with suppress(StreamingQueryException):
            self._query.stop()

    def wait(self, condition: Callable[[], Any], meanwhile: Callable[[], None] = lambda: None) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"not within {PATIENCE} s; {self.seen}"
            meanwhile()
            time.sleep(0.2)
            self._look()

    def finish(self) -> None:
        """The final punctuation, and all that it closes."""
        self._control.finish()
        self.wait(lambda: self.seen.ended)

    @property
    def clocks(self) -> dict[int, At]:
        """The partitions that were heard, and how far each is."""
        return {int(one.source): one.at for one in self.seen.sources}

    @property
    def idle(self) -> set[int]:
        return {int(one.source) for one in self.seen.sources if one.idle}

    def _told(self) -> pa.Table:
        """What came of the micro-batches that are known to be done."""
        last = -1 if self.seen.batch is None else self.seen.batch
        done = [table for number, table in list(self._out.items()) if number <= last]
        return pa.concat_tables(done) if done else pa.table({"device": [], "segment": [], "late": pa.nulls(0)})

    @property
    def segments(self) -> pa.Table:
        told = self._told()
        return told.filter(told["late"].is_null()).drop_columns(["late"])

    @property
    def late(self) -> list[dict[str, Any]]:
        return [{"reason": late["reason"], **late["row"]} for late in self._told()["late"].drop_null().to_pylist()]

    def found_after(self, at: datetime, *partitions: int) -> bool:
        """Whether each device of the partitions has a segment that ends after a time."""
        segments = self.segments
        ends = zip(segments["device"].to_pylist(), segments["segment"].to_pylist(), strict=True)
        return self._devices.of(*partitions) <= {device for device, segment in ends if segment["end"] > at}


def check(stream: Stream, devices: Devices, heard: set[int]) -> None:
    """Nothing lost, nothing twice: what the stream found is what the batch finds in the rows that were not late."""
    topic = stream.topic.localCheckpoint()
    assert topic.count() == topic.select("device", "ts").distinct().count() == devices.sent == stream.seen.rows
    late = stream.late
    assert sorted((row["device"], row["reason"]) for row in late) == [(d, "after_idle") for d in (3, 7)]
    assert stream.seen.late == dict.fromkeys(REASONS, 0) | {"after_idle": len(late)}
    kept = topic
    for row in late:
        kept = kept.filter(f"partition != {row['partition']} or offset != {row['offset']}")
    found = stream.segments
    assert rows(found) == rows(stream.plan.segments(kept, AGG).toArrow())
    assert stream.seen.closed == len(found)
    assert set(found["device"].to_pylist()) == devices.of(*heard)
    print(
        f"\n{devices.sent:,} rows, {len(found):,} segments, {len(late)} late; {stream.seen.batch} micro-batches, "
        f"{stream.restarts} restarts of the query"
    )


def leave_ahead_alone(stream: Stream, devices: Devices, heard: set[int]) -> None:
    """Only the clock that runs ahead goes on: it counts as LIMIT ahead of the median, and no more."""
    stream.wait(lambda: stream.idle == heard - {AHEAD}, lambda: devices.report(AHEAD))
    median = sorted(stream.clocks.values())[1]
    assert stream.seen.until == median + LIMIT - timedelta(microseconds=1)
    assert stream.clocks[AHEAD] > median + HOURS_AHEAD - LIMIT

    # those that were left out come back past that, and are not late
    back = max(devices.step[p] for p in NORMAL) + LIMIT // EVERY + 1
    devices.step |= dict.fromkeys(NORMAL, back)
    again = devices.at(NORMAL[0])
    stream.wait(lambda: stream.found_after(again, *NORMAL), lambda: devices.report(*NORMAL, AHEAD))


@pytest.mark.parametrize(
    ("form", "spoke", "alone"),
    [
        pytest.param(Json, 10, False, id="json", marks=pytest.mark.slow),
        pytest.param(Json, 10, True, id="json-ahead-alone", marks=pytest.mark.slow),
        pytest.param(Avro, 0, True, id="avro-never-heard", marks=pytest.mark.slow),
    ],
)
def test_silence_holds_nobody_and_a_fast_clock_makes_nobody_late(
    kafka: Broker, spark: SparkSession, tmp_path: Path, form: Form, spoke: int, alone: bool
) -> None:
    devices = Devices(kafka, f"silence-{form.__name__}-{alone}", form)
    for step in range(15):
        # partition 2 is three steps behind the others
        devices.report(0, AHEAD, *([2] if step >= 3 else []), *([SILENT] if step < spoke else []), flush=False)
    devices.flush()
    silence = devices.at(SILENT)
    heard = {*NORMAL, AHEAD} | ({SILENT} if spoke else set())
    with Stream(spark, devices, tmp_path, idle_after="5 seconds") as stream:
        # results flow although one partition is silent
        stream.wait(lambda: stream.found_after(silence, *NORMAL), lambda: devices.report(*NORMAL, AHEAD))
        assert set(stream.clocks) == heard
        assert stream.idle == heard & {SILENT}
        assert stream.clocks.get(SILENT, silence - EVERY) == silence - EVERY
        if alone:
            leave_ahead_alone(stream, devices, heard)
        assert stream.late == []

        # the silent partition speaks, of what is long over
        devices.report(SILENT)
        stream.wait(lambda: stream.seen.late["after_idle"], lambda: devices.report(*NORMAL, AHEAD))
        stream.finish()
    check(stream, devices, heard)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "end", "query_too"),
    [
        pytest.param(Json, "stop", False, id="json-stopped"),
        pytest.param(Json, "kill", False, id="json-killed"),
        pytest.param(Avro, "kill", True, id="avro-killed-with-the-query"),
    ],
)
def test_a_broker_that_restarts_loses_nothing_and_repeats_nothing(
    kafka: Broker, spark: SparkSession, tmp_path: Path, form: Form, end: str, query_too: bool
) -> None:
    devices = Devices(kafka, f"restart-{end}-{form.__name__}", form)
    over = threading.Event()

    def replay() -> None:
        """Two steps each second, whether the broker is there or not."""
        while not over.wait(0.5):
            devices.report(*NORMAL, AHEAD, *([SILENT] if devices.step[SILENT] < 10 else []), flush=False)
        devices.flush()

    feeder = threading.Thread(target=replay)
    # longer than the broker is away: that silence is nobody's own
    with Stream(spark, devices, tmp_path, idle_after="30 seconds") as stream:
        feeder.start()
        try:
            stream.wait(lambda: len(stream.clocks) == PARTITIONS and devices.step[SILENT] == 10)
            if query_too:
                stream.stop()
            getattr(kafka, end)()
            gone = devices.step[0]
            stream.wait(lambda: devices.step[0] > gone + 4)
            kafka.start()
            after = devices.at(NORMAL[0])
            stream.wait(lambda: stream.found_after(after, *NORMAL))
            assert stream.idle == {SILENT}
        finally:
            if kafka.process is None:
                kafka.start()
            over.set()
            feeder.join()
        devices.report(SILENT)
        stream.wait(lambda: stream.seen.late["after_idle"])
        stream.finish()
    assert stream.restarts >= query_too
    check(stream, devices, set(range(PARTITIONS)))

"""Six hours of router reports through Kafka in a minute, with all that goes wrong, and nothing lost.

Four partitions: one falls silent, the clock of another is hours ahead, one is a little behind; and in the middle the
broker restarts. In the end what the stream found is compared with a batch over the same topic.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console, Group
from rich.live import Live

import panewise as pw
from kafka_broker import HOME, Broker, BrokerError
from panewise.cli.engine import engine
from panewise.cli.errors import EXPECTED, sentence
from panewise.cli.live import line, table
from panewise.cli.steps import step
from panewise.data import router

TOPIC, PARTITIONS, ROUTERS = "reports", 4, 40
SLOW, AHEAD, SILENT = 2, 1, 3
EVERY = timedelta(microseconds=router.EVERY)
STEPS = timedelta(hours=6) // EVERY
A_SECOND = 48  # steps that are replayed in a second
FIRST = 30  # steps that are there when the query starts
BEHIND = 3  # steps by which the slow partition is behind
HOURS_AHEAD = timedelta(hours=5)

# when things happen: parts of the replay
SILENCE, RESTART, BELATED = 0.08, 0.6, 0.85
AWAY = 3.0  # seconds, at least, without a broker
PATIENCE = 180.0

SCHEMA = "router string, rpt_time timestamp, total_pkts bigint, drop_pct double"
AGG = {"worst": "max(drop_pct)", "packets": "sum(total_pkts)"}
PLAN = (
    pw.threshold_frames("drop_pct > 0.3", min_duration="2 minutes")
    .by("router")
    .at("rpt_time", pw.ordered_per("partition", idle_after="20 seconds", expect=PARTITIONS, ahead_limit="1 minute"))
)


class Replay(threading.Thread):
    """Sends the reports, whether the broker is there or not; router n goes to partition n modulo 4."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        # what is sent again because an answer got lost must not be there twice
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
        reports = router.table(STEPS * ROUTERS, routers=ROUTERS).drop_columns(["rpt_time"])
        self._reports = reports.to_pylist()
        self._begin = datetime.now(UTC).replace(microsecond=0) - EVERY * STEPS
        self._next = [0] * PARTITIONS
        self._over = threading.Event()
        self.sent = 0
        for partition in range(PARTITIONS):
            self.send(partition, FIRST)

    @property
    def done(self) -> float:
        """How much was sent, from 0 to 1."""
        return self._next[0] / STEPS

    def run(self) -> None:
        """Send each report when its time has come."""
        begun = time.monotonic()
        while self.done < 1 and not self._over.wait(0.25):
            due = min(FIRST + int((time.monotonic() - begun) * A_SECOND), STEPS)
            for partition in range(PARTITIONS):
                if partition != SILENT or due < STEPS * SILENCE:
                    self.send(partition, due - BEHIND * (partition == SLOW))
        self.send(SLOW, STEPS)

    def send(self, partition: int, until: int) -> None:
        """Send the reports of a partition up to a step."""
        for number in range(self._next[partition], until):
            at = self._begin + EVERY * number + (HOURS_AHEAD if partition == AHEAD else timedelta())
            for n in range(partition, ROUTERS, PARTITIONS):
                report = {**self._reports[number * ROUTERS + n], "rpt_time": at.isoformat()}
                self._producer.produce(TOPIC, json.dumps(report).encode(), partition=partition)
                self.sent += 1
            self._next[partition] = number + 1
        self._producer.poll(0)

    def belated(self) -> None:
        """The silent partition speaks again, of what it saw when it fell silent."""
        self.send(SILENT, self._next[SILENT] + 3)

    def close(self) -> None:
        """Send no more."""
        self._over.set()
        if self.is_alive():
            self.join()

    def flush(self) -> bool:
        """Wait until the broker has all of it."""
        self.join()
        return self._producer.flush(PATIENCE) == 0


class Query:
    """The plan over the topic, and what came of it; a micro-batch that is run again counts once."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self._spark, self._servers, self._checkpoint = spark, servers, str(folder / "checkpoint")
        self._control = pw.Control(spark, str(folder / "control"))
        self._found: dict[int, pa.Table] = {}
        self.finish = self._control.finish
        self.restarts = -1
        self._start()

    def _read(self, reader: Any, **options: str) -> DataFrame:
        where = {"kafka.bootstrap.servers": self._servers, "subscribe": TOPIC, **options}
        read = F.from_json(F.col("value").cast("string"), SCHEMA).alias("report")
        raw = reader.format("kafka").options(**where).load()
        return raw.select("partition", "offset", read).select("report.*", "partition", "offset")

    def _start(self) -> None:
        reports = self._read(self._spark.readStream, startingOffsets="earliest")
        found = PLAN.segments(reports, AGG, late=True, shards=4, control=self._control.folder)
        writer = found.writeStream.option("checkpointLocation", self._checkpoint).trigger(processingTime="1 second")
        self._query = writer.foreachBatch(self._take).start()
        self.restarts += 1

    def _take(self, batch: DataFrame, number: int) -> None:
        self._found[number] = batch.toArrow()

    def revive(self) -> bool:
        """Go on from the checkpoint, if the query has failed; whether it had."""
        if self._query.isActive:
            return False
        if self.restarts > 5:
            raise self._query.exception() or RuntimeError("The query has ended.")
        self._start()
        return True

    def close(self) -> None:
        """Stop. A query that waits for a broker hears nobody for a minute, and is not waited for."""
        stopper = threading.Thread(target=self._stop, daemon=True)
        stopper.start()
        stopper.join(20)

    def _stop(self) -> None:
        with suppress(PySparkException):
            self._query.stop()

    def found(self) -> tuple[pa.Table, pa.Table]:
        """All segments, and all late rows."""
        out = pa.concat_tables(list(self._found.values()))
        late = out["late"].drop_null().combine_chunks()
        reasons = pa.Table.from_struct_array(late.field("row")).append_column("reason", late.field("reason"))
        return out.filter(out["late"].is_null()).drop_columns(["late"]), reasons

    def batch(self, late: pa.Table) -> tuple[int, pa.Table]:
        """How many rows the topic has, and the segments that a batch finds in them, but for the late ones."""
        topic = self._read(self._spark.read)
        gone = self._spark.createDataFrame(late.select(["partition", "offset"]))
        kept = topic.join(gone, ["partition", "offset"], "left_anti") if len(late) else topic
        return topic.count(), PLAN.segments(kept, AGG).toArrow()


class Screen:
    """A table that lives, or a line for each micro-batch where nobody looks; what happens is said above it."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, markup=False)
        self.seen, self.status = pw.StreamProgress(), ""
        self._begun = time.monotonic()

    def print(self, text: str = "", style: str = "") -> None:
        """A line, however long."""
        self.console.print(text, style=style, soft_wrap=True)

    def say(self, text: str, style: str = "bold yellow") -> None:
        """Something has happened."""
        self.print(f"{time.monotonic() - self._begun:4.0f} s  {text}", style)

    def told(self, _: str, seen: pw.StreamProgress) -> None:
        """A micro-batch is done."""
        self.seen = seen
        if not self.console.is_terminal:
            self.say(line(seen, "rpt_time"), style="")

    def live(self) -> Any:
        """The table, for as long as a `with` lasts."""
        if not self.console.is_terminal:
            return ExitStack()
        view = lambda: Group("", self.status, "", table(self.seen, "rpt_time"))  # noqa: E731  # shorter, and as clear
        return Live(get_renderable=view, console=self.console, refresh_per_second=4, transient=True)


def play(screen: Screen, broker: Broker, replay: Replay, query: Query) -> bool:
    """What happens, in order; whether all of it could."""
    left_out = threading.Event()

    def until(condition: Callable[[], bool]) -> bool:
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                return False
            if not left_out.is_set() and [s.source for s in screen.seen.sources if s.idle] == [str(SILENT)]:
                left_out.set()
                screen.say(f"partition {SILENT} is left out: progress goes on without it")
            if query.revive():
                screen.say("the query had failed, and goes on from its checkpoint", "bold red")
            is_there = "away" if broker.process is None else "there"
            screen.status = f"replay {replay.done:4.0%}    broker {is_there}    {replay.sent:,} reports sent"
            time.sleep(0.2)
        return True

    screen.say("waiting for the first micro-batch, which takes longest")
    until(lambda: screen.seen.rows > 0)
    replay.start()
    until(lambda: replay.done > SILENCE)
    screen.say(f"partition {SILENT} falls silent: progress waits for it, for 20 seconds")
    until(lambda: replay.done > RESTART)
    screen.say("the broker is stopped; reports go on")
    away = time.monotonic()
    broker.stop()
    until(lambda: time.monotonic() > away + AWAY)
    broker.start()
    screen.say(f"the broker is back after {time.monotonic() - away:.1f} s")
    until(lambda: replay.done > BELATED and left_out.is_set())
    screen.say(f"partition {SILENT} speaks again, of what is long over")
    replay.belated()
    until(lambda: replay.done >= 1)
    there = replay.flush() and until(lambda: screen.seen.rows >= replay.sent)
    screen.say("all reports are in: closing everything")
    query.finish()
    return until(lambda: screen.seen.ended) and there


def compare(screen: Screen, replay: Replay, query: Query) -> bool:
    """Say what was found, and whether it is what it should be."""
    say = screen.print
    found, late = query.found()
    with step("a batch over the same topic"):
        rows, batch = query.batch(late)
    ours, theirs = (sorted(map(repr, one.to_pylist())) for one in (found, batch))
    say()
    say(f"{rows:,} reports in the topic, {replay.sent:,} sent, {screen.seen.rows:,} read by the stream.")
    equal = ours == theirs and rows == replay.sent == screen.seen.rows
    text = f"{len(found):,} periods of loss found by the stream, {len(batch):,} by a batch over the same topic: "
    say(f"{text}{'equal' if equal else 'NOT EQUAL'}", style="bold green" if equal else "bold red")
    reasons = ", ".join(f"{count} {reason}" for reason, count in screen.seen.late.items() if count) or "none"
    partitions = set(late["partition"].to_pylist())
    told = f", all from partition {SILENT}, which had been silent" if partitions == {SILENT} else ""
    say(f"Late rows by reason: {reasons}{told}.")
    others = len(partitions - {SILENT})
    if not others:
        say(f"The clock of partition {AHEAD} is {HOURS_AHEAD // timedelta(hours=1)} h ahead and made nobody late.")
    else:
        say("Other partitions were late too: the restart took longer than `idle_after`.", style="bold red")
    restarts = "went on through it" if not query.restarts else f"was restarted {query.restarts} times"
    say(f"The broker was restarted once; the query {restarts}{', nothing lost, nothing twice' if equal else ''}.")
    return equal and not others


def demo() -> bool:
    """Start everything, play, compare, and end everything."""
    screen = Screen()
    screen.print(f"{ROUTERS} routers report through Kafka, on {PARTITIONS} partitions: six hours in a minute.")
    screen.print("Wanted: every period in which a router lost more than 0.3 % for at least two minutes.")
    jars = ",".join(str(jar) for jar in sorted(HOME.glob("spark/*.jar")))
    settings = {"spark.jars": jars, "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="panewise-kafka-", ignore_cleanup_errors=True)))
        with step("starting a Kafka broker"):
            broker = stack.enter_context(Broker(folder / "broker"))
            broker.create_topic(TOPIC, PARTITIONS)
        spark = stack.enter_context(_uninterrupted(engine("local[2]", settings)))
        watch = stack.enter_context(pw.Watch(spark, screen.told))
        query = Query(spark, broker.servers, folder)
        stack.callback(query.close)
        replay = Replay(broker.servers)
        stack.callback(replay.close)
        with screen.live():
            complete = play(screen, broker, replay, query)
        watch.stop()
        query.close()
        return compare(screen, replay, query) and complete


def _signals(handler: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def _interrupted(*_: object) -> None:
    """Ctrl-C, or a friendly kill: the first one ends everything in order, and more of them change nothing."""
    _signals(signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def _uninterrupted(spark: AbstractContextManager[SparkSession]) -> Iterator[SparkSession]:
    """A session; an interruption waits until it is there, because half of one cannot be stopped."""
    noted = threading.Event()
    _signals(lambda *_: noted.set())
    with spark as session:
        _signals(_interrupted)  # PySpark has put its own there
        if noted.is_set():
            _interrupted()
        yield session


def main() -> int:
    """The demo; 0 if all is as it should be."""
    if not (HOME / ".ready").exists():
        print(f"There is no Kafka in {HOME}: scripts/kafka.sh fetches it, and says why where it cannot.")
        return 2
    _signals(_interrupted)
    try:
        return 0 if demo() else 1
    except KeyboardInterrupt:
        print("Interrupted; the broker, Spark and their files are gone.")
        return 130
    except (*EXPECTED, BrokerError) as error:
        print(error if isinstance(error, BrokerError) else sentence(error)[0], file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

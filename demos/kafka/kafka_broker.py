"""A Kafka broker of one node on this machine: for tests and demos, never for data that matters.

    with Broker(Path("out/kafka")) as broker:
        broker.create_topic("reports", partitions=4)
        ...  # clients connect to broker.servers
        broker.restart()  # the same ports, the same data

`scripts/kafka.sh` fetches what it runs on.
"""

from __future__ import annotations

import atexit
import base64
import os
import random
import socket
import subprocess
import time
import uuid
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

__all__ = ["HOME", "Broker", "BrokerError"]

HOME = Path(__file__).parents[2] / ".venv" / "kafka"
"""Where `scripts/kafka.sh` puts the jars: `broker` for the server, `spark` for Spark's connector."""

HOST = "127.0.0.1"

SETTINGS = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers={host}:{controller}
log.dirs={data}
auto.create.topics.enable=false
# generated rows bear old times, and age is counted from those: keep everything
log.retention.ms=-1
# a cluster of one holds one copy
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
# a broker that was killed may come back only when its old self is given up
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
"""


class BrokerError(RuntimeError):
    """The broker did not do what was asked; the message ends with the tail of its log."""


class Broker:
    """One Kafka node that keeps its settings, data and log in a folder.

    A folder that held a broker before is continued: same ports, same topics.
    """

    def __init__(self, folder: Path, jars: Path = HOME / "broker", patience: float = 60) -> None:
        self.folder = folder.resolve()
        self.jars = jars
        self.patience = patience
        self.log = self.folder / "broker.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._settings = self.folder / "server.properties"
        self._port = 0

    @property
    def servers(self) -> str:
        """What clients call `bootstrap.servers`."""
        if not self._port:
            raise BrokerError(f"The broker in {self.folder} has no address yet: start it first.")
        return f"{HOST}:{self._port}"

    def start(self) -> Broker:
        """Start and wait until clients are answered; `patience` seconds at most."""
        if self.process is not None:
            raise BrokerError(f"The broker in {self.folder} runs already: stop it first.")
        if not any(self.jars.glob("kafka_*.jar")):
            raise BrokerError(f"{self.jars} holds no Kafka server: run scripts/kafka.sh.")
        if not self._settings.exists():
            self._format()
        lines = self._settings.read_text().splitlines()
        listeners = next(line for line in lines if line.startswith("listeners="))
        self._port = int(listeners.split(",")[0].rsplit(":", 1)[1])
        with self.log.open("ab") as log:
            command = self._java("-Xmx512m", main="kafka.Kafka", arguments=[str(self._settings)])
            # in a session of its own: Ctrl-C is for us, who stop it once nobody reads any more
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        atexit.register(self.kill)
        try:
            self._wait()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Ask the broker to end, and end it where it does not; nothing where it does not run."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
            self._gone()

    def kill(self) -> None:
        """End the broker as a crash would; nothing where it does not run."""
        if self.process is not None:
            self.process.kill()
            self._gone()

    def restart(self) -> None:
        """Stop and start, on the same ports and with the same data."""
        self.stop()
        self.start()

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic and wait until every partition takes rows."""
        admin = self._admin()  # a client that nobody holds drops its requests
        try:
            admin.create_topics([NewTopic(name, partitions, replication_factor=1)])[name].result(self.patience)
        except KafkaException as error:
            raise BrokerError(f"The topic {name!r} was not created: {error}.{self._tail()}") from error
        self._wait(topic=name)

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _format(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        port, controller = _free_ports(2)
        settings = self.folder / "server.properties.new"
        settings.write_text(
            SETTINGS.format(host=HOST, port=port, controller=controller, data=self.folder / "data"), encoding="utf-8"
        )
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        arguments = ["format", "--standalone", f"--cluster-id={cluster}", "--config", str(settings)]
        command = self._java("-Xmx128m", main="kafka.tools.StorageTool", arguments=arguments)
        try:
            with self.log.open("ab") as log:
                subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=self.patience, check=True
                )
        except subprocess.SubprocessError as error:
            raise BrokerError(f"Formatting {self.folder} failed.{self._tail()}") from error
        # only a formatted folder has settings, so that a half-made one is made again
        settings.rename(self._settings)

    def _java(self, *options: str, main: str, arguments: list[str]) -> list[str]:
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home, "bin", "java")) if home else "java"
        return [
            java,
            *options,
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-cp",
            str(self.jars / "*"),
            main,
            *arguments,
        ]

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def _wait(self, topic: str | None = None) -> None:
        """Wait until every partition (of the topic) has a leader."""
        end = time.monotonic() + self.patience
        while time.monotonic() < end:
            if self.process is None or self.process.poll() is not None:
                raise BrokerError(f"The broker in {self.folder} ended.{self._tail()}")
            if self._answers(topic):
                return
            time.sleep(0.1)
        raise BrokerError(f"The broker in {self.folder} did not answer within {self.patience:g} s.{self._tail()}")

    def _answers(self, topic: str | None) -> bool:
        try:
            socket.create_connection((HOST, self._port), timeout=1).close()
            seen = self._admin().list_topics(timeout=5)
        except (OSError, KafkaException):
            return False
        if seen.cluster_id != self._cluster():
            return False  # somebody else's broker, on our port
        partitions = [p for t in seen.topics.values() for p in t.partitions.values()]
        return bool(seen.brokers) and (topic is None or topic in seen.topics) and all(p.leader >= 0 for p in partitions)

    def _cluster(self) -> str | None:
        """The cluster that the data belong to, as formatting noted it."""
        note = self.folder / "data" / "meta.properties"
        lines = note.read_text().splitlines() if note.exists() else []
        return next((line.removeprefix("cluster.id=") for line in lines if line.startswith("cluster.id=")), None)

    def _gone(self) -> None:
        assert self.process is not None
        self.process.wait()
        self.process = None
        atexit.unregister(self.kill)

    def _tail(self, lines: int = 20) -> str:
        text = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join([f" The end of {self.log}:", *text[-lines:]])


def _free_ports(count: int) -> list[int]:
    """Ports below those that systems hand out to clients: one that waits for a restart is not taken meanwhile."""
    found: list[int] = []
    for port in random.Random().sample(range(20_000, 32_000), 1_000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise BrokerError(f"No {count} free ports on {HOST} between 20000 and 32000.")

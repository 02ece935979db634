"""A broker for the tests that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_broker import HOME, Broker


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests; each makes its own topics."""
    if not (HOME / ".ready").exists():
        pytest.skip(f"no Kafka in {HOME}: scripts/kafka.sh fetches it and says why where it cannot")
    with Broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker

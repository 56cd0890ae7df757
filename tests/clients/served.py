"""The process under test: a Tidelog node, or Apache Kafka where the scenarios themselves are in doubt."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tidelog.protocol.batch import BatchHeader, iter_headers
from tidelog.testing import Broker
from tools.apache import ApacheKafka


class Served(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def data(self) -> str: ...
    @property
    def log(self) -> str: ...


class _Apache:
    def __init__(self, kafka: ApacheKafka) -> None:
        self._kafka = kafka

    @property
    def bootstrap_servers(self) -> str:
        return self._kafka.bootstrap_servers

    @property
    def data(self) -> str:
        return str(self._kafka.directory / "logs")

    @property
    def log(self) -> str:
        return f"see {self._kafka.directory / 'server.out'}"


# Members of the new protocol heartbeat as the broker tells them; every five seconds would be most of a test.
SHORT_HEARTBEATS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}


@contextmanager
def serve(directory: Path) -> Iterator[Served]:
    if os.environ.get("TIDELOG_CLIENTS_AGAINST") == "apache":
        with ApacheKafka(directory, properties=SHORT_HEARTBEATS) as kafka:
            yield _Apache(kafka)
    else:
        with Broker(SHORT_HEARTBEATS, process=True) as broker:
            yield broker


def stored_batches(broker: Served, topic: str, partition: int = 0) -> list[BatchHeader]:
    """What was really written, read from the files: a client that quietly sends something else is found here."""
    files = sorted(Path(broker.data, f"{topic}-{partition}").glob("*.log"))
    assert files, f"no log of {topic}-{partition} in {broker.data}"
    return [header for file in files for _, header in iter_headers(file.read_bytes())]

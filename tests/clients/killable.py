"""A node that is killed with -9 and comes back on the same port with the same data: Tidelog, or Apache Kafka where the
scenario itself is in doubt (TIDELOG_CLIENTS_AGAINST=apache)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tidelog.testing import Broker
from tools.apache import ApacheKafka
from tools.ports import free_port


class Killable(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def log(self) -> str: ...
    def kill(self) -> None: ...
    def start_again(self) -> None: ...


class _Tidelog:
    def __init__(self, directory: Path, properties: Mapping[str, str]) -> None:
        self._config = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()}", **properties}
        self._data = directory / "data"
        self._logs: list[str] = []
        self.broker = self._start()
        self.bootstrap_servers = self.broker.bootstrap_servers

    def _start(self) -> Broker:
        return Broker(self._config, process=True, data=self._data).start()

    @property
    def log(self) -> str:
        return "\n--- killed ---\n".join([*self._logs, self.broker.log])

    def kill(self) -> None:
        self._logs.append(self.broker.log)
        self.broker.kill()

    def start_again(self) -> None:
        self.broker = self._start()


class _Apache:
    def __init__(self, kafka: ApacheKafka) -> None:
        self._kafka = kafka
        self.bootstrap_servers = kafka.bootstrap_servers
        self.log = f"see {kafka.directory / 'server.out'}"

    def kill(self) -> None:
        assert self._kafka.process is not None
        self._kafka.process.kill()
        self._kafka.process.wait()

    def start_again(self) -> None:
        self._kafka.log.close()
        self._kafka.start()


@contextmanager
def killable(directory: Path, **properties: str) -> Iterator[Killable]:
    """Settings are given with underscores for their dots."""
    named = {name.replace("_", "."): value for name, value in properties.items()}
    if os.environ.get("TIDELOG_CLIENTS_AGAINST") == "apache":
        with ApacheKafka(directory, heap="512m", properties=named) as kafka:
            yield _Apache(kafka)
        return
    node = _Tidelog(directory, named)
    try:
        yield node
    finally:
        node.broker.stop()

"""The broker under test, behind a proxy: it can be killed and started again on the same data and the same address."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tests.chaos.proxy import Proxy
from tidelog.testing import Broker
from tidelog.testing.wire import Wire
from tools.apache import ApacheKafka
from tools.ports import free_port

SMALL = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "5000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
}
"""Short times: a client that is gone shall not take a minute of the run."""


class Node(Protocol):
    name: str

    def start(self) -> str:
        """Returns the address once it answers."""

    def kill(self) -> None: ...
    def stop(self) -> None: ...

    @property
    def log(self) -> str: ...


class TidelogNode:
    name = "tidelog"

    def __init__(self, directory: Path, properties: Mapping[str, str]) -> None:
        self._data = directory / "data"
        self._config = {**properties, "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
        self._broker: Broker | None = None
        self._logs: list[str] = []

    def start(self) -> str:
        self._broker = Broker(self._config, process=True, data=self._data).start()
        # The node knows the advertised address only: here it is dialled where it listens.
        return self._config["listeners"].removeprefix("PLAINTEXT://")

    def kill(self) -> None:
        if self._broker is not None:
            self._broker.kill()
            self._remember()

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.stop()
            self._remember()

    def _remember(self) -> None:
        assert self._broker is not None
        self._logs.append(self._broker.log)
        self._broker = None

    @property
    def log(self) -> str:
        current = [] if self._broker is None else [self._broker.log]
        return "\n--- started again ---\n".join([*self._logs, *current])


class ApacheNode:
    name = "apache"

    def __init__(self, directory: Path, properties: Mapping[str, str]) -> None:
        self._kafka = ApacheKafka(directory, heap="512m", properties=properties)

    def start(self) -> str:
        self._kafka.start()
        return self._kafka.bootstrap_servers

    def kill(self) -> None:
        if self._kafka.process is not None:
            self._kafka.process.kill()
            self._kafka.stop()

    def stop(self) -> None:
        self._kafka.stop()

    @property
    def log(self) -> str:
        return self._kafka.output[-100_000:]


class Lab:
    """A node and the proxy before it. A context manager."""

    def __init__(
        self, kind: str, directory: Path, *, seed: int = 0, properties: Mapping[str, str] | None = None
    ) -> None:
        self.proxy = Proxy(seed=seed)
        self._kind = kind
        self._directory = directory
        self._properties = {**SMALL, **(properties or {})}
        self.kills = 0

    def __enter__(self) -> Lab:
        self.proxy.start()
        advertised = {"advertised.listeners": f"PLAINTEXT://{self.proxy.address}"}
        made: type[TidelogNode] | type[ApacheNode] = ApacheNode if self._kind == "apache" else TidelogNode
        self.node: Node = made(self._directory, self._properties | advertised)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.node.stop()
        finally:
            self.proxy.stop()

    @property
    def address(self) -> str:
        """For clients."""
        return self.proxy.address

    @property
    def direct(self) -> str:
        """Past the proxy."""
        return self.proxy.broker

    def _start(self) -> None:
        self.proxy.broker = self.node.start()

    def kill(self) -> None:
        self.kills += 1
        self.node.kill()

    def restart(self) -> None:
        self._start()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        from tidelog.protocol.errors import ErrorCode
        from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
        from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse

        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()
            ],
        )
        asked = [MetadataRequest.MetadataRequestTopic(name=name)]
        deadline = time.monotonic() + 30
        with Wire(self.direct) as wire:
            request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            answer = wire.call(request, 7, CreateTopicsResponse).topics[0]
            assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
            # Apache's broker hears of it after the controller has answered.
            while time.monotonic() < deadline:
                request_again = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
                found = wire.call(request_again, 8, MetadataResponse).topics[0]
                if found.error_code == ErrorCode.NONE and all(p.leader_id >= 0 for p in found.partitions):
                    return
                time.sleep(0.02)
        raise TimeoutError(f"topic {name} did not come")

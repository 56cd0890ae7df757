"""Kafka Connect from its published jars: a distributed worker carries a file into a topic and out into another file,
and the node is killed with -9 while it does.

Distributed, because it asks more of the node than a standalone worker: a group of type `connect` whose members are
workers, and three compacted topics with what the worker must not forget.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.clients.killable import Killable, killable
from tests.clients.matrix import JAVA_MARKS
from tests.clients.model import wait_for
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog.testing.wire import Wire
from tools import apache
from tools.ports import free_port

wait = partial(wait_for, patience_s=90)
pytestmark = [*JAVA_MARKS, pytest.mark.timeout(240)]

MAIN: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
LINES: Final = 20_000
"""Of each part: before the kill, while the node is down, after it. Where the kill must come in the middle of the first,
that one has three times as many."""


class Worker:
    """One Connect worker in a JVM of its own, steered through its HTTP interface."""

    def __init__(self, directory: Path, servers: str, **settings: str) -> None:
        self._port = free_port()
        config = directory / f"worker-{self._port}.properties"
        storage = {
            f"{kind}.storage.{name}": value
            for kind in ("config", "offset", "status")
            for name, value in (("topic", f"connect-{kind}"), ("replication.factor", "1"), ("partitions", "1"))
            if (kind, name) != ("config", "partitions")
        }
        values = {
            "bootstrap.servers": servers,
            "group.id": "connect",
            **storage,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "listeners": f"HTTP://127.0.0.1:{self._port}",
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": "300",
            # A worker that misses its coordinator for longer than a heartbeat stops its tasks; what a sink has written
            # and could not commit would be written again, by any broker.
            "session.timeout.ms": "90000",
            "heartbeat.interval.ms": "30000",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        config.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        command = apache.java(MAIN, str(config), libs=apache.programs_libs())
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def call(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def is_up(self) -> bool:
        assert self._process.poll() is None, "the worker has ended"
        try:
            return self.call("GET", "/connectors") is not None
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
            return False

    def states(self, connector: str) -> set[str]:
        status = self.call("GET", f"/connectors/{connector}/status")
        return {status["connector"]["state"], *(task["state"] for task in status["tasks"])}

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def worker(directory: Path, servers: str, **settings: str) -> Iterator[Worker]:
    made = Worker(directory, servers, **settings)
    try:
        wait("the worker's first answer", made.is_up)
        yield made
    finally:
        made.stop()


def part(number: int, lines: int = LINES) -> str:
    return "".join(f"part {number} line {line} {'.' * 60}\n" for line in range(lines))


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def line_count(path: Path) -> int:
    time.sleep(0.05)
    return path.read_bytes().count(b"\n") if path.exists() else 0


def connect_source(to: Worker, source: Path, **settings: str) -> None:
    # The task hands over a batch only when it is full or the file has no more, and keeps the rest of its buffer for
    # later: with a limit above all that is there nothing stays behind.
    config = {"connector.class": "FileStreamSource", "file": str(source), "topic": "lines", "batch.size": "1000000"}
    to.call("PUT", "/connectors/source/config", config | settings)


def connect_sink(to: Worker, sink: Path) -> None:
    config = {"connector.class": "FileStreamSink", "file": str(sink), "topics": "lines"}
    to.call("PUT", "/connectors/sink/config", config)


def carry(node: Killable, to: Worker, source: Path, sink: Path) -> None:
    """The three parts, with the kill in the middle of the first."""
    append(source, part(1, 3 * LINES))
    connect_source(to, source)
    connect_sink(to, sink)
    first = wait("the first lines", lambda: line_count(sink))
    assert first < LINES, "all may be there before the kill: it proves nothing"
    node.kill()
    append(source, part(2))
    node.start_again()
    append(source, part(3))
    wait("the last line", lambda: line_count(sink) >= 5 * LINES)


def test_files_are_carried_through_a_kill_9(tmp_path: Path) -> None:
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    with (
        killable(tmp_path / "node") as node,
        worker(tmp_path, node.bootstrap_servers, producer_enable_idempotence="true") as to,
    ):
        carry(node, to, source, sink)
        assert to.states("source") == to.states("sink") == {"RUNNING"}
    assert sink.read_text() == source.read_text()


def committed_lines(servers: str) -> int:
    """How many offsets of the topic are below the last stable one: its records and its markers."""
    time.sleep(0.05)
    with Wire(servers) as wire:
        part = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
        topic = ListOffsetsRequest.ListOffsetsTopic(name="lines", partitions=[part])
        answer = wire.call(ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[topic]), 7, ListOffsetsResponse)
    return answer.topics[0].partitions[0].offset


def read_committed(servers: str, count: int) -> str:
    settings = {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition("lines", 0, 0)])
    lines: list[str] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, f"nothing more after {len(lines)} of {count} lines"
        error, value = message.error(), message.value()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            break
        assert error is None and value is not None, error
        lines.append(value.decode() + "\n")
    consumer.close()
    return "".join(lines)


def test_a_source_is_exactly_once_through_kills_of_node_and_worker(tmp_path: Path) -> None:
    """The worker writes lines and their positions in one transaction; its successor fences what it left open."""
    source = tmp_path / "in.txt"
    settings = {
        "exactly.once.source.support": "enabled",
        "scheduled.rebalance.max.delay.ms": "0",
        "session.timeout.ms": "3000",
        "heartbeat.interval.ms": "500",
    }
    append(source, part(1))
    with killable(tmp_path / "node", group_min_session_timeout_ms="1000") as node:
        servers = node.bootstrap_servers
        with worker(tmp_path, servers, **settings) as first:
            connect_source(
                first, source, **{"transaction.boundary": "interval", "transaction.boundary.interval.ms": "100"}
            )
            wait("the first lines", lambda: committed_lines(servers) > 0)
            node.kill()
            node.start_again()
            before = committed_lines(servers)
            append(source, part(2))
            wait("more lines", lambda: committed_lines(servers) > before)
            first.kill()
        append(source, part(3))
        with worker(tmp_path, servers, **settings):
            wait("the last line", lambda: committed_lines(servers) > 3 * LINES)
            text = read_committed(servers, 3 * LINES)
    assert text == source.read_text()

"""A node under attack, and the healthy client beside the attackers."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.fuzz.fuzzer import private_bytes
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.testing import Broker
from tidelog.testing.wire import Wire

MIB = 1 << 20


class NodeUnderAttack(Broker):
    """In a process of its own, with its metrics."""

    def __init__(self, config: Mapping[str, str] | None = None) -> None:
        super().__init__({"tidelog.http.listener": "127.0.0.1:0", **(config or {})}, process=True)

    @property
    def memory_bytes(self) -> int:
        assert self._process is not None
        return private_bytes(self._process.pid)

    def metric(self, name: str) -> float:
        """By the whole name as it is printed, labels included."""
        found = re.search(r"http://\S+/metrics", self.log)
        assert found is not None
        with urllib.request.urlopen(found[0], timeout=30) as page:
            text: str = page.read().decode()
        line = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        assert line is not None, name
        return float(line[1])

    def used(self, resource: str) -> int:
        return int(self.metric(f'tidelog_ledger_used{{resource="{resource}"}}'))

    def refused(self, resource: str) -> int:
        return int(self.metric(f'tidelog_ledger_refused_total{{resource="{resource}"}}'))

    def memory_bytes_max_over(self, seconds: float) -> int:
        """The most that it held, looked at again and again for a while."""
        most = 0
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            most = max(most, self.memory_bytes)
            time.sleep(0.05)
        return most


class Attack:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ended(self) -> int:
        """How many of its connections the node has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("ended?\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def wait_ended(self) -> bool:
        """Until some are. A connection is made before the node has looked at it."""
        deadline_s = time.monotonic() + 30
        while self.ended() == 0 and time.monotonic() < deadline_s:
            time.sleep(0.02)
        return self.ended() > 0


@contextmanager
def attack(
    mode: str, node: Broker, connections: int, topic: str = "none", source: str = "127.0.0.2"
) -> Iterator[Attack]:
    with start_attack(mode, node, connections, topic, source) as process:
        yield wait_ready(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def start_attack(
    mode: str, node: Broker, connections: int, topic: str = "none", source: str = "127.0.0.2"
) -> subprocess.Popen[str]:
    module = "tests.scenarios.hostile.attackers"
    command = [sys.executable, "-m", module, mode, node.bootstrap_servers, str(connections), topic, source]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_ready(process: subprocess.Popen[str]) -> Attack:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return Attack(process)


def produce(wire: Wire, topic: str, records: bytes) -> ErrorCode:
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    answer = wire.call(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[named]), 9, ProduceResponse)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def batch(value: bytes) -> bytes:
    return bytes(build_batch([RecordInput(b"k", value, int(time.time() * 1000))]))


def serves(node: Broker, topic: str, rounds: int = 20) -> bool:
    """A client that comes now, connects, writes and reads: every request of it is answered."""
    with Wire(node.bootstrap_servers, timeout_s=30) as wire:
        return still_serves(wire, topic, rounds)


def still_serves(wire: Wire, topic: str, rounds: int = 20, first: int = 0) -> bool:
    for number in range(first, first + rounds):
        value = b"healthy %d" % number
        assert produce(wire, topic, batch(value)) is ErrorCode.NONE
        wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=number, partition_max_bytes=1 << 20)
        named = FetchRequest.FetchTopic(topic=topic, partitions=[wanted])
        fetched = wire.call(FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=[named]), 11, FetchResponse)
        assert value in bytes(fetched.responses[0].partitions[0].records or b"")
    return True


def fill(node: Broker, topic: str, mebibytes: int) -> None:
    with Wire(node.bootstrap_servers) as wire:
        for _ in range(mebibytes):
            assert produce(wire, topic, batch(bytes(1_000_000))) is ErrorCode.NONE

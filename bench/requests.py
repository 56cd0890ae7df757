"""CPU of a node per small request: user and system microseconds, by the kernel's count of the node's process.

Each connection has one request under way, as many small producers have. The load is one Python process; on a machine
with two cores the node is the limit, and its CPU per request does not depend on who is."""

from __future__ import annotations

import select
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from bench.cpu import Cpu, cpu_of
from bench.tidelog_node import TidelogNode
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.produce import ProduceRequest
from tidelog.testing.wire import Wire

_SIZE = Struct(">i")
_TOPIC = "requests"
_PRODUCE_VERSION = 13
_FETCH_VERSION = 17
_RECORD = RecordInput(b"key", bytes(97), 1_700_000_000_000)

Step = Callable[[bytearray], bytes]
"""The next request of a connection, made from the last answer."""


class Measured(NamedTuple):
    name: str
    requests: int
    seconds: float
    cpu: Cpu
    p50_us: float
    p99_us: float

    def __str__(self) -> str:
        user, system = (1e6 * part / self.requests for part in self.cpu)
        rate = self.requests / self.seconds
        return (
            f"{self.name:24} {user:7.1f} user {system:7.1f} system µs/request {rate:9.0f} requests/s"
            f"   p50 {self.p50_us:6.0f} µs  p99 {self.p99_us:6.0f} µs"
        )


def run_requests(connections: int, seconds: float, only: str | None, mode: str) -> int:
    """Print one line per kind of request."""
    with (
        tempfile.TemporaryDirectory(prefix="tidelog-bench-") as home,
        TidelogNode(Path(home) / "data", properties={"tidelog.sync.mode": mode}) as node,
        Wire(node.bootstrap_servers) as wire,
    ):
        assert node.process is not None
        topic_id = create_topic(wire)
        for name in KINDS:
            if only is None or only in name:
                steps = make_steps(name, connections, topic_id, wire)
                _drive(node.bootstrap_servers, steps, min(seconds, 1.0))  # warm up
                before = cpu_of(node.process.pid)
                started = time.monotonic()
                latencies = sorted(_drive(node.bootstrap_servers, steps, seconds))
                took = time.monotonic() - started
                cpu = cpu_of(node.process.pid).since(before)
                count = len(latencies)
                p50, p99 = latencies[count // 2] * 1e6, latencies[count * 99 // 100] * 1e6
                print(Measured(name, count, took, cpu, p50, p99), flush=True)
    return 0


def make_steps(kind: str, connections: int, topic_id: bytes, wire: Wire) -> list[Step]:
    return [KINDS[kind](topic_id, number, wire) for number in range(connections)]


def create_topic(wire: Wire) -> bytes:
    topic = CreateTopicsRequest.CreatableTopic(name=_TOPIC, num_partitions=1, replication_factor=-1)
    wire.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=_TOPIC)])
    return wire.call(asked, 12, MetadataResponse).topics[0].topic_id


# Requests


def _produce_frame(topic_id: bytes, batch: bytes, acks: int = 1) -> bytes:
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic = ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[data])
    request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])
    return encode_request(request, _PRODUCE_VERSION, 7, "bench")


def _produce_again(topic_id: bytes, acks: int) -> Step:
    frame = _produce_frame(topic_id, bytes(build_batch([_RECORD])), acks)
    return lambda _: frame


def _produce_idempotent(topic_id: bytes, producer_id: int) -> Step:
    def frames() -> Iterator[bytes]:
        sequence = 0
        while True:
            batch = build_batch([_RECORD], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
            yield _produce_frame(topic_id, bytes(batch))
            sequence += 1

    made = frames()
    return lambda _: next(made)


def _fetch_request(topic_id: bytes, offset: int, session_id: int, epoch: int) -> FetchRequest:
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchRequest.FetchTopic(topic_id=topic_id, partitions=[wanted])] if offset >= 0 else []
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=session_id, session_epoch=epoch, topics=topics
    )


_EPOCH_AT = 4 + 10 + 5 + 1 + 4 + 4 + 4 + 1 + 4
"""Where the epoch of the session stands in a frame of version 17 from the client `bench`."""


def _fetch_in_session(topic_id: bytes, wire: Wire, *, behind: int, asks: bool) -> Step:
    """A consumer in a session that is so many batches behind, and asks with its partition or without."""
    opened = wire.call(_fetch_request(topic_id, 0, 0, 0), _FETCH_VERSION, FetchResponse)
    offset = opened.responses[0].partitions[0].high_watermark - behind
    wire.call(_fetch_request(topic_id, offset, opened.session_id, 1), _FETCH_VERSION, FetchResponse)
    request = _fetch_request(topic_id, offset if asks else -1, opened.session_id, 2)
    frame = bytearray(encode_request(request, _FETCH_VERSION, 7, "bench"))
    epoch = 1

    def step(_: bytearray) -> bytes:
        nonlocal epoch
        epoch += 1
        _SIZE.pack_into(frame, _EPOCH_AT, epoch)
        return bytes(frame)

    return step


KINDS: dict[str, Callable[[bytes, int, Wire], Step]] = {
    "produce": lambda topic_id, number, wire: _produce_again(topic_id, 1),
    "produce, acks=all": lambda topic_id, number, wire: _produce_again(topic_id, -1),
    "produce, idempotent": lambda topic_id, number, wire: _produce_idempotent(topic_id, 1000 + number),
    "fetch of one batch": lambda topic_id, number, wire: _fetch_in_session(topic_id, wire, behind=1, asks=True),
    "fetch, empty": lambda topic_id, number, wire: _fetch_in_session(topic_id, wire, behind=0, asks=False),
}


# Load


def _drive(address: str, steps: list[Step], seconds: float) -> list[float]:
    """Keep one request of each connection under way; the time of each answer."""
    host, _, port = address.rpartition(":")
    poll = select.epoll()
    sockets: dict[int, tuple[socket.socket, Step]] = {}
    sent: dict[int, float] = {}
    partial: dict[int, bytearray] = {}
    latencies: list[float] = []
    for step in steps:
        client = socket.create_connection((host, int(port)))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(client.fileno(), select.EPOLLIN)
        sockets[client.fileno()] = (client, step)
    clock = time.monotonic
    try:
        for fd, (client, step) in sockets.items():
            sent[fd] = clock()
            client.sendall(step(bytearray()))
        end = clock() + seconds
        while sent:
            for fd, _ in poll.poll(10):
                client, step = sockets[fd]
                answer = partial.setdefault(fd, bytearray())
                answer += client.recv(1 << 18)
                if not answer:
                    raise ConnectionError("the node closed a connection")
                if len(answer) < 4 or len(answer) < _SIZE.unpack_from(answer)[0] + 4:
                    continue
                now = clock()
                latencies.append(now - sent.pop(fd))
                del partial[fd]
                if now < end:
                    sent[fd] = now
                    client.sendall(step(answer))
    finally:
        poll.close()
        for client, _ in sockets.values():
            client.close()
    return latencies

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
        topic_id = _create_topic(wire)
        kinds: dict[str, Callable[[int], Step]] = {
            "produce": lambda _: _produce_again(topic_id),
            "produce, idempotent": lambda number: _produce_idempotent(topic_id, 1000 + number),
            "fetch of one batch": lambda _: _fetch_next(topic_id),
            "fetch, empty": lambda _: _fetch_nothing(wire, topic_id),
        }
        assert node.process is not None
        for name, make in kinds.items():
            if only is None or only in name:
                steps = [make(number) for number in range(connections)]
                _drive(node.bootstrap_servers, steps, min(seconds, 1.0))  # warm up
                before = cpu_of(node.process.pid)
                started = time.monotonic()
                latencies = _drive(node.bootstrap_servers, steps, seconds)
                took = time.monotonic() - started
                cpu = cpu_of(node.process.pid).since(before)
                latencies.sort()
                count = len(latencies)
                p50, p99 = latencies[count // 2] * 1e6, latencies[count * 99 // 100] * 1e6
                print(Measured(name, count, took, cpu, p50, p99), flush=True)
    return 0


def _create_topic(wire: Wire) -> bytes:
    topic = CreateTopicsRequest.CreatableTopic(name=_TOPIC, num_partitions=1, replication_factor=-1)
    wire.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=_TOPIC)])
    return wire.call(asked, 12, MetadataResponse).topics[0].topic_id


# Requests


def _produce_frame(topic_id: bytes, batch: bytes) -> bytes:
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic = ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[data])
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic])
    return encode_request(request, _PRODUCE_VERSION, 7, "bench")


def _produce_again(topic_id: bytes) -> Step:
    frame = _produce_frame(topic_id, bytes(build_batch([_RECORD])))
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


def _fetch_request(topic_id: bytes, offset: int, session_id: int = 0, epoch: int = -1) -> FetchRequest:
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    topics = [FetchRequest.FetchTopic(topic_id=topic_id, partitions=[wanted])] if offset >= 0 else []
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
    )


_EPOCH_POSITION = 4 + 10 + 5 + 1 + 4 + 4 + 4 + 1 + 4
_OFFSET_POSITION = _EPOCH_POSITION + 4 + 1 + 16 + 1 + 4 + 4


def _fetch_next(topic_id: bytes) -> Step:
    """A consumer in a session: the partition with a new offset in each request."""
    frame = bytearray()
    state = [0, 0]  # epoch, offset
    long = Struct(">q")

    def step(answer: bytearray) -> bytes:
        nonlocal frame
        if not frame:
            if len(answer) < 20:
                return encode_request(_fetch_request(topic_id, 0, 0, 0), _FETCH_VERSION, 7, "bench")
            session_id = _SIZE.unpack_from(answer, 9 + 4 + 2)[0]
            frame = bytearray(encode_request(_fetch_request(topic_id, 0, session_id, 1), _FETCH_VERSION, 7, "bench"))
            state[:] = [0, 0]
        state[0] += 1
        state[1] += 1
        _SIZE.pack_into(frame, _EPOCH_POSITION, state[0])
        long.pack_into(frame, _OFFSET_POSITION, state[1] % 5000)
        return bytes(frame)

    return step


def _fetch_nothing(wire: Wire, topic_id: bytes) -> Step:
    """The same, at the end of the log: nothing new to ask, nothing new to tell."""
    asked = _fetch_request(topic_id, 0, 0, 0)
    asked.max_bytes = 1
    high_watermark = wire.call(asked, _FETCH_VERSION, FetchResponse).responses[0].partitions[0].high_watermark
    opened = wire.call(_fetch_request(topic_id, high_watermark, 0, 0), _FETCH_VERSION, FetchResponse)
    frame = bytearray(encode_request(_fetch_request(topic_id, -1, opened.session_id, 1), _FETCH_VERSION, 7, "bench"))
    epoch = 0

    def step(_: bytearray) -> bytes:
        nonlocal epoch
        epoch += 1
        _SIZE.pack_into(frame, _EPOCH_POSITION, epoch)
        return bytes(frame)

    return step


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

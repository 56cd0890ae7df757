"""Throws requests at a running node and asks after each round whether it is well.

A round is decided by its seed alone, but for what the node answers; the node is a process of its own, so that a crash
is seen, its memory can be measured, and its log read.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import struct
import time
import urllib.request
from collections import Counter
from random import Random
from typing import Any

from tests.fuzz.messages import CASES, MAY_WAIT, TOPICS, Messages
from tests.fuzz.mutate import mutated
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.apis import APIS
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.codec import decode
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.frame import encode_request, read_response_head
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.testing import Broker
from tidelog.testing.wire import Wire

REQUESTS_PER_ROUND = 200
TOPICS_MAX = 60
MEMORY_BYTES_MAX = 400 << 20
NODE = {
    "tidelog.http.listener": "127.0.0.1:0",
    "log.retention.check.interval.ms": "2000",
    "log.retention.bytes": "10485760",
    "log.segment.delete.delay.ms": "1000",
    "group.min.session.timeout.ms": "1",
    "group.max.session.timeout.ms": "5000",
    "num.partitions": "2",
}
_CONFIGS = {
    "fuzz-compact": {"cleanup.policy": "compact"},
    "fuzz-zstd": {"compression.type": "zstd"},
    "fuzz-append-time": {"message.timestamp.type": "LogAppendTime"},
}


class Unwell(AssertionError):
    """The node is not as it should be."""


class Fuzzer:
    def __init__(self, broker: Broker, seed: int) -> None:
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.lag_s_max = 0.0
        self.memory_bytes: list[int] = []
        self._broker = broker
        self._address = broker.bootstrap_servers
        host, _, port = self._address.rpartition(":")
        self._where = host, int(port)
        for topic in TOPICS:
            broker.create_topic(topic, partitions=2, config=_CONFIGS.get(topic))
        self._healthy_topic = broker.create_topic("healthy-client")
        self._healthy = Wire(self._address, timeout_s=20)
        self._written = 0
        self._ids = [topic.topic_id for topic in self._topics() if topic.name in TOPICS]
        self._metrics = re.search(r"http://\S+/metrics", broker.log)

    @property
    def requests(self) -> int:
        return sum(self.counts.values())

    # a round

    def round(self, number: int) -> None:
        random = Random(f"{self.seed}:{number}")
        messages = Messages(random, self._ids)
        way = random.choice((self._valid, self._spoiled, self._spoiled, self._bytes, self._reordered))
        try:
            way(random, messages)
            self._check(number)
        except (Unwell, ConnectionError, TimeoutError) as error:
            text = str(error) if len(str(error)) < 3000 else f"{str(error)[:3000]}..."
            raise Unwell(f"round {number} ({way.__name__}): {type(error).__name__}: {text}\n{self._tail()}") from error

    def every_version(self) -> None:
        """Each API in each version once, as it should be: codecs are compiled, so that memory is compared fairly."""
        random = Random(self.seed)
        messages = Messages(random, self._ids)
        for key, version in CASES:
            self._call(random, messages, key, version)
        self._check(-1)

    def _valid(self, random: Random, messages: Messages) -> None:
        for _ in range(REQUESTS_PER_ROUND // 2):
            self._call(random, messages, *random.choice(CASES))

    def _call(self, random: Random, messages: Messages, key: int, version: int) -> None:
        """A request by the schema is answered by the schema, whatever its values mean; nothing else will do."""
        request: Any = messages.request(key, version)
        frame = self._frame(request, version, 1)
        if frame is None:
            return
        self.counts["valid"] += 1
        with socket.create_connection(self._where, timeout=0.2 if key in MAY_WAIT else 20) as peer:
            peer.sendall(frame)
            if key == 0 and request.acks == 0:
                return
            try:
                answer = _receive(peer)
            except TimeoutError:
                if key in MAY_WAIT:
                    return
                raise Unwell(f"{APIS[key].name} v{version} is not answered: {request}") from None
            except ConnectionError:
                raise Unwell(f"{APIS[key].name} v{version} ended its connection: {request}") from None
        try:
            _, position = read_response_head(key, version, answer)
            decode(APIS[key].response_class(), version, answer[position:])
        except ProtocolError as error:
            raise Unwell(f"{APIS[key].name} v{version}: the answer cannot be read: {error}: {request}") from None

    def _spoiled(self, random: Random, messages: Messages) -> None:
        """Requests changed in a few places, several to a connection, which is made anew when the node ends it."""
        self._throw(random, (mutated(frame, random) for frame in self._frames(random, messages)), "mutated")

    def _reordered(self, random: Random, messages: Messages) -> None:
        """Whole requests, in one stream, in pieces that go out of order or twice."""
        stream = b"".join(frame for frame in self._frames(random, messages))
        pieces = []
        position = 0
        while position < len(stream):
            size = random.choice((1, 3, 50, 700, 5000))
            pieces.append(stream[position : position + size])
            position += size
        for _ in range(random.choice((0, 1, 3))):
            first, second = random.randrange(len(pieces)), random.randrange(len(pieces))
            pieces[first], pieces[second] = pieces[second], pieces[first]
        if random.random() < 0.5:
            pieces.insert(random.randrange(len(pieces)), random.choice(pieces))
        self._throw(random, iter(pieces), "pieces", size=len(pieces))

    def _bytes(self, random: Random, messages: Messages) -> None:
        frames = (
            struct.pack(">i", size) + random.randbytes(size) if random.random() < 0.7 else random.randbytes(size)
            for size in (random.choice((0, 1, 4, 10, 50, 300, 3000)) for _ in range(REQUESTS_PER_ROUND))
        )
        self._throw(random, frames, "random")

    def _frames(self, random: Random, messages: Messages) -> list[bytes]:
        made = (self._frame(messages.request(*case), case[1], random.randrange(1000)) for case in _cases(random))
        return [frame for frame in made if frame is not None]

    @staticmethod
    def _frame(request: Any, version: int, correlation_id: int) -> bytes | None:
        try:
            return encode_request(request, version, correlation_id, "fuzz")
        except ValueError:  # a field that this version cannot say
            return None

    def _throw(self, random: Random, data: Any, kind: str, size: int = REQUESTS_PER_ROUND) -> None:
        peer: socket.socket | None = None
        reads = random.random() < 0.8
        per_connection = random.choice((1, 5, 50, size))
        for number, piece in enumerate(data):
            self.counts[kind] += 1
            if peer is None or number % per_connection == 0:
                _end(peer, random)
                peer = socket.create_connection(self._where, timeout=5)
            try:
                for part in _split(piece, random):
                    peer.sendall(part)
                if reads:
                    _drain(peer)
            except TimeoutError:
                peer = _end(peer, random)  # not read any more, because we read nothing: that is its right
            except OSError:
                peer = _end(peer, random)
        _end(peer, random)

    # is it well?

    def _check(self, number: int) -> None:
        process = self._broker._process
        if process is None or process.poll() is not None:
            raise Unwell("the node has ended")
        self._produce_and_fetch()
        log = self._broker.log
        if "Traceback" in log or "CRITICAL" in log:
            raise Unwell("the node's log shows a bug")
        if number % 10 == 0:
            self._tidy()
            self._measure(process.pid)

    def _produce_and_fetch(self) -> None:
        value = f"still here {self._written}".encode()
        data = ProduceRequest.PartitionProduceData(
            index=0, records=bytes(build_batch([RecordInput(None, value, int(time.time() * 1000))]))
        )
        named = ProduceRequest.TopicProduceData(name=self._healthy_topic, partition_data=[data])
        answer = self._healthy.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[named]), 9, ProduceResponse)
        produced = answer.responses[0].partition_responses[0]
        if (produced.error_code, produced.base_offset) != (ErrorCode.NONE, self._written):
            raise Unwell(f"a healthy client's record: {produced}, expected offset {self._written}")
        wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=self._written, partition_max_bytes=1 << 20)
        self._written += 1
        topic = FetchRequest.FetchTopic(topic=self._healthy_topic, partitions=[wanted])
        fetched = self._healthy.call(FetchRequest(max_wait_ms=5000, min_bytes=1, topics=[topic]), 11, FetchResponse)
        if value not in bytes(fetched.responses[0].partitions[0].records or b""):
            raise Unwell(f"a healthy client does not get its record: {fetched}")

    def _topics(self) -> list[MetadataResponse.MetadataResponseTopic]:
        return self._healthy.call(MetadataRequest(topics=None), 12, MetadataResponse).topics

    def _tidy(self) -> None:
        """Topics that the requests made, or deleted, are put right: this is no test of how many topics there may be."""
        found = {topic.name for topic in self._topics() if topic.name is not None}
        extra = sorted(found - set(TOPICS) - {self._healthy_topic} - {"__consumer_offsets", "__transaction_state"})
        if len(extra) > TOPICS_MAX:
            names = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in extra]
            self._healthy.call(DeleteTopicsRequest(topics=names, timeout_ms=5000), 6, DeleteTopicsResponse)
        for name in sorted(set(TOPICS) - found):
            with contextlib.suppress(RuntimeError):  # a request on its way was faster
                self._broker.create_topic(name, partitions=2, config=_CONFIGS.get(name))
        self._ids = [topic.topic_id for topic in self._topics() if topic.name in TOPICS]

    def _measure(self, pid: int) -> None:
        self.memory_bytes.append(private_bytes(pid))
        if self.memory_bytes[-1] > MEMORY_BYTES_MAX:
            raise Unwell(f"the node holds {self.memory_bytes[-1] >> 20} MB")
        if self._metrics is not None:
            with urllib.request.urlopen(self._metrics[0], timeout=20) as page:
                text = page.read().decode()
            lag = re.search(r"^tidelog_loop_lag_seconds (\S+)$", text, re.MULTILINE)
            assert lag is not None
            self.lag_s_max = max(self.lag_s_max, float(lag[1]))

    def _tail(self) -> str:
        return "\n".join(self._broker.log.splitlines()[-40:])

    def close(self) -> None:
        self._healthy.close()


def private_bytes(pid: int) -> int:
    """What would be free if the process ended: shared libraries and files do not count."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Private_"))


def _cases(random: Random) -> list[tuple[int, int]]:
    return [random.choice(CASES) for _ in range(REQUESTS_PER_ROUND)]


def _split(data: bytes, random: Random) -> list[bytes]:
    if random.random() < 0.8 or len(data) < 2:
        return [data]
    cut = random.randrange(1, len(data))
    return [data[:cut], data[cut:]]


def _receive(peer: socket.socket) -> bytes:
    def exactly(size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = peer.recv(size - len(parts))
            if not part:
                raise ConnectionError("the connection ended")
            parts += part
        return bytes(parts)

    return exactly(int.from_bytes(exactly(4), "big"))


def _drain(peer: socket.socket) -> None:
    while select.select([peer], [], [], 0)[0]:
        if not peer.recv(1 << 16):
            raise ConnectionError("the connection ended")


def _end(peer: socket.socket | None, random: Random) -> None:
    if peer is not None:
        if random.random() < 0.3:  # with a reset
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()


def run(seed: int, *, seconds: float | None = None, rounds: int | None = None, first: int = 0) -> Fuzzer:
    """Until the time is up or so many rounds were run. Raises Unwell with the round that did it."""
    started_s = time.monotonic()
    with Broker(NODE, process=True) as broker:
        fuzzer = Fuzzer(broker, seed)
        try:
            fuzzer.every_version()
            number = first
            while rounds is None or number < first + rounds:
                if seconds is not None and time.monotonic() - started_s > seconds:
                    break
                fuzzer.round(number)
                number += 1
        except Unwell as error:
            raise Unwell(f"{error}\nagain: ./dev fuzz --seed {seed}") from error
        finally:
            fuzzer.close()
        if broker._process is None or broker._process.poll() is not None:
            raise Unwell(f"the node has ended\nagain: ./dev fuzz --seed {seed}")
    return fuzzer

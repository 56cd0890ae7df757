"""A cold scan beside readers at the tail: what it does to their waiting.

The tail is one producer and one reader with a fetch under way, in one thread: each time is from sending one record to
having it. The scan reads an old topic from end to end, again and again, in a process of its own; before each pass its
files are dropped from memory (`posix_fadvise`), or not, which shows what is due to the bytes alone; or it reads them
from a node of its own, which shows what is due to the machine's cores and caches, and to no loop.
Phases take turns, and the ratio is that of the medians of their p99."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

from bench.cpu import cpu_of
from bench.tidelog_node import TidelogNode
from tidelog.protocol.batch import RecordInput, build_batch, iter_headers
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.testing.wire import Wire

_BATCH_BYTES = 100_000
_FETCH_BYTES = 1 << 20
_ROUNDS = 5
ELSEWHERE = "scan of another node"


class Phase(NamedTuple):
    p50_us: float
    p99_us: float
    scanned_mb_s: float
    node_cpu: float

    def __str__(self) -> str:
        scan = f"   scan {self.scanned_mb_s:6.0f} MB/s" if self.scanned_mb_s else ""
        return f"p50 {self.p50_us:6.0f} µs  p99 {self.p99_us:6.0f} µs   node {self.node_cpu:4.0%} of a core{scan}"


def run_cold(size: int, seconds: float) -> int:
    """Print each phase, then the ratios."""
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-", dir=os.environ.get("TIDELOG_BENCH_DIR")) as home:
        data = Path(home) / "data"
        properties = {"tidelog.sync.mode": "page-cache", "log.segment.bytes": str(128 << 20)}
        other = Path(home) / "other"
        with TidelogNode(data, properties=properties) as node, TidelogNode(other, properties=properties) as elsewhere:
            for each in (node, elsewhere):
                with Wire(each.bootstrap_servers) as wire:
                    _create(wire, "old")
                    _create(wire, "tail")
                    batches = _fill(wire, size)
            print(f"{batches * _BATCH_BYTES / 1e9:.1f} GB in the old topic", flush=True)
            tail = _Tail(node)
            tail.measure(1.0)
            found: dict[str, list[Phase]] = {"alone": [], ELSEWHERE: [], "warm scan": [], "cold scan": []}
            for _ in range(_ROUNDS):
                for name, phases in found.items():
                    scanned_node, home_of = (elsewhere, other) if name == ELSEWHERE else (node, data)
                    with _scanning(scanned_node, home_of / "old-0", name) as scanned:
                        phases.append(tail.measure(seconds, scanned))
                    print(f"{name:22} {phases[-1]}", flush=True)
    p99 = {name: statistics.median(phase.p99_us for phase in phases) for name, phases in found.items()}
    for name in (ELSEWHERE, "warm scan", "cold scan"):
        print(f"p99 beside a {name}: {p99[name] / p99['alone']:.2f} x that alone ({p99['alone']:.0f} µs)")
    for name in ("warm scan", "cold scan"):
        print(f"{name} against a scan of another node: {p99[name] / p99[ELSEWHERE]:.2f} x")
    return 0


def _create(wire: Wire, topic: str) -> None:
    made = CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=-1)
    wire.call(CreateTopicsRequest(topics=[made]), 7, CreateTopicsResponse)


def _produce(topic: str, batch: bytes) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[named])


def _fetch(topic: str, offset: int, max_wait_ms: int) -> FetchRequest:
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
    named = FetchRequest.FetchTopic(topic=topic, partitions=[wanted])
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 30, topics=[named])


def _fill(wire: Wire, size: int) -> int:
    batch = bytes(build_batch([RecordInput(None, os.urandom(_BATCH_BYTES), 1)]))
    count = max(size // _BATCH_BYTES, 1)
    for _ in range(count):
        answer = wire.call(_produce("old", batch), 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0
    return count


class _Tail:
    """The reader's fetch is under way before the record is sent."""

    def __init__(self, node: TidelogNode) -> None:
        self._producer, self._reader = Wire(node.bootstrap_servers), Wire(node.bootstrap_servers)
        self._node = node
        self._batch = bytes(build_batch([RecordInput(None, bytes(100), 1)]))
        self._offset = 0

    def measure(self, seconds: float, scanned: _Counter | None = None) -> Phase:
        assert self._node.process is not None
        times: list[float] = []
        before, cpu, start = scanned.value if scanned else 0, cpu_of(self._node.process.pid), time.monotonic()
        while time.monotonic() - start < seconds:
            self._reader.send(_fetch("tail", self._offset, 30_000), 11)
            time.sleep(0.001)  # a record every millisecond or two: the node is not busy with them
            sent = time.perf_counter()
            self._producer.send(_produce("tail", self._batch), 9)
            answer = self._reader.receive(FetchResponse, 11)
            times.append(time.perf_counter() - sent)
            assert answer.responses[0].partitions[0].records
            self._offset += 1
            self._producer.receive(ProduceResponse, 9)
        took = time.monotonic() - start
        used = cpu_of(self._node.process.pid).since(cpu)
        times.sort()
        mb_s = (scanned.value - before) / 1e6 / took if scanned else 0.0
        return Phase(times[len(times) // 2] * 1e6, times[len(times) * 99 // 100] * 1e6, mb_s, sum(used) / took)


class _Counter:
    """Bytes that the scan has had."""

    def __init__(self) -> None:
        self._shared = multiprocessing.get_context("spawn").Value("q", 0)

    @property
    def value(self) -> int:
        return int(self._shared.value)

    def add(self, count: int) -> None:
        self._shared.value += count


@contextmanager
def _scanning(node: TidelogNode, directory: Path, kind: str) -> Iterator[_Counter | None]:
    if kind == "alone":
        yield None
        return
    context = multiprocessing.get_context("spawn")
    counter, stop = _Counter(), context.Event()
    _drop(directory, is_cold=kind == "cold scan")
    scan = context.Process(
        target=_scan, args=(node.bootstrap_servers, directory, kind == "cold scan", counter, stop), daemon=True
    )
    scan.start()
    try:
        while counter.value == 0 and scan.is_alive():
            time.sleep(0.01)
        yield counter
    finally:
        stop.set()
        scan.join(60)


def _scan(address: str, directory: Path, is_cold: bool, counter: _Counter, stop: Event) -> None:
    os.nice(10)  # on two cores the readers at the tail would wait for this process, not for the node
    while not stop.is_set():
        _drop(directory, is_cold=is_cold)
        with Wire(address) as wire:
            offset = 0
            while not stop.is_set():
                answer = wire.call(_fetch("old", offset, 0), 11, FetchResponse)
                records = answer.responses[0].partitions[0].records
                if not records:
                    break
                counter.add(len(records))
                for _, header in iter_headers(records):
                    offset = header.next_offset


def _drop(directory: Path, *, is_cold: bool) -> None:
    """From memory, once all of it is on the disk."""
    for path in directory.glob("*"):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            if is_cold:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)

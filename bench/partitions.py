"""`./dev bench partitions`: what 1 to 10,000 partitions cost: create, write and read all, metrics, stop, start.

The node has a process and 4,096 descriptors of its own. A third process asks it a small question every two
milliseconds; the longest wait for an answer within a step is the worst that another client would have felt.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.cpu import cpu_of, private_mb
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.testing.wire import Wire

FILES_MAX = 4096
_TOPIC = "bench"
_VALUE = b"x" * 100


class Step(NamedTuple):
    partitions: int
    step: str
    seconds: float
    cpu_s: float
    private_mb: float
    descriptors: int
    worst_wait_ms: float


class Node:
    """A node in a process of its own, over a directory that outlives it."""

    def __init__(self, directory: Path, mode: str) -> None:
        command = [sys.executable, "-m", "tidelog", "serve", "--data", str(directory), "--listen", "127.0.0.1:0"]
        for setting in ("tidelog.http.listener=127.0.0.1:0", f"tidelog.sync.mode={mode}"):
            command += ["--override", setting]
        started = time.monotonic()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=_limit_files)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("tidelog is ready on "):
            raise RuntimeError(f"Tidelog did not start: {line}")
        self.start_s = time.monotonic() - started
        self.address = line.split(" ")[4].rstrip(",")
        self.metrics_url = line.rsplit(" ", 1)[1].strip()

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(300)
        assert self.process.stdout is not None
        self.process.stdout.close()


def _limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX))


def descriptors_of(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _ask_for_ever(address: str, worst_ms: Any) -> None:
    with Wire(address, timeout_s=300) as wire:
        while True:
            started = time.monotonic()
            wire.call(ApiVersionsRequest(), 0, ApiVersionsResponse)
            worst_ms.value = max(worst_ms.value, (time.monotonic() - started) * 1000)
            time.sleep(0.002)


class Bench:
    def __init__(self, node: Node, count: int, steps: list[Step]) -> None:
        self.node = node
        self._count = count
        self._steps = steps
        self._worst_ms = multiprocessing.get_context("spawn").Value("d", 0.0)

    @contextmanager
    def asking(self) -> Iterator[None]:
        asker = multiprocessing.get_context("spawn").Process(
            target=_ask_for_ever, args=(self.node.address, self._worst_ms), daemon=True
        )
        asker.start()
        while not self._worst_ms.value:
            time.sleep(0.01)
        try:
            yield
        finally:
            asker.kill()
            asker.join()

    def step(self, name: str, action: Callable[[], object]) -> None:
        pid = self.node.process.pid
        time.sleep(0.05)
        self._worst_ms.value = 0.0
        cpu, started = cpu_of(pid), time.monotonic()
        action()
        seconds = time.monotonic() - started
        time.sleep(0.05)
        spent = cpu_of(pid).since(cpu)
        self.add(name, seconds, sum(spent), self._worst_ms.value)

    def add(self, name: str, seconds: float, cpu_s: float, worst_ms: float = 0.0) -> None:
        pid = self.node.process.pid
        step = Step(self._count, name, seconds, cpu_s, private_mb(pid), descriptors_of(pid), worst_ms)
        self._steps.append(step)
        print(_row(step), flush=True)


def create(wire: Wire, count: int, topic: str = _TOPIC) -> None:
    shape = CreateTopicsRequest.CreatableTopic
    request = CreateTopicsRequest(
        topics=[shape(name=topic, num_partitions=count, replication_factor=1)], timeout_ms=60_000
    )
    answer = wire.call(request, 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message


def produce(wire: Wire, count: int, *, per_request: int, acks: int = -1, topic: str = _TOPIC) -> None:
    batch = bytes(build_batch([RecordInput(None, _VALUE, int(time.time() * 1000))]))
    for start in range(0, count, per_request):
        data = [
            ProduceRequest.PartitionProduceData(index=index, records=batch)
            for index in range(start, min(start + per_request, count))
        ]
        topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=data)]
        answer = wire.call(ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=topics), 9, ProduceResponse)
        codes = {partition.error_code for partition in answer.responses[0].partition_responses}
        assert codes == {0}, codes


def fetch(wire: Wire, count: int, *, per_request: int, offset: int = 0, topic: str = _TOPIC) -> int:
    """How many partitions had records."""
    found = 0
    for start in range(0, count, per_request):
        wanted = [
            FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=4096)
            for index in range(start, min(start + per_request, count))
        ]
        request = FetchRequest(
            max_wait_ms=5000,
            min_bytes=1,
            max_bytes=1 << 28,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=wanted)],
        )
        answer = wire.call(request, 12, FetchResponse)
        for partition in answer.responses[0].partitions:
            assert partition.error_code == 0, partition.error_code
            found += bool(partition.records)
    return found


def fetch_by_session(wire: Wire, count: int) -> None:
    """A full fetch that opens a session, then ten that name nothing: what a consumer of all partitions does."""
    wanted = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=1, partition_max_bytes=4096) for index in range(count)
    ]
    topics = [FetchRequest.FetchTopic(topic=_TOPIC, partitions=wanted)]
    first = wire.call(FetchRequest(session_epoch=0, topics=topics), 12, FetchResponse)
    assert first.session_id
    for epoch in range(1, 11):
        request = FetchRequest(session_id=first.session_id, session_epoch=epoch, max_wait_ms=1, min_bytes=1)
        wire.call(request, 12, FetchResponse)


def scrape(url: str) -> int:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return len(answer.read())


def run_partitions(counts: list[int], mode: str, json_path: str | None) -> int:
    steps: list[Step] = []
    print(f"mode {mode}, {FILES_MAX} descriptors; seconds are wall time, CPU is the node's, user and system")
    print(f"{'partitions':>10}  {'step':26}{'seconds':>9}{'CPU s':>8}{'MB':>7}{'files':>7}{'worst wait ms':>15}")
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as home:
            _measure(Path(home), count, mode, steps)
    if json_path is not None:
        Path(json_path).write_text(json.dumps([step._asdict() for step in steps], indent=1))
    return 0


def _measure(home: Path, count: int, mode: str, steps: list[Step]) -> None:
    node = Node(home, mode)
    bench = Bench(node, count, steps)
    try:
        bench.add("start, empty", node.start_s, sum(cpu_of(node.process.pid)))
        with bench.asking(), Wire(node.address, timeout_s=300) as wire:
            _work(bench, wire, count)
        started = time.monotonic()
        node.end(signal.SIGTERM)
        bench.add("clean stop", time.monotonic() - started, 0.0)
        bench.node = node = Node(home, mode)
        bench.add("start after a clean stop", node.start_s, sum(cpu_of(node.process.pid)))
        with Wire(node.address, timeout_s=300) as wire:
            produce(wire, count, per_request=500)
        node.end(signal.SIGKILL)
        bench.node = node = Node(home, mode)
        bench.add("start after kill -9", node.start_s, sum(cpu_of(node.process.pid)))
        with Wire(node.address, timeout_s=300) as wire:
            assert fetch(wire, count, per_request=500, offset=1) == count
    finally:
        if node.process.poll() is None:
            node.end(signal.SIGKILL)


def _work(bench: Bench, wire: Wire, count: int) -> None:
    bench.step("create", lambda: create(wire, count))
    bench.step("metadata, first", lambda: wire.call(MetadataRequest(topics=None), 12, MetadataResponse))
    bench.step("metadata, cached", lambda: wire.call(MetadataRequest(topics=None), 12, MetadataResponse))
    bench.step("produce, 100 a request", lambda: produce(wire, count, per_request=100))
    bench.step("fetch, 100 a request", lambda: fetch(wire, count, per_request=100))
    bench.step("produce, one request", lambda: produce(wire, count, per_request=count))
    bench.step("fetch, one request", lambda: fetch(wire, count, per_request=count))
    bench.step("fetch session, 10 rounds", lambda: fetch_by_session(wire, count))
    bench.step("metrics", lambda: scrape(bench.node.metrics_url))


def _row(step: Step) -> str:
    return (
        f"{step.partitions:10}  {step.step:26}{step.seconds:9.3f}{step.cpu_s:8.2f}{step.private_mb:7.0f}"
        f"{step.descriptors:7}{step.worst_wait_ms:15.1f}"
    )

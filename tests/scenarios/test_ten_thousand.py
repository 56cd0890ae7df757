"""10,000 partitions on one node, all of them written and read: within 4,096 descriptors and 400 MB of private memory,
in both sync modes, with others served meanwhile, and again after a kill and after a clean stop."""

from __future__ import annotations

import re
import shutil
import signal
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.cpu import private_mb
from bench.partitions import Node, create, descriptors_of, fetch, produce
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.testing.wire import Wire

PARTITIONS = 10_000
PRIVATE_MB_MAX = 400
DESCRIPTORS_MAX = 4096

pytestmark = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="asks /proc for memory and files")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is room: 60,000 small files are minutes of work for a disk that others use too, and
    nothing here depends on it."""
    memory = Path("/dev/shm")
    has_room = memory.is_dir() and shutil.disk_usage(memory).free > 1 << 30
    with tempfile.TemporaryDirectory(prefix="tidelog-", dir=memory if has_room else tmp_path) as home:
        yield Path(home)


def answered_during(node: Node, action: Callable[[], object]) -> int:
    """How many questions of somebody else were answered meanwhile, one after the other."""
    is_over = threading.Event()
    answered = 0

    def ask() -> None:
        nonlocal answered
        with Wire(node.address, timeout_s=120) as wire:
            while not is_over.wait(0.002):
                wire.call(ApiVersionsRequest(), 0, ApiVersionsResponse)
                answered += 1

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        action()
    finally:
        is_over.set()
        thread.join()
    return answered


def page(node: Node) -> str:
    with urllib.request.urlopen(node.metrics_url, timeout=120) as answer:
        text: str = answer.read().decode()
    return text


def write_and_read_all(node: Node, wire: Wire, offset: int) -> None:
    produce(wire, PARTITIONS, per_request=500)
    assert fetch(wire, PARTITIONS, per_request=500, offset=offset) == PARTITIONS
    assert private_mb(node.process.pid) < PRIVATE_MB_MAX
    assert descriptors_of(node.process.pid) < DESCRIPTORS_MAX


@pytest.mark.timeout(300)
def test_ten_thousand_partitions(home: Path) -> None:
    node = Node(home, "synced")
    try:
        with Wire(node.address, timeout_s=120) as wire:
            others = answered_during(node, lambda: create(wire, PARTITIONS))
            assert others > 100, "16 partitions are made, then others have their turn"
            write_and_read_all(node, wire, 0)
            found: list[str] = []
            assert answered_during(node, lambda: found.append(page(node))) > 10
            offsets = re.findall(r"^kafka_topic_partition_current_offset\{.*\} (\d+)$", found[0], re.MULTILINE)
            assert offsets == ["1"] * PARTITIONS
            assert private_mb(node.process.pid) < PRIVATE_MB_MAX

        node.end(signal.SIGKILL)
        node = Node(home, "page-cache")
        with Wire(node.address, timeout_s=120) as wire:
            assert fetch(wire, PARTITIONS, per_request=500) == PARTITIONS
            write_and_read_all(node, wire, 1)
            produce(wire, PARTITIONS, per_request=PARTITIONS, acks=1)
            assert fetch(wire, PARTITIONS, per_request=PARTITIONS, offset=2) == PARTITIONS
            assert private_mb(node.process.pid) < PRIVATE_MB_MAX

        node.end(signal.SIGTERM)
        assert node.process.returncode == 0
        node = Node(home, "synced")
        with Wire(node.address, timeout_s=120) as wire:
            assert fetch(wire, PARTITIONS, per_request=PARTITIONS, offset=2) == PARTITIONS
        assert private_mb(node.process.pid) < PRIVATE_MB_MAX
        assert descriptors_of(node.process.pid) < DESCRIPTORS_MAX
    finally:
        if node.process.poll() is None:
            node.end(signal.SIGKILL)

"""A log that is no longer in memory, read through a real node from a real disk: the loop never waits for the disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.test_damage import offset_for
from tidelog.protocol.batch import RecordInput, build_batch, iter_headers, read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.runtime.disk import OsFile
from tidelog.testing import Broker
from tidelog.testing.wire import Wire

pytestmark = pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system cannot tell what is in memory")
BATCHES = 160


def produce(wire: Wire, number: int) -> None:
    batch = build_batch([RecordInput(None, number.to_bytes(4, "big") + os.urandom(50_000), 1000 + number)])
    data = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
    named = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    answer = wire.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[named]), 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def fetch(wire: Wire, offset: int, max_bytes: int) -> bytes:
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topic = FetchRequest.FetchTopic(topic="t", partitions=[wanted])
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 30, topics=[topic])
    (data,) = wire.call(request, 11, FetchResponse).responses[0].partitions
    assert data.error_code == ErrorCode.NONE
    return bytes(data.records or b"")


def drop(directory: Path) -> bool:
    """Drop the files from memory; False while some page of them is held there."""
    for path in directory.iterdir():
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
    path = sorted(directory.glob("*.log"))[0]
    fd = os.open(path, os.O_RDONLY)
    try:
        os.preadv(fd, [bytearray(100)], path.stat().st_size // 2, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def make_cold(directory: Path) -> None:
    """The system may be at work on a page and keep it; one that always does has its files in memory."""
    if not any(drop(directory) for _ in range(200)):
        pytest.skip("this file system keeps its files in memory")


class Reads:
    """The reads of the partition's files in the node: how often the loop was told to read elsewhere, and who read in a
    way that could wait."""

    def __init__(self) -> None:
        self.refused = 0
        self.blocking: list[str] = []


@pytest.fixture(params=["as the disk says", "each place refused once"])
def reads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    """A disk may be quick enough to have brought the bytes before the system looks whether they are there (a virtual
    one on a busy host is, at times): it never says that they are cold. So the first refusal of each place is made here
    as well."""
    found, seen = Reads(), set[tuple[str, int]]()
    is_made = request.param == "each place refused once"
    read, read_now = OsFile.read, OsFile.read_now

    def watched(self: OsFile, position: int, length: int) -> bytes:
        if "/t-0/" in self.path:
            found.blocking.append(f"{threading.current_thread().name}: {length} bytes at {position} of {self.path}")
        return read(self, position, length)

    def watched_now(self: OsFile, position: int, length: int) -> bytes | memoryview | None:
        is_first = "/t-0/" in self.path and (self.path, position) not in seen
        seen.add((self.path, position))
        data = None if is_made and is_first else read_now(self, position, length)
        found.refused += data is None
        return data

    monkeypatch.setattr(OsFile, "read", watched)
    monkeypatch.setattr(OsFile, "read_now", watched_now)
    yield found


def test_readers_of_a_cold_log_never_stop_the_loop(tmp_path: Path, reads: Reads) -> None:
    config = {"log.segment.bytes": str(1 << 20)}
    with Broker(config, data=tmp_path) as broker:
        broker.create_topic("t")
        with Wire(broker.bootstrap_servers) as wire:
            for number in range(BATCHES):
                produce(wire, number)
    with Broker(config, data=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        assert broker._node is not None
        cold = broker._node.services.cold_reads
        make_cold(tmp_path / "t-0")
        reads.blocking.clear()
        brought, reads.refused = cold.reads, 0
        # Here and there, so that nothing was read ahead; then from end to end.
        for offset in range(0, BATCHES, 19):
            assert read_header(fetch(wire, offset, 1000)).base_offset == offset
        assert (cold.reads > brought) == (reads.refused > 0)
        make_cold(tmp_path / "t-0")
        for offset in (1, 50, 140):
            assert offset_for(wire, "t", 1000 + offset) == (ErrorCode.NONE, offset)
        make_cold(tmp_path / "t-0")
        offset = 0
        while offset < BATCHES:
            data = fetch(wire, offset, 1 << 20)
            for position, header in iter_headers(data):
                assert header.base_offset == offset
                assert data[position + 61 + 8 :].find(offset.to_bytes(4, "big"), 0, 16) >= 0
                offset = header.next_offset
        assert (cold.reads > brought) == (reads.refused > 0)
        assert reads.blocking == []
        if not reads.refused:
            pytest.skip("this disk had brought every byte before the system looked for it")

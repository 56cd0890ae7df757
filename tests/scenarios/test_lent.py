"""Large answers that go from the file to the socket: the bytes of the log in order, whoever is slow, whatever goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.scenarios.test_cold import fetch, produce
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.runtime.disk import OsFile
from tidelog.runtime.sending import CAN_SEND
from tidelog.testing import Broker
from tidelog.testing.wire import Wire

pytestmark = pytest.mark.skipif(not (CAN_SEND and hasattr(os, "RWF_NOWAIT")), reason="no sendfile here")


def request(offset: int = 0) -> FetchRequest:
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=8 << 20)
    topic = FetchRequest.FetchTopic(topic="t", partitions=[wanted])
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 30, topics=[topic])


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes were lent, each time."""
    sizes: list[int] = []
    lend = OsFile.lend

    def count(file: OsFile, position: int, length: int) -> object:
        found = lend(file, position, length)
        if found is not None:
            sizes.append(length)
        return found

    monkeypatch.setattr(OsFile, "lend", count)
    return sizes


def test_a_slow_reader_gets_the_bytes_of_a_topic_that_is_deleted_meanwhile(tmp_path: Path, lent: list[int]) -> None:
    with Broker(data=tmp_path) as broker:
        broker.create_topic("t")
        with Wire(broker.bootstrap_servers) as wire, Wire(broker.bootstrap_servers) as other:
            for number in range(100):
                produce(wire, number)
            (path,) = tmp_path.glob("t-0/*.log")
            written = path.read_bytes()
            wire.send(request(), 11)
            wire.send(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
            wire.send(request(offset=90), 11)
            assert fetch(other, 99, 1000)[-1000:] == written[-1000:], "nobody waits for the slow one"
            deletion = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
            assert other.call(deletion, 4, DeleteTopicsResponse).responses[0].error_code == ErrorCode.NONE
            assert not path.exists()
            (data,) = wire.receive(FetchResponse, 11).responses[0].partitions
            assert bytes(data.records or b"") == written
            assert wire.receive(ApiVersionsResponse, 3).api_keys
            (data,) = wire.receive(FetchResponse, 11).responses[0].partitions
    assert max(lent) == len(written) > 4 << 20


def test_what_an_earlier_run_wrote_is_checked_first_and_lent_then(tmp_path: Path, lent: list[int]) -> None:
    with Broker(data=tmp_path) as broker:
        broker.create_topic("t")
        with Wire(broker.bootstrap_servers) as wire:
            for number in range(20):
                produce(wire, number)
    with Broker(data=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        first = fetch(wire, 0, 500_000)
        assert not lent
        assert fetch(wire, 0, len(first)) == first
        assert lent == [len(first)]

"""Readers of committed records: where they stop, what they are told was aborted, and what wakes them."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.transacting import FakeVerifier, batch, end, fetch, partition_of, produce
from tests.unit.broker.virtual import Peer, on_node
from tidelog.protocol.batch import TRANSACTIONAL, iter_headers
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.testing.simulation import SimulatedWorld


async def start(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    await peer.create_topic("t")
    FakeVerifier(world.node)


def send(peer: Peer, producer_id: int = 5, sequence: int = 0, *, attributes: int = TRANSACTIONAL) -> int:
    transactional_id = "id" if attributes else None
    asked = produce(batch(producer_id, sequence=sequence, attributes=attributes), transactional_id=transactional_id)
    peer.send(asked, 11)
    answer = peer.receive(ProduceResponse).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NONE
    return answer.base_offset


class Read:
    def __init__(self, answer: FetchResponse) -> None:
        data = answer.responses[0].partitions[0]
        assert data.error_code == ErrorCode.NONE
        self.offsets = [header.base_offset for _, header in iter_headers(data.records or b"")]
        self.stable = data.last_stable_offset
        self.high_watermark = data.high_watermark
        listed = data.aborted_transactions
        self.aborted = None if listed is None else [(one.producer_id, one.first_offset) for one in listed]


def read(peer: Peer, offset: int, *, committed: bool = True, version: int = 11) -> Read:
    peer.send(fetch(offset, committed=committed), version)
    return Read(peer.receive(FetchResponse))


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_tells_what_was_aborted(version: int) -> None:
    async def scenario(world: SimulatedWorld, peer: Peer) -> None:
        assert world.node is not None
        await start(world, peer)
        send(peer, 5)
        send(peer, 6)
        end(world.node, 5, commit=False)
        send(peer, 6, 1)
        for _ in range(3):  # the short way from the second on
            found = read(peer, 0, version=version)
            assert (found.offsets, found.aborted, found.stable, found.high_watermark) == ([0], [(5, 0)], 1, 4)
            found = read(peer, 0, committed=False, version=version)
            assert (found.offsets, found.aborted, found.stable) == ([0, 1, 2, 3], None, 1)
        end(world.node, 6, commit=True)
        for _ in range(3):
            found = read(peer, 0, version=version)
            assert (found.offsets, found.aborted, found.stable) == ([0, 1, 2, 3, 4], [(5, 0)], 5)
            found = read(peer, 3, version=version)
            assert (found.offsets, found.aborted, found.stable) == ([3, 4], [], 5)

    on_node(scenario)()


async def an_open_transaction_does_not_wake_who_may_not_read_it(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    await start(world, peer)
    readers = [Peer(world.node) for _ in range(2)]
    send(peer, 9, attributes=0)
    for _ in range(2):  # this one waits the short way
        readers[1].send(fetch(0, wait_ms=60_000), 11)
        assert Read(readers[1].receive(FetchResponse)).offsets == [0]
    for one in readers:
        one.send(fetch(1, wait_ms=60_000), 11)
    send(peer)
    send(peer, sequence=1)
    await asyncio.sleep(1)
    assert not any(one.has_answer for one in readers)
    end(world.node, commit=True)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for one in readers:
        found = Read(one.receive(FetchResponse))
        assert (found.offsets, found.stable) == ([1, 2, 3], 4)


async def what_was_held_back_counts_however_many_bytes_are_asked_for(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    await start(world, peer)
    for number in range(3):
        send(peer, 9, number, attributes=0)
    send(peer)
    readers = [Peer(world.node) for _ in range(2)]
    for _ in range(2):  # the second waits the short way
        readers[1].send(fetch(0, wait_ms=60_000, min_bytes=100), 11)
        assert Read(readers[1].receive(FetchResponse)).offsets == [0, 1, 2]
    for one in readers:
        one.send(fetch(3, wait_ms=60_000, min_bytes=100), 11)
    await asyncio.sleep(1)
    assert not any(one.has_answer for one in readers)
    end(world.node, commit=True)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for one in readers:
        assert Read(one.receive(FetchResponse)).offsets == [3, 4]


async def a_marker_counts_when_it_is_synced(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    await peer.create_topic("t")
    FakeVerifier(world.node)
    await peer.call(produce(batch()), 11, ProduceResponse)
    world.disk.faults.sync_delay_s = 0.5
    codes = end(world.node, commit=True)
    partition = partition_of(world.node)
    assert codes == [] and partition.last_stable_offset == 0
    await asyncio.sleep(0.4)
    assert codes == [] and (partition.high_watermark, partition.last_stable_offset) == (1, 0)
    await asyncio.sleep(0.2)
    assert codes == [ErrorCode.NONE]
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)


async def latest_is_the_last_stable_offset(world: SimulatedWorld, peer: Peer) -> None:
    await start(world, peer)
    send(peer, 9, attributes=0)
    send(peer)

    async def latest(isolation: int) -> int:
        wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
        topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted])
        answer = await peer.call(ListOffsetsRequest(isolation_level=isolation, topics=[topic]), 4, ListOffsetsResponse)
        return answer.topics[0].partitions[0].offset

    assert (await latest(0), await latest(1)) == (2, 1)


async def markers_are_refused_with_kafkas_codes(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    await start(world, peer)
    send(peer)
    assert end(world.node, commit=True, version=2) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert end(world.node, commit=True, epoch=1, version=2) == [ErrorCode.NONE]
    assert end(world.node, commit=True, epoch=1, version=2) == [ErrorCode.NONE]
    partition = partition_of(world.node)
    assert partition.log.log_end_offset == 2, "the second is known, and not written again"
    partition.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert end(world.node, commit=True, epoch=2, version=2) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def who_is_told_of_markers_hears_of_each_once(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    await start(world, peer)
    send(peer)
    partition = partition_of(world.node)
    heard: list[tuple[int, bool]] = []
    partition.when_marked = lambda marker: heard.append((marker.producer_id, marker.committed))
    end(world.node, commit=True, epoch=1, version=2)
    end(world.node, commit=True, epoch=1, version=2)
    end(world.node, commit=False, epoch=0)
    assert heard == [(5, True)]


async def an_index_that_became_unreadable_hides_nothing(world: SimulatedWorld, peer: Peer) -> None:
    """Rather an error than aborted records that look like good ones."""
    assert world.node is not None
    await start(world, peer)
    send(peer)
    end(world.node, commit=False)
    log = partition_of(world.node).log
    log.roll(1)
    index = log.segments[0].aborted
    assert index is not None
    file = index.finish()
    assert file is not None
    file.truncate(10)
    peer.send(fetch(0), 11)
    assert peer.receive(FetchResponse).responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


test_open = on_node(an_open_transaction_does_not_wake_who_may_not_read_it)
test_held = on_node(what_was_held_back_counts_however_many_bytes_are_asked_for)
test_synced = on_node(a_marker_counts_when_it_is_synced, tidelog_sync_mode="synced")
test_latest = on_node(latest_is_the_last_stable_offset)
test_markers = on_node(markers_are_refused_with_kafkas_codes)
test_heard = on_node(who_is_told_of_markers_hears_of_each_once)
test_unreadable = on_node(an_index_that_became_unreadable_hides_nothing)

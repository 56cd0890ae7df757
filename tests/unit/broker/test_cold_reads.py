"""Fetch and ListOffsets when the bytes are not in memory: the same answers in the same order, a bounded number at
once."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.test_fetch import batches, fetch, partition, partitions_of
from tests.unit.broker.virtual import Peer, on_node
from tidelog.broker.cold_reads import REQUEST_BYTES_MAX, ColdReads
from tidelog.kernel.errors import DiskError
from tidelog.kernel.ports import File
from tidelog.log.partition_log import PartitionLog
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog.testing.simulation import SimulatedWorld


def cold_reads(world: SimulatedWorld) -> ColdReads:
    assert world.node is not None
    return world.node.services.cold_reads


def forget_recent(log: PartitionLog) -> None:
    """As if the batches had been written long ago."""
    log._recent.clear()


async def old_topic(world: SimulatedWorld, peer: Peer, *, partitions: int = 1, chance: float = 1.0) -> None:
    """Ten batches of a record each in every partition, none of them in memory."""
    await peer.create_topic("t", partitions)
    for index in range(partitions):
        for number in range(10):
            peer.produce("t", b"%d" % number, partition=index)
        forget_recent(partition(world, "t", index).log)
    world.disk.faults.cold_reads = chance


async def answered(peer: Peer) -> None:
    if not peer.has_answer:
        peer._written.clear()
        await peer._written.wait()


@on_node
async def test_a_cold_fetch_waits_for_its_bytes_beside_the_loop(world: SimulatedWorld, peer: Peer) -> None:
    await old_topic(world, peer)
    peer.send(fetch("t", 3), 11)
    assert not peer.has_answer and cold_reads(world).requests == 1
    await answered(peer)
    (data,) = partitions_of(peer.receive(FetchResponse))
    assert batches(data) == list(range(3, 10))
    assert (data.error_code, data.high_watermark) == (0, 10)
    await asyncio.sleep(0.001)
    assert cold_reads(world).reads > 0 and cold_reads(world).requests == 0


@on_node
async def test_some_partitions_cold_and_some_not(world: SimulatedWorld, peer: Peer) -> None:
    await old_topic(world, peer, partitions=5, chance=0.5)
    for _ in range(10):
        answer = await peer.call(fetch("t", 0, 2, 4, 6, 10), 11, FetchResponse)
        assert [batches(data) for data in partitions_of(answer)] == [list(range(n, 10)) for n in (0, 2, 4, 6, 10)]
    assert cold_reads(world).reads > 0


@on_node
async def test_answers_keep_their_order_and_other_connections_do_not_wait(world: SimulatedWorld, peer: Peer) -> None:
    await old_topic(world, peer)
    assert world.node is not None
    other = Peer(world.node)
    for offset in (1, 5, 9):
        peer.send(fetch("t", offset), 11)
    peer.send(ListOffsetsRequest(topics=[]), 5)
    other.send(ListOffsetsRequest(topics=[]), 5)
    assert other.has_answer and not peer.has_answer
    assert cold_reads(world).requests == 1, "one at a time for each connection"
    for offset in (1, 5, 9):
        await answered(peer)
        (data,) = partitions_of(peer.receive(FetchResponse))
        assert batches(data) == list(range(offset, 10))
    peer.receive(ListOffsetsResponse)


@on_node
async def test_a_connection_that_dies_takes_its_reads_with_it(world: SimulatedWorld, peer: Peer) -> None:
    await old_topic(world, peer)
    assert world.node is not None
    crowd = [Peer(world.node) for _ in range(30)]
    for other in crowd:
        other.send(fetch("t", 0), 11)
    assert cold_reads(world).requests == 30
    for other in crowd:
        other.lose()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert cold_reads(world).requests == 0
    reads = cold_reads(world).reads
    await asyncio.sleep(1)
    assert cold_reads(world).reads == reads
    answer = await peer.call(fetch("t", 8), 11, FetchResponse)
    assert batches(partitions_of(answer)[0]) == [8, 9]


@on_node
async def test_so_many_read_at_once_and_the_others_stand_in_line(world: SimulatedWorld, peer: Peer) -> None:
    await old_topic(world, peer)
    assert world.node is not None
    read_later, under_way, most = world.disk.read_later, 0, 0

    async def counted(file: File, position: int, length: int) -> bytes:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await read_later(file, position, length)
        finally:
            under_way -= 1

    world.disk.read_later = counted  # type: ignore[assignment,method-assign]
    crowd = [Peer(world.node) for _ in range(50)]
    for other in crowd:
        other.send(fetch("t", 0), 11)
    for other in crowd:
        await answered(other)
        assert batches(partitions_of(other.receive(FetchResponse))[0]) == list(range(10))
    assert most == 16


@on_node
async def test_a_cold_answer_is_bounded_but_for_its_first_batch(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t", 2, {"max.message.bytes": str(REQUEST_BYTES_MAX * 2)})
    for size in (REQUEST_BYTES_MAX + 1000, 200_000, 200_000):
        for index in (0, 1):
            peer.produce_batch("t", bytes(build_batch([RecordInput(None, bytes(size), 1)])), partition=index)
    for index in (0, 1):
        forget_recent(partition(world, "t", index).log)
    world.disk.faults.cold_reads = 1.0
    answer = await peer.call(fetch("t", 0, 0), 11, FetchResponse)
    assert [batches(data) for data in partitions_of(answer)] == [[0], []]
    answer = await peer.call(fetch("t", 1, 1), 11, FetchResponse)
    assert [batches(data) for data in partitions_of(answer)] == [[1, 2], []]


async def _a_disk_that_cannot_read(world: SimulatedWorld, peer: Peer) -> None:
    await old_topic(world, peer, partitions=2)
    read_later = world.disk.read_later

    async def fail(file: File, position: int, length: int) -> bytes:
        if "t-1" in file.path:
            raise DiskError(f"cannot read {file.path}: Input/output error")
        return await read_later(file, position, length)

    world.disk.read_later = fail  # type: ignore[assignment,method-assign]
    answer = await peer.call(fetch("t", 0, 0), 11, FetchResponse)
    assert [data.error_code for data in partitions_of(answer)] == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
    assert world.node is not None and [home.is_online for home in world.node.partitions.homes] == [True, False]


# The metadata, and partition 0, are in the other directory.
test_a_disk_that_cannot_read_is_a_storage_error_for_that_partition = on_node(
    _a_disk_that_cannot_read, log_dirs="/data,/other"
)


@on_node
async def test_a_topic_that_is_deleted_meanwhile(world: SimulatedWorld, peer: Peer) -> None:
    await old_topic(world, peer)
    assert world.node is not None
    other = Peer(world.node)
    read_later, is_deleted = world.disk.read_later, asyncio.Event()

    async def slowly(file: File, position: int, length: int) -> bytes:
        await is_deleted.wait()
        return await read_later(file, position, length)

    world.disk.read_later = slowly  # type: ignore[assignment,method-assign]
    peer.send(fetch("t", 0), 11)
    await other.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5, DeleteTopicsResponse)
    is_deleted.set()
    await answered(peer)
    (data,) = partitions_of(peer.receive(FetchResponse))
    assert (data.error_code, data.records) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b"")


@on_node
async def test_a_parked_fetch_that_wakes_to_cold_bytes(world: SimulatedWorld, peer: Peer) -> None:
    await old_topic(world, peer)
    assert world.node is not None
    world.disk.faults.cold_reads = 0.0
    peer.send(fetch("t", 10, max_wait_ms=5000), 11)
    assert not peer.has_answer
    world.disk.faults.cold_reads = 1.0
    Peer(world.node).produce("t", b"new")
    forget_recent(partition(world, "t").log)
    await answered(peer)
    (data,) = partitions_of(peer.receive(FetchResponse))
    assert batches(data) == [10] and cold_reads(world).reads > 0


@pytest.mark.parametrize("timestamp", [0, 1, 2, -3])
def test_offsets_by_time_are_found_without_waiting(timestamp: int) -> None:
    @on_node
    async def scenario(world: SimulatedWorld, peer: Peer) -> None:
        await old_topic(world, peer)
        wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted])
        peer.send(ListOffsetsRequest(topics=[topic]), 7)
        is_at_once = timestamp == 2  # newer than all: the segment's newest time, which is known, tells it
        assert peer.has_answer == is_at_once
        await answered(peer)
        found = peer.receive(ListOffsetsResponse).topics[0].partitions[0]
        assert (found.error_code, found.offset) == (ErrorCode.NONE, -1 if timestamp == 2 else 0)

    scenario()


@on_node
async def test_a_node_stops_while_reads_are_under_way(world: SimulatedWorld, peer: Peer) -> None:
    await old_topic(world, peer)
    peer.send(fetch("t", 0), 11)
    assert cold_reads(world).requests == 1
    peer.lose()

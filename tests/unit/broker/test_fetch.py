"""Fetch on a node in virtual time: what is returned at once, what waits, for what, how long, and what ends the wait."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.broker.virtual import Peer, on_node
from tidelog.protocol.batch import HEADER_SIZE, RecordInput, build_batch, iter_headers
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.replication.partition import Partition
from tidelog.sim.loop import sim_loop
from tidelog.testing.simulation import SimulatedWorld

EVERYTHING = 1 << 30


def fetch(
    topic: str,
    *offsets: int,
    min_bytes: int = 1,
    max_wait_ms: int = 0,
    max_bytes: int = EVERYTHING,
    partition_max_bytes: int = EVERYTHING,
    **fields: Any,
) -> FetchRequest:
    """One partition per offset."""
    partitions = [
        FetchRequest.FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes, **fields
        )
        for index, offset in enumerate(offsets)
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=partitions)],
    )


def partitions_of(answer: FetchResponse) -> list[FetchResponse.PartitionData]:
    return [data for topic in answer.responses for data in topic.partitions]


def batches(data: FetchResponse.PartitionData) -> list[int]:
    """The base offsets of the whole batches."""
    return [header.base_offset for _, header in iter_headers(bytes(data.records or b""))]


def partition(world: SimulatedWorld, topic: str, index: int = 0) -> Partition:
    assert world.node is not None
    found = world.node.partitions.get(topic, index)
    assert found is not None
    return found


def nobody_waits(world: SimulatedWorld, *topics: str) -> bool:
    assert world.node is not None
    drivers = (world.node._groups._driver, world.node._transactions._driver)
    own = [driver._deadline for driver in drivers if driver._deadline is not None]
    others = len(world.node.deadlines) - sum(not deadline.is_cancelled for deadline in own)
    return others == 0 and not any(partition(world, topic)._waiters for topic in topics)


# at once


@on_node
async def test_what_is_there_is_returned_at_once(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    peer.produce("t", b"one")
    peer.produce("t", b"two", b"three")
    peer.send(fetch("t", 0, max_wait_ms=5000), 11)
    (data,) = partitions_of(peer.receive(FetchResponse))
    assert batches(data) == [0, 1]
    assert (data.error_code, data.high_watermark, data.last_stable_offset, data.log_start_offset) == (0, 3, 3, 0)
    assert nobody_waits(world, "t")


@on_node
async def test_a_fetch_in_the_middle_of_a_batch_returns_that_batch(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    peer.produce("t", b"a", b"b", b"c")
    peer.produce("t", b"d")
    peer.send(fetch("t", 2), 11)
    assert batches(partitions_of(peer.receive(FetchResponse))[0]) == [0, 3]


@on_node
async def test_without_a_wait_or_a_minimum_an_empty_answer_leaves_at_once(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    for request in (
        fetch("t", 0, max_wait_ms=0),
        fetch("t", 0, max_wait_ms=-1),
        fetch("t", 0, max_wait_ms=9, min_bytes=0),
    ):
        peer.send(request, 11)
        assert batches(partitions_of(peer.receive(FetchResponse))[0]) == []
    assert nobody_waits(world, "t")


@on_node
async def test_an_error_does_not_wait(world: SimulatedWorld, peer: Peer) -> None:
    """One partition in error ends the wait of all: the client must hear of it."""
    await peer.create_topic("t", 2)
    peer.send(fetch("t", 0, 99, max_wait_ms=60_000), 11)
    codes = [data.error_code for data in partitions_of(peer.receive(FetchResponse))]
    assert codes == [ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE]
    assert nobody_waits(world, "t")


@on_node
async def test_a_fetch_of_nothing_does_not_wait(world: SimulatedWorld, peer: Peer) -> None:
    peer.send(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[]), 11)
    assert peer.receive(FetchResponse).responses == []


# limits


async def fill(peer: Peer, topic: str, count: int, size: int, index: int = 0) -> int:
    """Batches of one size, which is returned."""
    value = bytes(size)
    for _ in range(count):
        peer.produce(topic, value, partition=index)
    return len(build_batch([RecordInput(None, value, 1)]))


@on_node
async def test_partition_max_bytes_bounds_each_partition(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t", 2)
    size = await fill(peer, "t", 5, 1000)
    await fill(peer, "t", 5, 1000, index=1)
    peer.send(fetch("t", 0, 0, partition_max_bytes=2 * size + 10), 11)
    answer = partitions_of(peer.receive(FetchResponse))
    assert [len(data.records or b"") for data in answer] == [2 * size + 10] * 2
    assert [batches(data) for data in answer] == [[0, 1], [0, 1]], "the last batch is cut, as in Kafka"


@on_node
async def test_max_bytes_bounds_the_answer(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t", 3)
    for index in range(3):
        size = await fill(peer, "t", 5, 1000, index=index)
    peer.send(fetch("t", 0, 0, 0, max_bytes=7 * size), 11)
    assert [batches(data) for data in partitions_of(peer.receive(FetchResponse))] == [[0, 1, 2, 3, 4], [0, 1], []]


async def _fetch_max_bytes(world: SimulatedWorld, peer: Peer) -> None:
    """The broker's own limit counts when the client has none."""
    await peer.create_topic("t", 2)
    size = await fill(peer, "t", 5, 1000)
    await fill(peer, "t", 5, 1000, index=1)
    peer.send(fetch("t", 0, 0), 11)
    sizes = [len(data.records or b"") for data in partitions_of(peer.receive(FetchResponse))]
    assert sizes == [3000, 0] and size < 3000


test_fetch_max_bytes_of_the_broker_bounds_it_too = on_node(_fetch_max_bytes, fetch_max_bytes="3000")


@on_node
async def test_a_first_batch_that_is_larger_than_every_limit_is_returned_whole(
    world: SimulatedWorld, peer: Peer
) -> None:
    """KIP-74: otherwise a consumer could never get past it."""
    await peer.create_topic("t", 3)
    size = await fill(peer, "t", 2, 5000, index=1)
    await fill(peer, "t", 2, 5000, index=2)
    for limits in ({"max_bytes": 10}, {"partition_max_bytes": 10}, {"max_bytes": 0}, {"partition_max_bytes": -1}):
        peer.send(fetch("t", 0, 0, 0, **limits), 11)
        answer = partitions_of(peer.receive(FetchResponse))
        sizes = [len(data.records or b"") for data in answer]
        assert sizes == [0, size, 0], "one whole batch of the first partition that has any, nothing of the next"


@on_node
async def test_a_limit_smaller_than_a_batchs_header_is_no_trouble(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t", 2)
    await fill(peer, "t", 1, 100)
    await fill(peer, "t", 1, 100, index=1)
    for limit in (1, 11, 12, HEADER_SIZE - 1, HEADER_SIZE):
        peer.send(fetch("t", 0, 0, partition_max_bytes=limit), 11)
        assert [batches(data) for data in partitions_of(peer.receive(FetchResponse))] == [[0], []]


# waiting


@on_node
async def test_an_empty_fetch_waits_max_wait_ms_and_no_longer(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    began_s = sim_loop().time()
    peer.send(fetch("t", 0, max_wait_ms=1500), 11)
    assert not peer.has_answer
    await asyncio.sleep(1.49)
    assert not peer.has_answer
    await asyncio.sleep(1)
    assert peer.times[-1] == began_s + 1.5
    (data,) = partitions_of(peer.receive(FetchResponse))
    assert (batches(data), data.error_code) == ([], ErrorCode.NONE)
    assert nobody_waits(world, "t")


@on_node
async def test_an_append_answers_a_waiting_fetch_at_once(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    reader = Peer(world.node)  # type: ignore[arg-type]
    reader.send(fetch("t", 0, max_wait_ms=60_000), 11)
    await asyncio.sleep(2)
    began_s = sim_loop().time()
    peer.produce("t", b"news")
    peer.produce("t", b"more in the same turn")
    await asyncio.sleep(0)
    assert reader.times == [began_s]
    assert batches(partitions_of(reader.receive(FetchResponse))[0]) == [0, 1]
    assert nobody_waits(world, "t")
    peer.produce("t", b"later")
    await asyncio.sleep(120)
    assert not reader.has_answer, "answered once"


@on_node
async def test_appends_below_min_bytes_go_on_waiting(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t", 2)
    reader = Peer(world.node)  # type: ignore[arg-type]
    size = len(build_batch([RecordInput(None, bytes(100), 1)]))
    peer.produce("t", bytes(100))
    reader.send(fetch("t", 0, 0, max_wait_ms=60_000, min_bytes=3 * size), 11)
    await asyncio.sleep(1)
    peer.produce("t", bytes(100), partition=1)
    await asyncio.sleep(1)
    assert not reader.has_answer, "what is there and what comes are added up, over all partitions"
    peer.produce("t", bytes(100), partition=0)
    await asyncio.sleep(0)
    assert [batches(data) for data in partitions_of(reader.receive(FetchResponse))] == [[0, 1], [0]]
    assert nobody_waits(world, "t")


@on_node
async def test_too_little_is_returned_when_the_time_is_over(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    peer.produce("t", b"little")
    peer.send(fetch("t", 0, max_wait_ms=500, min_bytes=1 << 20), 11)
    assert not peer.has_answer
    await asyncio.sleep(0.5)
    assert batches(partitions_of(peer.receive(FetchResponse))[0]) == [0]


@on_node
async def test_bytes_that_were_read_twice_are_counted_once(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    peer.produce("t", b"little")
    peer.send(fetch("t", 0, max_wait_ms=500, min_bytes=1 << 20), 11)
    await asyncio.sleep(1)
    (data,) = partitions_of(peer.receive(FetchResponse))
    assert world.node is not None
    assert world.node.metrics.topic("t").bytes_out == len(data.records or b"")


@on_node
async def test_several_who_wait_are_all_answered(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    readers = [Peer(world.node) for _ in range(5)]  # type: ignore[arg-type]
    for reader in readers:
        reader.send(fetch("t", 0, max_wait_ms=60_000), 11)
    peer.produce("t", b"for all")
    await asyncio.sleep(0)
    assert [batches(partitions_of(reader.receive(FetchResponse))[0]) for reader in readers] == [[0]] * 5
    assert nobody_waits(world, "t")


@on_node
async def test_fetches_pipelined_on_one_connection_are_answered_in_order(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    await peer.create_topic("u")
    reader = Peer(world.node)  # type: ignore[arg-type]
    reader.send(fetch("t", 0, max_wait_ms=60_000), 11)
    reader.send(fetch("u", 0, max_wait_ms=60_000), 11)
    peer.produce("u", b"second")
    await asyncio.sleep(1)
    assert not reader.has_answer
    peer.produce("t", b"first")
    await asyncio.sleep(0)
    assert [reader.receive(FetchResponse).responses[0].topic for _ in range(2)] == ["t", "u"]


# what ends a wait


@on_node
async def test_deleting_the_topic_ends_the_wait(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    waiting = partition(world, "t")
    reader = Peer(world.node)  # type: ignore[arg-type]
    reader.send(fetch("t", 0, max_wait_ms=60_000), 11)
    await peer.call(DeleteTopicsRequest(topic_names=["t"]), 5, DeleteTopicsResponse)
    await asyncio.sleep(0)
    (data,) = partitions_of(reader.receive(FetchResponse))
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not waiting._waiters
    assert nobody_waits(world)


@on_node
async def test_deleting_the_topic_ends_the_wait_by_id(world: SimulatedWorld, peer: Peer) -> None:
    topic_id = (await peer.create_topic("t")).topic_id
    reader = Peer(world.node)  # type: ignore[arg-type]
    request = fetch("", 0, max_wait_ms=60_000)
    request.topics[0].topic_id = topic_id
    reader.send(request, 13)
    await peer.call(DeleteTopicsRequest(topic_names=["t"]), 5, DeleteTopicsResponse)
    await peer.create_topic("t")
    assert partitions_of(reader.receive(FetchResponse))[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@on_node
async def test_trimming_ends_the_wait(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    for _ in range(3):
        peer.produce("t", b"x")
    reader = Peer(world.node)  # type: ignore[arg-type]
    reader.send(fetch("t", 3, max_wait_ms=60_000), 11)
    trim = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=2)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[trim])
    answer = await peer.call(DeleteRecordsRequest(topics=[topic]), 2, DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].low_watermark == 2
    await asyncio.sleep(0)
    (data,) = partitions_of(reader.receive(FetchResponse))
    assert (data.error_code, data.log_start_offset) == (ErrorCode.NONE, 2)


@on_node
async def test_a_connection_that_dies_leaves_nobody_waiting(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    await peer.create_topic("u")
    for _ in range(50):
        reader = Peer(world.node)  # type: ignore[arg-type]
        reader.send(fetch("t", 0, max_wait_ms=600_000), 11)
        reader.send(fetch("u", 0, max_wait_ms=600_000), 11)
        reader.lose()
    assert nobody_waits(world, "t", "u")
    peer.produce("t", b"nobody is told")
    await asyncio.sleep(1)


@on_node
async def test_a_connection_that_dies_between_append_and_answer(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    reader = Peer(world.node)  # type: ignore[arg-type]
    reader.send(fetch("t", 0, max_wait_ms=600_000), 11)
    peer.produce("t", b"the answer is on its way")
    reader.lose()
    await asyncio.sleep(1)
    assert not reader.has_answer
    assert nobody_waits(world, "t")


# epochs


@on_node
async def test_a_known_epoch_that_is_not_ours_is_refused(world: SimulatedWorld, peer: Peer) -> None:
    """KIP-320."""
    await peer.create_topic("t")
    epoch = partition(world, "t").leader_epoch
    for known, code in ((epoch, 0), (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, 0)):
        peer.send(fetch("t", 0, current_leader_epoch=known), 11)
        assert partitions_of(peer.receive(FetchResponse))[0].error_code == code
    partition(world, "t").leader_epoch = epoch + 1
    peer.send(fetch("t", 0, current_leader_epoch=epoch), 11)
    assert partitions_of(peer.receive(FetchResponse))[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


@on_node
async def test_a_reader_whose_epoch_ended_earlier_is_told_where_to_cut(world: SimulatedWorld, peer: Peer) -> None:
    """KIP-595: epoch 0 ended at 2, so whoever read further in it has records that are none."""
    await peer.create_topic("t")
    log = partition(world, "t")
    peer.produce("t", b"a")
    peer.produce("t", b"b")
    log.leader_epoch = 5
    peer.produce("t", b"c")

    def ask(offset: int, last_epoch: int) -> FetchResponse.PartitionData:
        peer.send(fetch("t", offset, last_fetched_epoch=last_epoch, max_wait_ms=60_000), 12)
        return partitions_of(peer.receive(FetchResponse))[0]

    in_step = ask(2, 0)
    assert (batches(in_step), in_step.diverging_epoch.epoch) == ([2], -1)
    behind = ask(3, 0)
    assert (behind.diverging_epoch.epoch, behind.diverging_epoch.end_offset, behind.records) == (0, 2, b"")
    unheard_of = ask(2, 3)
    assert (unheard_of.diverging_epoch.epoch, unheard_of.diverging_epoch.end_offset) == (0, 2)
    assert batches(ask(2, 5)) == [2]
    assert ask(2, 9).error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "an epoch from the future"


# what one turn of the loop does


@on_node
async def test_an_answer_is_no_larger_than_the_loop_reads_in_a_moment(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t", 12)
    batch = bytes(build_batch([RecordInput(None, bytes(1_000_000), 1)]))
    for index in range(12):
        peer.produce_batch("t", batch, partition=index)
    answer = await peer.call(fetch("t", *([0] * 12)), 11, FetchResponse)
    assert [len(batches(data)) for data in partitions_of(answer)] == [1] * 8 + [0] * 4


@on_node
async def test_answers_are_shorter_while_others_wait_for_news(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    await peer.create_topic("large")
    batch = bytes(build_batch([RecordInput(None, bytes(200_000), 1)]))
    for _ in range(8):
        peer.produce_batch("large", batch)
    assert world.node is not None
    waiting = Peer(world.node)
    waiting.send(fetch("t", 0, max_wait_ms=5000), 11)
    for _ in range(3):  # in full, and as one that is like the one before
        answer = await peer.call(fetch("large", 0), 11, FetchResponse)
        assert batches(partitions_of(answer)[0]) == [0, 1]
    waiting.lose()
    for _ in range(3):
        answer = await peer.call(fetch("large", 0), 11, FetchResponse)
        assert batches(partitions_of(answer)[0]) == list(range(8))

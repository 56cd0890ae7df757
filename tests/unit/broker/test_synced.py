"""Synced mode, through the frames of a connection: what waits for the sync, what does not, and what a failure says."""

from __future__ import annotations

import asyncio

from tests.unit.broker.virtual import Peer, on_node
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.testing.simulation import SimulatedWorld

SYNCED = "synced"


def produce(*partitions: int, acks: int = -1, timeout_ms: int = 1000) -> ProduceRequest:
    records = bytes(build_batch([RecordInput(None, b"v", 1)]))
    data = [ProduceRequest.PartitionProduceData(index=index, records=records) for index in partitions]
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


def codes(answer: ProduceResponse) -> list[int]:
    return [partition.error_code for topic in answer.responses for partition in topic.partition_responses]


def fetch(offset: int, *, wait_ms: int = 0) -> FetchRequest:
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic="t", partitions=[wanted])
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[topic])


async def latest(peer: Peer) -> int:
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted])
    answer = await peer.call(ListOffsetsRequest(topics=[topic]), 4, ListOffsetsResponse)
    return answer.topics[0].partitions[0].offset


async def acks_all_is_answered_when_the_sync_is_done(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    syncs, began_s = world.disk.sync_count, world.loop.time()
    world.disk.faults.sync_delay_s = 0.5
    peer.send(produce(0), 9)
    assert not peer.has_answer
    answer = await peer.call(fetch(0, wait_ms=60_000), 11, ProduceResponse)
    assert codes(answer) == [ErrorCode.NONE]
    assert world.loop.time() - began_s == 0.5 and world.disk.sync_count == syncs + 1


async def acks_1_is_answered_at_once(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    world.disk.faults.sync_delay_s = 0.5
    peer.send(produce(0, acks=1), 9)
    assert codes(peer.receive(ProduceResponse)) == [ErrorCode.NONE]


async def nothing_is_readable_that_is_not_synced(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    world.disk.faults.sync_delay_s = 0.5
    peer.send(produce(0, acks=1), 9)
    peer.receive(ProduceResponse)
    peer.send(fetch(0), 11)
    data = peer.receive(FetchResponse).responses[0].partitions[0]
    assert (data.high_watermark, bytes(data.records or b"")) == (0, b"")
    assert await latest(peer) == 0
    answer = await peer.call(fetch(0, wait_ms=60_000), 11, FetchResponse)
    assert answer.responses[0].partitions[0].high_watermark == 1
    assert await latest(peer) == 1


async def appends_of_one_wake_up_share_a_sync_and_later_ones_the_next(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t", 4)
    world.disk.faults.sync_delay_s = 0.5
    syncs, began_s = world.disk.sync_count, world.loop.time()
    others = [Peer(world.node) for _ in range(10)]  # type: ignore[arg-type]
    for number, other in enumerate(others):
        other.send(produce(number % 4), 9)
    await asyncio.sleep(0.1)
    late = asyncio.ensure_future(peer.call(produce(0, 1, 2, 3), 9, ProduceResponse))
    assert codes(await late) == [ErrorCode.NONE] * 4
    assert world.loop.time() - began_s == 1.0 and world.disk.sync_count == syncs + 2
    assert [codes(other.receive(ProduceResponse)) for other in others] == [[ErrorCode.NONE]] * 10


async def a_retry_of_an_unsynced_batch_waits_as_its_first_did(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    batch = bytes(
        build_batch([RecordInput(None, b"v", 1)], producer_id=7, producer_epoch=0, base_sequence=0),
    )
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    world.disk.faults.sync_delay_s = 0.5
    peer.send(request, 9)
    other = Peer(world.node)  # type: ignore[arg-type]
    other.send(request, 9)
    assert not other.has_answer
    await asyncio.sleep(0.6)
    assert codes(other.receive(ProduceResponse)) == codes(peer.receive(ProduceResponse)) == [ErrorCode.NONE]


async def a_sync_that_takes_too_long_is_a_time_out(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t", 2)
    world.disk.faults.sync_delay_s = 5.0
    answer = await peer.call(produce(0, 1, timeout_ms=300), 9, ProduceResponse)
    assert codes(answer) == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert await latest(peer) == 0
    await asyncio.sleep(5)
    assert await latest(peer) == 1
    assert not peer.has_answer, "nobody is answered twice"


async def a_topic_that_is_deleted_meanwhile_is_unknown(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    world.disk.faults.sync_delay_s = 5.0
    peer.send(produce(0, timeout_ms=30_000), 9)
    assert world.node is not None
    partition = world.node.partitions.get("t", 0)
    assert partition is not None
    partition.fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert codes(peer.receive(ProduceResponse)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def who_hangs_up_is_forgotten(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    world.disk.faults.sync_delay_s = 0.5
    peer.send(produce(0), 9)
    peer.lose()
    assert world.node is not None and len(world.node.deadlines) == 0
    await asyncio.sleep(1)
    assert await latest(Peer(world.node)) == 1


test_acks_all_is_answered_when_the_sync_is_done = on_node(
    acks_all_is_answered_when_the_sync_is_done, tidelog_sync_mode=SYNCED
)
test_acks_1_is_answered_at_once = on_node(acks_1_is_answered_at_once, tidelog_sync_mode=SYNCED)
test_nothing_is_readable_that_is_not_synced = on_node(nothing_is_readable_that_is_not_synced, tidelog_sync_mode=SYNCED)
test_appends_of_one_wake_up_share_a_sync_and_later_ones_the_next = on_node(
    appends_of_one_wake_up_share_a_sync_and_later_ones_the_next, tidelog_sync_mode=SYNCED
)
test_a_retry_of_an_unsynced_batch_waits_as_its_first_did = on_node(
    a_retry_of_an_unsynced_batch_waits_as_its_first_did, tidelog_sync_mode=SYNCED
)
test_a_sync_that_takes_too_long_is_a_time_out = on_node(
    a_sync_that_takes_too_long_is_a_time_out, tidelog_sync_mode=SYNCED
)
test_a_topic_that_is_deleted_meanwhile_is_unknown = on_node(
    a_topic_that_is_deleted_meanwhile_is_unknown, tidelog_sync_mode=SYNCED
)
test_who_hangs_up_is_forgotten = on_node(who_hangs_up_is_forgotten, tidelog_sync_mode=SYNCED)

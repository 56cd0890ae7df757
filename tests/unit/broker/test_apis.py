"""Handlers on a node in virtual time, where the answer is more than a look-up. Compared with Apache Kafka 4.3.1."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

from tests.unit.broker.virtual import Peer, on_node
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tidelog.sim.disk import DiskFaults
from tidelog.testing.simulation import SimulatedWorld


async def metadata(peer: Peer, *names: str, auto: bool = False) -> list[tuple[str | None, ErrorCode, int]]:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=auto)
    answer = await peer.call(request, 9, MetadataResponse)
    return [(topic.name, ErrorCode(topic.error_code), len(topic.partitions)) for topic in answer.topics]


# topics that appear by being asked for


@on_node
async def test_an_unknown_topic_is_made_when_the_client_allows_it(world: SimulatedWorld, peer: Peer) -> None:
    assert await metadata(peer, "t") == [("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)]
    await asyncio.sleep(1)
    assert await metadata(peer, "t", auto=True) == [("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)]
    await asyncio.sleep(1)
    assert await metadata(peer, "t", auto=True) == [("t", ErrorCode.NONE, 1)]


@on_node
async def test_a_name_asked_for_twice_is_answered_once_and_made(world: SimulatedWorld, peer: Peer) -> None:
    assert await metadata(peer, "t", "u", "t", auto=True) == [
        ("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
        ("u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
    ]
    await asyncio.sleep(1)
    assert await metadata(peer, "t", "t") == [("t", ErrorCode.NONE, 1)]


@on_node
async def test_a_bad_name_among_good_ones_is_not_made(world: SimulatedWorld, peer: Peer) -> None:
    await metadata(peer, "bad name", "good", auto=True)
    await asyncio.sleep(1)
    assert world.node is not None and list(world.node.publisher.image.topics) == ["good"]


async def _not_allowed(world: SimulatedWorld, peer: Peer) -> None:
    await metadata(peer, "t", auto=True)
    await asyncio.sleep(1)
    assert world.node is not None and not world.node.publisher.image.topics


async def _too_many_partitions(world: SimulatedWorld, peer: Peer) -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(f"{record.levelname} {record.getMessage()}")  # type: ignore[method-assign]
    logging.getLogger("tidelog.auto_create").addHandler(handler)
    try:
        answer = await peer.call(FindCoordinatorRequest(key="g"), 3, FindCoordinatorResponse)
    finally:
        logging.getLogger("tidelog.auto_create").removeHandler(handler)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (line,) = lines
    assert line.startswith(
        "ERROR the topic __consumer_offsets, which was asked for, cannot be created: 100000 partitions"
    )


test_an_internal_topic_that_cannot_be_made_is_told_in_the_log = on_node(
    _too_many_partitions, offsets_topic_num_partitions="100000"
)
test_the_broker_may_forbid_it = on_node(_not_allowed, auto_create_topics_enable="false")


@on_node
async def test_a_topic_that_cannot_be_made_is_logged_and_the_node_goes_on(world: SimulatedWorld, peer: Peer) -> None:
    """Nobody waits for a creation in the background: its failure must not turn up as one that nobody looked at."""
    world.disk.faults = DiskFaults(capacity_bytes=1)
    await metadata(peer, "t", auto=True)
    await asyncio.sleep(1)
    world.disk.faults = DiskFaults()
    await metadata(peer, "t", auto=True)
    await asyncio.sleep(1)
    assert await metadata(peer, "t") == [("t", ErrorCode.NONE, 1)]
    gc.collect()  # what nobody looked at fails the simulation now


# pages of topics


def described(answer: DescribeTopicPartitionsResponse) -> tuple[list[tuple[str | None, list[int]]], Any]:
    cursor = answer.next_cursor and (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
    return [(topic.name, [p.partition_index for p in topic.partitions]) for topic in answer.topics], cursor


@on_node
async def test_pages_end_where_the_limit_is_and_the_cursor_goes_on(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("a", 3)
    await peer.create_topic("b", 2)

    async def ask(limit: int, cursor: Any = None) -> Any:
        at = cursor and DescribeTopicPartitionsRequest.Cursor(topic_name=cursor[0], partition_index=cursor[1])
        request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=limit, cursor=at)
        return described(await peer.call(request, 0, DescribeTopicPartitionsResponse))

    assert await ask(2000) == ([("a", [0, 1, 2]), ("b", [0, 1])], None)
    assert await ask(2) == ([("a", [0, 1])], ("a", 2))
    assert await ask(2, ("a", 2)) == ([("a", [2]), ("b", [0])], ("b", 1))
    assert await ask(2, ("b", 1)) == ([("b", [1])], None)
    assert await ask(3) == ([("a", [0, 1, 2])], ("b", 0))
    assert await ask(0) == ([("a", [0])], ("a", 1)), "a page without a partition would never end"
    assert await ask(2, ("aa", 7)) == ([("b", [0, 1])], None), "a topic that went away between two pages"


# offsets and trimming


@on_node
async def test_timestamps_that_mean_nothing_are_refused(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")

    async def ask(timestamp: int, version: int) -> ErrorCode:
        wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted])])
        return ErrorCode((await peer.call(request, version, ListOffsetsResponse)).topics[0].partitions[0].error_code)

    for timestamp, since in ((-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11)):
        assert await ask(timestamp, since) == ErrorCode.NONE
        if since > 1:
            assert await ask(timestamp, since - 1) == ErrorCode.UNSUPPORTED_VERSION
    for timestamp in (-7, -(2**63)):
        assert await ask(timestamp, 11) == ErrorCode.UNSUPPORTED_VERSION


async def trim(peer: Peer, topic: str, offset: int) -> tuple[ErrorCode, int]:
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    named = DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[wanted])
    answer = (await peer.call(DeleteRecordsRequest(topics=[named]), 2, DeleteRecordsResponse)).topics[0].partitions[0]
    return ErrorCode(answer.error_code), answer.low_watermark


@on_node
async def test_trimming(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    await peer.create_topic("compacted", config={"cleanup.policy": "compact"})
    await peer.create_topic("both", config={"cleanup.policy": "compact,delete"})
    await find(peer, "g")
    for _ in range(3):
        peer.produce("t", b"v")
    assert await trim(peer, "t", 2) == (ErrorCode.NONE, 2)
    assert await trim(peer, "t", 1) == (ErrorCode.NONE, 2), "a start never goes back"
    assert await trim(peer, "t", 4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await trim(peer, "t", -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await trim(peer, "t", -1) == (ErrorCode.NONE, 3)
    assert await trim(peer, "nothing", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert await trim(peer, "compacted", 0) == (ErrorCode.POLICY_VIOLATION, -1)
    assert await trim(peer, "both", 0) == (ErrorCode.NONE, 0)
    assert await trim(peer, "__consumer_offsets", 0) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


# groups and their topic


async def find(peer: Peer, *groups: str) -> list[ErrorCode]:
    request = FindCoordinatorRequest(coordinator_keys=list(groups))
    answer = await peer.call(request, 4, FindCoordinatorResponse)
    return [ErrorCode(found.error_code) for found in answer.coordinators]


async def commit(peer: Peer, group: str, offset: int) -> ErrorCode:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    answer = await peer.call(OffsetCommitRequest(group_id=group, topics=[topic]), 8, OffsetCommitResponse)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def committed(peer: Peer, group: str) -> int:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = await peer.call(OffsetFetchRequest(group_id=group, topics=[topic]), 7, OffsetFetchResponse)
    return answer.topics[0].partitions[0].committed_offset


@on_node
async def test_groups_live_on_after_their_topic_was_deleted_and_made_again(world: SimulatedWorld, peer: Peer) -> None:
    await peer.create_topic("t")
    assert await find(peer, "g") == [ErrorCode.NONE]
    assert await commit(peer, "g", 5) == ErrorCode.NONE
    await peer.call(DeleteTopicsRequest(topic_names=["__consumer_offsets"]), 5, DeleteTopicsResponse)
    assert await commit(peer, "g", 6) in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert await find(peer, "g") == [ErrorCode.NONE]
    assert await committed(peer, "g") == -1, "what was in the topic went with it"
    assert await commit(peer, "g", 7) == ErrorCode.NONE
    assert await committed(peer, "g") == 7


# producers


@on_node
async def test_a_fleet_of_producers_that_starts_at_once_has_ids_of_its_own(world: SimulatedWorld, peer: Peer) -> None:
    peers = [Peer(world.node) for _ in range(12)]  # type: ignore[arg-type]
    for one in peers:
        for _ in range(100):
            one.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
    await asyncio.sleep(5)
    ids = [one.receive(InitProducerIdResponse).producer_id for one in peers for _ in range(100)]
    assert sorted(ids) == list(range(1200))


@on_node
async def test_requests_without_an_answer_are_counted_too(world: SimulatedWorld, peer: Peer) -> None:
    from tidelog.protocol.messages.produce import ProduceRequest

    await peer.create_topic("t")
    data = ProduceRequest.PartitionProduceData(index=0, records=bytes(build_batch([RecordInput(None, b"v", 1)])))
    request = ProduceRequest(acks=0, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[data])])
    peer.send(request, 9)
    assert world.node is not None
    assert {api.name: api.count for api in world.node.services.apis}["Produce"] == 1
    assert not peer.has_answer


@pytest.mark.parametrize("scribble", [b"\x00", b"\xff"])
def test_what_is_kept_of_a_request_is_not_a_view_of_the_read_buffer(scribble: bytes) -> None:
    """Trap 5: the buffer is overwritten right after the handler has returned."""
    from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

    async def scenario(world: SimulatedWorld, peer: Peer) -> None:
        await peer.create_topic("t")
        await find(peer, "g")
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"opaque metadata")
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        peer.send(request, 3)
        assert peer.connection._buffers is not None
        shared = peer.connection._buffers.shared
        shared[:] = scribble * len(shared)
        await asyncio.sleep(1)
        answer = peer.receive(JoinGroupResponse)
        assert [member.metadata for member in answer.members] == [b"opaque metadata"]
        peer.produce("t", b"stored value")
        shared[:] = scribble * len(shared)
        assert b"stored value" in (world.disk.read_file(f"/data/t-0/{0:020d}.log") or b"")

    on_node(scenario)()

"""Offsets committed in a transaction: pending until the marker, fenced by member and generation, found after a load."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.transacting import FakeVerifier, partition_of
from tests.unit.broker.virtual import Peer, on_node
from tidelog.log.transactions import Marker
from tidelog.node.node import Node
from tidelog.protocol.batch import iter_headers
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tidelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from tidelog.replication.markers import write_marker
from tidelog.testing.simulation import SimulatedWorld

OFFSETS = "__consumer_offsets"
PENDING = ErrorCode.UNSTABLE_OFFSET_COMMIT
OK = ErrorCode.NONE


async def start(world: SimulatedWorld, peer: Peer) -> FakeVerifier:
    assert world.node is not None
    await peer.create_topic("t", 2)
    await find_coordinator(peer)
    return FakeVerifier(world.node)


async def find_coordinator(peer: Peer) -> None:
    for _ in range(100):
        answer = await peer.call(FindCoordinatorRequest(key="g"), 2, FindCoordinatorResponse)
        if answer.error_code == OK and (await fetch(peer))[0] != ErrorCode.NOT_COORDINATOR:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("no coordinator")


def commit(
    offset: int = 7,
    *,
    topic: str = "t",
    producer_id: int = 5,
    epoch: int = 0,
    group_id: str = "g",
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    metadata: str = "",
) -> TxnOffsetCommitRequest:
    shape = TxnOffsetCommitRequest
    partition = shape.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=metadata
    )
    return shape(
        transactional_id="id",
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[shape.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )


async def send(peer: Peer, request: TxnOffsetCommitRequest, version: int = 3) -> ErrorCode:
    answer = await peer.call(request, version, TxnOffsetCommitResponse)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def fetch(peer: Peer, *, stable: bool = True) -> tuple[ErrorCode, int]:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    request = OffsetFetchRequest(group_id="g", topics=[topic], require_stable=stable)
    answer = await peer.call(request, 7, OffsetFetchResponse)
    if answer.error_code:
        return ErrorCode(answer.error_code), -1
    found = answer.topics[0].partitions[0]
    return ErrorCode(found.error_code), found.committed_offset


def end(node: Node, *, commit: bool, epoch: int = 0) -> list[ErrorCode]:
    codes: list[ErrorCode] = []
    index = node.services.groups.partition_for("g")
    marker = Marker(5, epoch, 0, commit, 1)
    write_marker(partition_of(node, index, OFFSETS), marker, node.services.clock.wall_ms(), codes.append)
    return codes


async def offsets_are_pending_until_the_marker(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    verifier = await start(world, peer)
    assert await send(peer, commit(7)) is OK
    assert await fetch(peer) == (PENDING, -1)
    assert await fetch(peer, stable=False) == (OK, -1)
    assert await send(peer, commit(8)) is OK
    index = world.node.services.groups.partition_for("g")
    assert [(one.partitions, one.add) for one in verifier.asked] == [(((OFFSETS, index),), False)]
    end(world.node, commit=True)
    assert await fetch(peer) == (OK, 8)


async def an_abort_forgets_them(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    await start(world, peer)
    assert await send(peer, commit(7), 5) is OK
    end(world.node, commit=False)
    assert await fetch(peer) == (OK, -1)


async def version_5_adds_the_partition(world: SimulatedWorld, peer: Peer) -> None:
    verifier = await start(world, peer)
    await send(peer, commit(7), 5)
    assert [one.add for one in verifier.asked] == [True]


async def of_two_commits_the_later_in_the_log_wins(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    await start(world, peer)
    await send(peer, commit(7))
    shape = OffsetCommitRequest
    partition = shape.OffsetCommitRequestPartition(partition_index=0, committed_offset=9)
    topic = shape.OffsetCommitRequestTopic(name="t", partitions=[partition])
    await peer.call(shape(group_id="g", topics=[topic]), 7, OffsetCommitResponse)
    end(world.node, commit=True)
    assert await fetch(peer) == (OK, 9)


async def what_is_refused(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    verifier = await start(world, peer)
    assert await send(peer, commit(topic="gone")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await send(peer, commit(group_id="")) is ErrorCode.INVALID_GROUP_ID
    assert await send(peer, commit(producer_id=-1)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert not verifier.asked
    assert await send(peer, commit(generation=3, member_id="m")) is ErrorCode.ILLEGAL_GENERATION
    assert await send(peer, commit(metadata="x" * 5000)) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    verifier.code = ErrorCode.TRANSACTION_ABORTABLE
    assert await send(peer, commit(), 3) is ErrorCode.INVALID_TXN_STATE
    assert await send(peer, commit(), 4) is ErrorCode.TRANSACTION_ABORTABLE
    verifier.code = ErrorCode.PRODUCER_FENCED
    assert await send(peer, commit(), 5) is ErrorCode.INVALID_PRODUCER_EPOCH
    verifier.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await send(peer, commit(), 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await send(peer, commit(), 2) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.node.services.transactions = None
    assert await send(peer, commit(), 5) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await fetch(peer) == (OK, -1)


async def an_old_epoch_is_fenced(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    await start(world, peer)
    await send(peer, commit(epoch=2))
    assert await send(peer, commit(epoch=1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    end(world.node, commit=True, epoch=3)
    assert await send(peer, commit(epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


async def members_are_fenced(world: SimulatedWorld, peer: Peer) -> None:
    await start(world, peer)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    joined = await peer.call(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[protocol],
        ),
        3,
        JoinGroupResponse,
    )
    member = joined.member_id
    assert await send(peer, commit(generation=joined.generation_id, member_id="other")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await send(peer, commit(generation=7, member_id=member)) is ErrorCode.ILLEGAL_GENERATION
    wrong = commit(generation=joined.generation_id, member_id=member, instance_id="i")
    assert await send(peer, wrong) is ErrorCode.UNKNOWN_MEMBER_ID
    # The group waits for its assignment: nothing keeps a transaction from going on.
    assert await send(peer, commit(generation=joined.generation_id, member_id=member)) is OK
    assert await send(peer, commit(), 0) is OK, "old versions name no member"


async def a_batch_has_the_bytes_that_kafka_writes(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    await start(world, peer)
    await send(peer, commit(7, epoch=3))
    log = partition_of(world.node, world.node.services.groups.partition_for("g"), OFFSETS).log
    _, header = list(iter_headers(log.read(0, 1 << 20, end_offset=log.log_end_offset).data))[-1]
    assert (header.attributes, header.producer_id, header.producer_epoch, header.base_sequence) == (0x10, 5, 3, 0)


async def open_ones_are_found_by_the_next_start(world: SimulatedWorld, peer: Peer) -> None:
    await start(world, peer)
    await send(peer, commit(7))
    await world.stop()
    await world.start()
    assert world.node is not None
    again = Peer(world.node)
    await find_coordinator(again)
    FakeVerifier(world.node)
    assert await fetch(again) == (PENDING, -1)
    end(world.node, commit=True)
    assert await fetch(again) == (OK, 7)


async def a_read_waits_until_the_marker_is_committed(world: SimulatedWorld, peer: Peer) -> None:
    assert world.node is not None
    await start(world, peer)
    await send(peer, commit(7))
    world.disk.faults.sync_delay_s = 0.5
    began_s = world.loop.time()
    codes = end(world.node, commit=True)
    assert await fetch(peer) == (OK, 7)
    assert codes == [OK] and world.loop.time() - began_s >= 0.5


@pytest.mark.parametrize("version", range(6))
def test_every_version(version: int) -> None:
    async def scenario(world: SimulatedWorld, peer: Peer) -> None:
        await start(world, peer)
        assert await send(peer, commit(7), version) is OK
        assert await fetch(peer) == (PENDING, -1)

    on_node(scenario)()


test_pending = on_node(offsets_are_pending_until_the_marker)
test_abort = on_node(an_abort_forgets_them)
test_adds = on_node(version_5_adds_the_partition)
test_later = on_node(of_two_commits_the_later_in_the_log_wins)
test_refused = on_node(what_is_refused)
test_epochs = on_node(an_old_epoch_is_fenced)
test_members = on_node(members_are_fenced, group_initial_rebalance_delay_ms="0")
test_bytes = on_node(a_batch_has_the_bytes_that_kafka_writes)
test_loading = on_node(open_ones_are_found_by_the_next_start)
test_committed = on_node(a_read_waits_until_the_marker_is_committed, tidelog_sync_mode="synced")

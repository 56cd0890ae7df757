"""Groups that Apache Kafka made with protocols that are not served yet: kept, and their offsets served."""

from __future__ import annotations

import pytest
from msgspec import Struct

from tests.unit.coordinator.fakes import World
from tests.unit.coordinator.group.consumer.members import send
from tests.unit.coordinator.group.consumer.test_heartbeats import JOIN
from tests.unit.coordinator.group.test_administration import listed
from tests.unit.coordinator.group.test_offset_fetch import commit
from tidelog.coordinator.group.coordinator import Client
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import records_group as r
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.records_framing import encode_coordinator_key, encode_coordinator_value


def share_group(group: str) -> list[tuple[Struct, Struct]]:
    return [(r.ShareGroupMetadataKey(group_id=group), r.ShareGroupMetadataValue(epoch=1))]


def world_after(*records: tuple[Struct, Struct | None]) -> World:
    world = World()
    inputs = [
        RecordInput(encode_coordinator_key(key), None if value is None else encode_coordinator_value(value, 0), 1)
        for key, value in records
    ]
    world.log.add(build_batch(inputs, base_offset=world.log.end))
    world.log.commit()
    world.restart()
    return world


def types_written(world: World, since: int) -> list[tuple[int, bool]]:
    """(type, is a tombstone) of the records from this one on."""
    return [(int.from_bytes(key[:2], "big"), value is None) for key, value in world.log.records()[since:]]


def test_its_offsets_are_served_and_it_is_told_of_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    offset = (r.OffsetCommitKey(group="modern", topic="t", partition=1), r.OffsetCommitValue(offset=42))
    world = world_after(*share_group("modern"), offset)
    assert [value.offset for _, _, value in world.machine.offsets.of_group("modern")] == [42]
    assert [record.getMessage() for record in caplog.records] == [
        "1 group(s) of a protocol that is not served yet are kept, and their committed offsets served: modern"
    ]


def test_it_goes_with_the_group_that_is_deleted() -> None:
    world = world_after(*share_group("g"))
    commit(world, "g", t0=1)
    answers: list[DeleteGroupsResponse] = []
    world.groups.delete_groups(DeleteGroupsRequest(groups_names=["g"]), answers.append)
    assert answers[0].results[0].error_code == ErrorCode.NONE
    assert types_written(world, 2) == [(1, True), (11, True), (2, True)]
    assert listed(world, 5) == []


def test_a_group_that_was_removed_is_no_matter(caplog: pytest.LogCaptureFixture) -> None:
    world = world_after(*share_group("g"), *((key, None) for key, _ in share_group("g")))
    assert len(world.machine.foreign) == 0
    assert not caplog.records


def test_the_name_of_a_share_group_is_taken() -> None:
    world = world_after(*share_group("s"))
    answers: list[JoinGroupResponse] = []
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(group_id="s", session_timeout_ms=10_000, protocol_type="consumer", protocols=[protocol])
    world.groups.join(request, 3, Client("client", "/127.0.0.1"), answers.append)
    assert answers[0].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert types_written(world, 1) == []
    assert ErrorCode(send(world, **JOIN, group_id="s").error_code) is ErrorCode.GROUP_ID_NOT_FOUND

"""DescribeGroups, ListGroups, DeleteGroups, OffsetDelete, and topics that are deleted."""

from __future__ import annotations

import pytest

from tests.unit.coordinator.fakes import World
from tests.unit.coordinator.group.test_offset_fetch import UNKNOWN_ID, commit
from tidelog.coordinator.group.coordinator import Client
from tidelog.coordinator.group.records import CommittedOffset, OffsetCommitted
from tidelog.protocol.codec import decode, encode
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def subscription(*topics: str, version: int = 0) -> bytes:
    body = encode(ConsumerProtocolSubscription(topics=list(topics)), version)
    return version.to_bytes(2, "big") + body


def make_stable(world: World, group: str, *, protocol_type: str = "consumer", metadata: bytes = b"") -> str:
    """A group of one member; its id."""
    joins: list[JoinGroupResponse] = []
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=60_000,
        protocol_type=protocol_type,
        protocols=[protocol],
    )
    world.groups.join(request, 3, Client("client", "/127.0.0.1"), joins.append)
    world.advance(world.config.group_initial_rebalance_delay_ms)
    member_id = joins[0].member_id
    syncs: list[SyncGroupResponse] = []
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")
    world.groups.sync(
        SyncGroupRequest(group_id=group, member_id=member_id, generation_id=1, assignments=[assignment]),
        3,
        syncs.append,
    )
    assert syncs[0].error_code == ErrorCode.NONE
    return member_id


def describe(world: World, version: int, *groups: str) -> list[DescribeGroupsResponse.DescribedGroup]:
    answers: list[DescribeGroupsResponse] = []
    world.groups.describe_groups(DescribeGroupsRequest(groups=list(groups)), version, answers.append)
    return decode(DescribeGroupsResponse, version, encode(answers[0], version)).groups


def listed(world: World, version: int, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
    answers: list[ListGroupsResponse] = []
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    world.groups.list_groups(request, version, answers.append)
    answer = decode(ListGroupsResponse, version, encode(answers[0], version))
    assert answer.error_code == ErrorCode.NONE
    return sorted(
        ":".join([group.group_id, group.protocol_type, group.group_state, group.group_type]) for group in answer.groups
    )


def delete_offsets(world: World, group: str, *where: str) -> OffsetDeleteResponse:
    answers: list[OffsetDeleteResponse] = []
    topics = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(
            name=place[0], partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=int(place[1]))]
        )
        for place in where
    ]
    world.groups.delete_offsets(OffsetDeleteRequest(group_id=group, topics=topics), answers.append)
    return decode(OffsetDeleteResponse, 0, encode(answers[0], 0))


def codes(answer: OffsetDeleteResponse) -> list[int]:
    return [entry.error_code for topic in answer.topics for entry in topic.partitions]


# describing and listing


@pytest.mark.parametrize("version", range(7))
def test_a_stable_group_shows_its_protocol_and_assignments(version: int) -> None:
    world = World()
    member_id = make_stable(world, "g", metadata=b"meta")
    (group,) = describe(world, version, "g")
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "client", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"meta", b"mine")


def test_protocol_and_metadata_are_shown_only_while_a_generation_is_in_force() -> None:
    world = World()
    make_stable(world, "g", metadata=b"meta")
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range")],
    )
    world.groups.join(request, 3, Client("other", "/127.0.0.1"), lambda response: None)
    (group,) = describe(world, 5, "g")
    assert (group.group_state, group.protocol_data, len(group.members)) == ("PreparingRebalance", "", 2)
    assert [member.member_metadata for member in group.members] == [b"", b""]
    assert [member.member_assignment for member in group.members] == [b"mine", b""]


def test_a_group_that_is_not_there_is_dead_and_from_version_6_on_an_error() -> None:
    world = World()
    (old,) = describe(world, 5, "none")
    assert (old.group_state, old.error_code) == ("Dead", ErrorCode.NONE)
    (new,) = describe(world, 6, "none")
    assert (new.group_state, new.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert new.error_message == "Group none not found."


def test_groups_are_described_in_the_order_asked_each_with_its_own_error() -> None:
    world = World(partitions=3)
    world.runtime.unload(world.groups.partition_for("a"), world.epoch)
    found = [(group.group_id, group.error_code) for group in describe(world, 5, "b", "", "a")]
    assert found == [("b", 0), ("", 0), ("a", ErrorCode.NOT_COORDINATOR)]


def test_groups_are_listed_with_state_and_type_where_the_version_has_them() -> None:
    world = World(partitions=3)
    make_stable(world, "g")
    commit(world, "simple", t0=1)
    assert listed(world, 3) == ["g:consumer::", "simple:::"]
    assert listed(world, 4) == ["g:consumer:Stable:", "simple::Empty:"]
    assert listed(world, 5) == ["g:consumer:Stable:classic", "simple::Empty:classic"]


def test_lists_can_be_filtered_by_state_and_type_in_any_case() -> None:
    world = World(partitions=3)
    make_stable(world, "g")
    commit(world, "simple", t0=1)
    assert listed(world, 4, ("stable",)) == ["g:consumer:Stable:"]
    assert listed(world, 4, ("EMPTY", "Stable")) == ["g:consumer:Stable:", "simple::Empty:"]
    assert listed(world, 4, ("nonsense",)) == []
    assert listed(world, 5, (), ("CLASSIC",)) == ["g:consumer:Stable:classic", "simple::Empty:classic"]
    assert listed(world, 5, (), ("consumer",)) == []
    assert listed(world, 5, ("Empty",), ("consumer", "classic")) == ["simple::Empty:classic"]


def test_no_list_is_given_while_a_partition_is_loading() -> None:
    world = World()
    answers: list[ListGroupsResponse] = []
    world.runtime._loading.append(0)
    world.groups.list_groups(ListGroupsRequest(), 5, answers.append)
    assert answers[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# deleting groups


def test_groups_of_many_partitions_are_deleted_each_with_its_own_answer() -> None:
    world = World(partitions=5)
    make_stable(world, "busy")
    for group in ("a", "b", "c"):
        commit(world, group, t0=1, u2=2)
    answers: list[DeleteGroupsResponse] = []
    world.groups.delete_groups(DeleteGroupsRequest(groups_names=["a", "busy", "none", "b", "a"]), answers.append)
    found = {result.group_id: result.error_code for result in answers[0].results}
    assert found == {"a": 0, "busy": ErrorCode.NON_EMPTY_GROUP, "none": ErrorCode.GROUP_ID_NOT_FOUND, "b": 0}
    world.restart()
    assert [line.split(":")[0] for line in listed(world, 5)] == ["busy", "c"]


def test_pending_offsets_go_with_their_group() -> None:
    world = World()
    commit(world, "g", t0=1)
    world.machine.replay(OffsetCommitted("g", "u", 3, CommittedOffset(9, -1, "", 0)), 1, 77)
    answers: list[DeleteGroupsResponse] = []
    world.groups.delete_groups(DeleteGroupsRequest(groups_names=["g"]), answers.append)
    assert answers[0].results[0].error_code == ErrorCode.NONE
    world.machine.end_transaction(77, committed=True)
    assert list(world.machine.offsets.of_group("g")) == []


# deleting offsets


def test_offsets_of_topics_without_subscribers_are_deleted() -> None:
    world = World()
    make_stable(world, "g", metadata=subscription("t"))
    for topic in ("t", "u"):
        world.machine.replay(OffsetCommitted("g", topic, 0, CommittedOffset(9, -1, "", 0)), 0, -1)
    answer = delete_offsets(world, "g", "t0", "u0", "u1", "x0")
    assert codes(answer) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [topic for topic, _, _ in world.machine.offsets.of_group("g")] == ["t"]


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_of_every_version_are_understood(version: int) -> None:
    world = World()
    make_stable(world, "g", metadata=subscription("t", version=version))
    assert codes(delete_offsets(world, "g", "t0", "u0")) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\x00\x00\x7f\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x05t"])
def test_metadata_that_nobody_understands_counts_as_subscribed_to_everything(metadata: bytes) -> None:
    world = World()
    make_stable(world, "g", metadata=metadata)
    assert codes(delete_offsets(world, "g", "t0")) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_of_a_group_of_another_protocol_are_deleted_only_when_it_is_empty() -> None:
    world = World()
    make_stable(world, "g", protocol_type="connect")
    assert delete_offsets(world, "g", "t0").error_code == ErrorCode.NON_EMPTY_GROUP
    assert delete_offsets(world, "none", "t0").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete_offsets(world, "", "t0").error_code == ErrorCode.INVALID_GROUP_ID
    commit(world, "simple", t0=1)
    assert codes(delete_offsets(world, "simple", "t0")) == [ErrorCode.NONE]


def test_offsets_of_subscribed_topics_do_not_age() -> None:
    world = World(offsets_retention_minutes=1, offsets_retention_check_interval_ms=600_000)
    make_stable(world, "g", metadata=subscription("t"))
    for topic in ("t", "u"):
        value = CommittedOffset(9, -1, "", world.clock.wall_ms())
        world.machine.replay(OffsetCommitted("g", topic, 0, value), 0, -1)
    world.advance(600_000)
    assert [topic for topic, _, _ in world.machine.offsets.of_group("g")] == ["t"]


def test_a_retention_that_the_client_asked_for_counts() -> None:
    world = World(offsets_retention_check_interval_ms=600_000)
    now_ms = world.clock.wall_ms()
    for partition, expire_ms in enumerate((now_ms + 600_000, now_ms + 600_001)):
        value = CommittedOffset(9, -1, "", now_ms, expire_ms)
        world.machine.replay(OffsetCommitted("g", "t", partition, value), 0, -1)
    world.advance(600_000)
    assert [partition for _, partition, _ in world.machine.offsets.of_group("g")] == [1]


def test_pending_offsets_do_not_age_and_keep_their_group() -> None:
    world = World(offsets_retention_minutes=1, offsets_retention_check_interval_ms=600_000)
    commit(world, "g", t0=1)
    world.machine.replay(OffsetCommitted("g", "t", 0, CommittedOffset(9, -1, "", 0)), 1, 77)
    world.advance(600_000)
    assert [partition for _, partition, _ in world.machine.offsets.of_group("g")] == [0]
    world.machine.end_transaction(77, committed=False)
    world.advance(600_000)
    assert world.machine.groups == {}


# topics that are deleted


def test_offsets_go_with_their_topic() -> None:
    world = World(partitions=3)
    for group in ("a", "b"):
        commit(world, group, t0=1, t1=2, u0=3)
    topic_id = world.topics.topic_id("t")
    assert topic_id is not None
    world.groups.topics_deleted([("t", topic_id)])
    left = [
        (group, topic)
        for shard in world.runtime.shards()
        for group in shard.machine.groups
        for topic, _, _ in shard.machine.offsets.of_group(group)
    ]
    assert sorted(left) == [("a", "u"), ("b", "u")]


def test_a_commit_for_a_namesake_made_since_stays() -> None:
    world = World()
    commit(world, "g", t0=1)
    world.groups.topics_deleted([("t", UNKNOWN_ID)])
    assert [topic for topic, _, _ in world.machine.offsets.of_group("g")] == ["t"]


def test_many_tombstones_are_written_in_batches_that_fit() -> None:
    world = World()
    for partition in range(2_500):
        world.machine.replay(OffsetCommitted("g", "t", partition, CommittedOffset(1, -1, "", 0)), 0, -1)
    world.groups.topics_deleted([("t", UNKNOWN_ID)])
    assert len(world.log.batches) == 3
    assert list(world.machine.offsets.of_group("g")) == []

"""Consumer groups beside classic ones: offsets, deletion, age, description, and one kind that follows the other."""

from __future__ import annotations

import pytest

from tests.unit.coordinator.fakes import World
from tests.unit.coordinator.group.consumer.members import GROUP, Consumer, group_of, settle
from tests.unit.coordinator.group.test_administration import describe, listed, make_stable
from tests.unit.coordinator.group.test_offset_fetch import commit
from tidelog.coordinator.group.records import OffsetCommitted
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tidelog.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse


@pytest.fixture
def world() -> World:
    return World()


def commit_as(world: World, member_id: str, epoch: int, partition: int = 0, version: int = 9) -> ErrorCode:
    answers: list[OffsetCommitResponse] = []
    asked = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)
    request = OffsetCommitRequest(
        group_id=GROUP,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[asked])],
    )
    world.groups.commit_offsets(request, version, answers.append)
    world.settle()
    return ErrorCode(answers[0].topics[0].partitions[0].error_code)


def fetch_as(world: World, member_id: str | None, epoch: int) -> ErrorCode:
    answers: list[OffsetFetchResponse] = []
    group = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=None
    )
    world.groups.fetch_offsets(OffsetFetchRequest(groups=[group]), 9, answers.append)
    return ErrorCode(answers[0].groups[0].error_code)


def delete(world: World) -> ErrorCode:
    answers: list[DeleteGroupsResponse] = []
    world.groups.delete_groups(DeleteGroupsRequest(groups_names=[GROUP]), answers.append)
    return ErrorCode(answers[0].results[0].error_code)


def types(world: World, state: list[str], kinds: list[str]) -> list[tuple[str, str, str, str]]:
    answers: list[ListGroupsResponse] = []
    world.groups.list_groups(ListGroupsRequest(states_filter=state, types_filter=kinds), 5, answers.append)
    return [(entry.group_id, entry.protocol_type, entry.group_state, entry.group_type) for entry in answers[0].groups]


def describe_consumer(world: World, group_id: str = GROUP) -> ConsumerGroupDescribeResponse.DescribedGroup:
    answers: list[ConsumerGroupDescribeResponse] = []
    world.groups.describe_consumer_groups(ConsumerGroupDescribeRequest(group_ids=[group_id]), answers.append)
    return answers[0].groups[0]


def test_members_commit_with_their_epoch(world: World) -> None:
    a = Consumer(world, "a").join()
    assert commit_as(world, "a", a.epoch) is ErrorCode.NONE
    assert commit_as(world, "b", a.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_as(world, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_as(world, "a", a.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit_as(world, "a", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit_as(world, "a", a.epoch, version=8) is ErrorCode.UNSUPPORTED_VERSION
    a.leave()
    assert commit_as(world, "", -1) is ErrorCode.NONE


def test_an_older_epoch_may_commit_what_the_member_has_had_ever_since(world: World) -> None:
    a, b = Consumer(world, "a").join(), Consumer(world, "b").join()
    settle(a, b)
    assert (a.epoch, a.partitions, b.partitions) == (2, [0, 1], [2, 3])
    assert commit_as(world, "a", 1, 0) is ErrorCode.NONE
    assert commit_as(world, "a", 1, 2) is ErrorCode.STALE_MEMBER_EPOCH
    b.leave()
    assert a.beat().partitions == [0, 1, 2, 3]
    # Another had it in between: what was committed in the old epoch may be long behind.
    assert commit_as(world, "a", 1, 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit_as(world, "a", a.epoch, 2) is ErrorCode.NONE


def test_what_is_being_given_up_may_still_be_committed(world: World) -> None:
    a = Consumer(world, "a").join()
    Consumer(world, "b").join()
    a.beat()
    assert a.partitions == [0, 1]
    assert commit_as(world, "a", 1, 3) is ErrorCode.NONE


def test_members_fetch_with_their_epoch(world: World) -> None:
    a = Consumer(world, "a").join()
    assert fetch_as(world, None, -1) is ErrorCode.NONE
    assert fetch_as(world, "a", a.epoch) is ErrorCode.NONE
    assert fetch_as(world, "a", a.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch_as(world, "b", a.epoch) is ErrorCode.UNKNOWN_MEMBER_ID


def test_it_is_listed_and_described_as_what_it_is(world: World) -> None:
    a = Consumer(world, "a", instance_id="i").join()
    commit(world, "old", t0=1)
    assert types(world, [], ["Consumer"]) == [(GROUP, "consumer", "Stable", "consumer")]
    assert types(world, ["empty"], []) == [("old", "", "Empty", "classic")]
    assert types(world, ["stable"], ["classic"]) == []
    described = describe_consumer(world)
    member = described.members[0]
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 1, 1)
    assert (described.assignor_name, member.member_id, member.instance_id) == ("uniform", "a", "i")
    assert (member.member_epoch, member.member_type, member.client_host) == (a.epoch, 1, "/127.0.0.1")
    assert member.assignment == member.target_assignment
    assert [(part.topic_name, part.partitions) for part in member.assignment.topic_partitions] == [("t", [0, 1, 2, 3])]
    assert describe_consumer(world, "old").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert describe_consumer(world, "none").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert describe_consumer(world, "").error_code == ErrorCode.INVALID_GROUP_ID
    assert describe(world, 6, GROUP)[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert describe(world, 5, GROUP)[0].group_state == "Dead"


def test_it_is_deleted_when_it_is_empty_and_all_of_it(world: World) -> None:
    a = Consumer(world, "a", regex="t").join()
    settle(a)
    commit_as(world, "a", a.epoch)
    assert delete(world) is ErrorCode.NON_EMPTY_GROUP
    a.leave()
    assert delete(world) is ErrorCode.NONE
    assert (listed(world, 5), world.machine.consumers.all()) == ([], [])
    last: dict[bytes, bytes | None] = dict(world.log.records())
    assert set(last.values()) == {None}
    assert delete(world) is ErrorCode.GROUP_ID_NOT_FOUND


def test_its_offsets_are_kept_while_it_subscribes_and_go_by_age_afterwards(world: World) -> None:
    a = Consumer(world, "a").join()
    commit_as(world, "a", a.epoch)
    half = world.config.offsets_retention_ms // 2
    for _ in range(3):
        world.clock.ms += half
        a.join()
    assert list(world.machine.offsets.of_group(GROUP))
    a.leave()
    world.advance(2 * world.config.offsets_retention_check_interval_ms)
    assert not list(world.machine.offsets.of_group(GROUP))
    assert GROUP not in world.machine.consumers


def test_offsets_of_topics_in_use_are_not_deleted(world: World) -> None:
    a = Consumer(world, "a").join()
    commit_as(world, "a", a.epoch)
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    request = OffsetDeleteRequest(
        group_id=GROUP, topics=[OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=[partition])]
    )
    answers: list[OffsetDeleteResponse] = []
    world.groups.delete_offsets(request, answers.append)
    a.leave()
    world.groups.delete_offsets(request, answers.append)
    codes = [answer.topics[0].partitions[0].error_code for answer in answers]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert not list(world.machine.offsets.of_group(GROUP))


def test_an_empty_classic_group_makes_way_and_keeps_its_offsets(world: World) -> None:
    commit(world, GROUP, t0=7)
    a = Consumer(world, "a").join()
    assert a.error is ErrorCode.NONE
    assert GROUP not in world.machine.groups
    world.restart()
    assert (GROUP in world.machine.groups, group_of(world).state) == (False, "Stable")
    assert [value.offset for _, _, value in world.machine.offsets.of_group(GROUP)] == [7]
    records = [world.machine.decode(key, value) for key, value in world.log.records()]
    assert isinstance(records[0], OffsetCommitted)


def test_an_empty_consumer_group_makes_way_for_a_classic_one(world: World) -> None:
    Consumer(world, "a").join().leave()
    make_stable(world, GROUP)
    assert describe(world, 5, GROUP)[0].group_state == "Stable"
    assert GROUP not in world.machine.consumers
    assert Consumer(world, "b").join().error is not ErrorCode.NONE
    world.restart()
    assert GROUP not in world.machine.consumers
    assert describe(world, 5, GROUP)[0].group_state == "Stable"

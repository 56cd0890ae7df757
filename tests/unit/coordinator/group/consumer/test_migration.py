"""Classic groups that become consumer groups and back, live, and classic members within a consumer group."""

from __future__ import annotations

import pytest

from tests.unit.coordinator.fakes import World
from tests.unit.coordinator.group.consumer.classics import Classic, classic_pair
from tests.unit.coordinator.group.consumer.members import GROUP, Consumer, group_of
from tests.unit.coordinator.group.consumer.test_groups import commit_as, describe_consumer
from tests.unit.coordinator.group.test_administration import describe, make_stable
from tidelog.protocol.errors import ErrorCode


@pytest.fixture
def world() -> World:
    return World()


def rounds(world: World, *members: Classic | Consumer, count: int = 8) -> None:
    for _ in range(count):
        for member in members:
            member.follow() if isinstance(member, Classic) else member.beat()
            world.advance(100)


@pytest.mark.parametrize("protocol", ["cooperative-sticky", "range"])
def test_a_classic_group_is_joined_by_a_new_consumer_and_left_again(world: World, protocol: str) -> None:
    a, b = classic_pair(world, protocol)
    c = Consumer(world, "c").join()
    assert (c.error, c.owned) == (ErrorCode.NONE, set())
    assert (GROUP in world.machine.groups, len(group_of(world).members)) == (False, 3)
    rounds(world, a, b, c)
    assert sorted([*a.partitions, *b.partitions, *c.partitions]) == [0, 1, 2, 3]
    assert c.partitions and a.partitions and b.partitions
    assert group_of(world).state == "Stable"
    kinds = {member.member_id: member.member_type for member in describe_consumer(world).members}
    assert kinds == {a.member_id: 0, b.member_id: 0, "c": 1}
    c.leave()
    assert GROUP not in world.machine.consumers
    assert describe(world, 5, GROUP)[0].group_state == "PreparingRebalance"
    a.join()
    b.join()
    assert {a.joined[0].generation_id, b.joined[0].generation_id} == {group_epoch(a)}


def group_epoch(member: Classic) -> int:
    return member.joined[0].generation_id


def test_nothing_moves_until_somebody_gives_it_up(world: World) -> None:
    a, b = classic_pair(world)
    c = Consumer(world, "c").join()
    for _ in range(3):
        assert c.beat().owned == set()
    assert a.beat().error is ErrorCode.REBALANCE_IN_PROGRESS
    a.join().sync()
    moved = {("t", 0), ("t", 1)} - a.owned
    if not moved:
        b.follow()
        moved = {("t", 2), ("t", 3)} - b.owned
    assert len(moved) == 1
    assert c.beat().owned == set()  # told to give it up, and has not said yet that it did
    rounds(world, a, b, c)
    assert c.owned == moved


def test_it_survives_a_restart_on_either_side(world: World) -> None:
    a, b = classic_pair(world)
    world.restart()
    c = Consumer(world, "c").join()
    rounds(world, a, b, c)
    world.restart()
    rounds(world, a, b, c)
    assert sorted([*a.partitions, *b.partitions, *c.partitions]) == [0, 1, 2, 3]
    c.leave()
    world.restart()
    assert describe(world, 5, GROUP)[0].group_state == "Stable"
    assert a.beat().error is ErrorCode.NONE


def test_a_classic_consumer_joins_a_consumer_group(world: World) -> None:
    a = Consumer(world, "a").join()
    b = Classic(world, "b").join().sync()
    assert (b.error, b.owned) == (ErrorCode.NONE, set())
    rounds(world, a, b)
    assert (a.partitions, b.partitions) == ([0, 1], [2, 3])
    assert commit_as(world, b.member_id, b.generation, 2, version=8) is ErrorCode.NONE
    assert commit_as(world, b.member_id, b.generation - 1, 2) is ErrorCode.ILLEGAL_GENERATION
    assert b.leave() is ErrorCode.NONE
    rounds(world, a)
    assert a.partitions == [0, 1, 2, 3]


def test_a_static_classic_member_comes_back_under_another_id(world: World) -> None:
    a = Consumer(world, "a").join()
    b = Classic(world, "b", instance_id="i").join().sync()
    rounds(world, a, b)
    epoch, had = group_of(world).epoch, b.owned
    back = Classic(world, "b", instance_id="i").join().sync()
    assert (back.owned, group_of(world).epoch) == (had, epoch)
    assert b.beat().error is ErrorCode.FENCED_INSTANCE_ID


def test_classic_members_are_fenced_as_in_a_classic_group(world: World) -> None:
    Consumer(world, "a").join()
    b = Classic(world, "b").join().sync()
    generation = b.generation
    b.generation += 1
    assert b.beat().error is ErrorCode.ILLEGAL_GENERATION
    b.generation = generation
    b.member_id, known = "somebody", b.member_id
    assert b.beat().error is ErrorCode.UNKNOWN_MEMBER_ID
    b.member_id = "a"
    assert b.beat().error is ErrorCode.UNKNOWN_MEMBER_ID  # it does not speak this protocol
    b.member_id = known
    world.advance(31_000)
    assert b.beat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_does_not_join_again_or_does_not_sync_is_out(world: World) -> None:
    a = Consumer(world, "a").join()
    b = Classic(world, "b").join()
    c = Classic(world, "c").join().sync()
    b.member_id, b.generation = b.joined[0].member_id, b.joined[0].generation_id
    for _ in range(14):
        world.advance(5_000)
        for member in (a, b, c):
            member.beat()
    assert b.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert c.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert set(group_of(world).members) == {"a"}


def test_what_cannot_be_understood_is_not_migrated(world: World) -> None:
    make_stable(world, GROUP, metadata=b"?")
    c = Consumer(world, "c").join()
    assert (c.error, GROUP in world.machine.consumers) == (ErrorCode.GROUP_ID_NOT_FOUND, False)
    assert "cannot be read" in (c.message or "")
    assert describe(world, 5, GROUP)[0].group_state == "Stable"


def test_who_is_refused_has_not_changed_the_group(world: World) -> None:
    a = Classic(world, "a", instance_id="i").join()
    world.advance(10_000)
    a.sync({a.joined[0].member_id: {("t", 0)}})
    assert Consumer(world, "c", regex="(").join().error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert Consumer(world, "c", instance_id="i").join().error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert GROUP not in world.machine.consumers
    assert a.beat().error is ErrorCode.NONE


def test_another_protocol_is_not_migrated(world: World) -> None:
    make_stable(world, GROUP, protocol_type="connect")
    assert Consumer(world, "c").join().error is ErrorCode.GROUP_ID_NOT_FOUND
    assert describe(world, 5, GROUP)[0].protocol_type == "connect"


@pytest.mark.parametrize(("policy", "up", "down"), [("disabled", False, False), ("upgrade", True, False)])
def test_the_policy_decides(policy: str, up: bool, down: bool) -> None:
    world = World(group_consumer_migration_policy=policy)  # type: ignore[arg-type]
    classic_pair(world)
    c = Consumer(world, "c").join()
    assert (c.error is ErrorCode.NONE) is up
    if up:
        c.leave()
        assert (GROUP in world.machine.consumers) is not down


def test_classic_members_that_share_no_protocol_are_refused(world: World) -> None:
    Consumer(world, "a").join()
    Classic(world, "b").join().sync()
    other = Classic(world, "c", protocol="range").join()
    assert other.joined[0].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_log_that_refuses_is_told_to_who_joins(world: World) -> None:
    Consumer(world, "a").join()
    b = Classic(world, "b", instance_id="i")
    world.log.failure = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert b.join().joined[0].error_code == ErrorCode.NOT_COORDINATOR
    world.log.failure = None
    assert b.join().sync().error is ErrorCode.NONE

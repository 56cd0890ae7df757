"""ConsumerGroupHeartbeat: joining, being led to an assignment, leaving, and every way to be refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.coordinator.fakes import World
from tests.unit.coordinator.group.consumer.members import GROUP, Consumer, group_of, send, settle
from tidelog.protocol.errors import ErrorCode


@pytest.fixture
def world() -> World:
    return World()


def two(world: World) -> tuple[Consumer, Consumer]:
    a, b = Consumer(world, "a").join(), Consumer(world, "b").join()
    settle(a, b)
    return a, b


def test_the_first_member_gets_all_at_once(world: World) -> None:
    a = Consumer(world, "a").join()
    assert (a.epoch, a.partitions) == (1, [0, 1, 2, 3])


def test_a_second_one_gets_its_half_when_the_first_has_given_it_up(world: World) -> None:
    a = Consumer(world, "a").join()
    b = Consumer(world, "b").join()
    assert (b.epoch, b.partitions) == (2, [])
    a.beat()
    assert (a.epoch, a.partitions) == (1, [0, 1])  # told, but it has not said yet that it did
    assert b.beat().partitions == []
    a.beat()
    assert (a.epoch, a.partitions) == (2, [0, 1])
    assert b.beat().partitions == [2, 3]
    assert group_of(world).state == "Stable"


def test_a_member_that_does_not_say_what_it_owns_has_given_up_nothing(world: World) -> None:
    a = Consumer(world, "a").join()
    b = Consumer(world, "b").join()
    a.beat(tells=False)
    for _ in range(3):
        a.beat(tells=False)
        assert b.beat().partitions == []
    a.beat()
    assert b.beat().partitions == [2, 3]


def test_nothing_new_is_a_small_answer_without_records(world: World) -> None:
    a = Consumer(world, "a").join()
    world.advance(6_000)
    end = world.log.end
    response = send(world, member_id="a", member_epoch=a.epoch)
    assert (response.assignment, response.heartbeat_interval_ms, world.log.end) == (None, 5_000, end)


def test_the_interval_is_short_while_there_is_something_to_do(world: World) -> None:
    a, b = two(world)
    assert (a.interval_ms, b.interval_ms) == (100, 100)
    world.advance(6_000)
    assert a.beat().interval_ms == 5_000
    Consumer(world, "c").join()
    assert a.beat().interval_ms == 100


def test_a_full_request_gets_the_assignment_again(world: World) -> None:
    a = Consumer(world, "a").join()
    response = a.full()
    assert response.assignment is not None and response.assignment.topic_partitions[0].partitions == [0, 1, 2, 3]


def test_who_leaves_makes_way(world: World) -> None:
    a, b = two(world)
    b.leave()
    assert b.error is ErrorCode.NONE
    assert a.beat().partitions == [0, 1, 2, 3]
    a.leave()
    assert group_of(world).state == "Empty"
    assert send(world, member_id="a", member_epoch=3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_is_not_heard_of_is_out(world: World) -> None:
    a, b = two(world)
    for _ in range(10):
        world.advance(5_000)
        a.beat()
    settle(a)
    assert a.partitions == [0, 1, 2, 3]
    assert b.beat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_does_not_give_up_in_time_is_out(world: World) -> None:
    a = Consumer(world, "a", rebalance_timeout_ms=20_000).join()
    b = Consumer(world, "b").join()
    a.beat()
    for _ in range(5):
        world.advance(4_000)
        a.error = ErrorCode(send(world, member_id="a", member_epoch=a.epoch).error_code)
        b.beat()
    assert a.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.beat().partitions == [0, 1, 2, 3]


def test_a_lost_answer_may_be_asked_for_again_with_the_epoch_before(world: World) -> None:
    a = Consumer(world, "a").join()
    Consumer(world, "b").join().leave()
    assert send(world, member_id="a", member_epoch=1).member_epoch == 3
    again = a.full()
    assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, 3)


def test_a_lost_answer_is_no_excuse_for_what_a_member_does_not_have(world: World) -> None:
    a = Consumer(world, "a").join()
    Consumer(world, "b").join().leave()
    send(world, member_id="a", member_epoch=1)
    a.owned |= {("u", 1)}
    assert a.beat().error is ErrorCode.FENCED_MEMBER_EPOCH
    assert send(world, member_id="a", member_epoch=1).error_code == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("epoch", [2, 7])
def test_an_epoch_that_never_was_is_fenced(world: World, epoch: int) -> None:
    Consumer(world, "a").join()
    assert send(world, member_id="a", member_epoch=epoch).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_fenced_member_joins_again_and_has_what_it_had(world: World) -> None:
    a, b = two(world)
    assert a.join().error is ErrorCode.NONE
    assert (a.partitions, b.beat().partitions) == ([0, 1], [2, 3])


JOIN: dict[str, Any] = {
    "member_id": "a",
    "rebalance_timeout_ms": 1_000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "best"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -2, "instance_id": "i"}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    world: World, fields: dict[str, Any], error: ErrorCode
) -> None:
    response = send(world, **{**JOIN, **fields})
    assert (ErrorCode(response.error_code), bool(response.error_message)) == (error, True)
    assert (world.log.end, world.machine.consumers.all()) == (0, [])


def test_version_0_is_given_an_id(world: World) -> None:
    response = send(world, 0, **{**JOIN, "member_id": ""})
    assert (response.error_code, len(response.member_id or "")) == (ErrorCode.NONE, 36)
    assert send(world, 0, **{**JOIN, "member_id": "", "member_epoch": 1}).error_code == ErrorCode.INVALID_REQUEST


def test_a_group_that_is_full_takes_nobody_more() -> None:
    world = World(group_consumer_max_size=2)
    a, _ = two(world)
    assert Consumer(world, "c").join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.join().error is ErrorCode.NONE


def test_who_subscribes_to_more_gets_more(world: World) -> None:
    a, b = two(world)
    a.topics = ["t", "u"]
    a.take(a.full())
    settle(a, b)
    assert len(a.owned) + len(b.owned) == 8 and ("u", 0) in a.owned
    assert {topic for topic, _ in b.owned} == {"t"}


def test_the_assignor_that_most_ask_for_is_used(world: World) -> None:
    world.topics.partitions = {"t": 3, "u": 3}
    consumers = [Consumer(world, name, topics=["t", "u"], assignor="range").join() for name in "ab"]
    settle(*consumers)
    assert consumers[0].owned == {("t", 0), ("t", 1), ("u", 0), ("u", 1)}
    assert consumers[1].owned == {("t", 2), ("u", 2)}


# static members


def test_a_static_member_comes_back_under_another_id_and_nobody_notices(world: World) -> None:
    a, b = Consumer(world, "a", instance_id="i").join(), Consumer(world, "b").join()
    settle(a, b)
    epoch, had = group_of(world).epoch, a.partitions
    a.leave(-2)
    assert a.error is ErrorCode.NONE
    settle(b)
    assert b.partitions == [2, 3]
    back = Consumer(world, "c", instance_id="i").join()
    assert (back.error, back.partitions, group_of(world).epoch) == (ErrorCode.NONE, had, epoch)
    assert back.epoch == epoch
    assert send(world, member_id="a", member_epoch=epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    world.restart()
    assert back.beat().error is ErrorCode.NONE


def test_a_static_member_that_stays_away_too_long_loses_its_place(world: World) -> None:
    a, b = Consumer(world, "a", instance_id="i").join(), Consumer(world, "b").join()
    settle(a, b)
    a.leave(-2)
    for _ in range(10):
        world.advance(5_000)
        b.beat()
    settle(b)
    assert b.partitions == [0, 1, 2, 3]


def test_an_instance_that_has_not_left_keeps_its_name(world: World) -> None:
    Consumer(world, "a", instance_id="i").join()
    assert Consumer(world, "b", instance_id="i").join().error is ErrorCode.UNRELEASED_INSTANCE_ID
    fields = {"member_id": "b", "member_epoch": 1, "instance_id": "i"}
    assert send(world, **fields).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert send(world, **{**fields, "member_epoch": -1}).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert send(world, **{**fields, "instance_id": "j"}).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_leaves_for_good_is_gone(world: World) -> None:
    a = Consumer(world, "a", instance_id="i").join()
    b = Consumer(world, "b").join()
    settle(a, b)
    a.leave()
    settle(b)
    assert b.partitions == [0, 1, 2, 3]


# metadata


def test_more_partitions_are_assigned(world: World) -> None:
    a = Consumer(world, "a").join()
    world.topics.partitions["t"] = 6
    world.groups.topics_changed({"t"}, came_or_went=False)
    assert a.beat().partitions == [0, 1, 2, 3, 4, 5]


def test_a_topic_that_is_not_there_yet_is_assigned_when_it_is(world: World) -> None:
    a = Consumer(world, "a", topics=["new"]).join()
    assert a.owned == set()
    world.topics.partitions["new"] = 2
    world.groups.topics_changed({"new"}, came_or_went=True)
    assert a.beat().owned == {("new", 0), ("new", 1)}


def test_a_topic_that_is_gone_is_taken_away(world: World) -> None:
    a = Consumer(world, "a", topics=["t", "u"]).join()
    del world.topics.partitions["u"]
    world.groups.topics_changed({"u"}, came_or_went=True)
    settle(a)
    assert a.partitions == [0, 1, 2, 3]


def test_what_changed_while_nobody_answered_for_the_group_is_found(world: World) -> None:
    a = Consumer(world, "a").join()
    world.topics.partitions["t"] = 5
    world.restart()
    assert a.beat().partitions == [0, 1, 2, 3, 4]


# regular expressions


def test_a_regular_expression_is_resolved_beside_the_heartbeat(world: World) -> None:
    world.topics.partitions |= {"logs-a": 1, "logs-b": 1}
    a = Consumer(world, "a", topics=None, regex="logs-.").join()
    assert a.interval_ms == 100
    assert a.beat().owned == {("logs-a", 0), ("logs-b", 0)}
    world.topics.partitions["logs-c"] = 1
    world.groups.topics_changed({"logs-c"}, came_or_went=True)
    world.advance(1_000)
    assert a.beat().owned == {("logs-a", 0), ("logs-b", 0), ("logs-c", 0)}


def test_a_member_that_changes_to_one_that_is_none_keeps_what_it_has(world: World) -> None:
    a = Consumer(world, "a", topics=None, regex="t").join()
    settle(a)
    a.regex = "("
    assert a.take(a.full()).error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert list(group_of(world).regexes) == ["t"]
    assert (a.beat().error, a.partitions) == (ErrorCode.NONE, [0, 1, 2, 3])


def test_its_record_goes_with_the_last_who_uses_it(world: World) -> None:
    consumers = [Consumer(world, name, topics=None, regex="t|u").join() for name in "ab"]
    settle(*consumers)
    assert list(group_of(world).regexes) == ["t|u"]
    consumers[0].leave()
    assert list(group_of(world).regexes) == ["t|u"]
    consumers[1].regex = "t"
    consumers[1].take(consumers[1].full())
    settle(consumers[1])
    assert list(group_of(world).regexes) == ["t"]
    assert consumers[1].partitions == [0, 1, 2, 3]


# the log


def test_a_log_that_refuses_leaves_no_group(world: World) -> None:
    world.log.failure = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert Consumer(world, "a").join().error is ErrorCode.NOT_COORDINATOR
    assert GROUP not in world.machine.consumers
    world.log.failure = None
    assert Consumer(world, "a").join().partitions == [0, 1, 2, 3]


def test_a_session_that_ends_while_the_log_refuses_ends_later(world: World) -> None:
    a, b = two(world)
    world.log.failure = ErrorCode.KAFKA_STORAGE_ERROR
    world.advance(46_000)
    assert set(group_of(world).members) == {"a", "b"}
    world.log.failure = None
    a.beat()
    world.advance(44_000)
    a.beat()
    world.advance(2_000)
    assert set(group_of(world).members) == {"a"}
    assert b.beat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_answer_waits_until_its_records_are_committed(world: World) -> None:
    world.log.holds = True
    with pytest.raises(AssertionError):
        Consumer(world, "a").join()
    world.log.commit()


def test_a_replica_that_sees_the_log_only_knows_the_same(world: World) -> None:
    a, b = two(world)
    a.leave()
    settle(b)
    group, twin = group_of(world), world.replayed().consumers.get(GROUP)
    assert twin is not None
    for name in ("epoch", "metadata_hash", "members", "currents", "targets", "target_epoch", "regexes", "static_ids"):
        assert getattr(group, name) == getattr(twin, name)

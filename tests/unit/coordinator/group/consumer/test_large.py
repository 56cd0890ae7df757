"""A thousand members over five thousand partitions: what a heartbeat may cost, counted and not timed."""

from __future__ import annotations

import pytest

from tests.unit.coordinator.fakes import World
from tests.unit.coordinator.group.consumer.members import Consumer, group_of
from tidelog.coordinator.group.consumer import targets
from tidelog.coordinator.group.coordinator import Client
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


class Counted:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        compute = targets.compute

        def counting(*arguments: object) -> object:
            self.count += 1
            return compute(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(targets, "compute", counting)


def large(members: int, partitions: int) -> tuple[World, list[Consumer]]:
    world = World()
    world.topics.partitions = {"t": partitions}
    return world, [Consumer(world, f"m{number:04}") for number in range(members)]


def test_a_target_serves_all_who_joined_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    world, consumers = large(100, 2_000)
    for consumer in consumers:
        consumer.join()
        world.advance(1)
    assert (group_of(world).epoch, counted.count) == (100, 1)
    world.advance(500)
    assert (group_of(world).target_epoch, counted.count) == (100, 2)
    for _ in range(4):
        for consumer in consumers:
            consumer.beat()
    assert counted.count == 2
    assert {len(consumer.owned) for consumer in consumers} == {20}


def test_the_target_of_a_large_group_is_written_in_another_turn_than_it_is_computed_in() -> None:
    world, consumers = large(2, 2_000)
    for consumer in consumers:
        consumer.join()
    world.advance(1_000)
    group = group_of(world)
    assert group.target_epoch == 2
    consumers[0].leave()
    assert (group.epoch, group.target_epoch) == (3, 2)
    assert group.live.computed is not None
    # Somebody comes between the two: the target is that of the epoch before, and the next one follows.
    late = Consumer(world, "late").join()
    assert group.epoch == 4
    world.advance(1)
    assert (group.epoch, group.target_epoch) == (4, 3)
    world.advance(1_000)
    assert group.target_epoch == 4
    for _ in range(4):
        consumers[1].beat()
        late.beat()
    assert (len(consumers[1].owned), len(late.owned)) == (1_000, 1_000)


def test_a_small_group_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    _, consumers = large(3, 12)
    for consumer in consumers:
        consumer.join()
    assert counted.count == 3


def test_a_heartbeat_that_says_nothing_new_asks_nothing_of_the_topics() -> None:
    world, (consumer,) = large(1, 5_000)
    consumer.join()
    world.advance(6_000)
    world.topics.partitions.clear()
    assert consumer.beat(tells=False).interval_ms == 5_000


def test_a_static_member_that_comes_back_before_its_target_is_written_gets_that_of_its_new_id() -> None:
    """No epoch tells of it, so no other target would follow; what was computed for its old id would go to nobody."""
    world, (first, second) = large(2, 2_000)
    static = Consumer(world, "old", instance_id="i")
    for consumer in (first, second, static):
        consumer.join()
    world.advance(1_000)
    first.leave()
    group = group_of(world)
    assert group.live.computed is not None
    static.leave(-2)
    back = Consumer(world, "new", instance_id="i").join()
    assert (group.epoch, group.target_epoch) == (4, 3)
    world.advance(2)
    assert (group.epoch, group.target_epoch) == (4, 4)
    for _ in range(3):
        second.beat()
        back.beat()
    assert (len(second.owned), len(back.owned)) == (1_000, 1_000)


def test_a_topic_that_comes_while_an_expression_is_matched_is_not_missed() -> None:
    world = World()
    world.topics.partitions = {f"topic-{number:05}": 1 for number in range(10_000)}
    consumer = Consumer(world, "m", topics=None, regex="topic-.*")
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        subscribed_topic_regex=consumer.regex,
        rebalance_timeout_ms=60_000,
        topic_partitions=[],
    )
    world.groups.consumer_heartbeat(request, 1, Client("client", "/127.0.0.1"), lambda answer: None)
    world.runtime.poll()
    group = group_of(world)
    assert group.live.matching == {consumer.regex}
    world.topics.partitions["topic-late"] = 1
    world.groups.topics_changed({"topic-late"}, came_or_went=True)
    world.settle()
    assert len(group.regexes["topic-.*"].topics) == 10_000
    world.advance(1_000)
    assert len(group.regexes["topic-.*"].topics) == 10_001

"""A heartbeat that was held up on a connection which its member has given up since. The simulation has found it: the
member sends its join once more on another connection, gets partitions, and then the first join arrives, which says that
it owns nothing; what the group wants of it would pass to another while it still reads."""

from __future__ import annotations

from tests.unit.coordinator.fakes import World
from tests.unit.coordinator.group.consumer.members import GROUP, group_of
from tidelog.coordinator.group.coordinator import Client
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


class Wire:
    """Members that speak on numbered connections."""

    def __init__(self) -> None:
        self.world = World()
        self.dropped: list[int] = []

    def send(self, connection: int, member_id: str, epoch: int = 0) -> ConsumerGroupHeartbeatResponse | None:
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch)
        if epoch == 0:
            request.rebalance_timeout_ms, request.subscribed_topic_names, request.topic_partitions = 60_000, ["t"], []
        answers: list[ConsumerGroupHeartbeatResponse] = []
        client = Client("client", "/127.0.0.1", connection, lambda: self.dropped.append(connection))
        self.world.groups.consumer_heartbeat(request, 1, client, answers.append)
        self.world.settle()
        return answers[0] if answers else None


def test_a_late_join_of_an_older_connection_gives_nothing_up() -> None:
    wire = Wire()
    wire.send(2, "a")
    wire.send(3, "b")
    before = group_of(wire.world).current("a")
    assert wire.send(1, "a") is None
    assert wire.dropped == [1]
    assert group_of(wire.world).current("a") is before
    answer = wire.send(3, "b", epoch=2)
    assert answer is not None and answer.assignment is None, "it is not free yet"


def test_a_late_farewell_of_an_older_connection_is_not_heard() -> None:
    wire = Wire()
    wire.send(2, "a")
    assert wire.send(1, "a", epoch=-1) is None
    assert "a" in group_of(wire.world).members


def test_the_same_and_younger_connections_are_heard() -> None:
    wire = Wire()
    for connection in (1, 1, 4):
        answer = wire.send(connection, "a")
        assert answer is not None and answer.error_code == 0
    assert not wire.dropped


def test_who_has_left_may_come_back_on_any_connection() -> None:
    wire = Wire()
    wire.send(5, "a")
    wire.send(5, "a", epoch=-1)
    assert wire.send(1, "a") is not None

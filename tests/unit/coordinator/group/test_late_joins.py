"""A JoinGroup that was held up on a connection which its member has given up since. Who has joined has given up what it
worked on; were the late one taken for that, the others would get it while the member still works on it."""

from __future__ import annotations

from tests.unit.coordinator.fakes import World
from tests.unit.coordinator.group.consumer.members import Consumer
from tidelog.client.consumer_protocol import encode_subscription
from tidelog.coordinator.group.classic import ClassicGroup
from tidelog.coordinator.group.coordinator import Client
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

GROUP = "g"


class Wire:
    """Members that join on numbered connections."""

    def __init__(self) -> None:
        self.world = World()
        self.dropped: list[int] = []

    @property
    def group(self) -> ClassicGroup:
        group = self.world.machine.group(GROUP)
        assert isinstance(group, ClassicGroup)
        return group

    def join(
        self, connection: int, member_id: str, *, instance_id: str | None = None, topic: str = "t"
    ) -> list[JoinGroupResponse]:
        """The list has the answer once there is one."""
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=encode_subscription([topic]))
        request = JoinGroupRequest(
            group_id=GROUP,
            member_id=member_id,
            group_instance_id=instance_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        answers: list[JoinGroupResponse] = []
        client = Client("client", "/127.0.0.1", connection, lambda: self.dropped.append(connection))
        self.world.groups.join(request, 9, client, answers.append)
        self.world.settle()
        return answers

    def new_id(self, connection: int) -> str:
        (answer,) = self.join(connection, "")
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return answer.member_id

    def sync(self, joined: JoinGroupResponse) -> None:
        assert joined.error_code == ErrorCode.NONE
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"something")
                for member in joined.members
            ],
        )
        answers: list[SyncGroupResponse] = []
        self.world.groups.sync(request, 5, answers.append)
        self.world.settle()

    def beat(self, joined: JoinGroupResponse) -> ErrorCode:
        request = HeartbeatRequest(group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id)
        return ErrorCode(self.world.groups.heartbeat(request).error_code)

    def two_members(self) -> tuple[JoinGroupResponse, JoinGroupResponse]:
        """Of one generation. The first has joined on connection 1, given it up and joined again on 2."""
        first, second = self.new_id(1), self.new_id(3)
        self.join(1, first)
        a, b = self.join(2, first), self.join(3, second)
        self.world.advance(10_000)
        self.sync(a[0])
        self.sync(b[0])
        return a[0], b[0]


def test_a_late_join_of_an_older_connection_does_not_end_a_rebalance() -> None:
    wire = Wire()
    a, b = wire.two_members()
    again = wire.join(3, b.member_id, topic="u")
    assert wire.beat(a) is ErrorCode.REBALANCE_IN_PROGRESS
    assert wire.join(1, a.member_id) == []
    assert wire.dropped == [1]
    assert (again, wire.group.state.value, wire.group.generation) == ([], "PreparingRebalance", a.generation_id)
    # The member has heard of it, gives up what it has and joins on the connection that it has.
    assert wire.join(2, a.member_id)[0].generation_id == again[0].generation_id == a.generation_id + 1


def test_a_late_join_with_another_subscription_begins_no_rebalance() -> None:
    wire = Wire()
    a, b = wire.two_members()
    assert wire.join(1, a.member_id, topic="older") == []
    assert (wire.beat(a), wire.beat(b)) == (ErrorCode.NONE, ErrorCode.NONE)


def test_the_same_and_younger_connections_are_heard() -> None:
    wire = Wire()
    _, b = wire.two_members()
    for connection in (3, 5):
        (answer,) = wire.join(connection, b.member_id)
        assert answer.generation_id == b.generation_id
    assert wire.dropped == []


def test_a_late_join_of_a_static_member_does_not_fence_the_one_that_asked_again() -> None:
    wire = Wire()
    first = wire.join(2, "", instance_id="i")
    wire.world.advance(3_000)
    assert wire.join(1, "", instance_id="i") == []
    assert wire.dropped == [1]
    assert wire.group.static_ids == {"i": first[0].member_id}


def test_a_static_member_that_was_restarted_has_a_younger_connection() -> None:
    wire = Wire()
    first = wire.join(2, "", instance_id="i")
    wire.world.advance(3_000)
    wire.join(3, "", instance_id="i")
    wire.world.advance(3_000)
    assert wire.group.static_ids["i"] != first[0].member_id


def test_a_classic_member_of_a_consumer_group_is_protected_too() -> None:
    wire = Wire()
    Consumer(wire.world, "new").join()
    member_id = wire.new_id(1)
    assert wire.join(2, member_id)[0].error_code == ErrorCode.NONE
    group = wire.world.machine.consumers.get(GROUP)
    assert group is not None
    before = group.current(member_id)
    assert wire.join(1, member_id) == []
    assert (wire.dropped, group.current(member_id)) == ([1], before)


def test_a_restart_forgets_connections() -> None:
    wire = Wire()
    _, b = wire.two_members()
    wire.world.restart()
    assert wire.join(1, b.member_id)[0].error_code == ErrorCode.NONE

"""A consumer of the classic protocol, cooperative or eager, over a coordinator in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.unit.coordinator.fakes import World
from tests.unit.coordinator.group.consumer.members import GROUP, Parts
from tidelog.coordinator.group.consumer.embedded import read_assignment, write_assignment
from tidelog.coordinator.group.coordinator import Client
from tidelog.protocol.codec import encode
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_OWNED = ConsumerProtocolSubscription.TopicPartition


@dataclass
class Classic:
    world: World
    name: str
    topics: list[str] = field(default_factory=lambda: ["t"])
    instance_id: str | None = None
    protocol: str = "cooperative-sticky"
    member_id: str = ""
    generation: int = -1
    owned: Parts = field(default_factory=set)
    error: ErrorCode = ErrorCode.NONE
    joined: list[JoinGroupResponse] = field(default_factory=list)

    def join(self) -> Classic:
        """JoinGroup; the answer may come later."""
        self.joined.clear()
        if self.protocol != "cooperative-sticky":
            self.owned = set()
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name=self.protocol, metadata=self._metadata())
        request = JoinGroupRequest(
            group_id=GROUP,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        self.world.groups.join(request, 9, Client(self.name, "/127.0.0.1"), self.joined.append)
        self.world.settle()
        if self.joined and self.joined[0].error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = self.joined[0].member_id
            return self.join()
        return self

    def sync(self, assignments: dict[str, Parts] | None = None) -> Classic:
        """Takes the answer to its JoinGroup, and SyncGroup."""
        (joined,) = self.joined
        self.error = ErrorCode(joined.error_code)
        if self.error is not ErrorCode.NONE:
            return self
        self.member_id, self.generation = joined.member_id, joined.generation_id
        answers: list[SyncGroupResponse] = []
        request = SyncGroupRequest(
            group_id=GROUP,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=_assignment(parts))
                for member_id, parts in (assignments or {}).items()
            ],
        )
        self.world.groups.sync(request, 5, answers.append)
        self.world.settle()
        if not answers:
            return self
        self.error = ErrorCode(answers[0].error_code)
        assignment = read_assignment(answers[0].assignment)
        if self.error is ErrorCode.NONE and assignment is not None:
            self.owned = {(topic, index) for topic, indexes in assignment.partitions.items() for index in indexes}
        return self

    def beat(self) -> Classic:
        request = HeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            generation_id=self.generation,
            group_instance_id=self.instance_id,
        )
        self.error = ErrorCode(self.world.groups.heartbeat(request).error_code)
        return self

    def follow(self) -> Classic:
        """As a client does: a heartbeat, and another round when it is told so."""
        if self.beat().error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join().sync()
        return self

    def leave(self) -> ErrorCode:
        answers: list[LeaveGroupResponse] = []
        identity = LeaveGroupRequest.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        self.world.groups.leave(LeaveGroupRequest(group_id=GROUP, members=[identity]), 5, answers.append)
        self.world.settle()
        return ErrorCode(answers[0].error_code or answers[0].members[0].error_code)

    @property
    def partitions(self) -> list[int]:
        return sorted(partition for _, partition in self.owned)

    def _metadata(self) -> bytes:
        body = ConsumerProtocolSubscription(
            topics=self.topics,
            owned_partitions=[_OWNED(topic=topic, partitions=[index]) for topic, index in sorted(self.owned)],
            generation_id=self.generation,
        )
        return b"\x00\x02" + encode(body, 2)


def _assignment(parts: Parts) -> bytes:
    topics = {topic for topic, _ in parts}
    return write_assignment({one: frozenset(index for topic, index in parts if topic == one) for one in topics}, 1)


def classic_pair(world: World, protocol: str = "cooperative-sticky") -> tuple[Classic, Classic]:
    """Two members of a classic group that is stable: the first has 0 and 1 of t, the second 2 and 3."""
    a, b = Classic(world, "a", protocol=protocol).join(), Classic(world, "b", protocol=protocol).join()
    world.advance(10_000)
    ids = a.joined[0].member_id, b.joined[0].member_id
    given = {ids[0]: {("t", 0), ("t", 1)}, ids[1]: {("t", 2), ("t", 3)}}
    leader, other = (a, b) if a.joined[0].leader == ids[0] else (b, a)
    leader.sync(given)
    other.sync()
    assert (a.partitions, b.partitions) == ([0, 1], [2, 3])
    return a, b

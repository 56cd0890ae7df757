"""A classic group: its members, its state and its generation. No timers, and no answers are sent from here.

Between two generations this state lives in memory only, as in Kafka: what is durable is one GroupMetadata record per
generation (`to_record`, `from_record`). Who joins, waits and is thrown out when is the business of rebalance.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.coordinator.group.member import Member, Protocols
from tidelog.coordinator.group.state import BEFORE, GroupState
from tidelog.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from tidelog.coordinator.outbox import Waiting
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.join_group import JoinGroupResponse
from tidelog.protocol.messages.records_group import GroupMetadataValue

NO_TIMESTAMP = -1


class ClassicGroup:
    def __init__(self, group_id: str, wall_ms: int = NO_TIMESTAMP) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.state_ms = wall_ms
        """When the state was entered; -1 in records that are older than this field."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        """group.instance.id -> member id."""
        self.pending_joins: set[str] = set()
        """Ids that were handed out with MEMBER_ID_REQUIRED and have not come back."""
        self.pending_syncs: set[str] = set()
        self.topics: frozenset[str] | None = None
        """What a `consumer` group subscribes to, None when that cannot be known."""
        self.new_member_added = False
        self.initial_delay_ms = 0
        self.initial_left_ms = 0
        self._awaiting_join_count = 0
        self._support: dict[str, int] = {}

    # questions

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def is_preparing(self) -> bool:
        return self.state is GroupState.PREPARING_REBALANCE

    @property
    def is_unused(self) -> bool:
        """Nobody is in it or on the way to it."""
        return self.state is GroupState.EMPTY and not self.pending_joins

    @property
    def can_rebalance(self) -> bool:
        return self.state in BEFORE[GroupState.PREPARING_REBALANCE]

    @property
    def all_joined(self) -> bool:
        return self._awaiting_join_count == len(self.members) and not self.pending_joins

    @property
    def awaiting_join_count(self) -> int:
        return self._awaiting_join_count

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_subscribed(self, topic: str) -> bool:
        return self.uses_consumer_protocol if self.topics is None else topic in self.topics

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        if protocol_type != self.protocol_type:
            return False
        return any(self._support.get(name, 0) == len(self.members) for name, _ in protocols)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            current = self.static_ids.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # members

    def add(self, member: Member, waiting: Waiting[JoinGroupResponse] | None) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._count_support(member, 1)
        self.pending_joins.discard(member.member_id)
        self.await_join(member, waiting)

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        self._count_support(member, -1)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self._count_support(member, 1)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_support(member, -1)
            self._awaiting_join_count -= member.awaiting_join is not None
            if member.instance_id is not None:
                del self.static_ids[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)

    def replace_static(self, old: Member, new_id: str) -> Member:
        """The same instance under a new id, as after a restart: it inherits everything but the waiting."""
        assert old.instance_id is not None and old.awaiting_join is None
        was_leader = self.leader_id == old.member_id
        self.remove(old.member_id)
        member = Member(
            member_id=new_id,
            instance_id=old.instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        if was_leader:
            self.leader_id = new_id
        self.add(member, None)
        return member

    def await_join(self, member: Member, waiting: Waiting[JoinGroupResponse] | None) -> None:
        self._awaiting_join_count += (waiting is not None) - (member.awaiting_join is not None)
        member.awaiting_join = waiting

    def _count_support(self, member: Member, by: int) -> None:
        for name, _ in member.protocols:
            self._support[name] = self._support.get(name, 0) + by

    # generations

    def transition(self, state: GroupState, wall_ms: int) -> None:
        assert self.state in BEFORE[state], f"{self.group_id} cannot go from {self.state} to {state}"
        self.previous_state, self.state, self.state_ms = self.state, state, wall_ms

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is one who has joined; False when nobody has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        joined = next((member for member in self.members.values() if member.awaiting_join is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def select_protocol(self) -> str:
        """Among the protocols that all members support, the one that most of them would like best."""
        candidates = {name for name, count in self._support.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def next_generation(self, wall_ms: int) -> None:
        self.generation += 1
        self.protocol = self.select_protocol() if self.members else None
        self._find_topics()
        state = GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY
        self.transition(state, wall_ms)
        self.pending_syncs.clear()

    def _find_topics(self) -> None:
        if not self.uses_consumer_protocol:
            self.topics = None
        elif not self.members:
            self.topics = frozenset()
        elif self.protocol is not None:
            self.topics = subscribed_topics(member.metadata(self.protocol) for member in self.members.values())
        else:
            self.topics = None

    # the durable form

    def to_record(self, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader_id,
            current_state_timestamp=self.state_ms,
            members=[
                member.to_record(self.protocol, assignments.get(member.member_id, b""))
                for member in self.members.values()
            ],
        )

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        group = cls(group_id, value.current_state_timestamp)
        group.state = group.previous_state = GroupState.STABLE if value.members else GroupState.EMPTY
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol
        for record in value.members:
            group.add(Member.from_record(record, value.protocol), None)
        if value.leader in group.members:
            group.leader_id = value.leader
        group._find_topics()
        return group

"""JoinGroup: new members, members that come back, and static members that return under a new id (KIP-345)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group.classic import ClassicGroup
from tidelog.coordinator.group.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from tidelog.coordinator.group.member import Member, Protocols
from tidelog.coordinator.group.rebalance import NOTHING, Outcome, Rebalance, joined
from tidelog.coordinator.group.records import GroupWritten
from tidelog.coordinator.group.state import GroupState
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.outbox import Outbox, Waiting
from tidelog.coordinator.shard_log import coordinator_error
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupResponse

UNKNOWN_MEMBER_ID: Final = ""
_NAME_IN_ID_MAX: Final = 1000
"""Characters: a name may be as long as a string can be, and an id made of it could not be told to anyone."""
_KNOWN_ID_FROM: Final = 4
_SKIP_ASSIGNMENT_FROM: Final = 9
_log = logging.getLogger("tidelog.groups")


class Client(NamedTuple):
    """Who asks."""

    client_id: str
    client_host: str
    """As Kafka prints and stores it: "/127.0.0.1"."""
    connection: int = 0
    """Connections are numbered in the order in which they were accepted."""
    drop: Callable[[], None] = lambda: None
    """Ends the connection."""


@dataclass(slots=True, eq=False)
class Join:
    """One JoinGroup on its way through the coordinator."""

    group_id: str
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: Protocols
    rebalance_timeout_ms: int
    session_timeout_ms: int
    reason: str
    version: int
    client: Client
    waiting: Waiting[JoinGroupResponse]

    @classmethod
    def of(cls, request: JoinGroupRequest, version: int, client: Client, waiting: Waiting[JoinGroupResponse]) -> Join:
        # Version 0 has no rebalance time-out of its own.
        timeout_ms = request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms
        # A name that stands there twice would count twice where support is counted: the first one speaks.
        protocols: dict[str, bytes] = {}
        for protocol in request.protocols:
            protocols.setdefault(protocol.name, protocol.metadata)
        return cls(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocols=tuple(protocols.items()),
            rebalance_timeout_ms=timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            reason=request.reason or "not provided",
            version=version,
            client=client,
            waiting=waiting,
        )


class Joining:
    def __init__(self, config: GroupConfig, rebalance: Rebalance, outbox: Outbox, random: Random) -> None:
        self._config = config
        self._rebalance = rebalance
        self._outbox = outbox
        self._random = random

    def join(self, group: ClassicGroup, join: Join, now: Moment) -> Outcome:
        is_new = join.member_id == UNKNOWN_MEMBER_ID
        if not self._has_room(group, join.member_id):
            if (member := group.members.get(join.member_id)) is not None:
                self._rebalance.dismiss(group, member)
            group.remove(join.member_id)
            return self._refuse(join, ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID)
        if not group.supports(join.protocol_type, join.protocols):
            return self._refuse(join, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id)
        if is_new:
            return self._join_new(group, join, now)
        if join.member_id in group.pending_joins:
            return self._join_pending(group, join, now)
        return self._rejoin(group, join, now)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether group.max.size allows it. While members rejoin, only those who have done so count: were the limit
        lowered, the last to rejoin are the ones to go."""
        member = group.members.get(member_id)
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                has_joined = member is not None and member.awaiting_join is not None
                return has_joined or group.awaiting_join_count < self._config.group_max_size
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member is not None or len(group.members) < self._config.group_max_size
            case _:
                return True

    # new members

    def _join_new(self, group: ClassicGroup, join: Join, now: Moment) -> Outcome:
        new_id = f"{(join.instance_id or join.client.client_id)[:_NAME_IN_ID_MAX]}-{self._uuid()}"
        if join.instance_id is not None:
            current_id = group.static_ids.get(join.instance_id)
            if current_id is not None:
                return self._replace_static(group, join, group.members[current_id], new_id, now)
            return self._add(group, join, new_id, now)
        if join.version >= _KNOWN_ID_FROM:
            # KIP-394: a client that gives up on a slow JoinGroup and asks again must not leave a ghost each time.
            group.pending_joins.add(new_id)
            self._rebalance.expect_by(group, new_id, now.ms + join.session_timeout_ms)
            return self._refuse(join, ErrorCode.MEMBER_ID_REQUIRED, new_id)
        return self._add(group, join, new_id, now, is_anonymous=True)

    def _join_pending(self, group: ClassicGroup, join: Join, now: Moment) -> Outcome:
        if join.instance_id is not None:
            return self._refuse(join, ErrorCode.UNKNOWN_SERVER_ERROR, join.member_id)
        return self._add(group, join, join.member_id, now)

    def _add(
        self, group: ClassicGroup, join: Join, member_id: str, now: Moment, *, is_anonymous: bool = False
    ) -> Outcome:
        member = Member(
            member_id=member_id,
            instance_id=join.instance_id,
            client_id=join.client.client_id,
            client_host=join.client.client_host,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            session_timeout_ms=join.session_timeout_ms,
            protocols=join.protocols,
            is_new=True,
            is_anonymous=is_anonymous,
            connection=join.client.connection,
        )
        if not group.members:
            group.protocol_type = join.protocol_type
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        join.waiting.member_id = member_id
        group.add(member, join.waiting)
        self._rebalance.expect_by(group, member_id, now.ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._log_rebalance(group, join, f"new member {member_id}")
        return self._rebalance.prepare_or_complete(group, now)

    # members that come back

    def _rejoin(self, group: ClassicGroup, join: Join, now: Moment) -> Outcome:
        error = group.check_member(join.member_id, join.instance_id)
        if error is not ErrorCode.NONE:
            self._outbox.send(
                join.waiting, JoinGroupResponse(member_id=join.member_id, error_code=error, protocol_name=None)
            )
            return NOTHING
        member = group.members[join.member_id]
        member.connection = join.client.connection
        if group.state is GroupState.EMPTY:
            return self._refuse(join, ErrorCode.UNKNOWN_MEMBER_ID, join.member_id)
        if self._must_rebalance(group, member, join):
            self._wait(group, member, join)
            self._log_rebalance(group, join, f"{member.member_id} rejoins")
            return self._rebalance.prepare_or_complete(group, now)
        # Nothing new: it may have missed the answer to its JoinGroup.
        self._outbox.send(join.waiting, joined(group, member))
        return NOTHING

    def _must_rebalance(self, group: ClassicGroup, member: Member, join: Join) -> bool:
        if group.state is GroupState.PREPARING_REBALANCE:
            return True
        if group.state is GroupState.STABLE and group.leader_id == member.member_id:
            # That is how a leader asks for a new assignment, for example when a topic has grown.
            return True
        return member.protocols != join.protocols

    def _wait(self, group: ClassicGroup, member: Member, join: Join) -> None:
        group.update(member, join.protocols, join.rebalance_timeout_ms, join.session_timeout_ms)
        # An earlier JoinGroup of the same member, perhaps on a dead connection, would never be answered otherwise.
        again = JoinGroupResponse(member_id=member.member_id, error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalance.answer_join(group, member, again)
        join.waiting.member_id = member.member_id
        group.await_join(member, join.waiting)

    # static members under a new id

    def _replace_static(self, group: ClassicGroup, join: Join, old: Member, new_id: str, now: Moment) -> Outcome:
        self._fence(group, old)
        leader_before = group.leader_id
        before = (old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms)
        member = group.replace_static(old, new_id)
        member.connection = join.client.connection
        self._rebalance.touch(group, member, now)
        self._wait(group, member, join)
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The leader already computes an assignment for the old id.
            return self._rebalance.prepare(group, now)
        if group.state is not GroupState.STABLE:
            return self._rebalance.maybe_complete_join(group, now)
        if group.select_protocol() != group.protocol:
            self._log_rebalance(group, join, f"static member {join.instance_id} changes the protocol")
            return self._rebalance.prepare_or_complete(group, now)
        return self._store_static(group, join, member, old.member_id, leader_before, before)

    def _fence(self, group: ClassicGroup, old: Member) -> None:
        fenced = ErrorCode.FENCED_INSTANCE_ID
        response = JoinGroupResponse(member_id=old.member_id, error_code=fenced, protocol_name=None)
        self._rebalance.answer_join(group, old, response)
        self._rebalance.answer_sync(old, SyncGroupResponse(error_code=fenced))
        self._rebalance.forget_session(group, old.member_id)

    def _store_static(
        self,
        group: ClassicGroup,
        join: Join,
        member: Member,
        old_id: str,
        leader_before: str | None,
        before: tuple[Protocols, int, int],
    ) -> Outcome:
        """No rebalance: the new id inherits the old one's assignment, and is told so when that is committed."""

        def settled(code: ErrorCode, now: Moment) -> None:
            if group.members.get(member.member_id) is not member:
                return
            if code is ErrorCode.NONE:
                self._rebalance.answer_join(group, member, self._inherited(group, join, member, leader_before))
                return
            response = joined(group, member)
            response.member_id, response.members = UNKNOWN_MEMBER_ID, []
            response.leader = leader_before or ""
            response.error_code = coordinator_error(code)
            self._rebalance.answer_join(group, member, response)
            # A batch that timed out is in the log, and the new id with it.
            if code is not ErrorCode.REQUEST_TIMED_OUT:
                self._rebalance.forget_session(group, member.member_id)
                group.update(member, *before)
                self._rebalance.touch(group, group.replace_static(member, old_id), now)

        assignments = {entry.member_id: entry.assignment for entry in group.members.values()}
        return Decision((GroupWritten(group.group_id, group.to_record(assignments)),), None, settled)

    def _inherited(
        self, group: ClassicGroup, join: Join, member: Member, leader_before: str | None
    ) -> JoinGroupResponse:
        is_leader = group.leader_id == member.member_id
        if join.version >= _SKIP_ASSIGNMENT_FROM:
            return joined(group, member, skip_assignment=is_leader)
        # An older client that finds itself the leader would compute an assignment, which nobody waits for (KIP-814).
        response = joined(group, member)
        response.leader, response.members = leader_before or "", []
        return response

    # small things

    def _refuse(self, join: Join, error: ErrorCode, member_id: str) -> Outcome:
        self._outbox.send(join.waiting, JoinGroupResponse(member_id=member_id, error_code=error))
        return NOTHING

    def _log_rebalance(self, group: ClassicGroup, join: Join, what: str) -> None:
        if group.can_rebalance:
            _log.info(
                "group %s, generation %d: rebalance (%s; client's reason: %s)",
                group.group_id,
                group.generation,
                what,
                join.reason,
            )

    def _uuid(self) -> UUID:
        return UUID(bytes=self._random.randbytes(16), version=4)

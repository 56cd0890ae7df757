"""The course of a rebalance: everybody joins, the leader assigns, everybody syncs; and who is too late is out.

    Empty -> PreparingRebalance (members join) -> CompletingRebalance (the leader's assignment is awaited) -> Stable

Every method leaves the group in a state that holds by itself and queues its answers; what must be durable is returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group.classic import ClassicGroup
from tidelog.coordinator.group.config import GroupConfig
from tidelog.coordinator.group.member import Member
from tidelog.coordinator.group.records import GroupRecord, GroupWritten
from tidelog.coordinator.group.state import GroupState
from tidelog.coordinator.group.timing import TimerKey, TimerKind
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.outbox import Outbox
from tidelog.coordinator.timers import Timers
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.join_group import JoinGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupResponse

Outcome: TypeAlias = Decision[GroupRecord, None]
NOTHING: Outcome = Decision((), None)


class Rebalance:
    def __init__(self, config: GroupConfig, timers: Timers[TimerKey], outbox: Outbox) -> None:
        self._config = config
        self._timers = timers
        self._outbox = outbox

    # sessions

    def touch(self, group: ClassicGroup, member: Member, now: Moment) -> None:
        self.expect_by(group, member.member_id, now.ms + member.session_timeout_ms)

    def expect_by(self, group: ClassicGroup, member_id: str, deadline_ms: int) -> None:
        self._timers.schedule(TimerKey(TimerKind.SESSION, group.group_id, member_id), deadline_ms)

    def forget_session(self, group: ClassicGroup, member_id: str) -> None:
        self._timers.cancel(TimerKey(TimerKind.SESSION, group.group_id, member_id))

    def expire_session(self, group: ClassicGroup, member_id: str, now: Moment) -> Outcome:
        if member_id in group.pending_joins:
            group.remove(member_id)
            return self._complete_if_all_joined(group, now)
        member = group.members.get(member_id)
        if member is None or member.is_excused:
            return NOTHING
        self.dismiss(group, member)
        return self.after_removal(group, now)

    def dismiss(self, group: ClassicGroup, member: Member) -> None:
        """Take a member out, and tell it so if it waits for the others: it may come back as a new one."""
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        self.answer_join(group, member, JoinGroupResponse(member_id="", error_code=unknown))
        self.answer_sync(member, SyncGroupResponse(error_code=unknown))
        self.forget_session(group, member.member_id)
        group.remove(member.member_id)

    def after_removal(self, group: ClassicGroup, now: Moment) -> Outcome:
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self.prepare(group, now)
        return self._complete_if_all_joined(group, now)

    def _complete_if_all_joined(self, group: ClassicGroup, now: Moment) -> Outcome:
        if group.is_preparing and group.all_joined:
            return self.complete_join(group, now)
        return NOTHING

    # joining

    def prepare_or_complete(self, group: ClassicGroup, now: Moment) -> Outcome:
        return self.prepare(group, now) if group.can_rebalance else self.maybe_complete_join(group, now)

    def maybe_complete_join(self, group: ClassicGroup, now: Moment) -> Outcome:
        # A group that was empty waits out its initial delay: the first of many must not make a generation of one.
        if group.previous_state is GroupState.EMPTY:
            return NOTHING
        return self._complete_if_all_joined(group, now)

    def prepare(self, group: ClassicGroup, now: Moment) -> Outcome:
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        group.pending_syncs.clear()
        self._timers.cancel(TimerKey(TimerKind.SYNC, group.group_id))
        is_initial = group.state is GroupState.EMPTY
        group.transition(GroupState.PREPARING_REBALANCE, now.wall_ms)
        if is_initial:
            group.new_member_added = False
            group.initial_delay_ms = self._config.group_initial_rebalance_delay_ms
            group.initial_left_ms = max(group.rebalance_timeout_ms - group.initial_delay_ms, 0)
            self._schedule(TimerKind.INITIAL_JOIN, group, now.ms + group.initial_delay_ms)
            return NOTHING
        if group.all_joined:
            return self.complete_join(group, now)
        self._schedule(TimerKind.JOIN, group, now.ms + group.rebalance_timeout_ms)
        return NOTHING

    def expire_initial_join(self, group: ClassicGroup, now: Moment) -> Outcome:
        """Each new member prolongs the wait once more, up to the rebalance time-out in all."""
        if not group.is_preparing:
            return NOTHING
        if not group.new_member_added or group.initial_left_ms == 0:
            return self.complete_join(group, now)
        group.new_member_added = False
        waited_ms = group.initial_delay_ms
        group.initial_delay_ms = min(self._config.group_initial_rebalance_delay_ms, group.initial_left_ms)
        group.initial_left_ms = max(group.initial_left_ms - waited_ms, 0)
        self._schedule(TimerKind.INITIAL_JOIN, group, now.ms + group.initial_delay_ms)
        return NOTHING

    def complete_join(self, group: ClassicGroup, now: Moment) -> Outcome:
        if not group.is_preparing:
            return NOTHING
        self._timers.cancel(TimerKey(TimerKind.JOIN, group.group_id))
        self._timers.cancel(TimerKey(TimerKind.INITIAL_JOIN, group.group_id))
        self._drop_absent(group)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left, and none has come back: wait until they do, or their sessions end.
            self._schedule(TimerKind.JOIN, group, now.ms + group.rebalance_timeout_ms)
            return NOTHING
        group.next_generation(now.wall_ms)
        if group.state is GroupState.EMPTY:
            # Should this record be lost, the generation before would come back, and time out for want of members.
            return Decision((GroupWritten(group.group_id, group.to_record({})),), None)
        self._answer_joins(group, now)
        return NOTHING

    def _drop_absent(self, group: ClassicGroup) -> None:
        for member in list(group.members.values()):
            if member.awaiting_join is None and member.instance_id is None:
                self.forget_session(group, member.member_id)
                group.remove(member.member_id)

    def _answer_joins(self, group: ClassicGroup, now: Moment) -> None:
        for member in group.members.values():
            self.answer_join(group, member, joined(group, member))
            self.touch(group, member, now)
            member.is_new = False
            member.is_anonymous = False
            group.pending_syncs.add(member.member_id)
        self._schedule(TimerKind.SYNC, group, now.ms + group.rebalance_timeout_ms)

    def answer_join(self, group: ClassicGroup, member: Member, response: JoinGroupResponse) -> None:
        if (waiting := member.awaiting_join) is not None:
            group.await_join(member, None)
            self._outbox.send(waiting, response)

    # syncing

    def set_assignments(self, group: ClassicGroup, assignments: Mapping[str, bytes], now: Moment) -> None:
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            self._answer_and_touch(group, member, synced(group, member), now)

    def reset_assignments(self, group: ClassicGroup, error: ErrorCode, now: Moment) -> None:
        for member in group.members.values():
            member.assignment = b""
            self._answer_and_touch(group, member, SyncGroupResponse(error_code=error), now)

    def _answer_and_touch(self, group: ClassicGroup, member: Member, response: SyncGroupResponse, now: Moment) -> None:
        if self.answer_sync(member, response):
            # Its session may have run out while it was excused, and would never be looked at again.
            self.touch(group, member, now)

    def answer_sync(self, member: Member, response: SyncGroupResponse) -> bool:
        if (waiting := member.awaiting_sync) is None:
            return False
        member.awaiting_sync = None
        self._outbox.send(waiting, response)
        return True

    def has_synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            self._timers.cancel(TimerKey(TimerKind.SYNC, group.group_id))

    def expire_sync(self, group: ClassicGroup, now: Moment) -> Outcome:
        waiting_states = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        if group.state not in waiting_states or not group.pending_syncs:
            return NOTHING
        for member_id in sorted(group.pending_syncs):
            self.forget_session(group, member_id)
            group.remove(member_id)
        return self.prepare(group, now)

    def forget_group(self, group: ClassicGroup) -> None:
        """Cancel all that is due for a group that is no more."""
        for kind in (TimerKind.INITIAL_JOIN, TimerKind.JOIN, TimerKind.SYNC):
            self._timers.cancel(TimerKey(kind, group.group_id))
        for member_id in [*group.members, *group.pending_joins]:
            self.forget_session(group, member_id)

    def _schedule(self, kind: TimerKind, group: ClassicGroup, deadline_ms: int) -> None:
        self._timers.schedule(TimerKey(kind, group.group_id), deadline_ms)


def joined(group: ClassicGroup, member: Member, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """The answer of the current generation; only the leader learns who the others are."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader_id or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=_everybody(group) if group.leader_id == member.member_id else [],
    )


def _everybody(group: ClassicGroup) -> list[JoinGroupResponse.JoinGroupResponseMember]:
    return [
        JoinGroupResponse.JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol),
        )
        for member in group.members.values()
    ]


def synced(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )

"""SyncGroup: the leader brings the assignment, and everybody gets its part once that is committed."""

from __future__ import annotations

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group.classic import ClassicGroup
from tidelog.coordinator.group.rebalance import NOTHING, Outcome, Rebalance, synced
from tidelog.coordinator.group.records import GroupWritten
from tidelog.coordinator.group.state import GroupState
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.outbox import Outbox, Waiting
from tidelog.coordinator.shard_log import coordinator_error
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class Syncing:
    def __init__(self, rebalance: Rebalance, outbox: Outbox) -> None:
        self._rebalance = rebalance
        self._outbox = outbox

    def sync(
        self, group: ClassicGroup, request: SyncGroupRequest, waiting: Waiting[SyncGroupResponse], now: Moment
    ) -> Outcome:
        error = _check(group, request)
        if error is not ErrorCode.NONE:
            self._outbox.send(waiting, SyncGroupResponse(error_code=error))
            return NOTHING
        member = group.members[request.member_id]
        self._rebalance.has_synced(group, member.member_id)
        if group.state is GroupState.STABLE:
            # It has been heard of, and owns partitions from now on: its session begins with the answer.
            self._rebalance.touch(group, member, now)
            self._outbox.send(waiting, synced(group, member))
            return NOTHING
        # An earlier SyncGroup of the same member, perhaps on a dead connection, would never be answered otherwise.
        self._rebalance.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = waiting
        waiting.member_id = member.member_id
        return self._store(group, request) if group.leader_id == member.member_id else NOTHING

    def _store(self, group: ClassicGroup, request: SyncGroupRequest) -> Outcome:
        generation = group.generation
        given = {entry.member_id: entry.assignment for entry in request.assignments}
        # Whom the leader has forgotten gets nothing, and whom it has invented is not stored.
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}

        def settled(code: ErrorCode, now: Moment) -> None:
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != generation:
                return
            if code is ErrorCode.NONE:
                self._rebalance.set_assignments(group, assignments, now)
                group.transition(GroupState.STABLE, now.wall_ms)
                return
            self._rebalance.reset_assignments(group, coordinator_error(code), now)
            outcome = self._rebalance.prepare_or_complete(group, now)
            assert not outcome.records, "a group with members waits for them to rejoin"

        return Decision((GroupWritten(group.group_id, group.to_record(assignments)),), None, settled)


def _check(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    if group.state is GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differs(given: str | None, known: str | None) -> bool:
    return given is not None and known is not None and given != known

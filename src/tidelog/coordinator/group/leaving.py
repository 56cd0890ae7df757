"""LeaveGroup: members that go, one by one or many at once, and static members that an administrator removes by name."""

from __future__ import annotations

import logging
from typing import Final

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group.classic import ClassicGroup
from tidelog.coordinator.group.joining import UNKNOWN_MEMBER_ID
from tidelog.coordinator.group.rebalance import NOTHING, Outcome, Rebalance
from tidelog.coordinator.group.records import GroupRecord
from tidelog.coordinator.group.state import GroupState
from tidelog.coordinator.moment import Moment
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

Identity = LeaveGroupRequest.MemberIdentity
_BATCH_FROM: Final = 3
_log = logging.getLogger("tidelog.groups")


class Leaving:
    def __init__(self, rebalance: Rebalance) -> None:
        self._rebalance = rebalance

    def leave(
        self, group: ClassicGroup, identities: list[Identity], now: Moment
    ) -> Decision[GroupRecord, LeaveGroupResponse]:
        results = [result_of(identity, self._remove(group, identity)) for identity in identities]
        outcome = NOTHING
        if any(result.error_code == ErrorCode.NONE for result in results):
            outcome = self._after(group, now)
        return Decision(outcome.records, LeaveGroupResponse(members=results), outcome.settled)

    def _after(self, group: ClassicGroup, now: Moment) -> Outcome:
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self._rebalance.prepare(group, now)
        if group.state is GroupState.PREPARING_REBALANCE:
            return self._rebalance.maybe_complete_join(group, now)
        return NOTHING

    def _remove(self, group: ClassicGroup, identity: Identity) -> ErrorCode:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if member_id == UNKNOWN_MEMBER_ID and instance_id is not None:
            member_id = group.static_ids.get(instance_id, UNKNOWN_MEMBER_ID)
        elif member_id in group.pending_joins:
            self._rebalance.forget_session(group, member_id)
            group.remove(member_id)
            return ErrorCode.NONE
        error = group.check_member(member_id, instance_id)
        if error is ErrorCode.NONE:
            reason = identity.reason or "not provided"
            _log.info("group %s: member %s leaves (client's reason: %s)", group.group_id, member_id, reason)
            self._rebalance.dismiss(group, group.members[member_id])
        return error


def identities_of(request: LeaveGroupRequest, version: int) -> list[Identity]:
    return request.members if version >= _BATCH_FROM else [Identity(member_id=request.member_id)]


def for_version(response: LeaveGroupResponse, version: int) -> LeaveGroupResponse:
    """Before version 3 a request names one member, and the error of that one is the error of all."""
    if version < _BATCH_FROM and response.error_code == ErrorCode.NONE and response.members:
        return LeaveGroupResponse(error_code=response.members[0].error_code)
    return response


def unknown_members(identities: list[Identity]) -> LeaveGroupResponse:
    return LeaveGroupResponse(members=[result_of(identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in identities])


def result_of(identity: Identity, error: ErrorCode) -> LeaveGroupResponse.MemberResponse:
    return LeaveGroupResponse.MemberResponse(
        member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
    )

"""How members of a consumer group go: by their own word, for a while or for good, and by being too late."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.migration import must_downgrade
from tidelog.coordinator.group.consumer.model import LEAVE_STATIC_EPOCH, MemberState
from tidelog.coordinator.group.consumer.records import ConsumerRecord, MemberCurrent
from tidelog.coordinator.group.consumer.requests import Refusal, unknown_member
from tidelog.coordinator.group.consumer.upkeep import Outcome, Upkeep
from tidelog.coordinator.group.records import GroupRecord
from tidelog.coordinator.moment import Moment
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

T = TypeVar("T")
Downgrade: TypeAlias = Callable[[ConsumerGroup, Moment], tuple[Sequence[GroupRecord], Callable[[Moment], None]]]
"""Makes a classic group of one that has only classic members left: the records, and what follows their replay."""
_Answer: TypeAlias = Decision[GroupRecord, ConsumerGroupHeartbeatResponse]
NOTHING: Outcome = Decision((), None)
_log = logging.getLogger("tidelog.groups")


class ConsumerLeaving:
    def __init__(self, upkeep: Upkeep, downgrade: Downgrade) -> None:
        self._upkeep = upkeep
        self._downgrade = downgrade

    def leave(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, now: Moment) -> _Answer:
        member_id, instance_id = request.member_id, request.instance_id
        refusal = self._check(group, member_id, instance_id)
        if refusal is not None:
            return Decision((), refusal.response())
        answer = ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            return Decision([self._gone_for_a_while(group, member_id)], answer)
        _log.info("group %s: member %s leaves", group.group_id, member_id)
        return self.remove(group, [member_id], now, answer)

    def _check(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> Refusal | None:
        if instance_id is not None:
            holder = group.static_ids.get(instance_id)
            if holder is None:
                return unknown_member(f"with the instance id {instance_id}", group.group_id)
            if holder != member_id:
                message = f"instance id {instance_id} is held by the member {holder}"
                return Refusal(ErrorCode.FENCED_INSTANCE_ID, message)
        return None if member_id in group.members else unknown_member(member_id, group.group_id)

    def _gone_for_a_while(self, group: ConsumerGroup, member_id: str) -> ConsumerRecord:
        """Its session goes on, and what it has stays its own until that ends. What it was asked to give up it has
        given up with all the rest."""
        current = group.current(member_id)._replace(epoch=LEAVE_STATIC_EPOCH, revoking={})
        return MemberCurrent(group.group_id, member_id, current)

    def remove(
        self, group: ConsumerGroup, member_ids: Sequence[str], now: Moment, answer: T
    ) -> Decision[GroupRecord, T]:
        """Take members out, and all that they own from them."""
        records = [record for member_id in member_ids for record in group.removal_of(member_id)]
        records += self._upkeep.unused_regexes(group, without=member_ids)
        records += self._upkeep.next_epoch(group, now, without=member_ids)
        return Decision(records, answer, then=lambda now: self._removed(group, now, answer))

    def _removed(self, group: ConsumerGroup, now: Moment, answer: T) -> Decision[GroupRecord, T]:
        if must_downgrade(group, self._upkeep.config):
            records, downgraded = self._downgrade(group, now)

            def then(now: Moment) -> Decision[GroupRecord, T]:
                downgraded(now)
                return Decision((), answer)

            return Decision(records, answer, then=then)
        if group.members:
            self._upkeep.want_target(group, now)
        return Decision((), answer)

    # too late

    def expire_session(self, group: ConsumerGroup, member_id: str, now: Moment) -> Outcome:
        if member_id not in group.members:
            return NOTHING
        _log.info("group %s: member %s was not heard of in time", group.group_id, member_id)
        return self._fence(group, member_id, now)

    def expire_classic(self, group: ConsumerGroup, member_id: str, now: Moment) -> Outcome:
        profile = group.members.get(member_id)
        if profile is None or profile.classic is None:
            return NOTHING
        _log.info("group %s: member %s has not joined or synced in time", group.group_id, member_id)
        return self._fence(group, member_id, now)

    def expire_revocation(self, group: ConsumerGroup, member_id: str, now: Moment) -> Outcome:
        if member_id not in group.members or group.current(member_id).state != MemberState.UNREVOKED_PARTITIONS:
            return NOTHING
        _log.info("group %s: member %s has not given up its partitions in time", group.group_id, member_id)
        return self._fence(group, member_id, now)

    def _fence(self, group: ConsumerGroup, member_id: str, now: Moment) -> Outcome:
        # Should the log refuse, it is as if the member had been heard of once more.
        self._upkeep.touch(group, member_id, now)
        self._upkeep.watch_revocation(group, member_id, now)
        return self.remove(group, [member_id], now, None)

"""ConsumerGroupHeartbeat: who joins, who comes back, who is refused; then its next step, and the answer.

One request is a chain of up to three decisions: the member (and the group's next epoch), the target if it is due, and
the member's own step towards it. Most heartbeats change nothing and are answered at once.
"""

from __future__ import annotations

import logging
from random import Random
from typing import NamedTuple, TypeAlias
from uuid import UUID

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.model import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    Current,
    Profile,
    Target,
)
from tidelog.coordinator.group.consumer.ownership import is_subset, reconcile
from tidelog.coordinator.group.consumer.records import ConsumerRecord, MemberCurrent, MemberProfile, MemberTarget
from tidelog.coordinator.group.consumer.requests import Refusal, is_full, owned_by, unknown_member
from tidelog.coordinator.group.consumer.upkeep import Upkeep
from tidelog.coordinator.group.joining import Client
from tidelog.coordinator.group.patterns import InvalidPattern, compile_pattern
from tidelog.coordinator.group.records import GroupRecord
from tidelog.coordinator.moment import Moment
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest as Request,
)
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse as Response,
)

Answer: TypeAlias = Decision[GroupRecord, Response]
_log = logging.getLogger("tidelog.groups")


class _Beat(NamedTuple):
    """One heartbeat of a member that was let in."""

    group: ConsumerGroup
    member_id: str
    request: Request
    before: Current


class Heartbeats:
    def __init__(self, upkeep: Upkeep, random: Random) -> None:
        self._upkeep = upkeep
        self._random = random

    def heartbeat(self, group: ConsumerGroup, request: Request, client: Client, now: Moment) -> Answer:
        member_id = request.member_id
        current = group.currents.get(member_id)
        if current is not None and request.member_epoch == current.epoch and self._is_idle(group, request):
            self._upkeep.touch(group, member_id, now)
            return Decision((), self._plain(group, member_id, current, now))
        if not member_id:
            member_id = str(UUID(bytes=self._random.randbytes(16), version=4))
        refusal = self._check(group, member_id, request)
        if refusal is not None:
            return Decision((), refusal.response())
        profile = _updated(group, member_id, request, client)
        records = self._admit(group, member_id, request, profile, now)
        beat = _Beat(group, member_id, request, self._standing(group, member_id, request))
        return Decision(records, _NO_ANSWER, then=lambda now: self._aim(beat, now))

    def _is_idle(self, group: ConsumerGroup, request: Request) -> bool:
        """A member that says nothing new, in a group where nothing happens."""
        return (
            request.topic_partitions is None
            and request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
            and request.instance_id is None
            and request.server_assignor is None
            and request.rack_id is None
            and request.rebalance_timeout_ms == -1
            and not group.live.is_stale
            and group.is_settled(request.member_id)
        )

    # who may

    def _check(self, group: ConsumerGroup, member_id: str, request: Request) -> Refusal | None:
        is_joining = request.member_epoch == JOIN_EPOCH
        refusal = self._check_static(group, member_id, request) if request.instance_id is not None else None
        if refusal is None and is_joining:
            refusal = self._check_room(group, member_id, request)
        elif refusal is None and member_id not in group.members:
            refusal = unknown_member(member_id, group.group_id)
        elif refusal is None:
            refusal = _check_epoch(group, member_id, request)
        return refusal or _check_regex(group, request)

    def _check_static(self, group: ConsumerGroup, member_id: str, request: Request) -> Refusal | None:
        holder = group.static_ids.get(request.instance_id or "")
        if request.member_epoch == JOIN_EPOCH:
            if holder is None or holder == member_id or group.current(holder).epoch == LEAVE_STATIC_EPOCH:
                return None
            message = f"instance id {request.instance_id} is held by the member {holder}, which has not left"
            return Refusal(ErrorCode.UNRELEASED_INSTANCE_ID, message)
        if holder is None:
            return unknown_member(f"with the instance id {request.instance_id}", group.group_id)
        if holder != member_id:
            message = f"instance id {request.instance_id} is held by the member {holder}"
            return Refusal(ErrorCode.FENCED_INSTANCE_ID, message)
        return None

    def _check_room(self, group: ConsumerGroup, member_id: str, request: Request) -> Refusal | None:
        size_max = self._upkeep.config.group_consumer_max_size
        is_known = member_id in group.members or request.instance_id in group.static_ids
        if is_known or len(group.members) < size_max:
            return None
        return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {group.group_id} has {size_max} members, its most")

    # the member

    def _admit(
        self, group: ConsumerGroup, member_id: str, request: Request, profile: Profile, now: Moment
    ) -> list[ConsumerRecord]:
        before = group.members.get(member_id)
        records: list[ConsumerRecord] = []
        replaced = _replaced(group, member_id, request)
        if replaced is not None:
            before = group.members[replaced]
            records += _replacement(group, replaced, member_id, profile)
        elif before != profile:
            records.append(MemberProfile(group.group_id, member_id, profile))
        gone = [replaced or member_id]
        if before is not None and before.regex != profile.regex:
            records += self._upkeep.unused_regexes(group, without=gone)
        if self._must_bump(group, before, profile):
            if before is None:
                _log.info("group %s: member %s joins", group.group_id, member_id)
            records += self._upkeep.next_epoch(group, now, without=gone, plus=profile)
        if profile.regex and profile.regex not in group.regexes:
            self._upkeep.resolve_soon(group, profile.regex, now.ms)
        return records

    def _must_bump(self, group: ConsumerGroup, before: Profile | None, profile: Profile) -> bool:
        if before is None or before.topics != profile.topics or not group.epoch:
            return True
        if before.regex != profile.regex and {before.regex, profile.regex} & group.regexes.keys():
            return True
        return self._upkeep.has_changed(group)

    def _standing(self, group: ConsumerGroup, member_id: str, request: Request) -> Current:
        replaced = _replaced(group, member_id, request)
        return group.current(replaced or member_id)

    # its way

    def _aim(self, beat: _Beat, now: Moment) -> Answer:
        """The member is in the group, and the group has its epoch: on with the target."""
        group = beat.group
        group.live.is_stale = False
        if group.epoch > group.target_epoch and not self._upkeep.is_target_due(group, now):
            self._upkeep.want_target(group, now)
        if not self._upkeep.is_target_due(group, now):
            return self._step(beat, now)
        records = self._upkeep.target_records(group, now)
        return Decision(records, _NO_ANSWER, then=lambda now: self._step(beat, now))

    def _step(self, beat: _Beat, now: Moment) -> Answer:
        group, member_id = beat.group, beat.member_id
        self._upkeep.touch(group, member_id, now)
        current = group.current(member_id)

        def is_free(topic_id: bytes, partition: int) -> bool:
            return group.owner(topic_id, partition) in (None, member_id)

        target = self._subscribed_target(group, member_id)
        following = reconcile(current, group.target_epoch, target, owned_by(beat.request), is_free)
        if following is current:
            return self._answer(beat, now)
        records = (MemberCurrent(group.group_id, member_id, following),)
        return Decision(records, _NO_ANSWER, then=lambda now: self._stepped(beat, now))

    def _stepped(self, beat: _Beat, now: Moment) -> Answer:
        # Only a step begins the wait: a member that goes on owning what it should not does not prolong it.
        self._upkeep.watch_revocation(beat.group, beat.member_id, now)
        return self._answer(beat, now)

    def _subscribed_target(self, group: ConsumerGroup, member_id: str) -> Target:
        """A target that waits for the next one may give topics that the member has left meanwhile."""
        target = group.target(member_id)
        if group.epoch == group.target_epoch:
            return target
        topics = self._upkeep.topics
        wanted = {topics.topic_id(name) for name in group.topics_of(group.members[member_id])}
        return {topic_id: partitions for topic_id, partitions in target.items() if topic_id in wanted}

    # the answer

    def _answer(self, beat: _Beat, now: Moment) -> Answer:
        group, member_id, request = beat.group, beat.member_id, beat.request
        current = group.current(member_id)
        response = self._plain(group, member_id, current, now)
        if request.member_epoch == JOIN_EPOCH or is_full(request) or current.assigned != beat.before.assigned:
            response.assignment = assignment_of(current)
        return Decision((), response)

    def _plain(self, group: ConsumerGroup, member_id: str, current: Current, now: Moment) -> Response:
        interval_ms = self._upkeep.interval_ms(group, member_id, now)
        return Response(member_id=member_id, member_epoch=current.epoch, heartbeat_interval_ms=interval_ms)


_NO_ANSWER = Response()
"""Of a decision that another one follows."""


def assignment_of(current: Current) -> Response.Assignment:
    return Response.Assignment(
        topic_partitions=[
            Response.TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
            for topic_id, epochs in sorted(current.assigned.items())
        ]
    )


def _check_epoch(group: ConsumerGroup, member_id: str, request: Request) -> Refusal | None:
    current, epoch = group.current(member_id), request.member_epoch
    if epoch == current.epoch:
        return None
    owned = owned_by(request)
    if epoch == current.previous_epoch and owned is not None and is_subset(owned, current.assigned):
        # It has not heard of its new epoch, and has nothing that it should not have.
        return None
    message = f"member {member_id} is in the epoch {current.epoch}, not {epoch}: it must give up all and join again"
    return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _check_regex(group: ConsumerGroup, request: Request) -> Refusal | None:
    regex = request.subscribed_topic_regex
    if not regex or group.uses_regex(regex):
        return None
    try:
        compile_pattern(regex)
    except InvalidPattern as error:
        return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{regex!r} is no regular expression of RE2: {error}")
    return None


def _replaced(group: ConsumerGroup, member_id: str, request: Request) -> str | None:
    """The id under which the instance was known, when it comes back with another one."""
    if request.instance_id is None or request.member_epoch != JOIN_EPOCH:
        return None
    holder = group.static_ids.get(request.instance_id)
    return holder if holder != member_id else None


def _replacement(group: ConsumerGroup, old_id: str, new_id: str, profile: Profile) -> list[ConsumerRecord]:
    """The new id takes over all that the old one had. No epoch changes: nobody else notices."""
    records = group.removal_of(old_id)
    records.append(MemberProfile(group.group_id, new_id, profile))
    records.append(MemberTarget(group.group_id, new_id, group.target(old_id)))
    records.append(MemberCurrent(group.group_id, new_id, group.current(old_id)._replace(epoch=0, previous_epoch=0)))
    return records


def _updated(group: ConsumerGroup, member_id: str, request: Request, client: Client) -> Profile:
    """What was not said stays as it was."""
    before = group.members.get(_replaced(group, member_id, request) or member_id, _NOBODY)
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return Profile(
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=client.client_id,
        client_host=client.client_host,
        topics=before.topics if names is None else tuple(sorted(set(names))),
        regex=before.regex if regex is None else regex,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=before.assignor if request.server_assignor is None else request.server_assignor,
    )


_NOBODY = Profile(None, None, "", "", (), "", -1, None)

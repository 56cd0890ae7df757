"""ConsumerGroupHeartbeat: who joins, who comes back, who is refused; then its next step (steps.py), and the answer.

Most heartbeats change nothing and are answered at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
)
from tidelog.coordinator.group.consumer.ownership import is_subset
from tidelog.coordinator.group.consumer.requests import Refusal, is_full, owned_by, unknown_member
from tidelog.coordinator.group.consumer.steps import Steps, Way
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


class _Beat(NamedTuple):
    """One heartbeat of a member that was let in."""

    group: ConsumerGroup
    member_id: str
    request: Request
    before: Current


class Heartbeats:
    def __init__(self, upkeep: Upkeep, steps: Steps, random: Random) -> None:
        self._upkeep = upkeep
        self._steps = steps
        self._random = random

    def heartbeat(self, group: ConsumerGroup, request: Request, client: Client, now: Moment) -> Answer:
        member_id = request.member_id
        current = group.currents.get(member_id)
        if current is not None and request.member_epoch == current.epoch and self._is_idle(group, request):
            self._upkeep.touch(group, member_id, now)
            group.live.connections[member_id] = client.connection
            return Decision((), self._plain(group, member_id, current, now))
        if not member_id:
            member_id = str(UUID(bytes=self._random.randbytes(16), version=4))
        refusal = self._check(group, member_id, request)
        if refusal is not None:
            return Decision((), refusal.response())
        replaced = _replaced(group, member_id, request)
        profile = _updated(group, replaced or member_id, request, client)
        beat = _Beat(group, member_id, request, group.current(replaced or member_id))
        way = Way(group, member_id, owned_by(request), _link, lambda now: self._answer(beat, client, now))
        records = self._steps.admit(group, member_id, replaced, profile, now)
        return _link(records, lambda now: self._steps.lead(way, now))

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

    # the answer

    def _answer(self, beat: _Beat, client: Client, now: Moment) -> Answer:
        group, member_id, request = beat.group, beat.member_id, beat.request
        group.live.connections[member_id] = client.connection
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


def _link(records: Sequence[GroupRecord], then: Callable[[Moment], Answer]) -> Answer:
    return Decision(records, _NO_ANSWER, then=then)


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
    return None if regex is None or group.uses_regex(regex) else check_regex(regex)


def check_regex(regex: str | None) -> Refusal | None:
    try:
        if regex:
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


def _updated(group: ConsumerGroup, member_id: str, request: Request, client: Client) -> Profile:
    """What was not said stays as it was."""
    before = group.members.get(member_id, _NOBODY)
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

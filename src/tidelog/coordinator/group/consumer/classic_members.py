"""Members of the classic protocol within a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup for them.

A generation is the member's epoch. There is no leader: JoinGroup is the member's step, SyncGroup tells it where it is,
and Heartbeat says REBALANCE_IN_PROGRESS when there is another step to take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final
from uuid import UUID

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group.consumer.embedded import Subscription, read_subscription, write_assignment
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.leaving import ConsumerLeaving
from tidelog.coordinator.group.consumer.migration import named
from tidelog.coordinator.group.consumer.model import ClassicSide, MemberState, Profile
from tidelog.coordinator.group.consumer.ownership import Owned
from tidelog.coordinator.group.consumer.steps import Link, Steps, Way
from tidelog.coordinator.group.consumer.upkeep import Outcome, Upkeep
from tidelog.coordinator.group.joining import UNKNOWN_MEMBER_ID, Join
from tidelog.coordinator.group.leaving import Identity, result_of
from tidelog.coordinator.group.records import GroupRecord
from tidelog.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.outbox import Outbox, Waiting
from tidelog.coordinator.shard_log import coordinator_error
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupResponse
from tidelog.protocol.messages.leave_group import LeaveGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_KNOWN_ID_FROM: Final = 4
NOTHING: Outcome = Decision((), None)


class ClassicMembers:
    def __init__(self, upkeep: Upkeep, steps: Steps, leaving: ConsumerLeaving, outbox: Outbox, random: Random) -> None:
        self._upkeep = upkeep
        self._steps = steps
        self._leaving = leaving
        self._outbox = outbox
        self._random = random

    # joining

    def join(self, group: ConsumerGroup, join: Join, now: Moment) -> Outcome:
        subscription = read_subscription(join.protocols[0][1]) if join.protocols else None
        error = self._check_join(group, join)
        if error is ErrorCode.NONE and subscription is None:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error is not ErrorCode.NONE or subscription is None:
            return self._refuse(join, error, join.member_id)
        member_id = join.member_id
        if member_id == UNKNOWN_MEMBER_ID:
            name = join.instance_id or join.client.client_id
            member_id = f"{name[:1000]}-{UUID(bytes=self._random.randbytes(16), version=4)}"
            if join.instance_id is None and join.version >= _KNOWN_ID_FROM:
                return self._refuse(join, ErrorCode.MEMBER_ID_REQUIRED, member_id)
        join.waiting.member_id = member_id
        replaced = group.static_ids.get(join.instance_id) if join.instance_id is not None else None
        replaced = None if replaced == member_id else replaced
        records = self._steps.admit(group, member_id, replaced, _profile(join, subscription), now)
        link = self._linking(join.waiting, lambda code: JoinGroupResponse(member_id=member_id, error_code=code))
        owned = self._owned(subscription)
        way: Way[None] = Way(group, member_id, owned, link, lambda now: self._joined(group, member_id, join, now))
        return link(records, lambda now: self._steps.lead(way, now))

    def _check_join(self, group: ConsumerGroup, join: Join) -> ErrorCode:
        holder = group.static_ids.get(join.instance_id) if join.instance_id is not None else None
        is_known = join.member_id in group.members or holder is not None
        if not is_known and len(group.members) >= self._upkeep.config.group_consumer_max_size:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if join.protocol_type != CONSUMER_PROTOCOL_TYPE or not _common_protocols(group, join):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if join.instance_id is not None and join.member_id != UNKNOWN_MEMBER_ID:
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != join.member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE

    def _owned(self, subscription: Subscription) -> Owned:
        """Whatever generation it has that from: what it says that it owns it may own."""
        topics = self._upkeep.topics
        named_ids = ((topics.topic_id(name), indexes) for name, indexes in subscription.owned.items())
        return {topic_id: indexes for topic_id, indexes in named_ids if topic_id is not None}

    def _joined(self, group: ConsumerGroup, member_id: str, join: Join, now: Moment) -> Outcome:
        group.live.connections[member_id] = join.client.connection
        self._upkeep.await_sync(group, member_id, now)
        response = JoinGroupResponse(
            generation_id=group.current(member_id).epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=join.protocols[0][0],
            member_id=member_id,
        )
        return self._answering(join.waiting, response, lambda code: JoinGroupResponse(error_code=code))

    # syncing

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, waiting: Waiting[SyncGroupResponse], now: Moment
    ) -> Outcome:
        member_id = request.member_id
        error = self._check_member(group, member_id, request.group_instance_id, request.generation_id)
        profile = group.members.get(member_id)
        if error is ErrorCode.NONE and profile is not None:
            error = self._check_sync(group, request, profile, now)
        if error is not ErrorCode.NONE or profile is None or profile.classic is None:
            return self._answering(waiting, SyncGroupResponse(error_code=error), _sync_error)
        self._upkeep.has_synced(group, member_id)
        self._upkeep.touch(group, member_id, now)
        name, metadata = profile.classic.protocols[0]
        subscription = read_subscription(metadata)
        held = {topic_id: frozenset(epochs) for topic_id, epochs in group.current(member_id).assigned.items()}
        response = SyncGroupResponse(
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=name,
            assignment=write_assignment(
                named(held, self._upkeep.topics), 0 if subscription is None else subscription.version
            ),
        )
        return self._answering(waiting, response, _sync_error)

    def _check_sync(self, group: ConsumerGroup, request: SyncGroupRequest, profile: Profile, now: Moment) -> ErrorCode:
        names = [name for name, _ in profile.classic.protocols] if profile.classic is not None else []
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or (
            request.protocol_name is not None and request.protocol_name not in names
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        current = group.current(request.member_id)
        if group.epoch > current.epoch and current.state != MemberState.UNREVOKED_PARTITIONS:
            self._upkeep.await_join(group, request.member_id, now)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # heartbeats and leaving

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now: Moment) -> ErrorCode:
        member_id = request.member_id
        error = self._check_member(group, member_id, request.group_instance_id, request.generation_id)
        if error is not ErrorCode.NONE:
            return error
        self._upkeep.touch(group, member_id, now)
        if not self._must_rejoin(group, member_id):
            return ErrorCode.NONE
        self._upkeep.await_join(group, member_id, now)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def _must_rejoin(self, group: ConsumerGroup, member_id: str) -> bool:
        current = group.current(member_id)
        if current.epoch < group.epoch or current.state == MemberState.UNREVOKED_PARTITIONS:
            return True
        if current.state != MemberState.UNRELEASED_PARTITIONS:
            return False
        # Some of what it waits for is free now: it gets that when it joins again.
        return any(
            group.owner(topic_id, partition) is None
            for topic_id, indexes in group.target(member_id).items()
            for partition in indexes
        )

    def leave(
        self, group: ConsumerGroup, identities: list[Identity], now: Moment
    ) -> Decision[GroupRecord, LeaveGroupResponse]:
        leaving: dict[str, None] = {}
        results = []
        for identity in identities:
            member_id = identity.member_id
            if member_id == UNKNOWN_MEMBER_ID and identity.group_instance_id is not None:
                member_id = group.static_ids.get(identity.group_instance_id, UNKNOWN_MEMBER_ID)
            error = self._check_known(group, member_id, identity.group_instance_id)
            if error is ErrorCode.NONE and member_id in leaving:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            if error is ErrorCode.NONE:
                leaving[member_id] = None
            results.append(result_of(identity, error))
        response = LeaveGroupResponse(members=results)
        if not leaving:
            return Decision((), response)
        return self._leaving.remove(group, list(leaving), now, response)

    # who

    def _check_known(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            holder = group.static_ids.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _check_member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        error = self._check_known(group, member_id, instance_id)
        if error is ErrorCode.NONE and group.members[member_id].classic is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if error is ErrorCode.NONE and generation != group.current(member_id).epoch:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    # answers

    def _refuse(self, join: Join, error: ErrorCode, member_id: str) -> Outcome:
        self._outbox.send(join.waiting, JoinGroupResponse(member_id=member_id, error_code=error))
        return NOTHING

    def _linking(
        self, waiting: Waiting[JoinGroupResponse], refusal: Callable[[ErrorCode], JoinGroupResponse]
    ) -> Link[None]:
        def link(records: Sequence[GroupRecord], then: Callable[[Moment], Outcome]) -> Outcome:
            def failed(code: ErrorCode, now: Moment) -> None:
                self._outbox.send(waiting, refusal(coordinator_error(code)))

            return Decision(records, None, failed, then)

        return link

    def _answering(
        self,
        waiting: Waiting[JoinGroupResponse] | Waiting[SyncGroupResponse],
        response: JoinGroupResponse | SyncGroupResponse,
        refusal: Callable[[ErrorCode], JoinGroupResponse | SyncGroupResponse],
    ) -> Outcome:
        """When all that was decided before is committed."""

        def settled(code: ErrorCode, now: Moment) -> None:
            answer = response if code is ErrorCode.NONE else refusal(coordinator_error(code))
            self._outbox.send(waiting, answer)  # type: ignore[arg-type] # both are of one kind

        return Decision((), None, settled)


def _sync_error(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


def _common_protocols(group: ConsumerGroup, join: Join) -> set[str]:
    """What this member and all other classic ones support."""
    common = {name for name, _ in join.protocols}
    if group.classic_count:
        for member_id, profile in group.members.items():
            if profile.classic is not None and member_id != join.member_id:
                common &= {name for name, _ in profile.classic.protocols}
    return common


def _profile(join: Join, subscription: Subscription) -> Profile:
    return Profile(
        instance_id=join.instance_id,
        rack_id=subscription.rack_id,
        client_id=join.client.client_id,
        client_host=join.client.client_host,
        topics=subscription.topics,
        regex="",
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        assignor=None,
        classic=ClassicSide(join.session_timeout_ms, join.protocols),
    )

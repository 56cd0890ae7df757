"""A group on its way between the classic and the new protocol, while its members go on (KIP-848).

What the records of the other kind are stands in consumer/migration.py; here is who is told, and when.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group.classic import ClassicGroup
from tidelog.coordinator.group.config import GroupConfig
from tidelog.coordinator.group.consumer import migration
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.groups import ConsumerGroups
from tidelog.coordinator.group.consumer.heartbeats import Answer, check_regex
from tidelog.coordinator.group.consumer.records import ConsumerRecord
from tidelog.coordinator.group.consumer.requests import Refusal, not_a_consumer_group
from tidelog.coordinator.group.joining import Client
from tidelog.coordinator.group.rebalance import Rebalance
from tidelog.coordinator.group.records import GroupRecord, GroupRemoved, GroupWritten
from tidelog.coordinator.group.topics import Topics
from tidelog.coordinator.moment import Moment
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_log = logging.getLogger("tidelog.groups")


class Migrating:
    def __init__(
        self,
        config: GroupConfig,
        topics: Topics,
        groups: dict[str, ClassicGroup],
        rebalance: Rebalance,
        dissolve: Callable[[ClassicGroup, ErrorCode, Moment], None],
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._rebalance = rebalance
        self._dissolve = dissolve

    def upgrade(
        self,
        classic: ClassicGroup,
        consumers: ConsumerGroups,
        request: ConsumerGroupHeartbeatRequest,
        client: Client,
        now: Moment,
    ) -> Answer:
        """A consumer of the new protocol joins a classic group with members: the group changes, the members stay."""
        records = self._upgrade_records(classic, request, now)
        if isinstance(records, Refusal):
            return Decision((), records.response())
        _log.info("group %s becomes a consumer group", classic.group_id)

        def upgraded(now: Moment) -> Answer:
            # Whoever waited for the others of a generation joins again, and is served there.
            self._dissolve(classic, ErrorCode.REBALANCE_IN_PROGRESS, now)
            consumers.upgraded(classic.group_id, now)
            return consumers.heartbeat(request, client, now)

        removal = [GroupRemoved(classic.group_id)]
        return Decision((*removal, *records), ConsumerGroupHeartbeatResponse(), then=upgraded)

    def _upgrade_records(
        self, classic: ClassicGroup, request: ConsumerGroupHeartbeatRequest, now: Moment
    ) -> list[ConsumerRecord] | Refusal:
        """Whoever will be refused in the end must not have changed the group before."""
        if request.member_epoch != 0:
            return not_a_consumer_group(classic.group_id)
        reason = migration.why_not_upgrade(classic, self._config)
        if reason is None and request.instance_id in classic.static_ids:
            message = f"instance id {request.instance_id} is held by a member that has not left"
            return Refusal(ErrorCode.UNRELEASED_INSTANCE_ID, message)
        if reason is None and len(classic.members) >= self._config.group_consumer_max_size:
            return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {classic.group_id} is full")
        if (refusal := check_regex(request.subscribed_topic_regex)) is not None:
            return refusal
        records = reason or migration.upgrade(classic, self._topics, now)
        return not_a_consumer_group(classic.group_id, records) if isinstance(records, str) else records

    def downgrade(self, group: ConsumerGroup, now: Moment) -> tuple[Sequence[GroupRecord], Callable[[Moment], None]]:
        """The last consumer of the new protocol has gone: the others make a generation of their own."""
        _log.info("group %s becomes a classic group", group.group_id)
        classic = migration.downgrade(group, self._topics, now)
        assignments = {member.member_id: member.assignment for member in classic.members.values()}

        def downgraded(now: Moment) -> None:
            self._groups[classic.group_id] = classic
            for member in classic.members.values():
                self._rebalance.touch(classic, member, now)
            outcome = self._rebalance.prepare(classic, now)
            assert not outcome.records, "a group with members waits for them to join again"

        return (*group.removal(), GroupWritten(group.group_id, classic.to_record(assignments))), downgraded

"""The consumer groups of one partition of `__consumer_offsets`: which there are, and who deals with what."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tidelog.coordinator.chores import Chores
from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group.config import GroupConfig
from tidelog.coordinator.group.consumer.classic_members import ClassicMembers
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.heartbeats import Answer, Heartbeats
from tidelog.coordinator.group.consumer.leaving import NOTHING, ConsumerLeaving, Downgrade
from tidelog.coordinator.group.consumer.records import ConsumerRecord
from tidelog.coordinator.group.consumer.regexes import Regexes
from tidelog.coordinator.group.consumer.requests import is_leaving, not_a_consumer_group
from tidelog.coordinator.group.consumer.steps import Steps
from tidelog.coordinator.group.consumer.upkeep import Outcome, Upkeep
from tidelog.coordinator.group.consumer_config import ConsumerGroupConfigs
from tidelog.coordinator.group.joining import Client
from tidelog.coordinator.group.timing import TimerKey, TimerKind
from tidelog.coordinator.group.topics import Topics
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.outbox import Outbox
from tidelog.coordinator.timers import Timers
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


class ConsumerGroups:
    def __init__(
        self,
        config: GroupConfig,
        configs: ConsumerGroupConfigs,
        topics: Topics,
        timers: Timers[TimerKey],
        random: Random,
        outbox: Outbox,
        downgrade: Downgrade,
        chores: Chores,
    ) -> None:
        self._groups: dict[str, ConsumerGroup] = {}
        self._upkeep = Upkeep(config, configs, topics, timers, chores)
        steps = Steps(self._upkeep)
        self._heartbeats = Heartbeats(self._upkeep, steps, random)
        self._leaving = ConsumerLeaving(self._upkeep, downgrade)
        self.classic_members = ClassicMembers(self._upkeep, steps, self._leaving, outbox, random)
        self._regexes = Regexes(self._upkeep)

    def get(self, group_id: str) -> ConsumerGroup | None:
        group = self._groups.get(group_id)
        return None if group is None or group.is_unused else group

    def all(self) -> list[ConsumerGroup]:
        return [group for group in self._groups.values() if not group.is_unused]

    def __contains__(self, group_id: str) -> bool:
        return self.get(group_id) is not None

    # life

    def replay(self, record: ConsumerRecord) -> None:
        group = self._groups.get(record.group_id)
        if group is None:
            group = self._groups[record.group_id] = ConsumerGroup(record.group_id)
        group.replay(record)
        if group.is_unused:
            del self._groups[record.group_id]

    def loaded(self, now: Moment) -> Iterator[int]:
        for group in self.all():
            self._upkeep.loaded(group, now)
            yield 1 + len(group.members) // 4

    def upgraded(self, group_id: str, now: Moment) -> None:
        """A classic group has become this one."""
        self._upkeep.loaded(self._groups[group_id], now)

    def topics_changed(self, names: set[str], now: Moment, *, came_or_went: bool) -> None:
        """Topics with these names are new, gone, or have other partitions now."""
        for group in self.all():
            if any(map(group.is_subscribed, names)):
                group.live.is_stale = True
            if came_or_went:
                self._regexes.topics_changed(group, now)

    # requests

    def is_stale(self, group_id: str, member_id: str, connection: int) -> bool:
        """Whether the member has spoken on a younger connection."""
        group = self._groups.get(group_id)
        return group is not None and connection < group.live.connections.get(member_id, connection)

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, client: Client, now: Moment) -> Answer:
        group = self.get(request.group_id)
        if group is not None:
            if is_leaving(request):
                return self._leaving.leave(group, request, now)
            return self._heartbeats.heartbeat(group, request, client, now)
        if request.member_epoch != 0:
            return Decision((), not_a_consumer_group(request.group_id).response())
        # Its first records make it a group. Until then it is one that is not used, and shown to nobody.
        group = self._groups[request.group_id] = ConsumerGroup(request.group_id)
        answer = self._heartbeats.heartbeat(group, request, client, now)
        if not answer.records:
            del self._groups[request.group_id]
        return answer

    # time

    def expire(self, key: TimerKey, now: Moment) -> Outcome:
        group = self.get(key.group_id)
        if group is None:
            return NOTHING
        match key.kind:
            case TimerKind.CONSUMER_SESSION:
                return self._leaving.expire_session(group, key.member_id, now)
            case TimerKind.REVOCATION:
                return self._leaving.expire_revocation(group, key.member_id, now)
            case TimerKind.CLASSIC_JOIN | TimerKind.CLASSIC_SYNC:
                return self._leaving.expire_classic(group, key.member_id, now)
            case TimerKind.TARGET:
                return self._upkeep.expire_target(group, now)
            case TimerKind.REGEX:
                return self._regexes.match(group, key.member_id, now)
            case TimerKind.MATCHED:
                return self._regexes.resolve(group, key.member_id, now)
        raise AssertionError(key)

    def drop_unused(self) -> None:
        """Groups whose first records could not be written."""
        for group_id in [group_id for group_id, group in self._groups.items() if group.is_unused]:
            del self._groups[group_id]

"""What keeps a consumer group going between two heartbeats: its timers, its epochs and when its target is computed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from tidelog.coordinator.chores import Chores, Work, finish
from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group.assignors import Assignment
from tidelog.coordinator.group.config import GroupConfig
from tidelog.coordinator.group.consumer import targets
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.model import MemberState, Profile, Resolved
from tidelog.coordinator.group.consumer.records import (
    ConsumerRecord,
    GroupEpoch,
    PartitionMetadata,
    ResolvedRegex,
)
from tidelog.coordinator.group.consumer_config import ConsumerGroupConfigs
from tidelog.coordinator.group.records import GroupRecord
from tidelog.coordinator.group.timing import TimerKey, TimerKind
from tidelog.coordinator.group.topics import Topics
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.timers import Timers

Outcome: TypeAlias = Decision[GroupRecord, None]
NOTHING: Outcome = Decision((), None)
SHORT_INTERVAL_MS = 100
"""The heartbeat interval while a group is not where it shall be; larger groups come less often."""


class Upkeep:
    def __init__(
        self,
        config: GroupConfig,
        configs: ConsumerGroupConfigs,
        topics: Topics,
        timers: Timers[TimerKey],
        chores: Chores,
    ) -> None:
        self.config = config
        self._configs = configs
        self.topics = topics
        self._timers = timers
        self.chores = chores

    # timers

    def touch(self, group: ConsumerGroup, member_id: str, now: Moment) -> None:
        """The member was heard of."""
        profile = group.members.get(member_id)
        if profile is not None and profile.classic is not None:
            timeout_ms = profile.classic.session_timeout_ms
        else:
            timeout_ms = self._configs(group.group_id).session_timeout_ms
        self._timers.schedule(TimerKey(TimerKind.CONSUMER_SESSION, group.group_id, member_id), now.ms + timeout_ms)

    def watch_revocation(self, group: ConsumerGroup, member_id: str, now: Moment) -> None:
        """After each step of the member: it has its rebalance time-out to give up what it was asked to."""
        key = TimerKey(TimerKind.REVOCATION, group.group_id, member_id)
        profile = group.members[member_id]
        if group.current(member_id).state != MemberState.UNREVOKED_PARTITIONS or profile.classic is not None:
            self._timers.cancel(key)
        else:
            self._timers.schedule(key, now.ms + profile.rebalance_timeout_ms)

    def await_join(self, group: ConsumerGroup, member_id: str, now: Moment) -> None:
        """A classic member was told to join again: it has its rebalance time-out for that."""
        key = TimerKey(TimerKind.CLASSIC_JOIN, group.group_id, member_id)
        if key not in self._timers:
            self._timers.schedule(key, now.ms + group.members[member_id].rebalance_timeout_ms)

    def await_sync(self, group: ConsumerGroup, member_id: str, now: Moment) -> None:
        self._timers.cancel(TimerKey(TimerKind.CLASSIC_JOIN, group.group_id, member_id))
        key = TimerKey(TimerKind.CLASSIC_SYNC, group.group_id, member_id)
        self._timers.schedule(key, now.ms + group.members[member_id].rebalance_timeout_ms)

    def has_synced(self, group: ConsumerGroup, member_id: str) -> None:
        self._timers.cancel(TimerKey(TimerKind.CLASSIC_SYNC, group.group_id, member_id))

    def resolve_soon(self, group: ConsumerGroup, regex: str, due_ms: int) -> None:
        key = TimerKey(TimerKind.REGEX, group.group_id, regex)
        if key not in self._timers:
            self._timers.schedule(key, due_ms)

    def has_matched(self, group: ConsumerGroup, regex: str, due_ms: int) -> None:
        self._timers.schedule(TimerKey(TimerKind.MATCHED, group.group_id, regex), due_ms)

    def loaded(self, group: ConsumerGroup, now: Moment) -> None:
        for member_id in group.members:
            self.touch(group, member_id, now)
            self.watch_revocation(group, member_id, now)
        for regex in group.used_regexes():
            self.resolve_soon(group, regex, now.ms)
        if group.members and group.epoch > group.target_epoch:
            self.want_target(group, now)

    def interval_ms(self, group: ConsumerGroup, member_id: str, now: Moment) -> int:
        interval_ms = self._configs(group.group_id).heartbeat_interval_ms
        if now.ms >= group.live.busy_until_ms and group.is_settled(member_id):
            return interval_ms
        return min(interval_ms, max(SHORT_INTERVAL_MS, len(group.members)))

    # epochs

    def next_epoch(
        self,
        group: ConsumerGroup,
        now: Moment,
        *,
        without: Iterable[str] = (),
        plus: Profile | None = None,
        resolved: dict[str, Resolved] | None = None,
    ) -> list[ConsumerRecord]:
        names = group.topics(without=without, plus=plus, resolved=resolved)
        metadata_hash = targets.metadata_hash(names, self.topics)
        group.live.busy_until_ms = now.ms + self._configs(group.group_id).heartbeat_interval_ms
        records: list[ConsumerRecord] = [GroupEpoch(group.group_id, (group.epoch + 1, metadata_hash))]
        if group.has_partition_metadata:
            records.append(PartitionMetadata(group.group_id, False))
        return records

    def has_changed(self, group: ConsumerGroup) -> bool:
        """Whether the subscribed topics are others than those of the epoch."""
        return group.live.is_stale and targets.metadata_hash(group.topics(), self.topics) != group.metadata_hash

    def unused_regexes(self, group: ConsumerGroup, *, without: Iterable[str]) -> list[ConsumerRecord]:
        """Tombstones for what nobody but these members subscribes with."""
        gone = set(without)
        regexes = {group.members[member_id].regex for member_id in gone if member_id in group.members}
        if not regexes & group.regexes.keys():
            return []
        used = {profile.regex for member_id, profile in group.members.items() if member_id not in gone}
        return [ResolvedRegex(group.group_id, regex, None) for regex in sorted(regexes & group.regexes.keys() - used)]

    # the target

    def want_target(self, group: ConsumerGroup, now: Moment) -> None:
        """The epoch is ahead of the target: compute it as soon as may be."""
        key = TimerKey(TimerKind.TARGET, group.group_id)
        if key not in self._timers:
            self._timers.schedule(key, max(group.live.target_due_ms, now.ms))

    def is_target_due(self, group: ConsumerGroup, now: Moment) -> bool:
        return group.epoch > group.target_epoch and bool(group.members) and now.ms >= group.live.target_due_ms

    def may_compute_at_once(self, group: ConsumerGroup, now: Moment) -> bool:
        """Within a heartbeat: the first target, and not another one of a large group, which takes turns of its own."""
        return self.is_target_due(group, now) and not (group.target_epoch and self._wait_ms(group))

    def _wait_ms(self, group: ConsumerGroup) -> int:
        return targets.wait_ms(group, self.topics, self._configs(group.group_id).assignment_interval_ms)

    def target_records(self, group: ConsumerGroup, now: Moment) -> list[ConsumerRecord]:
        self._timers.cancel(TimerKey(TimerKind.TARGET, group.group_id))
        group.live.computing = group.live.computed = None
        group.live.target_due_ms = now.ms + self._wait_ms(group)
        return targets.records_of(group, finish(self._compute(group)), group.epoch, now.wall_ms)

    def _compute(self, group: ConsumerGroup) -> Work[Assignment]:
        return targets.compute(group, self.topics, self.config.group_consumer_assignors[0])

    def _begin_target(self, group: ConsumerGroup, now: Moment) -> None:
        group.live.target_due_ms = now.ms + self._wait_ms(group)
        group.live.computing = name = object()
        # A large group: others get their turn before a thousand records are written.
        due_ms = min(group.live.target_due_ms, now.ms + 1)
        self.chores.begin(self._computing(group, name, due_ms))

    def _computing(self, group: ConsumerGroup, name: object, due_ms: int) -> Work[None]:
        epoch = group.epoch
        computed = yield from self._compute(group)
        if group.live.computing is name:
            group.live.computing, group.live.computed = None, (epoch, computed)
            self._timers.schedule(TimerKey(TimerKind.TARGET, group.group_id), due_ms)

    def expire_target(self, group: ConsumerGroup, now: Moment) -> Outcome:
        """Begin to compute it, or write it when that is done."""
        if group.epoch <= group.target_epoch or not group.members:
            return NOTHING
        if group.live.computed is None:
            if not self.is_target_due(group, now):
                self.want_target(group, now)
            elif group.live.computing is None:
                self._begin_target(group, now)
            return NOTHING
        epoch, computed = group.live.computed
        group.live.computed = None
        if epoch == group.epoch and computed.keys() != group.members.keys():
            # A static member has come back under another id meanwhile, of which no epoch tells.
            self._begin_target(group, now)
            return NOTHING
        # Others may have come and gone since. Then the epoch is ahead of this target, and the next one follows.
        records = targets.records_of(group, computed, epoch, now.wall_ms)
        return Decision(records, None, then=lambda now: self._targeted(group, now))

    def _targeted(self, group: ConsumerGroup, now: Moment) -> Outcome:
        if group.epoch > group.target_epoch:
            self.want_target(group, now)
        return NOTHING

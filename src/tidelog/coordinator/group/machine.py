"""The groups of one partition of `__consumer_offsets`: what is durable, changed by replay, and what lives in memory.

Durable are the offsets, the consumer groups and the last GroupMetadata record of each classic group. Beside them, in
memory, are the classic groups themselves: a rebalance changes members and state long before it has a new generation to
store, and is forgotten by a restart. A name belongs to a classic or to a consumer group, never to both.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from random import Random

from tidelog.coordinator.chores import Chores
from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group import deletion
from tidelog.coordinator.group.classic import ClassicGroup
from tidelog.coordinator.group.commit import Commit
from tidelog.coordinator.group.config import GroupConfig
from tidelog.coordinator.group.consumer.commits import check_fetch
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.groups import ConsumerGroups
from tidelog.coordinator.group.consumer.records import ConsumerRecord, GroupEpoch
from tidelog.coordinator.group.consumer.requests import not_a_consumer_group
from tidelog.coordinator.group.consumer_config import ConsumerGroupConfigs, defaults
from tidelog.coordinator.group.foreign import ForeignGroups
from tidelog.coordinator.group.joining import UNKNOWN_MEMBER_ID, Client, Join, Joining
from tidelog.coordinator.group.leaving import Identity, Leaving, unknown_members
from tidelog.coordinator.group.migrating import Migrating
from tidelog.coordinator.group.offsets import Offsets
from tidelog.coordinator.group.rebalance import NOTHING, Outcome, Rebalance
from tidelog.coordinator.group.records import (
    ForeignRecord,
    GroupRecord,
    GroupRemoved,
    GroupWritten,
    OffsetCommitted,
    OffsetRemoved,
    decode_record,
    encode_record,
)
from tidelog.coordinator.group.state import GroupState
from tidelog.coordinator.group.syncing import Syncing
from tidelog.coordinator.group.timing import TimerKey, TimerKind
from tidelog.coordinator.group.topics import Topics
from tidelog.coordinator.group.txn_commit import TxnCommit
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.outbox import Outbox, Waiting
from tidelog.coordinator.shard_log import coordinator_error
from tidelog.coordinator.timers import Timers
from tidelog.protocol.batch import NO_PRODUCER_ID
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.delete_groups import DeleteGroupsResponse
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.leave_group import LeaveGroupResponse
from tidelog.protocol.messages.offset_commit import OffsetCommitResponse
from tidelog.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest
from tidelog.protocol.messages.records_group import GroupMetadataValue
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse

_log = logging.getLogger("tidelog.coordinator")
TOMBSTONES_PER_BATCH = 1_000
TIMERS_PER_TICK = 20
DeletedGroup = DeleteGroupsResponse.DeletableGroupResult


class GroupMachine:
    def __init__(
        self,
        config: GroupConfig,
        random: Random,
        outbox: Outbox,
        topics: Topics,
        group_configs: ConsumerGroupConfigs = defaults,
        chores: Chores | None = None,
    ) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.persisted: dict[str, GroupMetadataValue] = {}
        self.offsets = Offsets()
        self.foreign = ForeignGroups()
        self._config = config
        self._outbox = outbox
        self._timers: Timers[TimerKey] = Timers()
        self._rebalance = Rebalance(config, self._timers, outbox)
        self._migrating = Migrating(config, topics, self.groups, self._rebalance, self._dissolve)
        downgrade = self._migrating.downgrade
        self.consumers = ConsumerGroups(
            config, group_configs, topics, self._timers, random, outbox, downgrade, chores or Chores()
        )
        self._joining = Joining(config, self._rebalance, outbox, random)
        self._syncing = Syncing(self._rebalance, outbox)
        self._leaving = Leaving(self._rebalance)

    # durable state

    encode = staticmethod(encode_record)
    decode = staticmethod(decode_record)

    def replay(self, record: GroupRecord, offset: int, producer_id: int) -> None:
        match record:
            case OffsetCommitted(group_id, topic, partition, value):
                self._ensure_group(group_id)
                if producer_id == NO_PRODUCER_ID:
                    self.offsets.put(group_id, topic, partition, value, offset)
                else:
                    self.offsets.put_pending(producer_id, group_id, topic, partition, value, offset)
            case OffsetRemoved(group_id, topic, partition):
                self.offsets.remove(group_id, topic, partition)
            case GroupWritten(group_id, written):
                self.persisted[group_id] = written
            case GroupRemoved(group_id):
                self.persisted.pop(group_id, None)
                self._forget(group_id)
            case ForeignRecord():
                self.foreign.replay(record)
            case _:
                self._replay_consumer(record)

    def _ensure_group(self, group_id: str) -> None:
        """Offsets have a group, if only one that has never had a member."""
        if group_id not in self.groups and group_id not in self.consumers:
            self.groups[group_id] = ClassicGroup(group_id)

    def _replay_consumer(self, record: ConsumerRecord) -> None:
        group_id = record.group_id
        self.consumers.replay(record)
        if group_id not in self.consumers:
            if self.offsets.has_group(group_id):
                self._ensure_group(group_id)
        elif isinstance(record, GroupEpoch) and record.value is not None and group_id not in self.persisted:
            self.groups.pop(group_id, None)

    def all_groups(self) -> list[ClassicGroup | ConsumerGroup]:
        return [*self.groups.values(), *self.consumers.all()]

    def group(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        return self.groups.get(group_id) or self.consumers.get(group_id)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed)

    def _forget(self, group_id: str) -> None:
        group = self.groups.pop(group_id, None)
        if group is not None:
            self._rebalance.forget_group(group)
            group.transition(GroupState.DEAD, group.state_ms)

    # life

    def loaded(self, now: Moment) -> Iterator[int]:
        for group_id in self.offsets.group_ids():
            self._ensure_group(group_id)
        for group_id, value in list(self.persisted.items()):
            if group_id in self.consumers:
                self.groups.pop(group_id, None)
                continue
            group = self.groups[group_id] = ClassicGroup.from_record(group_id, value)
            for member in group.members.values():
                self._rebalance.touch(group, member, now)
            if len(group.members) > self._config.group_max_size:
                self._rebalance.prepare(group, now)
            yield 1 + len(group.members) // 2
        if self.foreign:
            names = ", ".join(self.foreign.names()[:5])
            _log.warning(
                "%d group(s) of a protocol that is not served yet are kept, and their committed offsets served: %s",
                len(self.foreign),
                names,
            )
        yield from self.consumers.loaded(now)
        self._schedule_expiry(now)

    def unloaded(self, now: Moment) -> None:
        for group in self.groups.values():
            self._dissolve(group, ErrorCode.NOT_COORDINATOR, now)
        self._timers.clear()

    def _dissolve(self, group: ClassicGroup, error: ErrorCode, now: Moment) -> None:
        for member in group.members.values():
            self._rebalance.answer_join(group, member, JoinGroupResponse(member_id=member.member_id, error_code=error))
            self._rebalance.answer_sync(member, SyncGroupResponse(error_code=error))
        group.transition(GroupState.DEAD, now.wall_ms)

    # time

    def deadline_ms(self) -> int | None:
        return self._timers.next_ms()

    def tick(self, now: Moment) -> Iterator[Outcome]:
        """A thousand sessions may end at once: what is left is due at the next call, and others get their turn."""
        for _ in range(TIMERS_PER_TICK):
            key = self._timers.pop_due(now.ms)
            if key is None:
                return
            if key.kind is TimerKind.EXPIRY:
                self._schedule_expiry(now)
                yield from self._expire_by_age(now)
            else:
                outcome = self._expire(key, now)
                if outcome.records:
                    yield outcome

    def _expire(self, key: TimerKey, now: Moment) -> Outcome:
        if key.kind >= TimerKind.CONSUMER_SESSION:
            return self.consumers.expire(key, now)
        group = self.groups.get(key.group_id)
        if group is None:
            return NOTHING
        match key.kind:
            case TimerKind.SESSION:
                return self._rebalance.expire_session(group, key.member_id, now)
            case TimerKind.INITIAL_JOIN:
                return self._rebalance.expire_initial_join(group, now)
            case TimerKind.JOIN:
                return self._rebalance.complete_join(group, now)
            case TimerKind.SYNC:
                return self._rebalance.expire_sync(group, now)
        raise AssertionError(key)

    def _schedule_expiry(self, now: Moment) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._timers.schedule(TimerKey(TimerKind.EXPIRY), now.ms + interval_ms)

    def _expire_by_age(self, now: Moment) -> Iterator[Outcome]:
        retention_ms = self._config.offsets_retention_ms
        for group in list(self.groups.values()):
            expired = deletion.expired(group, self.offsets, now.wall_ms, retention_ms)
            yield from _in_batches(self.foreign.with_removals(expired))
        self.consumers.drop_unused()
        for consumer_group in self.consumers.all():
            records = deletion.expired_of_consumers(consumer_group, self.offsets, now.wall_ms, retention_ms)
            yield from _in_batches(iter(records))

    # membership

    def join(self, join: Join, now: Moment) -> Outcome:
        if self.foreign.is_refused(join.group_id):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            self._outbox.send(join.waiting, JoinGroupResponse(member_id=join.member_id, error_code=code))
            return NOTHING
        consumer_group = self.consumers.get(join.group_id)
        if consumer_group is None:
            return self._join(join, now)
        if consumer_group.members:
            return self.consumers.classic_members.join(consumer_group, join, now)
        removal = consumer_group.removal()
        outcome = self._join(join, now)
        return Decision((*removal, *outcome.records), None, outcome.settled) if outcome.records else outcome

    def _join(self, join: Join, now: Moment) -> Outcome:
        group = self.groups.get(join.group_id)
        if group is not None:
            return self._joining.join(group, join, now)
        if join.member_id != UNKNOWN_MEMBER_ID:
            unknown = JoinGroupResponse(member_id=join.member_id, error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            self._outbox.send(join.waiting, unknown)
            return NOTHING
        return self._join_first(join, now)

    def _join_first(self, join: Join, now: Moment) -> Outcome:
        group = ClassicGroup(join.group_id, now.wall_ms)
        self.groups[join.group_id] = group
        outcome = self._joining.join(group, join, now)
        assert not outcome.records, "a new group waits at least for its own timer"
        if not group.members and not group.pending_joins:
            del self.groups[join.group_id]
            return NOTHING

        def settled(code: ErrorCode, now: Moment) -> None:
            # A batch that timed out is in the log, and the group goes on.
            if code not in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT) and self.groups.get(group.group_id) is group:
                del self.groups[group.group_id]
                self._rebalance.forget_group(group)
                self._dissolve(group, coordinator_error(code), now)

        created = GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=group.state_ms)
        return Decision((GroupWritten(group.group_id, created),), None, settled)

    def is_stale(self, request: JoinGroupRequest, connection: int) -> bool:
        """Whether the member has joined on a younger connection: it has given this one up. Were it heard, the others
        could get what the member still works on, since who has joined has given up all that it does not name."""
        group = self.group(request.group_id)
        if group is None:
            return False
        member_id = request.member_id
        if member_id == UNKNOWN_MEMBER_ID and request.group_instance_id is not None:
            member_id = group.static_ids.get(request.group_instance_id, UNKNOWN_MEMBER_ID)
        if isinstance(group, ConsumerGroup):
            return self.consumers.is_stale(group.group_id, member_id, connection)
        member = group.members.get(member_id)
        return member is not None and connection < member.connection

    def abandon(self, group_id: str, waiting: Waiting[JoinGroupResponse], now: Moment) -> Outcome:
        """The connection of a parked JoinGroup has died. A member that knows its id may come back with it, until its
        time is up; one that does not is gone for ever, and nobody needs to wait for it."""
        group = self.groups.get(group_id)
        member = None if group is None else group.members.get(waiting.member_id)
        if group is None or member is None or member.awaiting_join is not waiting or not member.is_anonymous:
            return NOTHING
        self._rebalance.dismiss(group, member)
        return self._rebalance.after_removal(group, now)

    def sync(self, request: SyncGroupRequest, waiting: Waiting[SyncGroupResponse], now: Moment) -> Outcome:
        group = self.groups.get(request.group_id)
        if group is not None:
            return self._syncing.sync(group, request, waiting, now)
        consumer_group = self.consumers.get(request.group_id)
        if consumer_group is not None:
            return self.consumers.classic_members.sync(consumer_group, request, waiting, now)
        self._outbox.send(waiting, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        return NOTHING

    def heartbeat(self, request: HeartbeatRequest, now: Moment) -> ErrorCode:
        group = self.groups.get(request.group_id)
        if group is None:
            consumer_group = self.consumers.get(request.group_id)
            if consumer_group is not None:
                return self.consumers.classic_members.heartbeat(consumer_group, request, now)
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.check_member(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._rebalance.touch(group, group.members[request.member_id], now)
        is_preparing = group.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if is_preparing else ErrorCode.NONE

    def leave(
        self, group_id: str, identities: list[Identity], now: Moment
    ) -> Decision[GroupRecord, LeaveGroupResponse]:
        group = self.groups.get(group_id)
        if group is None:
            consumer_group = self.consumers.get(group_id)
            if consumer_group is not None:
                return self.consumers.classic_members.leave(consumer_group, identities, now)
            return Decision((), unknown_members(identities))
        return self._leaving.leave(group, identities, now)

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, now: Moment
    ) -> Decision[GroupRecord, ConsumerGroupHeartbeatResponse]:
        group_id = request.group_id
        classic = self.groups.get(group_id)
        if self.foreign.is_refused(group_id):
            return Decision((), not_a_consumer_group(group_id).response())
        if classic is not None and not classic.is_unused:
            return self._migrating.upgrade(classic, self.consumers, request, client, now)
        answer = self.consumers.heartbeat(request, client, now)
        if answer.records and group_id in self.persisted:
            # An empty classic group makes way.
            return replace(answer, records=(GroupRemoved(group_id), *answer.records))
        return answer

    # offsets and deletion

    def commit(self, commit: Commit, now: Moment) -> Decision[GroupRecord, OffsetCommitResponse]:
        request = commit.request
        group = self.group(request.group_id)
        decision = commit.decide(group, self._config.offset_metadata_max_bytes, now)
        if not isinstance(group, ClassicGroup):
            return decision
        if decision.records and (member := group.members.get(request.member_id)) is not None:
            # A commit is a sign of life.
            self._rebalance.touch(group, member, now)
        return decision

    def commit_in_transaction(self, commit: TxnCommit, now: Moment) -> Decision[GroupRecord, TxnOffsetCommitResponse]:
        group = self.group(commit.request.group_id)
        return commit.decide(group, self._config.offset_metadata_max_bytes, now)

    def check_fetch(self, request: OffsetFetchRequest.OffsetFetchRequestGroup) -> ErrorCode:
        group = self.consumers.get(request.group_id)
        return ErrorCode.NONE if group is None else check_fetch(group, request.member_id, request.member_epoch)

    def delete_offsets(
        self, request: OffsetDeleteRequest, topics: Topics
    ) -> Decision[GroupRecord, OffsetDeleteResponse]:
        return deletion.delete_offsets(self.group(request.group_id), request, self.offsets, topics)

    def delete_groups(self, group_ids: Iterable[str]) -> Decision[GroupRecord, list[DeletedGroup]]:
        records: list[GroupRecord] = []
        results: list[DeletedGroup] = []
        for group_id in dict.fromkeys(group_ids):
            group = self.group(group_id)
            error = deletion.check_group_delete(group)
            results.append(DeletedGroup(group_id=group_id, error_code=error))
            if isinstance(group, ConsumerGroup) and error is ErrorCode.NONE:
                records.extend(deletion.offset_tombstones(group_id, self.offsets))
                records.extend(group.removal())
            elif error is ErrorCode.NONE:
                records.extend(self.foreign.with_removals(deletion.group_tombstones(group_id, self.offsets)))
        return Decision(records, results)

    def forget_topics(self, deleted: Iterable[tuple[str, bytes]]) -> Iterator[Outcome]:
        return _in_batches(iter(deletion.offsets_of_deleted_topics(self.offsets, deleted)))


def _in_batches(records: Iterator[GroupRecord]) -> Iterator[Outcome]:
    """A group may have more offsets than one batch of the log may hold."""
    while batch := tuple(islice(records, TOMBSTONES_PER_BATCH)):
        yield Decision(batch, None)

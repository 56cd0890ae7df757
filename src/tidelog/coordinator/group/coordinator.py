"""The group coordinator: one method per Kafka API, each finding the partition that owns the group.

Every method answers through a callback, at once or later. What it returns can be cancelled when the client's connection
dies; membership is not touched by that, except for members that nobody can ever claim again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from random import Random
from typing import Final, TypeVar

from tidelog.coordinator.gather import Gather
from tidelog.coordinator.group import describe, fetch
from tidelog.coordinator.group.commit import Commit
from tidelog.coordinator.group.config import GroupConfig
from tidelog.coordinator.group.consumer import describe as describe_consumer
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.requests import check as check_heartbeat
from tidelog.coordinator.group.consumer_config import ConsumerGroupConfigs, defaults
from tidelog.coordinator.group.joining import Client, Join
from tidelog.coordinator.group.leaving import for_version, identities_of
from tidelog.coordinator.group.machine import DeletedGroup, GroupMachine
from tidelog.coordinator.group.topics import Topics
from tidelog.coordinator.group.txn_commit import TxnCommit
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.outbox import Waiting
from tidelog.coordinator.partitioning import partition_for
from tidelog.coordinator.runtime import CoordinatorRuntime
from tidelog.coordinator.shard import Limits, Shard
from tidelog.coordinator.shard_log import Producer, coordinator_error
from tidelog.kernel.ports import Clock
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tidelog.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

__all__ = ["Client", "GroupCoordinator"]

T = TypeVar("T")
Answer = Callable[[T], None]
_NULL_PROTOCOL_FROM: Final = 7
_PROTOCOL_REQUIRED_FROM: Final = 5
_STATES_FROM: Final = 4
_TYPES_FROM: Final = 5


class GroupCoordinator:
    def __init__(
        self,
        config: GroupConfig,
        topics: Topics,
        clock: Clock,
        random: Random,
        wake: Callable[[], None],
        group_configs: ConsumerGroupConfigs = defaults,
    ) -> None:
        self.config = config
        limits = Limits(commit_timeout_ms=config.offsets_commit_timeout_ms)
        self.runtime: CoordinatorRuntime[GroupMachine] = CoordinatorRuntime(
            lambda partition, outbox: GroupMachine(config, random, outbox, topics, group_configs, self.runtime.chores),
            clock,
            wake,
            limits,
        )
        self._topics = topics

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that owns a group."""
        return partition_for(group_id, self.config.offsets_topic_num_partitions)

    def _find(self, group_id: str) -> Shard[GroupMachine] | ErrorCode:
        return self.runtime.find(self.partition_for(group_id))

    # membership

    def join(
        self, request: JoinGroupRequest, version: int, client: Client, answer: Answer[JoinGroupResponse]
    ) -> Waiting[JoinGroupResponse] | None:
        answer = _naming_protocol(answer, version)
        error = self._check_join(request)
        shard = self._find(request.group_id) if error is ErrorCode.NONE else error
        if isinstance(shard, ErrorCode):
            answer(JoinGroupResponse(member_id=request.member_id, error_code=shard))
            return None
        if shard.machine.is_stale(request, client.connection):
            client.drop()
            return None
        waiting: Waiting[JoinGroupResponse] = Waiting(answer)
        waiting.when_cancelled = lambda: self._abandon(request.group_id, waiting)
        join = Join.of(request, version, client, waiting)
        shard.write(lambda machine, now: machine.join(join, now), _ignore, _no_response)
        return waiting

    def _check_join(self, request: JoinGroupRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        shortest, longest = self.config.group_min_session_timeout_ms, self.config.group_max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        return ErrorCode.NONE

    def _abandon(self, group_id: str, waiting: Waiting[JoinGroupResponse]) -> None:
        shard = self._find(group_id)
        if not isinstance(shard, ErrorCode):
            shard.write(lambda machine, now: machine.abandon(group_id, waiting, now), _ignore, _no_response)

    def sync(
        self, request: SyncGroupRequest, version: int, answer: Answer[SyncGroupResponse]
    ) -> Waiting[SyncGroupResponse] | None:
        error = _check_sync(request, version)
        shard = self._find(request.group_id) if error is ErrorCode.NONE else error
        if isinstance(shard, ErrorCode):
            answer(SyncGroupResponse(error_code=shard))
            return None
        waiting: Waiting[SyncGroupResponse] = Waiting(answer)
        shard.write(lambda machine, now: machine.sync(request, waiting, now), _ignore, _no_response)
        return waiting

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        shard = self._find(request.group_id) if request.group_id else ErrorCode.INVALID_GROUP_ID
        if shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Members must not be sent away for a moment in which nobody could know them.
            return HeartbeatResponse()
        if isinstance(shard, ErrorCode):
            return HeartbeatResponse(error_code=shard)
        return HeartbeatResponse(error_code=shard.ask(lambda machine, now: machine.heartbeat(request, now)))

    def leave(self, request: LeaveGroupRequest, version: int, answer: Answer[LeaveGroupResponse]) -> None:
        shard = self._find(request.group_id) if request.group_id else ErrorCode.INVALID_GROUP_ID
        if isinstance(shard, ErrorCode):
            answer(LeaveGroupResponse(error_code=shard))
            return
        identities = identities_of(request, version)
        shard.write(
            lambda machine, now: machine.leave(request.group_id, identities, now),
            lambda response: answer(for_version(response, version)),
            lambda code: LeaveGroupResponse(error_code=coordinator_error(code)),
        )

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        client: Client,
        answer: Answer[ConsumerGroupHeartbeatResponse],
    ) -> None:
        refusal = check_heartbeat(request, version, self.config.group_consumer_assignors)
        if refusal is not None:
            answer(refusal.response())
            return
        shard = self._find(request.group_id)
        if isinstance(shard, ErrorCode):
            answer(ConsumerGroupHeartbeatResponse(error_code=shard))
            return
        if shard.machine.consumers.is_stale(request.group_id, request.member_id, client.connection):
            client.drop()
            return
        shard.write(
            lambda machine, now: machine.consumer_heartbeat(request, client, now),
            answer,
            lambda code: ConsumerGroupHeartbeatResponse(error_code=coordinator_error(code)),
        )

    # offsets

    def commit_offsets(self, request: OffsetCommitRequest, version: int, answer: Answer[OffsetCommitResponse]) -> None:
        """Commits without a group, even those with an empty group id, are taken: old clients send them."""
        commit = Commit(request, version, self._topics)
        if not commit.accepted:
            answer(commit.response)
            return
        shard = self._find(request.group_id)
        if isinstance(shard, ErrorCode):
            answer(commit.refuse(shard))
            return
        shard.write_shared(lambda machine, now: machine.commit(commit, now), answer, commit.refuse)

    def begin_transactional_commit(self, request: TxnOffsetCommitRequest, version: int) -> TxnCommit:
        return TxnCommit(request, version, self._topics)

    def commit_transactional_offsets(self, commit: TxnCommit, answer: Answer[TxnOffsetCommitResponse]) -> None:
        """Once the transaction is verified for the partition of the group."""
        request = commit.request
        shard = self._find(request.group_id)
        if isinstance(shard, ErrorCode):
            answer(commit.refuse(shard))
            return
        shard.write_transactional(
            Producer(request.producer_id, request.producer_epoch),
            lambda machine, now: machine.commit_in_transaction(commit, now),
            answer,
            commit.refuse,
        )

    def end_transaction(self, partition: int, producer_id: int, committed: bool) -> None:
        """A marker was appended to the partition of `__consumer_offsets`."""
        self.runtime.end_transaction(partition, producer_id, committed)

    def fetch_offsets(self, request: OffsetFetchRequest, version: int, answer: Answer[OffsetFetchResponse]) -> None:
        asked = fetch.group_requests(request, version, self._topics)
        gather: Gather[fetch.GroupResponse] = Gather(
            len(asked), lambda groups: answer(fetch.for_version(groups, version))
        )
        for index, group in enumerate(asked):
            self._fetch_group(group, version, request.require_stable, gather.slot(index))

    def _fetch_group(
        self, group: fetch.GroupRequest, version: int, require_stable: bool, answer: Answer[fetch.GroupResponse]
    ) -> None:
        def refuse(code: ErrorCode) -> fetch.GroupResponse:
            return fetch.refused(group, version, coordinator_error(code))

        shard = self._find(group.group_id)
        if isinstance(shard, ErrorCode):
            answer(refuse(shard))
            return

        def query(machine: GroupMachine) -> fetch.GroupResponse:
            error = machine.check_fetch(group)
            if error is not ErrorCode.NONE:
                return fetch.refused(group, version, error)
            return fetch.fetch(machine.offsets, group, self._topics, version, require_stable)

        shard.read(query, answer, refuse)

    def delete_offsets(self, request: OffsetDeleteRequest, answer: Answer[OffsetDeleteResponse]) -> None:
        shard = self._find(request.group_id) if request.group_id else ErrorCode.INVALID_GROUP_ID
        if isinstance(shard, ErrorCode):
            answer(OffsetDeleteResponse(error_code=shard))
            return
        shard.write(
            lambda machine, now: machine.delete_offsets(request, self._topics),
            answer,
            lambda code: OffsetDeleteResponse(error_code=coordinator_error(code)),
        )

    # administration

    def describe_groups(
        self, request: DescribeGroupsRequest, version: int, answer: Answer[DescribeGroupsResponse]
    ) -> None:
        gather: Gather[describe.DescribedGroup] = Gather(
            len(request.groups), lambda groups: answer(DescribeGroupsResponse(groups=groups))
        )
        for index, group_id in enumerate(request.groups):
            self._describe(group_id, version, gather.slot(index))

    def _describe(self, group_id: str, version: int, answer: Answer[describe.DescribedGroup]) -> None:
        def refuse(code: ErrorCode) -> describe.DescribedGroup:
            return describe.DescribedGroup(group_id=group_id, error_code=coordinator_error(code))

        def query(machine: GroupMachine) -> describe.DescribedGroup:
            group = machine.group(group_id)
            if isinstance(group, ConsumerGroup):
                return describe.describe_other(group_id, version)
            return describe.describe_missing(group_id, version) if group is None else describe.describe(group)

        shard = self._find(group_id)
        if isinstance(shard, ErrorCode):
            answer(refuse(shard))
        else:
            shard.read(query, answer, refuse)

    def describe_consumer_groups(
        self, request: ConsumerGroupDescribeRequest, answer: Answer[ConsumerGroupDescribeResponse]
    ) -> None:
        gather: Gather[describe_consumer.DescribedGroup] = Gather(
            len(request.group_ids), lambda groups: answer(ConsumerGroupDescribeResponse(groups=groups))
        )
        for index, group_id in enumerate(request.group_ids):
            self._describe_consumer(group_id, gather.slot(index))

    def _describe_consumer(self, group_id: str, answer: Answer[describe_consumer.DescribedGroup]) -> None:
        def refuse(code: ErrorCode) -> describe_consumer.DescribedGroup:
            return describe_consumer.DescribedGroup(group_id=group_id, error_code=coordinator_error(code))

        def query(machine: GroupMachine) -> describe_consumer.DescribedGroup:
            group = machine.group(group_id)
            if isinstance(group, ConsumerGroup):
                return describe_consumer.describe(group, self._topics, self.config.group_consumer_assignors[0])
            return describe_consumer.describe_missing(group_id, is_classic=group is not None)

        shard = self._find(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if isinstance(shard, ErrorCode):
            answer(refuse(shard))
        else:
            shard.read(query, answer, refuse)

    def list_groups(self, request: ListGroupsRequest, version: int, answer: Answer[ListGroupsResponse]) -> None:
        if self.runtime.is_loading:
            answer(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        states = request.states_filter if version >= _STATES_FROM else []
        types = request.types_filter if version >= _TYPES_FROM else []
        shards = self.runtime.shards()
        gather: Gather[ListGroupsResponse] = Gather(len(shards), lambda listed: answer(_merge_listed(listed)))
        for index, shard in enumerate(shards):
            shard.read(
                lambda machine: ListGroupsResponse(groups=describe.list_groups(machine.all_groups(), states, types)),
                gather.slot(index),
                lambda code: ListGroupsResponse(error_code=coordinator_error(code)),
            )

    def delete_groups(self, request: DeleteGroupsRequest, answer: Answer[DeleteGroupsResponse]) -> None:
        by_partition: dict[int, list[str]] = {}
        for group_id in request.groups_names:
            by_partition.setdefault(self.partition_for(group_id), []).append(group_id)
        gather: Gather[list[DeletedGroup]] = Gather(
            len(by_partition), lambda parts: answer(DeleteGroupsResponse(results=list(chain(*parts))))
        )
        for index, (partition, group_ids) in enumerate(by_partition.items()):
            self._delete_in(partition, group_ids, gather.slot(index))

    def _delete_in(self, partition: int, group_ids: list[str], answer: Answer[list[DeletedGroup]]) -> None:
        def refuse(code: ErrorCode) -> list[DeletedGroup]:
            error = coordinator_error(code)
            return [DeletedGroup(group_id=group_id, error_code=error) for group_id in dict.fromkeys(group_ids)]

        shard = self.runtime.find(partition)
        if isinstance(shard, ErrorCode):
            answer(refuse(shard))
        else:
            shard.write(lambda machine, now: machine.delete_groups(group_ids), answer, refuse)

    def topics_deleted(self, topics: Iterable[tuple[str, bytes]]) -> None:
        """Names and ids of topics that are no more: their offsets go with them."""
        deleted = list(topics)
        for shard in self.runtime.shards():
            for outcome in list(shard.machine.forget_topics(deleted)):
                shard.write(_always(outcome), _ignore, _no_response)

    def topics_changed(self, names: set[str], *, came_or_went: bool) -> None:
        """Topics with these names are new, gone, or have other partitions now."""
        for shard in self.runtime.shards():
            shard.ask(lambda machine, now: machine.consumers.topics_changed(names, now, came_or_went=came_or_went))
            shard.when_changed(shard)


def _check_sync(request: SyncGroupRequest, version: int) -> ErrorCode:
    if version >= _PROTOCOL_REQUIRED_FROM and (request.protocol_type is None or request.protocol_name is None):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE if request.group_id else ErrorCode.INVALID_GROUP_ID


def _naming_protocol(answer: Answer[JoinGroupResponse], version: int) -> Answer[JoinGroupResponse]:
    """No protocol is an empty name before version 7, and null from then on."""

    def fill(response: JoinGroupResponse) -> None:
        response.protocol_name = response.protocol_name or ("" if version < _NULL_PROTOCOL_FROM else None)
        answer(response)

    return fill


def _merge_listed(listed: list[ListGroupsResponse]) -> ListGroupsResponse:
    for part in listed:
        if part.error_code != ErrorCode.NONE:
            return ListGroupsResponse(error_code=part.error_code)
    return ListGroupsResponse(groups=[group for part in listed for group in part.groups])


def _always(outcome: T) -> Callable[[GroupMachine, Moment], T]:
    return lambda machine, now: outcome


def _ignore(response: None) -> None:
    """The member is answered by name; nobody waits for the write itself."""


def _no_response(code: ErrorCode) -> None:
    return None

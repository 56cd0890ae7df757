"""OffsetCommit: which partitions are known, whether the member may commit, and the records that follow.

A request is first held against the topics that exist; only what is left of it meets the group. So a commit for a topic
that is gone says so, whatever the generation of its sender.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group.classic import ClassicGroup
from tidelog.coordinator.group.consumer.commits import check_commit
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.records import NO_EXPIRY, CommittedOffset, GroupRecord, OffsetCommitted
from tidelog.coordinator.group.state import GroupState
from tidelog.coordinator.group.topics import Topics
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.shard_log import TOO_LARGE, coordinator_error
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tidelog.protocol.uuids import ZERO_UUID

_GROUP_NOT_FOUND_FROM: Final = 9
_TOPIC_IDS_FROM: Final = 10
_LATEST_MS: Final = 2**63 - 1
_DEFAULT_RETENTION: Final = -1


class _Accepted(NamedTuple):
    topic: str
    topic_id: bytes
    asked: OffsetCommitRequest.OffsetCommitRequestPartition
    answered: OffsetCommitResponse.OffsetCommitResponsePartition


class Commit:
    """One OffsetCommit on its way through the coordinator; its response grows with it."""

    def __init__(self, request: OffsetCommitRequest, version: int, topics: Topics) -> None:
        self.request = request
        self.version = version
        self.accepted: list[_Accepted] = []
        self.response = OffsetCommitResponse(topics=[self._take(topic, topics) for topic in request.topics])

    def refuse(self, code: ErrorCode) -> OffsetCommitResponse:
        """The group, or the log below it, has refused: every partition that was not refused before hears of it."""
        error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE if code in TOO_LARGE else coordinator_error(code)
        for entry in self.accepted:
            entry.answered.error_code = error
        return self.response

    def decide(
        self, group: ClassicGroup | ConsumerGroup | None, metadata_bytes_max: int, now: Moment
    ) -> Decision[GroupRecord, OffsetCommitResponse]:
        error = self.check(group)
        if error is not ErrorCode.NONE:
            return Decision((), self.refuse(error))
        retention_ms = self.request.retention_time_ms
        expire_ms = NO_EXPIRY if retention_ms == _DEFAULT_RETENTION else min(now.wall_ms + retention_ms, _LATEST_MS)
        group_id, commit_ms = self.request.group_id, now.wall_ms
        records: list[GroupRecord] = []
        for topic, topic_id, asked, answered in self.accepted:
            metadata = asked.committed_metadata or ""
            if metadata_length(metadata) > metadata_bytes_max:
                answered.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            value = CommittedOffset(
                asked.committed_offset, asked.committed_leader_epoch, metadata, commit_ms, expire_ms, topic_id
            )
            records.append(OffsetCommitted(group_id, topic, asked.partition_index, value))
        return Decision(records, self.response)

    def check(self, group: ClassicGroup | ConsumerGroup | None) -> ErrorCode:
        generation = self.request.generation_id_or_member_epoch
        if isinstance(group, ConsumerGroup):
            partitions = ((entry.topic_id, entry.asked.partition_index) for entry in self.accepted)
            return check_commit(group, self.request.member_id, generation, self.version, partitions)
        if group is not None:
            return _check_member(group, self.request.member_id, self.request.group_instance_id, generation)
        if generation < 0:
            # An administrator, or a consumer without a group: the commit makes a group of its own.
            return ErrorCode.NONE
        is_new = self.version >= _GROUP_NOT_FOUND_FROM
        return ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION

    def _take(
        self, topic: OffsetCommitRequest.OffsetCommitRequestTopic, topics: Topics
    ) -> OffsetCommitResponse.OffsetCommitResponseTopic:
        if self.version >= _TOPIC_IDS_FROM:
            name, topic_id = topics.topic_name(topic.topic_id), topic.topic_id
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            name, topic_id = topic.name, topics.topic_id(topic.name) or ZERO_UUID
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        for asked in topic.partitions:
            answered = OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=asked.partition_index)
            answer.partitions.append(answered)
            if name is None or topic_id == ZERO_UUID:
                answered.error_code = missing
            elif not topics.has_partition(name, asked.partition_index):
                answered.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                self.accepted.append(_Accepted(name, topic_id, asked, answered))
        return answer


def _check_member(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation < 0 and not member_id and instance_id is None:
        # Nobody may move the offsets of a group under the feet of its members.
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def metadata_length(metadata: str) -> int:
    """In UTF-16 units, as Kafka counts what it calls bytes."""
    return len(metadata) if metadata.isascii() else len(metadata.encode("utf-16-be", "surrogatepass")) // 2

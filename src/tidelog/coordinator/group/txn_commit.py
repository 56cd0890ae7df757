"""TxnOffsetCommit: offsets that count when the transaction of their producer is committed (KIP-447).

As in OffsetCommit, topics that do not exist are refused before the group is asked. Members are checked where the
request names one: the oldest versions do not. That the transaction is open was verified before.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group.classic import ClassicGroup
from tidelog.coordinator.group.commit import metadata_length
from tidelog.coordinator.group.consumer.commits import check_commit
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.records import CommittedOffset, GroupRecord, OffsetCommitted
from tidelog.coordinator.group.state import GroupState
from tidelog.coordinator.group.topics import Topics
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.shard_log import TOO_LARGE, coordinator_error
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

_LOADING_FROM: Final = 2
_ABORTABLE_FROM: Final = 4
_Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_Partition = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


class _Accepted(NamedTuple):
    topic: str
    topic_id: bytes
    asked: TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
    answered: _Partition


class TxnCommit:
    def __init__(self, request: TxnOffsetCommitRequest, version: int, topics: Topics) -> None:
        self.request = request
        self.version = version
        self.accepted: list[_Accepted] = []
        self.response = TxnOffsetCommitResponse(topics=[self._take(topic, topics) for topic in request.topics])

    def _take(self, topic: TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic, topics: Topics) -> _Topic:
        answer = _Topic(name=topic.name)
        topic_id = topics.topic_id(topic.name)
        for asked in topic.partitions:
            answered = _Partition(partition_index=asked.partition_index)
            answer.partitions.append(answered)
            if topic_id is None or not topics.has_partition(topic.name, asked.partition_index):
                answered.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                self.accepted.append(_Accepted(topic.name, topic_id, asked, answered))
        return answer

    def refuse(self, code: ErrorCode) -> TxnOffsetCommitResponse:
        for entry in self.accepted:
            entry.answered.error_code = self._told(code)
        return self.response

    def _told(self, code: ErrorCode) -> ErrorCode:
        if code in TOO_LARGE:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        if code is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if code is ErrorCode.TRANSACTION_ABORTABLE and self.version < _ABORTABLE_FROM:
            return ErrorCode.INVALID_TXN_STATE
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and self.version < _LOADING_FROM:
            # Producers of that time do not expect it, and give up.
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return coordinator_error(code)

    def decide(
        self, group: ClassicGroup | ConsumerGroup | None, metadata_bytes_max: int, now: Moment
    ) -> Decision[GroupRecord, TxnOffsetCommitResponse]:
        error = self._check(group)
        if error is not ErrorCode.NONE:
            return Decision((), self.refuse(error))
        records: list[GroupRecord] = []
        for topic, _, asked, answered in self.accepted:
            metadata = asked.committed_metadata or ""
            if metadata_length(metadata) > metadata_bytes_max:
                answered.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            value = CommittedOffset(asked.committed_offset, asked.committed_leader_epoch, metadata, now.wall_ms)
            records.append(OffsetCommitted(self.request.group_id, topic, asked.partition_index, value))
        return Decision(records, self.response)

    def _check(self, group: ClassicGroup | ConsumerGroup | None) -> ErrorCode:
        request = self.request
        member_id, instance_id = request.member_id, request.group_instance_id
        generation = request.generation_id_or_member_epoch
        if group is None:
            return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.NONE
        if isinstance(group, ConsumerGroup):
            partitions = ((entry.topic_id, entry.asked.partition_index) for entry in self.accepted)
            return check_commit(group, member_id, generation, self.version, partitions, is_transactional=True)
        if generation < 0 and group.state is GroupState.EMPTY:
            return ErrorCode.NONE
        error = group.check_member(member_id, instance_id)
        if error is ErrorCode.NONE and generation != group.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        return error

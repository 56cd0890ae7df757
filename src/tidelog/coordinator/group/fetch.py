"""OffsetFetch: committed offsets of some partitions or of all, of one group (1-7) or of many (8+)."""

from __future__ import annotations

from typing import Final

from tidelog.coordinator.group.offsets import Offsets
from tidelog.coordinator.group.records import CommittedOffset
from tidelog.coordinator.group.topics import Topics
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tidelog.protocol.uuids import ZERO_UUID

GroupRequest = OffsetFetchRequest.OffsetFetchRequestGroup
GroupResponse = OffsetFetchResponse.OffsetFetchResponseGroup
TopicRequest = OffsetFetchRequest.OffsetFetchRequestTopics
_TopicResponse = OffsetFetchResponse.OffsetFetchResponseTopics
_Partition = OffsetFetchResponse.OffsetFetchResponsePartitions

_TOP_LEVEL_ERROR_FROM: Final = 2
_BATCHED_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10
_NO_OFFSET: Final = -1


def group_requests(request: OffsetFetchRequest, version: int, topics: Topics) -> list[GroupRequest]:
    """The request as version 8 and later put it, every topic with its name and, if it exists, its id."""
    if version < _BATCHED_FROM:
        named = request.topics
        asked = None if named is None else [_named(entry.name, entry.partition_indexes, topics) for entry in named]
        return [GroupRequest(group_id=request.group_id, topics=asked)]
    return [_resolved(group, version, topics) for group in request.groups]


def _resolved(group: GroupRequest, version: int, topics: Topics) -> GroupRequest:
    if group.topics is None:
        return group
    if version < _TOPIC_IDS_FROM:
        asked = [_named(entry.name, entry.partition_indexes, topics) for entry in group.topics]
    else:
        asked = [
            TopicRequest(
                name=topics.topic_name(entry.topic_id) or "",
                topic_id=entry.topic_id,
                partition_indexes=entry.partition_indexes,
            )
            for entry in group.topics
        ]
    return GroupRequest(
        group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=asked
    )


def _named(name: str, partitions: list[int], topics: Topics) -> TopicRequest:
    return TopicRequest(name=name, topic_id=topics.topic_id(name) or ZERO_UUID, partition_indexes=partitions)


def fetch(offsets: Offsets, request: GroupRequest, topics: Topics, version: int, require_stable: bool) -> GroupResponse:
    if request.topics is None:
        found = [_all_of(offsets, request.group_id, name, require_stable) for name in offsets.topics(request.group_id)]
        if version >= _TOPIC_IDS_FROM:
            found = [entry for entry in found if _give_id(entry, topics)]
    else:
        found = [_fetch_topic(offsets, request.group_id, topic, require_stable) for topic in request.topics]
    return GroupResponse(group_id=request.group_id, topics=found)


def _give_id(entry: _TopicResponse, topics: Topics) -> bool:
    """A topic that is gone has no id to be named by."""
    entry.topic_id = topics.topic_id(entry.name) or ZERO_UUID
    return entry.topic_id != ZERO_UUID


def _all_of(offsets: Offsets, group_id: str, topic: str, require_stable: bool) -> _TopicResponse:
    partitions = [
        _partition(index, value, require_stable and offsets.is_pending(group_id, topic, index))
        for index, value in offsets.of_topic(group_id, topic)
    ]
    return _TopicResponse(name=topic, partitions=partitions)


def _fetch_topic(offsets: Offsets, group_id: str, topic: TopicRequest, require_stable: bool) -> _TopicResponse:
    answer = _TopicResponse(name=topic.name, topic_id=topic.topic_id)
    for index in topic.partition_indexes:
        value = offsets.get(group_id, topic.name, index)
        if value is not None and _is_of_another_topic(value.topic_id, topic.topic_id):
            value = None
        unstable = require_stable and offsets.is_pending(group_id, topic.name, index)
        entry = _partition(index, value, unstable)
        if not topic.name:
            entry.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        answer.partitions.append(entry)
    return answer


def _is_of_another_topic(committed: bytes, current: bytes) -> bool:
    """An offset of a topic that was deleted and created again means nothing in the new one."""
    return ZERO_UUID not in (committed, current) and committed != current


def _partition(index: int, value: CommittedOffset | None, unstable: bool) -> _Partition:
    if unstable:
        code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        return _Partition(partition_index=index, committed_offset=_NO_OFFSET, error_code=code)
    if value is None:
        return _Partition(partition_index=index, committed_offset=_NO_OFFSET)
    return _Partition(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def refused(request: GroupRequest, version: int, error: ErrorCode) -> GroupResponse:
    """Version 1 has no place for the error of a group, so each of its partitions carries it."""
    answer = GroupResponse(group_id=request.group_id, error_code=error)
    if version < _TOP_LEVEL_ERROR_FROM:
        for topic in request.topics or ():
            entry = _TopicResponse(name=topic.name)
            entry.partitions = [
                _Partition(partition_index=index, committed_offset=_NO_OFFSET, error_code=error)
                for index in topic.partition_indexes
            ]
            answer.topics.append(entry)
    return answer


def for_version(groups: list[GroupResponse], version: int) -> OffsetFetchResponse:
    if version >= _BATCHED_FROM:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    topics = [
        OffsetFetchResponse.OffsetFetchResponseTopic(
            name=topic.name, partitions=[_before_batches(entry) for entry in topic.partitions]
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def _before_batches(entry: _Partition) -> OffsetFetchResponse.OffsetFetchResponsePartition:
    return OffsetFetchResponse.OffsetFetchResponsePartition(
        partition_index=entry.partition_index,
        committed_offset=entry.committed_offset,
        committed_leader_epoch=entry.committed_leader_epoch,
        metadata=entry.metadata,
        error_code=entry.error_code,
    )

"""How groups and offsets go: DeleteGroups, OffsetDelete, topics that are deleted, and age (KIP-211)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group.classic import NO_TIMESTAMP, ClassicGroup
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.offsets import Offsets
from tidelog.coordinator.group.records import NO_EXPIRY, CommittedOffset, GroupRecord, GroupRemoved, OffsetRemoved
from tidelog.coordinator.group.state import GroupState
from tidelog.coordinator.group.topics import Topics
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from tidelog.protocol.uuids import ZERO_UUID


def check_group_delete(group: ClassicGroup | ConsumerGroup | None) -> ErrorCode:
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if isinstance(group, ConsumerGroup):
        return ErrorCode.NON_EMPTY_GROUP if group.members else ErrorCode.NONE
    return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP


def group_tombstones(group_id: str, offsets: Offsets) -> list[GroupRecord]:
    """Offsets first: read back half, they must not look like those of a group that is still there."""
    return [*offset_tombstones(group_id, offsets), GroupRemoved(group_id)]


def offset_tombstones(group_id: str, offsets: Offsets) -> list[GroupRecord]:
    found = {(topic, partition): None for topic, partition, _ in offsets.of_group(group_id)}
    found.update(dict.fromkeys(offsets.pending_of_group(group_id)))
    return [OffsetRemoved(group_id, *key) for key in found]


def delete_offsets(
    group: ClassicGroup | ConsumerGroup | None, request: OffsetDeleteRequest, offsets: Offsets, topics: Topics
) -> Decision[GroupRecord, OffsetDeleteResponse]:
    if group is None:
        return Decision((), OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
    if isinstance(group, ClassicGroup) and not (group.state is GroupState.EMPTY or group.uses_consumer_protocol):
        # What members of another protocol make of their offsets cannot be known.
        return Decision((), OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP))
    records: list[GroupRecord] = []
    answers = [_delete_of_topic(group, topic, offsets, topics, records) for topic in request.topics]
    return Decision(records, OffsetDeleteResponse(topics=answers))


def _delete_of_topic(
    group: ClassicGroup | ConsumerGroup,
    topic: OffsetDeleteRequest.OffsetDeleteRequestTopic,
    offsets: Offsets,
    topics: Topics,
    records: list[GroupRecord],
) -> OffsetDeleteResponse.OffsetDeleteResponseTopic:
    answer = OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name)
    for asked in topic.partitions:
        index, error = asked.partition_index, ErrorCode.NONE
        if not topics.has_partition(topic.name, index):
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif group.is_subscribed(topic.name):
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        elif offsets.get(group.group_id, topic.name, index) or offsets.is_pending(group.group_id, topic.name, index):
            records.append(OffsetRemoved(group.group_id, topic.name, index))
        answer.partitions.append(
            OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=index, error_code=error)
        )
    return answer


def offsets_of_deleted_topics(offsets: Offsets, deleted: Iterable[tuple[str, bytes]]) -> list[GroupRecord]:
    """Tombstones for the offsets of topics (name, id) that are gone; a commit for a namesake made since stays."""
    ids = dict(deleted)
    committed = (
        (group_id, topic, partition, value)
        for group_id in offsets.group_ids()
        for topic in ids
        for partition, value in offsets.of_topic(group_id, topic)
    )
    found: dict[GroupRecord, None] = {}
    for group_id, topic, partition, value in [*committed, *offsets.pending()]:
        if topic in ids and value.topic_id in (ZERO_UUID, ids[topic]):
            found[OffsetRemoved(group_id, topic, partition)] = None
    return list(found)


# age


def expired(group: ClassicGroup, offsets: Offsets, wall_ms: int, retention_ms: int) -> Iterator[GroupRecord]:
    """Tombstones for the offsets of a group that are too old, and for the group when nothing of it is left."""
    kept = 0
    for topic, partition, value in offsets.of_group(group.group_id):
        if _is_expired(group, topic, value, wall_ms, retention_ms) and not offsets.is_pending(
            group.group_id, topic, partition
        ):
            yield OffsetRemoved(group.group_id, topic, partition)
        else:
            kept += 1
    is_unused = group.state is GroupState.EMPTY and not group.pending_joins
    if not kept and is_unused and not offsets.has_open_transaction(group.group_id):
        yield GroupRemoved(group.group_id)


def expired_of_consumers(group: ConsumerGroup, offsets: Offsets, wall_ms: int, retention_ms: int) -> list[GroupRecord]:
    """An offset is in use while its topic is subscribed to; otherwise it counts from its commit."""
    records: list[GroupRecord] = []
    kept = 0
    for topic, partition, value in offsets.of_group(group.group_id):
        until_ms = value.commit_ms + retention_ms if value.expire_ms == NO_EXPIRY else value.expire_ms
        is_used = group.is_subscribed(topic) or offsets.is_pending(group.group_id, topic, partition)
        if is_used or wall_ms < until_ms:
            kept += 1
        else:
            records.append(OffsetRemoved(group.group_id, topic, partition))
    if not kept and not group.members and not offsets.has_open_transaction(group.group_id):
        records.extend(group.removal())
    return records


def _is_expired(group: ClassicGroup, topic: str, value: CommittedOffset, wall_ms: int, retention_ms: int) -> bool:
    since_ms = _unused_since(group, topic, value)
    if since_ms is None:
        return False
    if value.expire_ms != NO_EXPIRY:
        return wall_ms >= value.expire_ms
    return wall_ms - since_ms >= retention_ms


def _unused_since(group: ClassicGroup, topic: str, value: CommittedOffset) -> int | None:
    """From when on the retention of an offset counts, None while it is in use."""
    if group.protocol_type is None:
        return value.commit_ms
    if group.is_subscribed(topic):
        return None
    if group.state is GroupState.EMPTY:
        return value.commit_ms if group.state_ms == NO_TIMESTAMP else group.state_ms
    if group.state is GroupState.STABLE and group.uses_consumer_protocol and group.topics is not None:
        return value.commit_ms
    return None

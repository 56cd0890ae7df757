"""The records of `__consumer_offsets` that the coordinator writes and reads, and their bytes.

Offset commits are written by hand: at ten thousand a second the codec's general way costs a tenth of a core. A test
holds them equal to the codec's bytes.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from tidelog.coordinator.group.consumer.records import (
    ConsumerRecord,
    decode_consumer_record,
    encode_consumer_record,
)
from tidelog.protocol.messages.records_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.protocol.records_framing import (
    decode_coordinator_key,
    decode_coordinator_value,
    encode_coordinator_key,
    encode_coordinator_value,
)
from tidelog.protocol.uuids import ZERO_UUID

NO_EXPIRY: Final = -1
_GROUP_METADATA_VERSION: Final = 3
_EXPIRING_OFFSET_VERSION: Final = 1
_OFFSET_VERSION: Final = 4
_OFFSET_KEY_TYPE: Final = 1
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_OFFSET_VALUE_HEAD: Final = Struct(">hqi")
_TOPIC_ID_TAG: Final = b"\x01\x00\x10"  # one tagged field, number 0, of 16 bytes


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NO_EXPIRY
    """Only where the client asked for a retention of its own (OffsetCommit 2-4)."""
    topic_id: bytes = ZERO_UUID


class OffsetCommitted(NamedTuple):
    group_id: str
    topic: str
    partition: int
    value: CommittedOffset


class OffsetRemoved(NamedTuple):
    group_id: str
    topic: str
    partition: int


class GroupWritten(NamedTuple):
    group_id: str
    value: GroupMetadataValue


class GroupRemoved(NamedTuple):
    group_id: str


class ForeignRecord(NamedTuple):
    """Of a group of a protocol that is not served here; only its removal is ever written."""

    group_id: str
    key: bytes
    is_there: bool


GroupRecord: TypeAlias = OffsetCommitted | OffsetRemoved | GroupWritten | GroupRemoved | ForeignRecord | ConsumerRecord


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    match record:
        case OffsetCommitted():
            return _offset_key(record.group_id, record.topic, record.partition), _offset_value(record.value)
        case OffsetRemoved():
            return _offset_key(record.group_id, record.topic, record.partition), None
        case GroupWritten():
            return _group_key(record.group_id), encode_coordinator_value(record.value, _GROUP_METADATA_VERSION)
        case GroupRemoved():
            return _group_key(record.group_id), None
        case ForeignRecord():
            assert not record.is_there, record
            return record.key, None
        case _:
            return encode_consumer_record(record)


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """None for kinds and versions that are not ours to understand. ProtocolError for bytes that are no record."""
    decoded_key = decode_coordinator_key(key)
    match decoded_key:
        case OffsetCommitKey() | LegacyOffsetCommitKey():
            return _decode_offset(decoded_key, value)
        case GroupMetadataKey():
            return _decode_group(decoded_key, value)
        case (
            ConsumerGroupMetadataKey()
            | ConsumerGroupPartitionMetadataKey()
            | ConsumerGroupMemberMetadataKey()
            | ConsumerGroupTargetAssignmentMetadataKey()
            | ConsumerGroupTargetAssignmentMemberKey()
            | ConsumerGroupCurrentMemberAssignmentKey()
            | ConsumerGroupRegularExpressionKey()
        ):
            return decode_consumer_record(decoded_key, value)
        case None:
            return None
        case _:
            group_id: str = getattr(decoded_key, "group_id")  # noqa: B009 - every key of the other kinds has it
            return ForeignRecord(group_id, bytes(key), value is not None)


def _decode_offset(key: OffsetCommitKey | LegacyOffsetCommitKey, value: bytes | None) -> GroupRecord | None:
    if value is None:
        return OffsetRemoved(key.group, key.topic, key.partition)
    decoded = decode_coordinator_value(key, value)
    if decoded is None:
        return None
    body = decoded[0]
    if isinstance(body, LegacyOffsetCommitValue):
        committed = CommittedOffset(body.offset, -1, body.metadata, body.commit_timestamp)
    else:
        assert isinstance(body, OffsetCommitValue)
        committed = CommittedOffset(
            body.offset, body.leader_epoch, body.metadata, body.commit_timestamp, body.expire_timestamp, body.topic_id
        )
    return OffsetCommitted(key.group, key.topic, key.partition, committed)


def _decode_group(key: GroupMetadataKey, value: bytes | None) -> GroupRecord | None:
    if value is None:
        return GroupRemoved(key.group)
    decoded = decode_coordinator_value(key, value)
    if decoded is None:
        return None
    assert isinstance(decoded[0], GroupMetadataValue)
    return GroupWritten(key.group, decoded[0])


def _group_key(group_id: str) -> bytes:
    return encode_coordinator_key(GroupMetadataKey(group=group_id))


def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return _offset_key_head(group_id, topic) + _INT32.pack(partition)


@lru_cache(maxsize=4_096)
def _offset_key_head(group_id: str, topic: str) -> bytes:
    group_bytes, topic_bytes = group_id.encode(), topic.encode()
    lengths = (_INT16.pack(len(group_bytes)), _INT16.pack(len(topic_bytes)))
    return b"".join((_INT16.pack(_OFFSET_KEY_TYPE), lengths[0], group_bytes, lengths[1], topic_bytes))


def _offset_value(value: CommittedOffset) -> bytes:
    if value.expire_ms != NO_EXPIRY or len(value.metadata) > 40:
        return _general_offset_value(value)
    metadata = value.metadata.encode()
    head = _OFFSET_VALUE_HEAD.pack(_OFFSET_VERSION, value.offset, value.leader_epoch)
    tags = b"\x00" if value.topic_id == ZERO_UUID else _TOPIC_ID_TAG + value.topic_id
    # At most 40 characters of at most three bytes (four for two units): the compact length fits one byte up to 126.
    if len(metadata) > 126:
        return _general_offset_value(value)
    return b"".join((head, bytes((len(metadata) + 1,)), metadata, _INT64.pack(value.commit_ms), tags))


def _general_offset_value(value: CommittedOffset) -> bytes:
    version = _OFFSET_VERSION if value.expire_ms == NO_EXPIRY else _EXPIRING_OFFSET_VERSION
    body = OffsetCommitValue(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_ms,
        expire_timestamp=value.expire_ms,
        topic_id=value.topic_id,
    )
    return encode_coordinator_value(body, version)

"""The records of consumer groups in `__consumer_offsets`, types 3 to 8 and 16, and their bytes. None is a tombstone."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from tidelog.coordinator.group.consumer.encoding import current_value, member_key, target_value
from tidelog.coordinator.group.consumer.model import ClassicSide, Current, Held, MemberState, Profile, Resolved, Target
from tidelog.protocol.messages.records_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tidelog.protocol.records_framing import (
    decode_coordinator_value,
    encode_coordinator_key,
    encode_coordinator_value,
)


class GroupEpoch(NamedTuple):
    group_id: str
    value: tuple[int, int] | None
    """The epoch, and a hash of the subscribed topics as they were then."""


class PartitionMetadata(NamedTuple):
    """Written by Kafka before 4.1 and only ever taken away here."""

    group_id: str
    is_there: bool


class MemberProfile(NamedTuple):
    group_id: str
    member_id: str
    value: Profile | None


class TargetEpoch(NamedTuple):
    group_id: str
    value: tuple[int, int] | None
    """The epoch, and when it was computed."""


class MemberTarget(NamedTuple):
    group_id: str
    member_id: str
    value: Target | None


class MemberCurrent(NamedTuple):
    group_id: str
    member_id: str
    value: Current | None


class ResolvedRegex(NamedTuple):
    group_id: str
    regex: str
    value: Resolved | None


ConsumerRecord: TypeAlias = (
    GroupEpoch | PartitionMetadata | MemberProfile | TargetEpoch | MemberTarget | MemberCurrent | ResolvedRegex
)

ConsumerKey: TypeAlias = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
_CurrentValue = ConsumerGroupCurrentMemberAssignmentValue
_MemberValue = ConsumerGroupMemberMetadataValue
_TargetValue = ConsumerGroupTargetAssignmentMemberValue
_Plain: TypeAlias = GroupEpoch | PartitionMetadata | MemberProfile | TargetEpoch | ResolvedRegex
_VERSION: Final = 0
_TARGET_TYPE: Final = 7
_CURRENT_TYPE: Final = 8


def encode_consumer_record(record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    match record:
        case MemberTarget(group_id, member_id, target):
            return member_key(_TARGET_TYPE, group_id, member_id), None if target is None else target_value(target)
        case MemberCurrent(group_id, member_id, current):
            return member_key(_CURRENT_TYPE, group_id, member_id), None if current is None else current_value(current)
    key, value = _key_of(record), _value_of(record)
    return encode_coordinator_key(key), None if value is None else encode_coordinator_value(value, _VERSION)


def _key_of(record: _Plain) -> ConsumerKey:
    group_id = record.group_id
    match record:
        case GroupEpoch():
            return ConsumerGroupMetadataKey(group_id=group_id)
        case PartitionMetadata():
            return ConsumerGroupPartitionMetadataKey(group_id=group_id)
        case MemberProfile():
            return ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=record.member_id)
        case TargetEpoch():
            return ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
        case ResolvedRegex():
            return ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=record.regex)


def _value_of(record: _Plain) -> Struct | None:
    match record:
        case GroupEpoch(_, (epoch, metadata_hash)):
            return ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        case MemberProfile(_, _, Profile() as profile):
            return _from_profile(profile)
        case TargetEpoch(_, (epoch, wall_ms)):
            return ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms)
        case ResolvedRegex(_, _, Resolved() as resolved):
            return ConsumerGroupRegularExpressionValue(
                topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.wall_ms
            )
    assert not isinstance(record, PartitionMetadata) or not record.is_there, record
    return None


def _from_profile(profile: Profile) -> _MemberValue:
    classic = profile.classic
    return _MemberValue(
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=list(profile.topics),
        subscribed_topic_regex=profile.regex,
        rebalance_timeout_ms=profile.rebalance_timeout_ms,
        server_assignor=profile.assignor,
        classic_member_metadata=None
        if classic is None
        else _MemberValue.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                _MemberValue.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
            ],
        ),
    )


def decode_consumer_record(key: ConsumerKey, value: bytes | None) -> ConsumerRecord | None:
    """None for a version that a newer release wrote."""
    if isinstance(key, ConsumerGroupPartitionMetadataKey):
        return PartitionMetadata(key.group_id, value is not None)
    body: Struct | None = None
    if value is not None:
        decoded = decode_coordinator_value(key, value)
        if decoded is None:
            return None
        body = decoded[0]
    return _record(key, body)


def _record(key: ConsumerKey, body: Struct | None) -> ConsumerRecord:
    match key, body:
        case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue() | None:
            return GroupEpoch(key.group_id, None if body is None else (body.epoch, body.metadata_hash))
        case ConsumerGroupMemberMetadataKey(), ConsumerGroupMemberMetadataValue() | None:
            return MemberProfile(key.group_id, key.member_id, None if body is None else _to_profile(body))
        case ConsumerGroupTargetAssignmentMetadataKey(), ConsumerGroupTargetAssignmentMetadataValue() | None:
            times = None if body is None else (body.assignment_epoch, body.assignment_timestamp)
            return TargetEpoch(key.group_id, times)
        case ConsumerGroupTargetAssignmentMemberKey(), ConsumerGroupTargetAssignmentMemberValue() | None:
            return MemberTarget(key.group_id, key.member_id, None if body is None else _to_target(body))
        case ConsumerGroupCurrentMemberAssignmentKey(), ConsumerGroupCurrentMemberAssignmentValue() | None:
            return MemberCurrent(key.group_id, key.member_id, None if body is None else _to_current(body))
        case ConsumerGroupRegularExpressionKey(), ConsumerGroupRegularExpressionValue() | None:
            resolved = None if body is None else Resolved(frozenset(body.topics), body.version, body.timestamp)
            return ResolvedRegex(key.group_id, key.regular_expression, resolved)
    raise AssertionError((key, body))


def _to_profile(body: _MemberValue) -> Profile:
    classic = body.classic_member_metadata
    return Profile(
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        client_id=body.client_id,
        client_host=body.client_host,
        topics=tuple(body.subscribed_topic_names),
        regex=body.subscribed_topic_regex or "",
        rebalance_timeout_ms=body.rebalance_timeout_ms,
        assignor=body.server_assignor,
        classic=None
        if classic is None
        else ClassicSide(
            classic.session_timeout_ms,
            tuple((protocol.name, protocol.metadata) for protocol in classic.supported_protocols),
        ),
    )


def _to_target(body: _TargetValue) -> Target:
    return {part.topic_id: frozenset(part.partitions) for part in body.topic_partitions if part.partitions}


def _to_current(body: _CurrentValue) -> Current:
    known = body.state in (MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS)
    return Current(
        epoch=body.member_epoch,
        previous_epoch=body.previous_member_epoch,
        state=body.state if known else MemberState.UNKNOWN,
        assigned=_to_held(body.assigned_partitions, body.member_epoch),
        revoking=_to_held(body.partitions_pending_revocation, body.member_epoch),
    )


def _to_held(parts: list[_CurrentValue.TopicPartitions], epoch: int) -> Held:
    """Releases before 4.3 wrote no epochs of the partitions: the member's own is the strictest guess."""
    held: dict[bytes, dict[int, int]] = {}
    for part in parts:
        epochs = part.assignment_epochs
        if epochs is None or len(epochs) != len(part.partitions):
            epochs = [epoch] * len(part.partitions)
        if part.partitions:
            held[part.topic_id] = dict(zip(part.partitions, epochs, strict=True))
    return held

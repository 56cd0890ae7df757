"""What consumers tell each other through a group: subscriptions and assignments, opaque to the broker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from tidelog.client.metadata import TopicPartition
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.codec import decode_from, encode
from tidelog.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

_VERSION: Final = Struct(">h")
_VERSION_WRITTEN: Final = 1
_NEWEST: Final = 3


def encode_subscription(topics: Sequence[str], owned: Iterable[TopicPartition] = ()) -> bytes:
    parts = [
        ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=partitions)
        for topic, partitions in by_topic(owned).items()
    ]
    body = ConsumerProtocolSubscription(topics=sorted(topics), owned_partitions=parts)
    return _VERSION.pack(_VERSION_WRITTEN) + encode(body, _VERSION_WRITTEN)


def decode_subscription(data: bytes) -> tuple[str, ...]:
    """The topics that a member wants."""
    version = _read_version(data)
    body, _ = decode_from(ConsumerProtocolSubscription, version, data, _VERSION.size)
    return tuple(body.topics)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    parts = [
        ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=found)
        for topic, found in by_topic(partitions).items()
    ]
    return _VERSION.pack(_VERSION_WRITTEN) + encode(ConsumerProtocolAssignment(assigned_partitions=parts), 1)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    if not data:
        return ()
    body, _ = decode_from(ConsumerProtocolAssignment, _read_version(data), data, _VERSION.size)
    return tuple(
        sorted(TopicPartition(part.topic, index) for part in body.assigned_partitions for index in part.partitions)
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for at in sorted(partitions):
        topics.setdefault(at.topic, []).append(at.partition)
    return topics


def _read_version(data: bytes) -> int:
    """A newer version only adds at the end, so it is read as the newest that we know."""
    if len(data) < _VERSION.size:
        raise ProtocolError("a consumer's subscription or assignment has no version")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise ProtocolError(f"version {version} of a consumer's subscription or assignment")
    return min(int(version), _NEWEST)

"""What classic members of type `consumer` say and are told within the classic protocol: subscriptions and assignments.

Bytes of clients: whatever cannot be read is None, never an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.codec import decode_from, encode
from tidelog.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

_VERSION: Final = Struct(">h")
_VERSION_MAX: Final = 3


class Subscription(NamedTuple):
    topics: tuple[str, ...]
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None
    version: int


def read_subscription(metadata: bytes) -> Subscription | None:
    version = _version_of(metadata)
    if version is None:
        return None
    try:
        # The head of a later version is one that is known.
        known = min(version, _VERSION_MAX)
        body, _ = decode_from(ConsumerProtocolSubscription, known, metadata, _VERSION.size)
    except ProtocolError:
        return None
    owned: dict[str, frozenset[int]] = {}
    for part in body.owned_partitions:
        owned[part.topic] = owned.get(part.topic, frozenset()) | frozenset(part.partitions)
    return Subscription(tuple(sorted(set(body.topics))), owned, body.rack_id, known)


class Assignment(NamedTuple):
    partitions: Mapping[str, frozenset[int]]
    has_user_data: bool


def read_assignment(assignment: bytes) -> Assignment | None:
    if not assignment:
        return Assignment({}, False)
    version = _version_of(assignment)
    if version is None:
        return None
    try:
        body, _ = decode_from(ConsumerProtocolAssignment, min(version, _VERSION_MAX), assignment, _VERSION.size)
    except ProtocolError:
        return None
    found: dict[str, frozenset[int]] = {}
    for part in body.assigned_partitions:
        found[part.topic] = found.get(part.topic, frozenset()) | frozenset(part.partitions)
    return Assignment(found, bool(body.user_data))


def write_assignment(partitions: Mapping[str, frozenset[int]], version: int) -> bytes:
    body = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=sorted(indexes))
            for topic, indexes in sorted(partitions.items())
        ]
    )
    return _VERSION.pack(version) + encode(body, version)


def _version_of(data: bytes) -> int | None:
    if len(data) < _VERSION.size:
        return None
    version: int = _VERSION.unpack_from(data)[0]
    return version if version >= 0 else None

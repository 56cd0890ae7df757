"""The bytes of the two kinds of records that there is one of for each member of each rebalance, written by hand: by the
codec's general way a thousand of them take 55 ms. A test holds them equal to its bytes."""

from __future__ import annotations

from struct import Struct, pack
from typing import Final

from tidelog.coordinator.group.consumer.model import Current, Held, Target
from tidelog.protocol.source import write_uvarint

_INT16: Final = Struct(">h")
_CURRENT_HEAD: Final = Struct(">hiib")
_NO_TAGS: Final = b"\x00"
_EPOCHS_TAG: Final = b"\x01\x00"
"""One tagged field, number 0."""


def member_key(record_type: int, group_id: str, member_id: str) -> bytes:
    group, member = group_id.encode(), member_id.encode()
    return b"".join((_INT16.pack(record_type), _INT16.pack(len(group)), group, _INT16.pack(len(member)), member))


def target_value(target: Target) -> bytes:
    parts = [_INT16.pack(0), write_uvarint(len(target) + 1)]
    for topic_id, indexes in sorted(target.items()):
        parts += (topic_id, _int32s(sorted(indexes)), _NO_TAGS)
    parts.append(_NO_TAGS)
    return b"".join(parts)


def current_value(current: Current) -> bytes:
    head = _CURRENT_HEAD.pack(0, current.epoch, current.previous_epoch, current.state)
    return b"".join((head, _held(current.assigned), _held(current.revoking), _NO_TAGS))


def _held(held: Held) -> bytes:
    parts = [write_uvarint(len(held) + 1)]
    for topic_id, epochs in sorted(held.items()):
        indexes = sorted(epochs)
        since = _int32s([epochs[index] for index in indexes])
        parts += (topic_id, _int32s(indexes), _EPOCHS_TAG, write_uvarint(len(since)), since)
    return b"".join(parts)


def _int32s(numbers: list[int]) -> bytes:
    return write_uvarint(len(numbers) + 1) + pack(f">{len(numbers)}i", *numbers)

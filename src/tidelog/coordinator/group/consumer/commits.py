"""Who may commit and fetch offsets of a consumer group: members of the right epoch, and anybody while it is empty."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.model import Current
from tidelog.protocol.errors import ErrorCode

_MEMBER_EPOCH_FROM: Final = 9
"""The version of OffsetCommit and OffsetFetch that knows of epochs of members."""


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    version: int,
    partitions: Iterable[tuple[bytes, int]],
    *,
    is_transactional: bool = False,
) -> ErrorCode:
    """`partitions` are those to be committed, by topic id."""
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    profile = group.members.get(member_id)
    if profile is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if profile.classic is None and version < _MEMBER_EPOCH_FROM and not is_transactional:
        return ErrorCode.UNSUPPORTED_VERSION
    current = group.current(member_id)
    if epoch == current.epoch or (
        profile.classic is None and epoch < current.epoch and _had_in(epoch, current, partitions)
    ):
        return ErrorCode.NONE
    if profile.classic is not None or is_transactional:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH


def _had_in(epoch: int, current: Current, partitions: Iterable[tuple[bytes, int]]) -> bool:
    """Whether the member has had these partitions since that epoch without a break: nobody else can have committed for
    them, so an epoch that it has not heard of yet does no harm (KIP-1251)."""
    return all(
        epoch >= current.assigned.get(topic_id, {}).get(partition, epoch + 1)
        or epoch >= current.revoking.get(topic_id, {}).get(partition, epoch + 1)
        for topic_id, partition in partitions
    )


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    if member_id is None and epoch < 0:
        # An administrator, or a client of before.
        return ErrorCode.NONE
    profile = group.members.get(member_id or "")
    if profile is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == group.current(member_id or "").epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if profile.classic is None else ErrorCode.ILLEGAL_GENERATION

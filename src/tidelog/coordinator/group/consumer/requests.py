"""What a ConsumerGroupHeartbeat must look like before anybody looks at the group, and the ways to say no."""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

from tidelog.coordinator.group.consumer.model import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from tidelog.coordinator.group.consumer.ownership import Owned
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

CLIENT_MADE_ID_FROM: Final = 1
"""Versions in which the member makes its own id (KIP-1082)."""


class Refusal(NamedTuple):
    code: ErrorCode
    message: str

    def response(self) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(error_code=self.code, error_message=self.message)


def check(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Container[str]) -> Refusal | None:
    epoch = request.member_epoch
    wrong = _wrong_name(request, version)
    if wrong is None and epoch == JOIN_EPOCH:
        wrong = _wrong_join(request)
    if wrong is None and epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        wrong = "a member without an instance id cannot leave for a while"
    if wrong is None and epoch < LEAVE_STATIC_EPOCH:
        wrong = f"{epoch} is no epoch of a member"
    if wrong is not None:
        return Refusal(ErrorCode.INVALID_REQUEST, wrong)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        return Refusal(ErrorCode.UNSUPPORTED_ASSIGNOR, f"there is no assignor {request.server_assignor} here")
    return None


def _wrong_name(request: ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    if not request.group_id.strip():
        return "the group id is empty"
    may_be_new = version < CLIENT_MADE_ID_FROM and request.member_epoch == JOIN_EPOCH
    if not may_be_new and not request.member_id.strip():
        return "the member id is empty"
    if request.instance_id is not None and not request.instance_id.strip():
        return "the instance id is empty"
    if request.rack_id is not None and not request.rack_id.strip():
        return "the rack id is empty"
    return None


def _wrong_join(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "a member that joins must say its rebalance time-out"
    if request.topic_partitions is None or request.topic_partitions:
        return "a member that joins owns nothing, and must say so"
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "a member that joins must subscribe by names or by a regular expression"
    return None


def is_leaving(request: ConsumerGroupHeartbeatRequest) -> bool:
    return request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Everything is said, as by a member that is not sure what the coordinator knows: it wants the whole answer too."""
    return (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def owned_by(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    owned: dict[bytes, set[int]] = {}
    for part in request.topic_partitions:
        if part.partitions:
            owned.setdefault(part.topic_id, set()).update(part.partitions)
    return owned


def unknown_member(member_id: str, group_id: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id} has no member {member_id}")


def not_a_consumer_group(group_id: str, reason: str = "") -> Refusal:
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id} is not a consumer group{': ' if reason else ''}{reason}")

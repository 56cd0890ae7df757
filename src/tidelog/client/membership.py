"""One member of a classic consumer group: join, sync, heartbeat, rejoin, leave (eager protocol, range assignor).

Owns the member id and the generation. What an assignment means to the consumer is the listener's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tidelog.client.assignor import NAME, Subscriber, assign
from tidelog.client.cluster import Cluster
from tidelog.client.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.client.errors import BrokerError, ClientError
from tidelog.client.group_offsets import Membership, ask_coordinator, check_group
from tidelog.client.metadata import TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_TYPE: Final = "consumer"
_TOPICS_CHECK_S: Final = 30.0
_JOIN_GRACE_S: Final = 5.0


class Listener(Protocol):
    async def assigned(self, partitions: Sequence[TopicPartition]) -> None: ...

    async def revoked(self) -> None:
        """The partitions go back to the group; until this returns they are still ours, and may be committed."""
        ...

    async def lost(self) -> None:
        """The group has given the partitions away already."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipOptions:
    group_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000


class Member:
    def __init__(self, cluster: Cluster, options: MembershipOptions, listener: Listener) -> None:
        self.membership = Membership(instance_id=options.instance_id)
        self._cluster = cluster
        self._options = options
        self._listener = listener
        self._is_leader = False
        self._partition_counts: dict[str, int] = {}

    async def run(self) -> None:
        """Take part until cancelled; returns only by an error that cannot be mended."""
        failures = 0
        deadline_s = self._deadline_s()
        while True:
            try:
                partitions = await self._join()
                await self._listener.assigned(partitions)
                failures = 0
                await self._heartbeats()
                deadline_s = self._deadline_s()
                await self._listener.revoked()
            except ClientError as error:
                deadline_s = deadline_s if failures else self._deadline_s()
                if not await self._mend(error) or self._cluster.clock.monotonic_s() > deadline_s:
                    raise
                await asyncio.sleep(self._cluster.options.backoff_s(failures, self._cluster.random))
                failures += 1

    def _deadline_s(self) -> float:
        """Until when to try again while nothing succeeds."""
        return self._cluster.deadline_s() + self._options.session_timeout_ms / 1000

    async def leave(self) -> None:
        """Give the partitions back at once. A static member stays, as it will return."""
        if not self.membership.member_id or self._options.instance_id is not None:
            return
        member = self.membership
        self.membership = Membership()

        def request(version: int) -> LeaveGroupRequest:
            if version < 3:
                return LeaveGroupRequest(group_id=self._options.group_id, member_id=member.member_id)
            identity = LeaveGroupRequest.MemberIdentity(member_id=member.member_id)
            return LeaveGroupRequest(group_id=self._options.group_id, members=[identity])

        try:
            await ask_coordinator(
                self._cluster, self._options.group_id, request, LeaveGroupRequest, LeaveGroupResponse, timeout_s=5.0
            )
        except ClientError:
            return  # the session will time out instead

    # Joining

    async def _join(self) -> list[TopicPartition]:
        answer = await self._join_group()
        self._is_leader = answer.leader == answer.member_id
        assignments: list[SyncGroupRequest.SyncGroupRequestAssignment] = []
        if self._is_leader and not answer.skip_assignment:
            assignments = await self._assign(answer)
        request = self._sync_request(answer, assignments)
        synced, _ = await ask_coordinator(
            self._cluster,
            self._options.group_id,
            request,
            SyncGroupRequest,
            SyncGroupResponse,
            timeout_s=self._options.rebalance_timeout_ms / 1000 + _JOIN_GRACE_S,
        )
        check_group(self._cluster, synced.error_code, self._options.group_id)
        return list(decode_assignment(synced.assignment))

    async def _join_group(self) -> JoinGroupResponse:
        while True:
            answer, _ = await ask_coordinator(
                self._cluster,
                self._options.group_id,
                self._join_request,
                JoinGroupRequest,
                JoinGroupResponse,
                timeout_s=self._options.rebalance_timeout_ms / 1000 + _JOIN_GRACE_S,
            )
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.membership = self.membership._replace(member_id=answer.member_id)
                continue
            check_group(self._cluster, answer.error_code, self._options.group_id)
            self.membership = self.membership._replace(member_id=answer.member_id, generation=answer.generation_id)
            return answer

    def _join_request(self, version: int) -> JoinGroupRequest:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(
            name=NAME, metadata=encode_subscription(self._options.topics)
        )
        request = JoinGroupRequest(
            group_id=self._options.group_id,
            session_timeout_ms=self._options.session_timeout_ms,
            member_id=self.membership.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )
        if version >= 1:
            request.rebalance_timeout_ms = self._options.rebalance_timeout_ms
        if version >= 5:
            request.group_instance_id = self._options.instance_id
        return request

    async def _assign(self, answer: JoinGroupResponse) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        subscribers = [
            Subscriber(member.member_id, member.group_instance_id, decode_subscription(member.metadata))
            for member in answer.members
        ]
        topics = {topic for one in subscribers for topic in one.topics}
        self._partition_counts = await self._count_partitions(topics)
        return [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(partitions))
            for member, partitions in assign(subscribers, self._partition_counts).items()
        ]

    def _sync_request(
        self, joined: JoinGroupResponse, assignments: list[SyncGroupRequest.SyncGroupRequestAssignment]
    ) -> SyncGroupRequest:
        # From version 5 the coordinator checks these two; before, they are left out of the bytes.
        return SyncGroupRequest(
            group_id=self._options.group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self._options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )

    # Staying

    async def _heartbeats(self) -> None:
        """Until the group rebalances, or the leader sees that the topics have grown."""
        checked_s = last_answer_s = self._cluster.clock.monotonic_s()
        while True:
            await asyncio.sleep(self._options.heartbeat_interval_ms / 1000)
            now_s = self._cluster.clock.monotonic_s()
            try:
                code = await self._heartbeat()
                last_answer_s = now_s
            except ClientError as error:
                # A lost connection is not the end of a membership: the coordinator waits for the session timeout.
                if not error.is_retriable or now_s - last_answer_s > self._options.session_timeout_ms / 1000:
                    raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self._options.group_id}") from error
                continue
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                return
            if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                self._cluster.coordinators.pop(self._options.group_id, None)
                continue
            check_group(self._cluster, code, self._options.group_id)
            if self._is_leader and now_s - checked_s > _TOPICS_CHECK_S:
                checked_s = now_s
                if await self._count_partitions(self._partition_counts) != self._partition_counts:
                    return

    async def _heartbeat(self) -> int:
        request = HeartbeatRequest(
            group_id=self._options.group_id,
            generation_id=self.membership.generation,
            member_id=self.membership.member_id,
            group_instance_id=self._options.instance_id,
        )
        answer, _ = await ask_coordinator(
            self._cluster,
            self._options.group_id,
            request,
            HeartbeatRequest,
            HeartbeatResponse,
            timeout_s=self._options.session_timeout_ms / 1000,
        )
        return answer.error_code

    async def _count_partitions(self, topics: set[str] | dict[str, int]) -> dict[str, int]:
        metadata = await self._cluster.refresh(topics)
        return {
            topic: len(metadata.topics[topic].partitions) if topic in metadata.topics else 0 for topic in sorted(topics)
        }

    async def _mend(self, error: ClientError) -> bool:
        """Whether to join again, and with what identity."""
        match error.code if isinstance(error, BrokerError) else None:
            case ErrorCode.UNKNOWN_MEMBER_ID:
                await self._listener.lost()
                self.membership = Membership(instance_id=self._options.instance_id)
                return True
            case ErrorCode.ILLEGAL_GENERATION:
                await self._listener.lost()
                self.membership = self.membership._replace(generation=-1)
                return True
            case ErrorCode.REBALANCE_IN_PROGRESS:
                return True
            case _:
                return error.is_retriable

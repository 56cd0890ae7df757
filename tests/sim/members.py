"""Scripted members of a group, of the classic protocol and of the new one (KIP-848), through the wire.

A member hears what it owns, works (its position moves) and commits. It may be asleep for longer than its session, lose
its connection, die, leave and come back; it never asks its clock whether it is still in before it commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Protocol, TypeVar
from uuid import UUID

from msgspec import Struct

from tests.sim.history import TOPIC, History
from tests.sim.ownership import NOTHING, Ownership
from tests.sim.peer import Peer
from tidelog.client.consumer_protocol import decode_assignment, encode_assignment, encode_subscription
from tidelog.client.errors import BrokerError, ClientError
from tidelog.client.metadata import TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

GROUP = "group"
SESSION_MS = 1_500
REBALANCE_MS = 3_000
"""Not shorter than a session, or a member could be put out before its own clock tells it so."""
ResponseT = TypeVar("ResponseT", bound=Struct)
_OUT = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
}


class Cast:
    """What all members of a run share."""

    def __init__(self, history: History, ownership: Ownership, topic_id: bytes) -> None:
        self.history = history
        self.ownership = ownership
        self.topic_id = topic_id
        self.partition_count = 0
        self.tokens = 0

    def token(self) -> str:
        self.tokens += 1
        return f"c{self.tokens}"


class Member(Protocol):
    member_id: str

    async def beat(self) -> None:
        """One round: be heard, take or give up what the answer says."""
        ...

    async def leave(self) -> None: ...


class BaseMember:
    """What members of both protocols do alike: fetch where to begin, work, commit."""

    fetch_version = 8
    commit_version = 8

    def __init__(self, cast: Cast, peer: Peer, random: Random, instance_id: str | None) -> None:
        self.member_id = ""
        self.epoch = -1
        self.positions: dict[int, int] = {}
        """Of what it owns and knows where to begin."""
        self.cast = cast
        self.peer = peer
        self.random = random
        self.instance_id = instance_id

    async def ask(
        self, request: Struct, response: type[ResponseT], version: int, *, timeout_s: float | None = None
    ) -> ResponseT:
        try:
            return await self.peer.ask(request, response, version, timeout_s=timeout_s)
        except ClientError as error:
            self.cast.history.failed(error)
            raise

    def check(self, code: int) -> None:
        if code != ErrorCode.NONE:
            error = BrokerError(code)
            self.cast.history.failed(error)
            raise error

    def is_given(self, partitions: set[int], sent_s: float) -> None:
        """It owns these, by a request that it sent then."""
        self.cast.ownership.hears(self.member_id, partitions, sent_s + SESSION_MS / 1000)
        for partition in self.positions.keys() - partitions:
            del self.positions[partition]

    def is_out(self) -> None:
        self.cast.ownership.gives_up(self.member_id)
        self.positions.clear()

    async def fetch(self) -> None:
        """Where to go on with what is new."""
        unknown = [at for at in self.cast.ownership.owned(self.member_id) if at not in self.positions]
        if not unknown:
            return
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=unknown)
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
        if self.fetch_version >= 9:
            wanted.member_id, wanted.member_epoch = self.member_id, self.epoch
        request = OffsetFetchRequest(groups=[wanted], require_stable=True)
        member_id = self.member_id
        answer = await self.ask(request, OffsetFetchResponse, self.fetch_version)
        self.check(answer.groups[0].error_code)
        owned = self.cast.ownership.owned(member_id)
        for found in answer.groups[0].topics[0].partitions:
            self.check(found.error_code)
            if found.partition_index in owned:
                token = found.metadata or NOTHING
                offset = self.cast.ownership.fetched(member_id, found.partition_index, token)
                assert offset == max(found.committed_offset, 0), "an offset has the metadata of another"
                self.positions[found.partition_index] = offset

    async def commit(self, before: Callable[[], float] = lambda: 0) -> None:
        """Work, and commit all; `before` is how long it sleeps between the two."""
        if not self.positions:
            return
        for partition in self.positions:
            self.positions[partition] += self.random.randint(1, 3)
        chosen = {partition: (offset, self.cast.token()) for partition, offset in self.positions.items()}
        request = self._commit_request(chosen)
        await asyncio.sleep(before())
        member_id, ownership = self.member_id, self.cast.ownership
        sent_s = 0.0
        for partition, (offset, token) in chosen.items():
            sent_s = ownership.sends(member_id, partition, token, offset)
        answer = await self.ask(request, OffsetCommitResponse, self.commit_version)
        for found in answer.topics[0].partitions:
            if found.error_code == ErrorCode.NONE:
                ownership.accepted(member_id, found.partition_index, chosen[found.partition_index][1], sent_s)
            else:
                ownership.refusals += 1
        for found in answer.topics[0].partitions:
            self.check(found.error_code)

    def _commit_request(self, chosen: dict[int, tuple[int, str]]) -> OffsetCommitRequest:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(
            name=TOPIC,
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=token
                )
                for partition, (offset, token) in sorted(chosen.items())
            ],
        )
        return OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[topic],
        )


class ConsumerMember(BaseMember):
    """KIP-848."""

    fetch_version = commit_version = 9

    def __init__(self, cast: Cast, peer: Peer, random: Random, instance_id: str | None) -> None:
        super().__init__(cast, peer, random, instance_id)
        self._begin_anew()
        self._regex = random.random() < 0.2

    def _begin_anew(self) -> None:
        self.member_id = str(UUID(bytes=self.random.randbytes(16), version=4))
        self._join_again()

    def _join_again(self) -> None:
        self.epoch = 0
        self._owned: set[int] = set()
        self._says_all = True

    async def beat(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        if self._says_all or self.epoch == 0:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.topic_partitions = self._topic_partitions()
            if self._regex:
                request.subscribed_topic_regex = "w.rk"
            else:
                request.subscribed_topic_names = [TOPIC]
        is_joining, sent_s = self.epoch == 0, self.peer.now_s()
        # A member that gets no answer says everything again.
        self._says_all = True
        answer = await self.ask(request, ConsumerGroupHeartbeatResponse, 1)
        if answer.error_code in _OUT:
            self.is_out()
            # Clients keep their id; one that was restarted has another.
            self._join_again() if self.random.random() < 0.5 else self._begin_anew()
        self.check(answer.error_code)
        self.cast.ownership.epoch(self.member_id, answer.member_epoch, joined=is_joining)
        self.epoch = answer.member_epoch
        self._says_all = False
        if answer.assignment is not None:
            parts = answer.assignment.topic_partitions
            assert all(part.topic_id == self.cast.topic_id for part in parts), "a topic that nobody subscribed to"
            given = {partition for part in parts for partition in part.partitions}
            self._says_all = given != self._owned
            self._owned = given
        self.is_given(self._owned, sent_s)

    def _topic_partitions(self) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        if not self._owned:
            return []
        part = ConsumerGroupHeartbeatRequest.TopicPartitions(
            topic_id=self.cast.topic_id, partitions=sorted(self._owned)
        )
        return [part]

    async def leave(self) -> None:
        """A static member says that it will be back."""
        self.is_out()
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=-1 if self.instance_id is None else -2,
            instance_id=self.instance_id,
        )
        await self.ask(request, ConsumerGroupHeartbeatResponse, 1)


class ClassicMember(BaseMember):
    """Eager: it gives up all before it joins again."""

    def __init__(self, cast: Cast, peer: Peer, random: Random, instance_id: str | None) -> None:
        super().__init__(cast, peer, random, instance_id)
        self._is_in = False
        self._assigned: set[int] = set()
        self._leads_count: int | None = None

    async def beat(self) -> None:
        if not self._is_in:
            await self._join()
            return
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=self.epoch, member_id=self.member_id, group_instance_id=self.instance_id
        )
        sent_s = self.peer.now_s()
        answer = await self.ask(request, HeartbeatResponse, 4)
        has_grown = self._leads_count not in (None, self.cast.partition_count)
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS or has_grown:
            # It may still commit what it has done, and then goes.
            if self.random.random() < 0.5:
                await self.commit()
            self._joins_again()
            return
        self._check_in(answer.error_code)
        self.is_given(self._assigned, sent_s)

    def _joins_again(self) -> None:
        self.is_out()
        self._is_in = False
        self._assigned = set()
        self._leads_count = None

    def _check_in(self, code: int) -> None:
        if code in _OUT:
            self._joins_again()
            if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self.member_id = ""
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._joins_again()
        self.check(code)

    async def _join(self) -> None:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=encode_subscription([TOPIC]))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        answer = await self.ask(request, JoinGroupResponse, 9, timeout_s=REBALANCE_MS / 1000 + 1.0)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        self._check_in(answer.error_code)
        self.member_id, self.epoch = answer.member_id, answer.generation_id
        await self._sync(answer)

    async def _sync(self, joined: JoinGroupResponse) -> None:
        count = self.cast.partition_count
        is_leader = joined.leader == joined.member_id
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=_deal(joined, count) if is_leader and not joined.skip_assignment else [],
        )
        sent_s = self.peer.now_s()
        answer = await self.ask(request, SyncGroupResponse, 5, timeout_s=REBALANCE_MS / 1000 + 1.0)
        self._check_in(answer.error_code)
        self._is_in = True
        # A leader that was told to keep the old assignment does not know for how many partitions it was.
        self._leads_count = (-1 if joined.skip_assignment else count) if is_leader else None
        self._assigned = {at.partition for at in decode_assignment(answer.assignment)}
        self.is_given(self._assigned, sent_s)

    async def leave(self) -> None:
        self.is_out()
        identity = LeaveGroupRequest.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        await self.ask(LeaveGroupRequest(group_id=GROUP, members=[identity]), LeaveGroupResponse, 5)


def _deal(joined: JoinGroupResponse, count: int) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
    members = sorted(member.member_id for member in joined.members)
    return [
        SyncGroupRequest.SyncGroupRequestAssignment(
            member_id=member,
            assignment=encode_assignment(TopicPartition(TOPIC, at) for at in range(number, count, len(members))),
        )
        for number, member in enumerate(members)
    ]

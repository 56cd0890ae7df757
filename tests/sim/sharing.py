"""A place in the group of copiers that share their input (KIP-447): a member of the new group protocol whose heartbeats
say whether it has the source. What it commits within a transaction carries its member epoch."""

from __future__ import annotations

from random import Random
from uuid import UUID

from tests.sim.peer import Peer
from tidelog.client.errors import ClientError
from tidelog.client.metadata import TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

SESSION_MS = 1_500
REBALANCE_MS = 3_000
OUT = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""Another one may have the source now."""


class IsOut(Exception):
    pass


class Share:
    def __init__(self, peer: Peer, random: Random, group: str, source: TopicPartition, topic_id: bytes) -> None:
        self.group = group
        self.member_id = str(UUID(bytes=random.randbytes(16), version=4))
        self.epoch = 0
        self._peer = peer
        self._source = source
        self._topic_id = topic_id
        self._owned: set[int] = set()
        self._says_all = True

    async def beat(self) -> bool:
        """Whether it has the source: not known is not."""
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=self.epoch)
        if self._says_all or self.epoch == 0:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = [self._source.topic]
            request.topic_partitions = self._parts()
        self._says_all = True
        try:
            answer = await self._peer.ask(request, ConsumerGroupHeartbeatResponse, 1)
        except ClientError:
            return False
        if answer.error_code in OUT:
            raise IsOut(ErrorCode(answer.error_code).name)
        if answer.error_code != ErrorCode.NONE:
            return False
        self.epoch = answer.member_epoch
        self._says_all = False
        if answer.assignment is not None:
            given = {index for part in answer.assignment.topic_partitions for index in part.partitions}
            self._says_all = given != self._owned
            self._owned = given
        return self._source.partition in self._owned

    def _parts(self) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        if not self._owned:
            return []
        part = ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=self._topic_id, partitions=sorted(self._owned))
        return [part]

"""Where the records of a leader epoch end, by the partition's leader (OffsetForLeaderEpoch, KIP-101): whether a copy of
the log that is not the leader's has the same records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.errors import BrokerError, ClientError, raise_first
from tidelog.client.fanout import Leaders, fan_out
from tidelog.client.metadata import TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

_CONSUMER = -1


class EpochEnd(NamedTuple):
    leader_epoch: int
    """The one asked for, or the last before it that the leader knows; -1 when there is none."""
    end_offset: int
    """Behind its last record; for the epoch of now the end of the log."""


async def epoch_end(cluster: Cluster, at: TopicPartition, leader_epoch: int) -> EpochEnd:
    async def ask(node: int, items: Sequence[TopicPartition]) -> Mapping[TopicPartition, EpochEnd | ClientError]:
        request = _request(at, cluster.metadata.partition(at).leader_epoch, leader_epoch)
        return _results(
            await cluster.call(node, request, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse), items
        )

    found = await fan_out(cluster, Leaders(cluster), [at], ask)
    raise_first(found.values())
    result = found[at]
    assert isinstance(result, EpochEnd)
    return result


def _request(at: TopicPartition, current_epoch: int, leader_epoch: int) -> OffsetForLeaderEpochRequest:
    partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=at.partition, current_leader_epoch=current_epoch, leader_epoch=leader_epoch
    )
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=at.topic, partitions=[partition])
    return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=[topic])


def _results(
    answer: OffsetForLeaderEpochResponse, asked: Sequence[TopicPartition]
) -> dict[TopicPartition, EpochEnd | ClientError]:
    results: dict[TopicPartition, EpochEnd | ClientError] = {}
    for topic in answer.topics:
        for found in topic.partitions:
            at = TopicPartition(topic.topic, found.partition)
            if found.error_code == ErrorCode.NONE:
                results[at] = EpochEnd(found.leader_epoch, found.end_offset)
            else:
                results[at] = BrokerError(found.error_code, f"partition {at.partition} of topic {at.topic}")
    return {at: results[at] for at in asked if at in results}

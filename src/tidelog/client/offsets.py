"""Where a partition begins and ends, and which offset belongs to a time (ListOffsets)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.client import positions
from tidelog.client.cluster import Cluster
from tidelog.client.errors import BrokerError, ClientError, raise_first
from tidelog.client.fanout import Leaders, fan_out
from tidelog.client.metadata import TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

LATEST: Final = positions.LATEST
EARLIEST: Final = positions.EARLIEST
MAX_TIMESTAMP: Final = positions.MAX_TIMESTAMP


class OffsetAndTimestamp(NamedTuple):
    offset: int
    """-1 when no record is as young as the time that was asked for."""
    timestamp: int
    leader_epoch: int = -1


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, isolation_level: int = 0
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """For each partition: LATEST, EARLIEST, MAX_TIMESTAMP, or the first record of that time (ms) or later."""
    results = await try_list_offsets(cluster, wanted, isolation_level=isolation_level)
    raise_first(results.values())
    return {at: result for at, result in results.items() if not isinstance(result, ClientError)}


async def try_list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, isolation_level: int = 0
) -> dict[TopicPartition, OffsetAndTimestamp | ClientError]:
    """The same with an error in place of a result for a partition that cannot be asked."""

    async def ask(
        node: int, items: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | ClientError]:
        request = _request(cluster, {at: wanted[at] for at in items}, isolation_level)
        return _results(await cluster.call(node, request, ListOffsetsRequest, ListOffsetsResponse))

    return await fan_out(cluster, Leaders(cluster), wanted, ask)


async def end_offsets(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    found = await list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    return {at: result.offset for at, result in found.items()}


def _request(cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation_level: int) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
    for at, timestamp in wanted.items():
        topic = topics.setdefault(at.topic, ListOffsetsRequest.ListOffsetsTopic(name=at.topic, partitions=[]))
        epoch = cluster.metadata.partition(at).leader_epoch
        topic.partitions.append(
            ListOffsetsRequest.ListOffsetsPartition(
                partition_index=at.partition, current_leader_epoch=epoch, timestamp=timestamp
            )
        )
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=list(topics.values()))


def _results(answer: ListOffsetsResponse) -> dict[TopicPartition, OffsetAndTimestamp | ClientError]:
    results: dict[TopicPartition, OffsetAndTimestamp | ClientError] = {}
    for topic in answer.topics:
        for found in topic.partitions:
            at = TopicPartition(topic.name, found.partition_index)
            if found.error_code == ErrorCode.NONE:
                results[at] = OffsetAndTimestamp(found.offset, found.timestamp, found.leader_epoch)
            else:
                results[at] = BrokerError(found.error_code, f"partition {at.partition} of topic {at.topic}")
    return results

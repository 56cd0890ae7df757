"""Raw produce: one whole record batch to the leader of its partition."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.errors import BrokerError
from tidelog.client.metadata import TopicPartition
from tidelog.client.transactional import LAST_PRODUCE_OF_VERSION_1
from tidelog.kernel.ports import Buffer
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.protocol.uuids import ZERO_UUID

_LAST_VERSION_WITH_NAMES = 12


class Produced(NamedTuple):
    base_offset: int
    """Where the batch begins; -1 when nobody told (acks=0, or a duplicate the broker no longer remembers)."""
    log_append_time_ms: int = -1
    log_start_offset: int = -1


async def produce(
    cluster: Cluster,
    at: TopicPartition,
    batch: Buffer,
    *,
    acks: int = -1,
    timeout_s: float | None = None,
    transactional_id: str | None = None,
) -> Produced:
    """With retries: unless the batch carries a producer id and sequence, a lost answer may mean a duplicate.

    A transactional id makes it a request of transactions of version 1: the partition has joined before."""
    return await cluster.retrying(
        lambda: produce_once(cluster, at, batch, acks=acks, transactional_id=transactional_id), timeout_s=timeout_s
    )


async def produce_once(
    cluster: Cluster, at: TopicPartition, batch: Buffer, *, acks: int = -1, transactional_id: str | None = None
) -> Produced:
    await cluster.ensure_partitions([at])
    topic_id = cluster.metadata.topic(at.topic).topic_id
    try:
        connection = await cluster.connection(cluster.metadata.leader(at))
        highest = None if topic_id != ZERO_UUID else _LAST_VERSION_WITH_NAMES
        if transactional_id is not None:
            highest = LAST_PRODUCE_OF_VERSION_1
        version = connection.version_of(ProduceRequest, highest)
        request = _request(cluster, at, topic_id, batch, acks, version)
        request.transactional_id = transactional_id
        if acks == 0:
            await connection.send(request, version)
            return Produced(-1)
        answer = await connection.call(request, ProduceResponse, version=version)
        return _result(at, answer)
    except Exception:
        cluster.forget_topic(at.topic)
        raise


def _request(
    cluster: Cluster, at: TopicPartition, topic_id: bytes, batch: Buffer, acks: int, version: int
) -> ProduceRequest:
    by_id = version > _LAST_VERSION_WITH_NAMES
    topic = ProduceRequest.TopicProduceData(
        name="" if by_id else at.topic,
        topic_id=topic_id if by_id else ZERO_UUID,
        partition_data=[ProduceRequest.PartitionProduceData(index=at.partition, records=memoryview(batch))],
    )
    timeout_ms = int(cluster.options.request_timeout_s * 1000)
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


def _result(at: TopicPartition, answer: ProduceResponse) -> Produced:
    for topic in answer.responses:
        for found in topic.partition_responses:
            if found.index == at.partition:
                if found.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    return Produced(-1)
                if found.error_code != ErrorCode.NONE:
                    raise BrokerError(found.error_code, f"partition {at.partition} of topic {at.topic}", _detail(found))
                return Produced(found.base_offset, found.log_append_time_ms, found.log_start_offset)
    raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"partition {at.partition} of topic {at.topic}", "left out")


def _detail(found: ProduceResponse.PartitionProduceResponse) -> str | None:
    errors = [error.batch_index_error_message for error in found.record_errors if error.batch_index_error_message]
    return found.error_message or (errors[0] if errors else None)

"""Topics as an administrator handles them: create, delete, grow, trim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.controlling import ask_controller
from tidelog.client.errors import BrokerError, ClientError
from tidelog.client.fanout import Leaders, fan_out
from tidelog.client.metadata import TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

_FIRST_DELETE_BY_ID = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """-1 leaves a number to the broker. `assignments` (replicas per partition) takes the place of both numbers."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)


class CreatedTopic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: int
    """-1 when the broker does not tell."""
    replication_factor: int


async def create_topics(
    cluster: Cluster, topics: Iterable[NewTopic], *, validate_only: bool = False
) -> dict[str, CreatedTopic | ClientError]:
    wanted = list(topics)
    request = CreateTopicsRequest(
        topics=[_creatable(topic) for topic in wanted], timeout_ms=_timeout_ms(cluster), validate_only=validate_only
    )
    answer = await ask_controller(
        cluster, request, CreateTopicsRequest, CreateTopicsResponse, lambda found: (t.error_code for t in found.topics)
    )
    for topic in wanted:
        cluster.forget_topic(topic.name)
    return {
        topic.name: BrokerError(topic.error_code, f"topic {topic.name}", topic.error_message)
        if topic.error_code
        else CreatedTopic(topic.name, topic.topic_id, topic.num_partitions, topic.replication_factor)
        for topic in answer.topics
    }


async def delete_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, ClientError | None]:
    wanted = list(names)

    def request(version: int) -> DeleteTopicsRequest:
        if version < _FIRST_DELETE_BY_ID:
            return DeleteTopicsRequest(topic_names=wanted, timeout_ms=_timeout_ms(cluster))
        topics = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in wanted]
        return DeleteTopicsRequest(topics=topics, timeout_ms=_timeout_ms(cluster))

    answer = await ask_controller(
        cluster,
        request,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        lambda found: (topic.error_code for topic in found.responses),
    )
    for name in wanted:
        cluster.forget_topic(name)
    return {
        topic.name: BrokerError(topic.error_code, f"topic {topic.name}", topic.error_message)
        if topic.error_code
        else None
        for topic in answer.responses
        if topic.name is not None
    }


async def create_partitions(
    cluster: Cluster, totals: Mapping[str, int], *, validate_only: bool = False
) -> dict[str, ClientError | None]:
    """Grow topics to the given numbers of partitions."""
    topics = [
        CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
        for name, count in totals.items()
    ]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=_timeout_ms(cluster), validate_only=validate_only)
    answer = await ask_controller(
        cluster,
        request,
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        lambda found: (topic.error_code for topic in found.results),
    )
    for name in totals:
        cluster.forget_topic(name)
    return {
        topic.name: BrokerError(topic.error_code, f"topic {topic.name}", topic.error_message)
        if topic.error_code
        else None
        for topic in answer.results
    }


async def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | ClientError]:
    """Drop what is before the offsets (-1: all there is); the offsets at which the partitions begin then."""

    async def ask(node: int, items: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | ClientError]:
        topics: dict[str, DeleteRecordsRequest.DeleteRecordsTopic] = {}
        for at in items:
            topic = topics.setdefault(at.topic, DeleteRecordsRequest.DeleteRecordsTopic(name=at.topic, partitions=[]))
            part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=at.partition, offset=before[at])
            topic.partitions.append(part)
        request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=_timeout_ms(cluster))
        return _trimmed(await cluster.call(node, request, DeleteRecordsRequest, DeleteRecordsResponse))

    return await fan_out(cluster, Leaders(cluster), before, ask)


def _trimmed(answer: DeleteRecordsResponse) -> dict[TopicPartition, int | ClientError]:
    results: dict[TopicPartition, int | ClientError] = {}
    for topic in answer.topics:
        for found in topic.partitions:
            at = TopicPartition(topic.name, found.partition_index)
            subject = f"partition {at.partition} of topic {at.topic}"
            failed = found.error_code != ErrorCode.NONE
            results[at] = BrokerError(found.error_code, subject) if failed else found.low_watermark
    return results


def _creatable(topic: NewTopic) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignments else topic.partitions,
        replication_factor=-1 if topic.assignments else topic.replication_factor,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.assignments.items()
        ],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _timeout_ms(cluster: Cluster) -> int:
    return int(cluster.options.request_timeout_s * 1000)

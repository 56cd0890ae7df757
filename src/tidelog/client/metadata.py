"""What a client knows of a cluster: an immutable picture, made from Metadata answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tidelog.client.errors import BrokerError, MissingError
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.metadata import MetadataResponse
from tidelog.protocol.uuids import ZERO_UUID


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class BrokerAddress(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, BrokerAddress] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)

    def topic(self, name: str) -> TopicInfo:
        found = self.topics.get(name)
        if found is None or found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise MissingError(name)
        if found.error_code != ErrorCode.NONE:
            raise BrokerError(found.error_code, f"topic {name}")
        return found

    def partition(self, at: TopicPartition) -> PartitionInfo:
        found = self.topic(at.topic).partitions.get(at.partition)
        if found is None:
            raise MissingError(at.topic, at.partition)
        return found

    def leader(self, at: TopicPartition) -> int:
        """The node to ask; LEADER_NOT_AVAILABLE while there is none."""
        found = self.partition(at)
        if found.leader < 0 or found.leader not in self.brokers:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {at.partition} of topic {at.topic}")
        return found.leader

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((topic.name for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def merged(self, answer: MetadataResponse, asked: Iterable[str] | None) -> ClusterMetadata:
        """This picture with an answer on some topics, or on all of them (asked=None), laid over it."""
        topics = {} if asked is None else dict(self.topics)
        for name in asked or ():
            topics.pop(name, None)
        for topic in answer.topics:
            if topic.name is not None:
                topics[topic.name] = _topic_info(topic)
        brokers = {
            broker.node_id: BrokerAddress(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in answer.brokers
        }
        return replace(
            self,
            cluster_id=answer.cluster_id or self.cluster_id,
            controller_id=answer.controller_id,
            brokers=brokers,
            topics=topics,
        )


def _topic_info(topic: MetadataResponse.MetadataResponseTopic) -> TopicInfo:
    assert topic.name is not None
    partitions = {
        found.partition_index: PartitionInfo(
            partition=found.partition_index,
            leader=found.leader_id,
            leader_epoch=found.leader_epoch,
            replicas=tuple(found.replica_nodes),
            isr=tuple(found.isr_nodes),
            offline=tuple(found.offline_replicas),
            error_code=found.error_code,
        )
        for found in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    }
    return TopicInfo(topic.name, topic.topic_id or ZERO_UUID, topic.is_internal, partitions, topic.error_code)

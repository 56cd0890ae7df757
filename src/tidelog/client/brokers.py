"""The brokers of a cluster and what lies in their log directories."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.client.cluster import ANY_NODE, Cluster
from tidelog.client.errors import BrokerError, ClientError, UnsupportedApiError, check
from tidelog.client.metadata import BrokerAddress, TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse


class ClusterDescription(NamedTuple):
    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerAddress, ...]


class ReplicaSize(NamedTuple):
    at: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDir(NamedTuple):
    path: str
    error: BrokerError | None
    total_bytes: int
    usable_bytes: int
    replicas: tuple[ReplicaSize, ...]


async def describe_cluster(cluster: Cluster) -> ClusterDescription:
    try:
        request = DescribeClusterRequest()
        answer = await cluster.retrying(
            lambda: cluster.call(ANY_NODE, request, DescribeClusterRequest, DescribeClusterResponse)
        )
    except UnsupportedApiError:  # before Kafka 2.8
        metadata = await cluster.retrying(lambda: cluster.refresh([]))
        brokers = tuple(sorted(metadata.brokers.values()))
        return ClusterDescription(metadata.cluster_id, metadata.controller_id, brokers)
    check(answer.error_code, "cluster", answer.error_message)
    found = sorted(BrokerAddress(one.broker_id, one.host, one.port, one.rack) for one in answer.brokers)
    return ClusterDescription(answer.cluster_id, answer.controller_id, tuple(found))


async def describe_log_dirs(
    cluster: Cluster, nodes: Iterable[int] | None = None
) -> dict[int, tuple[LogDir, ...] | ClientError]:
    """By broker; all brokers when none are named."""
    if nodes is None:
        nodes = (await cluster.retrying(lambda: cluster.refresh([]))).brokers
    wanted = sorted(nodes)
    answers = await asyncio.gather(*(_log_dirs_of(cluster, node) for node in wanted))
    return dict(zip(wanted, answers, strict=True))


async def _log_dirs_of(cluster: Cluster, node: int) -> tuple[LogDir, ...] | ClientError:
    async def attempt() -> DescribeLogDirsResponse:
        request = DescribeLogDirsRequest(topics=None)
        answer = await cluster.call(node, request, DescribeLogDirsRequest, DescribeLogDirsResponse)
        check(answer.error_code, f"log directories of broker {node}")
        return answer

    try:
        return tuple(_log_dir(found) for found in (await cluster.retrying(attempt)).results)
    except ClientError as error:
        return error


def _log_dir(found: DescribeLogDirsResponse.DescribeLogDirsResult) -> LogDir:
    replicas = sorted(
        ReplicaSize(
            TopicPartition(topic.name, one.partition_index), one.partition_size, one.offset_lag, one.is_future_key
        )
        for topic in found.topics
        for one in topic.partitions
    )
    error = None if found.error_code == ErrorCode.NONE else BrokerError(found.error_code, found.log_dir)
    return LogDir(found.log_dir, error, found.total_bytes, found.usable_bytes, tuple(replicas))

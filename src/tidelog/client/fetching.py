"""Raw fetch: whole record batches as bytes, from the leaders of their partitions, by long polls without sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.errors import BrokerError, ClientError, check
from tidelog.client.metadata import TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    # Who only wants to say what is fetched, as the process in which Spark looks at options, need not load the client.
    from tidelog.client.cluster import Cluster

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

_LAST_VERSION_WITH_NAMES: Final = 12


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class Fetched(NamedTuple):
    """`records` holds batches from the one with the asked offset on; the last one may be cut off."""

    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    isolation_level: int = READ_UNCOMMITTED


async def fetch(cluster: Cluster, at: TopicPartition, offset: int, limits: FetchLimits | None = None) -> Fetched:
    """From one partition, with leader look-up and retries."""

    async def attempt() -> Fetched:
        await cluster.ensure_partitions([at])
        answer = (await fetch_from(cluster, cluster.metadata.leader(at), {at: offset}, limits))[at]
        if isinstance(answer, ClientError):
            cluster.forget_topic(at.topic)
            raise answer
        return answer

    return await cluster.retrying(attempt)


async def fetch_from(
    cluster: Cluster, node: int, offsets: Mapping[TopicPartition, int], limits: FetchLimits | None = None
) -> dict[TopicPartition, Fetched | BrokerError]:
    """One Fetch request to one broker for partitions that it leads; no retry."""
    limits = limits or FetchLimits()
    ids = {at.topic: cluster.metadata.topic(at.topic).topic_id for at in offsets}
    connection = await cluster.connection(node, "fetch")
    has_ids = all(topic_id != ZERO_UUID for topic_id in ids.values())
    version = connection.version_of(FetchRequest, None if has_ids else _LAST_VERSION_WITH_NAMES)
    answer = await connection.call(
        _request(cluster, offsets, ids, limits, version),
        FetchResponse,
        version=version,
        timeout_s=cluster.options.request_timeout_s + limits.max_wait_ms / 1000,
    )
    check(answer.error_code, "fetch")
    return _results(offsets, {topic_id: name for name, topic_id in ids.items()}, answer, version)


def _request(
    cluster: Cluster,
    offsets: Mapping[TopicPartition, int],
    ids: Mapping[str, bytes],
    limits: FetchLimits,
    version: int,
) -> FetchRequest:
    by_id = version > _LAST_VERSION_WITH_NAMES
    topics: dict[str, FetchRequest.FetchTopic] = {}
    for at, offset in offsets.items():
        topic = topics.setdefault(
            at.topic,
            FetchRequest.FetchTopic(
                topic="" if by_id else at.topic, topic_id=ids[at.topic] if by_id else ZERO_UUID, partitions=[]
            ),
        )
        topic.partitions.append(
            FetchRequest.FetchPartition(
                partition=at.partition,
                current_leader_epoch=cluster.metadata.partition(at).leader_epoch,
                fetch_offset=offset,
                partition_max_bytes=limits.partition_max_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation_level,
        topics=list(topics.values()),
    )


def _results(
    offsets: Mapping[TopicPartition, int], names: Mapping[bytes, str], answer: FetchResponse, version: int
) -> dict[TopicPartition, Fetched | BrokerError]:
    results: dict[TopicPartition, Fetched | BrokerError] = {}
    for topic in answer.responses:
        name = names.get(topic.topic_id, "") if version > _LAST_VERSION_WITH_NAMES else topic.topic
        for found in topic.partitions:
            at = TopicPartition(name, found.partition_index)
            subject = f"partition {at.partition} of topic {at.topic}"
            results[at] = (
                _fetched(found) if found.error_code == ErrorCode.NONE else BrokerError(found.error_code, subject)
            )
    for at in offsets:
        results.setdefault(at, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(at), "the broker left it out"))
    return results


def _fetched(found: FetchResponse.PartitionData) -> Fetched:
    return Fetched(
        records=memoryview(found.records or b""),
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted=tuple(
            AbortedTransaction(one.producer_id, one.first_offset) for one in found.aborted_transactions or ()
        ),
    )

"""Transactions as an administrator sees them: list, describe, and the end of one that nobody ends (KIP-664)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.coordinators import TRANSACTION, Coordinators
from tidelog.client.errors import BrokerError, ClientError, check
from tidelog.client.fanout import Leaders, fan_out
from tidelog.client.metadata import TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

NO_OFFSET = -1


class TransactionListing(NamedTuple):
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    """-1 when none has begun."""
    partitions: tuple[TopicPartition, ...]


class ActiveProducer(NamedTuple):
    """A producer that a partition remembers."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int
    """-1 when no transaction is open."""


async def list_transactions(
    cluster: Cluster,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    duration_ms: int = -1,
    pattern: str | None = None,
) -> list[TransactionListing]:
    """Of all brokers, sorted. Only those that pass every filter that is given."""
    metadata = await cluster.retrying(lambda: cluster.refresh([]))

    def request(version: int) -> ListTransactionsRequest:
        asked = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))
        if version >= 1:
            asked.duration_filter = duration_ms
        if version >= 2:
            asked.transactional_id_pattern = pattern
        return asked

    async def of_node(node: int) -> list[TransactionListing]:
        async def attempt() -> list[TransactionListing]:
            answer = await cluster.call(node, request, ListTransactionsRequest, ListTransactionsResponse)
            check(answer.error_code, f"transactions of broker {node}")
            return [
                TransactionListing(one.transactional_id, node, one.producer_id, one.transaction_state)
                for one in answer.transaction_states
            ]

        return await cluster.retrying(attempt)

    found = await asyncio.gather(*(of_node(node) for node in sorted(metadata.brokers)))
    return sorted(one for part in found for one in part)


async def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription | ClientError]:
    async def ask(node: int, items: Sequence[str]) -> Mapping[str, TransactionDescription | ClientError]:
        request = DescribeTransactionsRequest(transactional_ids=list(items))
        answer = await cluster.call(node, request, DescribeTransactionsRequest, DescribeTransactionsResponse)
        return {one.transactional_id: _description(node, one) for one in answer.transaction_states}

    return await fan_out(cluster, Coordinators(cluster, TRANSACTION), list(transactional_ids), ask)


def _description(
    node: int, found: DescribeTransactionsResponse.TransactionState
) -> TransactionDescription | ClientError:
    if found.error_code != ErrorCode.NONE:
        return BrokerError(found.error_code, f"transactional id {found.transactional_id}")
    partitions = sorted(TopicPartition(topic.topic, index) for topic in found.topics for index in topic.partitions)
    return TransactionDescription(
        found.transactional_id,
        node,
        found.producer_id,
        found.producer_epoch,
        found.transaction_state,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms,
        tuple(partitions),
    )


async def describe_producers(cluster: Cluster, at: TopicPartition) -> list[ActiveProducer]:
    async def ask(node: int, items: Sequence[TopicPartition]) -> Mapping[TopicPartition, Sequence[ActiveProducer]]:
        topic = DescribeProducersRequest.TopicRequest(name=at.topic, partition_indexes=[at.partition])
        request = DescribeProducersRequest(topics=[topic])
        answer = await cluster.call(node, request, DescribeProducersRequest, DescribeProducersResponse)
        (found,) = answer.topics[0].partitions
        check(found.error_code, f"partition {at.partition} of topic {at.topic}", found.error_message)
        return {
            at: [
                ActiveProducer(
                    one.producer_id,
                    one.producer_epoch,
                    one.coordinator_epoch,
                    one.last_sequence,
                    one.last_timestamp,
                    one.current_txn_start_offset,
                )
                for one in found.active_producers
            ]
        }

    result = (await fan_out(cluster, Leaders(cluster), [at], ask))[at]
    if isinstance(result, ClientError):
        raise result
    return sorted(result)


async def abort_transaction(cluster: Cluster, at: TopicPartition, producer: ActiveProducer) -> None:
    """Write the marker of an abort to one partition, past the coordinator. Only for a transaction that hangs: one that
    the coordinator knows is torn by it."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        # The partition has heard of no coordinator when its producer has never ended a transaction there.
        coordinator_epoch=max(producer.coordinator_epoch, 0),
        transaction_result=False,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=at.topic, partition_indexes=[at.partition])],
    )

    async def ask(node: int, items: Sequence[TopicPartition]) -> Mapping[TopicPartition, bool | ClientError]:
        request = WriteTxnMarkersRequest(markers=[marker])
        answer = await cluster.call(node, request, WriteTxnMarkersRequest, WriteTxnMarkersResponse)
        (found,) = answer.markers[0].topics[0].partitions
        check(found.error_code, f"partition {at.partition} of topic {at.topic}")
        return {at: True}

    result = (await fan_out(cluster, Leaders(cluster), [at], ask))[at]
    if isinstance(result, ClientError):
        raise result

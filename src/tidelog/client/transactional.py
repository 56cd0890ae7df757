"""What a transactional producer asks of its coordinator: an identity, partitions that join, the end.

The requests of version 1 (before KIP-890), which every broker with transactions takes: partitions join by
AddPartitionsToTxn before they are written to. Who begins each transaction with `begin` has an epoch of its own for each
one all the same, so that a late request can only touch the transaction that it was sent for.

Whoever knows a transaction's name and identity may end it: a producer may leave that to another process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct

from tidelog.client.cluster import ANY_NODE, Cluster
from tidelog.client.consumer_protocol import by_topic
from tidelog.client.coordinators import TRANSACTION, Coordinators
from tidelog.client.errors import ClientError, check
from tidelog.client.metadata import TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

ResponseT = TypeVar("ResponseT", bound=Struct)

LAST_PRODUCE_OF_VERSION_1: Final = 11
_LAST_ADD: Final = 3
_LAST_END: Final = 4
_SHORT_MS: Final = 60_000
_MISPLACED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)

TRANSACTION_IS_OVER: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
"""Answers to `end` which say that somebody else has ended it, or that the coordinator has forgotten it."""


class Identity(NamedTuple):
    """Who writes: a producer id and the epoch that fences all earlier ones."""

    producer_id: int
    epoch: int


async def new_identity(cluster: Cluster) -> Identity:
    """For an idempotent producer without transactions."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)

    async def attempt() -> Identity:
        answer = await cluster.call(ANY_NODE, request, InitProducerIdRequest, InitProducerIdResponse)
        check(answer.error_code, "producer id")
        return Identity(answer.producer_id, answer.producer_epoch)

    return await cluster.retrying(attempt)


class Transactions:
    """The coordinators of transactional ids, asked with retries."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster, TRANSACTION)

    async def begin(self, transactional_id: str, timeout_ms: int, *, after: Identity | None = None) -> Identity:
        """A new epoch. What a former producer of this id has left open is aborted; whatever it sends is refused.

        `after`: only if that one is still the youngest (KIP-360), else a BrokerError (PRODUCER_FENCED)."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        if after is not None:
            request.producer_id, request.producer_epoch = after

        async def attempt() -> Identity:
            answer = await self._ask(transactional_id, request, InitProducerIdRequest, InitProducerIdResponse)
            self._check(answer.error_code, transactional_id)
            return Identity(answer.producer_id, answer.producer_epoch)

        return await self._cluster.retrying(attempt)

    async def add(self, transactional_id: str, identity: Identity, partitions: Iterable[TopicPartition]) -> None:
        """Before the first write to each partition."""
        topics = [
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=indexes)
            for topic, indexes in by_topic(partitions).items()
        ]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=topics,
        )

        async def attempt() -> None:
            answer = await self._ask(
                transactional_id, request, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, _LAST_ADD
            )
            codes = [
                (found.partition_error_code, TopicPartition(topic.name, found.partition_index))
                for topic in answer.results_by_topic_v3_and_below
                for found in topic.results_by_partition
            ]
            # One bad partition leaves the others with OPERATION_NOT_ATTEMPTED, which says nothing.
            for code, at in sorted(codes, key=lambda one: one[0] == ErrorCode.OPERATION_NOT_ATTEMPTED):
                self._check(code, transactional_id, f"{at} in the transaction of {transactional_id}")

        await self._cluster.retrying(attempt)

    async def end(self, transactional_id: str, identity: Identity, *, committed: bool) -> None:
        """May be sent again. A BrokerError with a code of TRANSACTION_IS_OVER does not say how it ended."""
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=committed,
        )

        async def attempt() -> None:
            answer = await self._ask(transactional_id, request, EndTxnRequest, EndTxnResponse, _LAST_END)
            self._check(answer.error_code, transactional_id)

        await self._cluster.retrying(attempt)

    async def abort_left_open(self, transactional_id: str) -> None:
        """Aborts what is open, whoever its producer is, and fences it."""
        await self.begin(transactional_id, _SHORT_MS)

    async def _ask(
        self,
        transactional_id: str,
        request: Struct,
        shape: type[Struct],
        response: type[ResponseT],
        highest: int | None = None,
    ) -> ResponseT:
        node = await self._coordinators.find(transactional_id)
        try:
            return await self._cluster.call(node, request, shape, response, highest=highest)
        except ClientError:
            self._coordinators.forget(transactional_id)
            raise

    def _check(self, code: int, transactional_id: str, subject: str | None = None) -> None:
        if code in _MISPLACED:
            self._coordinators.forget(transactional_id)
        check(code, subject or f"transactional id {transactional_id}")

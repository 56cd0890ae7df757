"""AddPartitionsToTxn (24), versions 0-5. v2 PRODUCER_FENCED (KIP-588), v3 flexible, v4 several transactions and verify
only (KIP-890, brokers send it), v5 TRANSACTION_ABORTABLE."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from tidelog.broker.api import Api
from tidelog.broker.auto_create import INTERNAL_TOPICS
from tidelog.broker.context import Parked, RequestContext
from tidelog.broker.transactions import client_of, fenced_for
from tidelog.coordinator.gather import Gather
from tidelog.coordinator.txn.ports import TopicPartition
from tidelog.coordinator.txn.transaction import ProducerName
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
_TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
_Codes = Mapping[TopicPartition, ErrorCode]
_BATCHED_FROM = 4


def handle(request: AddPartitionsToTxnRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()
    if ctx.version < _BATCHED_FROM:
        _add_one(request, ctx, parked)
        return parked
    gather: Gather[_Result] = Gather(
        len(request.transactions),
        lambda results: parked.answer(AddPartitionsToTxnResponse(results_by_transaction=results)),
    )
    for index, transaction in enumerate(request.transactions):
        _serve(transaction, ctx, gather.slot(index))
    return parked


def _add_one(request: AddPartitionsToTxnRequest, ctx: RequestContext, parked: Parked) -> None:
    partitions = _partitions(request.v3_and_below_topics)

    def answer(codes: _Codes) -> None:
        parked.answer(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_by_topic(partitions, codes)))

    refused = _missing(partitions, ctx, forbidden=INTERNAL_TOPICS)
    if refused:
        answer(refused)
        return
    ctx.services.transaction_coordinator.add_partitions(
        request.v3_and_below_transactional_id,
        ProducerName(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        partitions,
        0,
        client_of(ctx),
        lambda code: answer(dict.fromkeys(partitions, fenced_for(ctx.version, code, known_from=2))),
    )


def _serve(transaction: _Transaction, ctx: RequestContext, answer: Callable[[_Result], None]) -> None:
    partitions = _partitions(transaction.topics)
    producer = ProducerName(transaction.producer_id, transaction.producer_epoch)
    coordinator = ctx.services.transaction_coordinator

    def respond(codes: _Codes) -> None:
        answer(_Result(transactional_id=transaction.transactional_id, topic_results=_by_topic(partitions, codes)))

    missing = _missing(partitions, ctx)
    if missing:
        respond(missing)
        return
    if transaction.verify_only:
        coordinator.check_partitions(transaction.transactional_id, producer, partitions, respond)
        return
    coordinator.add_partitions(
        transaction.transactional_id,
        producer,
        partitions,
        2,
        None,
        lambda code: respond(dict.fromkeys(partitions, code)),
    )


def _missing(
    partitions: list[TopicPartition], ctx: RequestContext, forbidden: Collection[str] = ()
) -> dict[TopicPartition, ErrorCode]:
    """Empty when all are there; one that is not keeps the others out. Clients may not name internal topics, brokers
    must."""
    image = ctx.services.image
    refused = {at: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for at in partitions if image.partition(*at) is None}
    refused |= {at: ErrorCode.TOPIC_AUTHORIZATION_FAILED for at in partitions if at[0] in forbidden}
    if not refused:
        return {}
    return {at: refused.get(at, ErrorCode.OPERATION_NOT_ATTEMPTED) for at in partitions}


def _partitions(topics: Iterable[_Topic]) -> list[TopicPartition]:
    return list(dict.fromkeys((topic.name, index) for topic in topics for index in topic.partitions))


def _by_topic(partitions: list[TopicPartition], codes: _Codes) -> list[_TopicResult]:
    found: dict[str, _TopicResult] = {}
    for topic, index in partitions:
        result = found.setdefault(topic, _TopicResult(name=topic, results_by_partition=[]))
        result.results_by_partition.append(
            _PartitionResult(partition_index=index, partition_error_code=codes[topic, index])
        )
    return list(found.values())


API = Api(key=24, versions=range(0, 6), handle=handle)

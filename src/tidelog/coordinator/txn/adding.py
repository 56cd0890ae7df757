"""Partitions of a transaction: added by AddPartitionsToTxn, AddOffsetsToTxn and the first write of version 2, and
looked for before data of version 1 is appended (KIP-890)."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.txn.ports import TopicPartition
from tidelog.coordinator.txn.records import TransactionRecord
from tidelog.coordinator.txn.state import TransactionState
from tidelog.coordinator.txn.transaction import EPOCH_MAX, WAITS, Needs, ProducerName, Transaction
from tidelog.protocol.errors import ErrorCode


def check(transaction: Transaction | None, producer: ProducerName) -> ErrorCode:
    """Whether this producer is the one that the transactional id belongs to now."""
    if transaction is None or transaction.value.producer_id != producer.id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.value.producer_epoch != producer.epoch or producer.epoch == EPOCH_MAX:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def add(
    transaction: Transaction | None,
    producer: ProducerName,
    partitions: frozenset[TopicPartition],
    client_version: int,
    wall_ms: int,
) -> Decision[TransactionRecord, ErrorCode] | Needs:
    if transaction is not None and transaction.value.state.is_completing:
        # Before the producer is looked at: it may use an id already that it gets when the markers are written.
        return WAITS
    error = check(transaction, producer)
    if error is not ErrorCode.NONE:
        return Decision((), error)
    assert transaction is not None
    value = transaction.value
    is_open = value.state is TransactionState.ONGOING
    if is_open and partitions <= value.partitions:
        return Decision((), ErrorCode.NONE)
    fresh = value._replace(
        state=TransactionState.ONGOING,
        partitions=value.partitions | partitions if is_open else partitions,
        update_ms=wall_ms,
        start_ms=value.start_ms if is_open else wall_ms,
        previous_producer_id=value.producer_id,
        client_version=client_version,
    )
    record = TransactionRecord(transaction.transactional_id, fresh, transaction.last_epoch)
    return Decision((record,), ErrorCode.NONE)


def verify(
    transaction: Transaction | None, producer: ProducerName, partitions: frozenset[TopicPartition]
) -> Mapping[TopicPartition, ErrorCode]:
    error = check(transaction, producer)
    if error is ErrorCode.NONE and transaction is not None and transaction.value.state.is_completing:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    if error is not ErrorCode.NONE or transaction is None:
        return dict.fromkeys(partitions, error)
    held = transaction.value.partitions if transaction.value.state is TransactionState.ONGOING else frozenset()
    return {at: ErrorCode.NONE if at in held else ErrorCode.TRANSACTION_ABORTABLE for at in partitions}

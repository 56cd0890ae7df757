"""The end of a transaction: EndTxn of both versions, the fence of a time-out, and what follows the markers.

In version 1 a transaction keeps its epoch, and an EndTxn that is sent again finds the state it asked for. In version 2
(KIP-890) each end raises the epoch, so an EndTxn that is sent again is known by the epoch before, and one of a later
transaction can never be taken for it.
"""

from __future__ import annotations

from typing import Final

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.txn.records import NO_EPOCH, NO_ID, TransactionRecord, TransactionValue
from tidelog.coordinator.txn.state import TransactionState
from tidelog.coordinator.txn.transaction import (
    EPOCH_MAX,
    LAST_EPOCH,
    WAITS,
    WANTS_ID,
    EndDecision,
    Ended,
    Needs,
    ProducerName,
    Transaction,
    refused,
)
from tidelog.protocol.errors import ErrorCode

BUMPS_EPOCH_FROM: Final = 2


def end(
    transaction: Transaction | None,
    producer: ProducerName,
    committed: bool,
    client_version: int,
    spare_id: int | None,
    wall_ms: int,
) -> EndDecision | Needs:
    if transaction is None:
        return refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if client_version >= BUMPS_EPOCH_FROM:
        return _end_v2(transaction, producer, committed, spare_id, wall_ms)
    return _end_v1(transaction, producer, committed, wall_ms)


def _end_v1(transaction: Transaction, producer: ProducerName, committed: bool, wall_ms: int) -> EndDecision | Needs:
    value = transaction.value
    if value.producer_id != producer.id:
        return refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if value.producer_epoch != producer.epoch or producer.epoch == EPOCH_MAX:
        return refused(ErrorCode.PRODUCER_FENCED)
    if value.state.is_completing:
        return WAITS
    if value.state is TransactionState.ONGOING:
        return prepare(transaction, committed, wall_ms, client_version=0)
    if value.state is _completed(committed):
        return Decision((), Ended(ErrorCode.NONE, value.producer_id, value.producer_epoch))
    return refused(ErrorCode.INVALID_TXN_STATE)


def _end_v2(
    transaction: Transaction, producer: ProducerName, committed: bool, spare_id: int | None, wall_ms: int
) -> EndDecision | Needs:
    value = transaction.value
    rolled_over = (
        value.producer_epoch == 0
        and producer.epoch == LAST_EPOCH
        and producer.id == value.previous_producer_id != value.producer_id
    )
    is_next = value.state.is_completing and producer.id == value.next_producer_id != NO_ID
    if producer.id != value.producer_id and not rolled_over and not is_next:
        return refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if value.state.is_completing:
        return WAITS
    is_retry = rolled_over or (value.producer_epoch == producer.epoch + 1 and producer.id == value.producer_id)
    if is_retry and value.producer_epoch != EPOCH_MAX and value.state in _COMPLETED:
        return _ended_before(value, committed)
    if value.producer_epoch != producer.epoch or producer.epoch == EPOCH_MAX:
        return refused(ErrorCode.PRODUCER_FENCED)
    is_open = value.state is TransactionState.ONGOING
    if committed and not is_open:
        return refused(ErrorCode.INVALID_TXN_STATE)
    if value.producer_epoch == LAST_EPOCH and spare_id is None:
        return WANTS_ID
    # An abort without a transaction is taken: a write may have failed that would have begun it, or may be under way.
    return prepare(transaction, committed, wall_ms, client_version=2, spare_id=spare_id)


def _ended_before(value: TransactionValue, committed: bool) -> EndDecision:
    """An EndTxn of the epoch before: the answer was lost, or the transaction ran out of time meanwhile."""
    if value.state is _completed(committed):
        return Decision((), Ended(ErrorCode.NONE, value.producer_id, value.producer_epoch))
    # A commit that comes behind an abort of our own is no fault of the client's: INVALID_TXN_STATE would end it for
    # good, where a new epoch is all it needs (KAFKA-20785).
    return refused(ErrorCode.PRODUCER_FENCED if committed else ErrorCode.INVALID_TXN_STATE)


_COMPLETED: Final = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def _completed(committed: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT


def prepare(
    transaction: Transaction,
    committed: bool,
    wall_ms: int,
    *,
    client_version: int,
    spare_id: int | None = None,
) -> EndDecision:
    """The decision itself. Its answer already names who the producer is once all is done."""
    value = transaction.value
    is_open = value.state is TransactionState.ONGOING
    bumps = client_version >= BUMPS_EPOCH_FROM
    prepared = value._replace(
        state=TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
        producer_epoch=min(value.producer_epoch + bumps, EPOCH_MAX),
        next_producer_id=spare_id if spare_id is not None and value.producer_epoch == LAST_EPOCH else NO_ID,
        partitions=value.partitions if is_open else frozenset(),
        start_ms=value.start_ms if is_open else wall_ms,
        update_ms=wall_ms,
        previous_producer_id=value.producer_id,
        client_version=client_version,
    )
    last_epoch = value.producer_epoch if bumps else transaction.last_epoch
    records = [TransactionRecord(transaction.transactional_id, prepared, last_epoch)]
    completed = complete(prepared, wall_ms)
    if not prepared.partitions:
        records.append(TransactionRecord(transaction.transactional_id, completed, last_epoch))
    return Decision(records, Ended(ErrorCode.NONE, completed.producer_id, completed.producer_epoch))


def fence(transaction: Transaction, wall_ms: int, server_version: int) -> EndDecision:
    """Abort what is open and raise the epoch, so that nobody who has the old one gets further (KIP-98, KIP-890). It may
    ask for the new one, unless somebody else has done so first (KIP-588)."""
    decision = prepare(transaction, False, wall_ms, client_version=BUMPS_EPOCH_FROM)
    if server_version >= BUMPS_EPOCH_FROM:
        return decision
    records = [
        TransactionRecord(record.transactional_id, record.value and record.value._replace(client_version=0), NO_EPOCH)
        for record in decision.records
    ]
    return Decision(records, decision.response)


def complete(value: TransactionValue, wall_ms: int) -> TransactionValue:
    """All markers are written."""
    completed = value._replace(
        state=_completed(value.state is TransactionState.PREPARE_COMMIT),
        partitions=frozenset(),
        update_ms=wall_ms,
        previous_producer_id=value.producer_id,
        next_producer_id=NO_ID,
    )
    if value.next_producer_id == NO_ID:
        return completed
    return completed._replace(producer_id=value.next_producer_id, producer_epoch=0)

"""InitProducerId with a transactional id: a new producer, one that comes back, and the fence before the one that was
there (KIP-98, KIP-360)."""

from __future__ import annotations

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.txn import ending
from tidelog.coordinator.txn.records import NO_EPOCH, TransactionRecord, TransactionValue
from tidelog.coordinator.txn.state import TransactionState
from tidelog.coordinator.txn.transaction import (
    EPOCH_MAX,
    LAST_EPOCH,
    WANTS_ID,
    EndDecision,
    Ended,
    Needs,
    ProducerName,
    Transaction,
    refused,
)
from tidelog.protocol.errors import ErrorCode


def begin(transactional_id: str, timeout_ms: int, spare_id: int | None, wall_ms: int) -> EndDecision | Needs:
    """An id that nobody has used, or that was forgotten."""
    if spare_id is None:
        return WANTS_ID
    value = _empty(spare_id, 0, timeout_ms, wall_ms, previous_producer_id=spare_id)
    return _decided(transactional_id, value, NO_EPOCH)


def resume(
    transaction: Transaction,
    timeout_ms: int,
    expected: ProducerName | None,
    spare_id: int | None,
    wall_ms: int,
    server_version: int,
) -> EndDecision | Needs:
    value = transaction.value
    if value.state.is_completing:
        return refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _is_known(value, expected):
        return refused(ErrorCode.PRODUCER_FENCED)
    if value.state is TransactionState.ONGOING:
        # The epoch that fences is never given out: the client asks again, and gets the one after.
        fence = ending.fence(transaction, wall_ms, server_version)
        return Decision(fence.records, Ended(ErrorCode.CONCURRENT_TRANSACTIONS))
    if value.producer_epoch >= LAST_EPOCH and (expected is None or _is_latest(transaction, expected)):
        if spare_id is None:
            return WANTS_ID
        fresh = _empty(spare_id, 0, timeout_ms, wall_ms, previous_producer_id=value.producer_id)
        fresh = fresh._replace(client_version=value.client_version)
        return _decided(transaction.transactional_id, fresh, NO_EPOCH if expected is None else expected.epoch)
    return _next_epoch(transaction, timeout_ms, expected, wall_ms)


def _next_epoch(transaction: Transaction, timeout_ms: int, expected: ProducerName | None, wall_ms: int) -> EndDecision:
    value = transaction.value
    if expected is None:
        epoch, last_epoch = value.producer_epoch + 1, NO_EPOCH
    elif expected.epoch == value.producer_epoch and expected.id == value.producer_id:
        epoch, last_epoch = value.producer_epoch + 1, value.producer_epoch
    elif expected.epoch == transaction.last_epoch:
        # Asked once more, because the answer was lost: somebody else would have set the last epoch to none.
        epoch, last_epoch = value.producer_epoch, transaction.last_epoch
    else:
        return refused(ErrorCode.PRODUCER_FENCED)
    fresh = _empty(value.producer_id, epoch, timeout_ms, wall_ms, previous_producer_id=value.producer_id)
    return _decided(
        transaction.transactional_id,
        fresh._replace(client_version=value.client_version),
        last_epoch,
    )


def _is_latest(transaction: Transaction, expected: ProducerName) -> bool:
    value = transaction.value
    if value.producer_epoch == EPOCH_MAX:  # raised by a fence, and given to nobody
        return expected.id == value.producer_id and expected.epoch == transaction.last_epoch
    return expected == (value.producer_id, value.producer_epoch)


def _is_known(value: TransactionValue, expected: ProducerName) -> bool:
    return expected.id == value.producer_id or (
        expected.id == value.previous_producer_id and expected.epoch >= LAST_EPOCH
    )


def _empty(
    producer_id: int, epoch: int, timeout_ms: int, wall_ms: int, *, previous_producer_id: int
) -> TransactionValue:
    return TransactionValue(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        update_ms=wall_ms,
        previous_producer_id=previous_producer_id,
    )


def _decided(transactional_id: str, value: TransactionValue, last_epoch: int) -> EndDecision:
    return Decision(
        (TransactionRecord(transactional_id, value, last_epoch),),
        Ended(ErrorCode.NONE, value.producer_id, value.producer_epoch),
    )

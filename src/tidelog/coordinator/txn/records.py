"""The records of `__transaction_state` and their bytes."""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.coordinator.txn.ports import TopicPartition
from tidelog.coordinator.txn.state import TransactionState
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.messages.records_transaction import TransactionLogKey, TransactionLogValue
from tidelog.protocol.records_framing import (
    TRANSACTION,
    decode_coordinator_key,
    decode_coordinator_value,
    encode_coordinator_key,
    encode_coordinator_value,
)

NO_ID: Final = -1
NO_EPOCH: Final = -1
_VERSION: Final = 1
"""The first with tags: what transaction.version 1 and 2 write."""


class TransactionValue(NamedTuple):
    """All that is durable of a transactional id."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    update_ms: int
    start_ms: int = -1
    previous_producer_id: int = NO_ID
    """That of the record before, as Kafka has it: another one only when the epochs have just run out. An EndTxn of it
    that is sent again is answered, not refused."""
    next_producer_id: int = NO_ID
    """Taken when the epochs have run out, used once the markers are written."""
    client_version: int = 0
    """Of transactions: 2 when the epoch goes up with each (KIP-890)."""


class TransactionRecord(NamedTuple):
    transactional_id: str
    value: TransactionValue | None
    """None: the id is forgotten."""
    last_epoch: int = NO_EPOCH
    """The epoch before, which may still ask for its successor once more (KIP-360). Not stored, as in Kafka."""


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    key = encode_coordinator_key(TransactionLogKey(transactional_id=record.transactional_id))
    value = record.value
    if value is None:
        return key, None
    stored = TransactionLogValue(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        transaction_timeout_ms=value.timeout_ms,
        transaction_status=value.state,
        transaction_partitions=None if value.state is TransactionState.EMPTY else _by_topic(value.partitions),
        transaction_last_update_timestamp_ms=value.update_ms,
        transaction_start_timestamp_ms=value.start_ms,
        client_transaction_version=value.client_version,
    )
    return key, encode_coordinator_value(stored, _VERSION)


def _by_topic(partitions: frozenset[TopicPartition]) -> list[TransactionLogValue.PartitionsSchema]:
    return [
        TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=indexes)
        for topic, indexes in group_by_topic(partitions).items()
    ]


def group_by_topic(partitions: frozenset[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        grouped.setdefault(topic, []).append(index)
    return grouped


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """None for kinds and versions that a newer release wrote. ProtocolError for bytes that are no record."""
    decoded_key = decode_coordinator_key(key, TRANSACTION)
    if decoded_key is None:
        return None
    assert isinstance(decoded_key, TransactionLogKey)
    if value is None:
        return TransactionRecord(decoded_key.transactional_id, None)
    decoded = decode_coordinator_value(decoded_key, value)
    if decoded is None:
        return None
    stored = decoded[0]
    assert isinstance(stored, TransactionLogValue)
    try:
        state = TransactionState(stored.transaction_status)
    except ValueError:
        raise ProtocolError(f"a transaction with the status {stored.transaction_status}") from None
    return TransactionRecord(decoded_key.transactional_id, _from_stored(stored, state))


def _from_stored(stored: TransactionLogValue, state: TransactionState) -> TransactionValue:
    return TransactionValue(
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        timeout_ms=stored.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            (entry.topic, index) for entry in stored.transaction_partitions or () for index in entry.partition_ids
        ),
        update_ms=stored.transaction_last_update_timestamp_ms,
        start_ms=stored.transaction_start_timestamp_ms,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        client_version=stored.client_transaction_version,
    )

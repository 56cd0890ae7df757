"""Fetched bytes to the records that an application is to see: no control records, and none that were aborted."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.client.fetching import READ_COMMITTED, AbortedTransaction, Fetched
from tidelog.client.metadata import TopicPartition
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.batch import BatchHeader, Record, crc_is_valid, iter_headers, iter_records


class ConsumedRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    is_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int


class ReadOut(NamedTuple):
    records: list[ConsumedRecord]
    next_offset: int
    """Where to fetch next: behind the last batch, also when none of its records is shown."""


def read_out(at: TopicPartition, fetched: Fetched, offset: int, isolation_level: int) -> ReadOut:
    """The records from an offset on. A batch that does not match its checksum is a ProtocolError."""
    aborted = _Aborted(fetched.aborted if isolation_level == READ_COMMITTED else ())
    records: list[ConsumedRecord] = []
    for position, header in iter_headers(fetched.records):
        batch = fetched.records[position : position + header.size]
        if not crc_is_valid(batch, header):
            raise ProtocolError(f"{at}: the batch at offset {header.base_offset} does not match its checksum")
        if aborted.hides(header):
            offset = max(offset, header.next_offset)
            continue
        found = iter_records(batch, header)
        records.extend(_consumed(at, header, record) for record in found if record.offset >= offset)
        offset = max(offset, header.next_offset)
    return ReadOut(records, offset)


def _consumed(at: TopicPartition, header: BatchHeader, record: Record) -> ConsumedRecord:
    return ConsumedRecord(
        at.topic,
        at.partition,
        record.offset,
        record.timestamp,
        header.is_append_time,
        record.key,
        record.value,
        record.headers,
        header.leader_epoch,
    )


class _Aborted:
    """Follows the aborted transactions of a fetch: each begins at its first offset and ends with its marker."""

    def __init__(self, transactions: tuple[AbortedTransaction, ...]) -> None:
        self._coming = sorted(transactions, key=lambda one: one.first_offset, reverse=True)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader) -> bool:
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._open.add(self._coming.pop().producer_id)
        if header.is_control:
            # Commit or abort: either way the producer's transaction ends here.
            self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open

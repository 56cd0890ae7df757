"""Fetched bytes to the records that an application is to see: no control records, and none that were aborted."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.client.aborted import Aborted
from tidelog.client.fetching import READ_COMMITTED, Fetched
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
    aborted = Aborted(fetched.aborted if isolation_level == READ_COMMITTED else ())
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

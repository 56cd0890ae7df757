"""A batch without some of its records: the bytes of the others are copied as they are.

Base offset, last offset, sequence, epochs and compression stay. A delete horizon (KIP-534) takes the place of the base
timestamp, and only then the records' time deltas are written anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.protocol.batch import (
    APPEND_TIME,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    read_varint,
    set_crc,
    write_varint,
)
from tidelog.protocol.compression import Codec, compress
from tidelog.protocol.records import Columns

_INT64_MAX: Final = 2**63 - 1
_EMPTY_ATTRIBUTES: Final = APPEND_TIME | TRANSACTIONAL | CONTROL


def delete_horizon_ms(header: BatchHeader) -> int | None:
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def empty_batch(header: BatchHeader) -> bytearray:
    """The header alone: offsets and sequence without a record, as Kafka's cleaner writes it."""
    return _batch(
        header._replace(attributes=header.attributes & _EMPTY_ATTRIBUTES, base_timestamp=NO_TIMESTAMP, record_count=0),
        b"",
    )


def batch_of_kept(
    header: BatchHeader, columns: Columns, rows: Sequence[int], horizon_ms: int | None = None
) -> bytearray:
    """With these records, one at least. The horizon, if given, is a new one."""
    times = [int(columns.timestamp[row]) for row in rows]
    max_timestamp = header.max_timestamp if header.is_append_time else max(times)
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if horizon_ms is not None and _can_be_told_from(times, horizon_ms):
        body = _restamped(columns, rows, times, horizon_ms)
        attributes, base_timestamp = attributes | DELETE_HORIZON, horizon_ms
    else:
        data = columns.data
        body = b"".join([data[columns.start[row] : columns.end[row]] for row in rows])
    codec = Codec(header.codec)
    return _batch(
        header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=len(rows),
        ),
        body if codec is Codec.NONE else compress(codec, body),
    )


def _batch(header: BatchHeader, payload: bytes) -> bytearray:
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(batch, 0, *header._replace(batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload)))
    batch += payload
    set_crc(batch)
    return batch


def _can_be_told_from(times: list[int], horizon_ms: int) -> bool:
    """Not every timestamp that a client may send: then the batch has no horizon, and its tombstones stay."""
    return all(abs(time - horizon_ms) <= _INT64_MAX for time in times)


def _restamped(columns: Columns, rows: Sequence[int], times: list[int], base_timestamp: int) -> bytes:
    out = bytearray()
    for row, time in zip(rows, times, strict=True):
        record = bytes(columns.data[columns.start[row] : columns.end[row]])
        _, position = read_varint(record, 0)
        head = bytearray((record[position],))
        _, position = read_varint(record, position + 1)
        write_varint(head, time - base_timestamp)
        write_varint(out, len(head) + len(record) - position)
        out += head
        out += record[position:]
    return bytes(out)

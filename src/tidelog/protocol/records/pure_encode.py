"""The encoder's loop in plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.protocol.batch import write_varint
from tidelog.protocol.records.columns import Columns

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


class Payload(NamedTuple):
    """The records of one batch, not compressed yet: rows first to last - 1."""

    first: int
    last: int
    max_timestamp: int
    content: bytearray | memoryview


def payloads(columns: Columns, room: int) -> Iterator[Payload]:
    """The records in portions of at most room bytes; a record that is larger has a portion to itself."""
    data = bytes(columns.data)
    first, greatest = 0, 0
    content = bytearray()
    offsets, timestamps = columns.offset, columns.timestamp
    for row in range(columns.count):
        if row and offsets[row] <= offsets[row - 1]:
            raise ValueError(f"offset {offsets[row]} follows {offsets[row - 1]}")
        record = _record(columns, data, row, first)
        if row > first and (record is None or len(content) + len(record) > room):
            yield Payload(first, row, greatest, content)
            first, content = row, bytearray()
            record = _record(columns, data, row, first)
        assert record is not None
        greatest = timestamps[row] if row == first else max(greatest, timestamps[row])
        content += record
    if columns.count:
        yield Payload(first, columns.count, greatest, content)


def _record(columns: Columns, data: bytes, row: int, first: int) -> bytearray | None:
    """One record as it stands in a batch that begins with the row `first`; None when that is too far away."""
    time_delta = columns.timestamp[row] - columns.timestamp[first]
    offset_delta = columns.offset[row] - columns.offset[first]
    if offset_delta > _INT32_MAX or not -_INT64_MAX - 1 <= time_delta <= _INT64_MAX:
        return None
    body = bytearray(1)  # attributes, always 0
    write_varint(body, time_delta)
    write_varint(body, offset_delta)
    _field(body, data, columns.key_start[row], columns.key_size[row])
    _field(body, data, columns.value_start[row], columns.value_size[row])
    begin, end = columns.header_first[row], columns.header_first[row + 1]
    write_varint(body, end - begin)
    for header in range(begin, end):
        if columns.header_key_size[header] < 0:
            raise ValueError("a record header has no name")
        _field(body, data, columns.header_key_start[header], columns.header_key_size[header])
        _field(body, data, columns.header_value_start[header], columns.header_value_size[header])
    record = bytearray()
    write_varint(record, len(body))
    record += body
    return record


def _field(body: bytearray, data: bytes, start: int, size: int) -> None:
    if size < 0:
        body.append(1)  # varint -1
        return
    if start < 0 or start + size > len(data):
        raise ValueError("a position in the columns is outside their data")
    write_varint(body, size)
    body += data[start : start + size]

"""The loops of the native decoder over records, compiled by numba. A negative position is a fault, and stays one.

Nothing here raises: a kernel returns a fault and where it was, and native_decode.py makes the error.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types

from tidelog.protocol.records.compiling import BYTES, COLUMN, INT, TABLE, helper, kernel
from tidelog.protocol.records.faults import (
    BAD_COUNT,
    BAD_HEADER_COUNT,
    BAD_OFFSET,
    BAD_SIZE,
    BAD_TIMESTAMP,
    DOES_NOT_FIT,
    FIELD_RUNS_OVER,
    LEFT_OVER,
    NO_NAME,
    RUNS_OVER,
    VARINT_TOO_LONG,
)

_INT64_MAX: Final = 2**63 - 1

# Rows of the table of batches, in the order of native_decode.BATCH.
_BASE_OFFSET, _ATTRIBUTES, _LAST_DELTA, _BASE_TIME, _MAX_TIME, _COUNT, _PAYLOAD_START, _PAYLOAD_END = range(8)

# Rows of the table of records, in the order of native_decode.FIELDS.
_OFFSET, _TIMESTAMP, _BATCH, _START, _END, _KEY_START, _KEY_SIZE, _VALUE_START, _VALUE_SIZE, _HEADERS_START = range(10)


@helper
def _long_varint(data: Any, position: Any, stop: Any) -> Any:
    """As _varint, of any length."""
    if position < 0:
        return np.int64(0), position
    raw = np.int64(0)
    shift = 0
    while position < stop:
        byte = np.int64(data[position])
        position += 1
        if shift == 63 and byte > 1:
            return np.int64(0), np.int64(VARINT_TOO_LONG)
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((raw >> 1) & _INT64_MAX) ^ -(raw & 1), position
        shift += 7
    return np.int64(0), np.int64(RUNS_OVER)


@helper
def _varint(data: Any, position: Any, stop: Any) -> Any:
    """(value, position after it), of bytes before stop. Most have one byte or two."""
    if 0 <= position < stop:
        byte = np.int64(data[position])
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        if position + 1 < stop and data[position + 1] < 0x80:
            raw = (byte & 0x7F) | (np.int64(data[position + 1]) << 7)
            return (raw >> 1) ^ -(raw & 1), position + 2
    return _long_varint(data, position, stop)


@helper
def _size(data: Any, position: Any, end: Any) -> Any:
    """(size of a field or -1, position after that number); the field lies before end."""
    size, position = _varint(data, position, end)
    if position >= 0:
        if size < -1:
            return size, np.int64(BAD_SIZE)
        if size > end - position:
            return size, np.int64(FIELD_RUNS_OVER)
    return size, position


@helper
def _record(data: Any, start: Any, stop: Any, records: Any, row: Any) -> Any:
    """A record's places into its row; (its end or a fault, time delta, offset delta, number of headers)."""
    length, position = _varint(data, start, stop)
    if position >= 0 and (length < 0 or length > stop - position):
        position = np.int64(RUNS_OVER)
    if position < 0:
        return position, np.int64(0), np.int64(0), np.int64(0)
    end = position + length
    time, position = _varint(data, position + 1, end)
    delta, position = _varint(data, position, end)
    key_size, position = _size(data, position, end)
    records[_KEY_START, row] = position
    records[_KEY_SIZE, row] = key_size
    if position >= 0 and key_size > 0:
        position += key_size
    value_size, position = _size(data, position, end)
    records[_VALUE_START, row] = position
    records[_VALUE_SIZE, row] = value_size
    if position >= 0 and value_size > 0:
        position += value_size
    headers, position = _varint(data, position, end)
    if position >= 0:
        if headers < 0 or headers > (end - position) >> 1:
            position = np.int64(BAD_HEADER_COUNT)
        elif headers == 0 and position != end:
            position = np.int64(DOES_NOT_FIT)
    records[_START, row] = start
    records[_END, row] = end
    records[_HEADERS_START, row] = position
    return (end if position >= 0 else position), time, delta, headers


@helper
def _time_of(base: Any, delta: Any) -> Any:
    """(base + delta, whether 64 bits hold it)."""
    if delta >= 0:
        return base + delta, base <= _INT64_MAX - delta
    return base + delta, base >= (-_INT64_MAX - 1) - delta


@helper
def _walk_batch(data: Any, batches: Any, batch: Any, records: Any, header_first: Any, row: Any) -> Any:
    """(the row after the batch's last, or a fault; the row where it was)."""
    position, stop = batches[_PAYLOAD_START, batch], batches[_PAYLOAD_END, batch]
    count = batches[_COUNT, batch]
    if position < 0 or position > stop or stop > data.shape[0]:
        return np.int64(RUNS_OVER), row
    if count < 0 or count > records.shape[1] - row or row + count >= header_first.shape[0]:
        return np.int64(BAD_COUNT), row
    stamped = batches[_ATTRIBUTES, batch] & 8 != 0
    base_offset, last_delta = batches[_BASE_OFFSET, batch], batches[_LAST_DELTA, batch]
    base_time, max_time = batches[_BASE_TIME, batch], batches[_MAX_TIME, batch]
    for _ in range(count):
        position, delta_time, delta, headers = _record(data, position, stop, records, row)
        if position < 0:
            return position, row
        if delta < 0 or delta > last_delta:
            return np.int64(BAD_OFFSET), row
        timestamp, fits = _time_of(base_time, delta_time)
        if stamped:
            timestamp, fits = max_time, True
        if not fits:
            return np.int64(BAD_TIMESTAMP), row
        records[_OFFSET, row] = base_offset + delta
        records[_TIMESTAMP, row] = timestamp
        records[_BATCH, row] = batch
        header_first[row + 1] = header_first[row] + headers
        row += 1
    if position != stop:
        return np.int64(LEFT_OVER), row
    return row, row


@kernel(types.UniTuple(INT, 2), BYTES, TABLE, TABLE, COLUMN)
def walk_records(data: Any, batches: Any, records: Any, header_first: Any) -> Any:
    """Every record of every batch into its row; (the number of records or a fault, the row where it was)."""
    row = np.int64(0)
    if header_first.shape[0] == 0:
        return np.int64(BAD_COUNT), row
    header_first[0] = 0
    for batch in range(batches.shape[1]):
        result, row = _walk_batch(data, batches, batch, records, header_first, row)
        if result < 0:
            return result, row
    return row, row


@kernel(types.UniTuple(INT, 2), BYTES, COLUMN, COLUMN, COLUMN, TABLE)
def walk_headers(data: Any, starts: Any, ends: Any, header_first: Any, headers: Any) -> Any:
    """The headers of every record into their table; (a fault or 0, the record where it was)."""
    rows = min(starts.shape[0], ends.shape[0], header_first.shape[0] - 1)
    for row in range(rows):
        first, last = header_first[row], header_first[row + 1]
        if first == last:
            continue
        position, end = starts[row], ends[row]
        if first < 0 or last > headers.shape[1] or position < 0 or end > data.shape[0]:
            return np.int64(BAD_HEADER_COUNT), row
        for header in range(first, last):
            size, position = _size(data, position, end)
            if position >= 0 and size < 0:
                position = np.int64(NO_NAME)
            if position < 0:
                return position, row
            headers[0, header], headers[1, header] = position, size
            size, position = _size(data, position + size, end)
            if position < 0:
                return position, row
            headers[2, header], headers[3, header] = position, size
            if size > 0:
                position += size
        if position != end:
            return np.int64(DOES_NOT_FIT), row
    return np.int64(0), np.int64(0)

"""The loops of the native encoder, compiled by numba: first how large everything is, then the bytes.

Columns may have been made by anybody, so positions in them are checked like those of untrusted bytes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types

from tidelog.protocol.records.compiling import BYTES, COLUMN, INT, ROOM, TABLE, helper, kernel

_INT32_MAX: Final = 2**31 - 1
_WITHOUT_SIGN: Final = 2**57 - 1
"""What is left of 64 bits when seven are shifted out."""

OUTSIDE: Final = -1
BAD_ORDER: Final = -2
NO_NAME: Final = -3
TOO_LARGE: Final = -4
TEXTS: Final = {
    OUTSIDE: "a position in the columns is outside their data",
    BAD_ORDER: "the offsets do not ascend",
    NO_NAME: "a record header has no name",
    TOO_LARGE: "a record is larger than 2 GiB",
}

# Rows of the tables, in the order of native_encode.
_OFFSET, _TIMESTAMP, _KEY_START, _KEY_SIZE, _VALUE_START, _VALUE_SIZE = range(6)
_NAME_START, _NAME_SIZE, _CONTENT_START, _CONTENT_SIZE = range(4)
_FIRST, _BYTES, _MAX_TIME = range(3)


@helper
def _varint_size(value: Any) -> Any:
    raw = (value << 1) ^ (value >> 63)
    size = 1
    while raw & ~0x7F != 0:
        raw = (raw >> 7) & _WITHOUT_SIGN
        size += 1
    return size


@helper
def _field_size(start: Any, size: Any, limit: Any) -> Any:
    """Bytes of a field with its size, or a fault when it lies outside data."""
    if size < 0:
        return np.int64(1)
    if start < 0 or size > limit - start:
        return np.int64(OUTSIDE)
    return _varint_size(size) + size


@helper
def _fixed_size(records: Any, header_first: Any, headers: Any, limit: Any, row: Any) -> Any:
    """Bytes of a record but for its length and its two deltas, or a fault."""
    key = _field_size(records[_KEY_START, row], records[_KEY_SIZE, row], limit)
    value = _field_size(records[_VALUE_START, row], records[_VALUE_SIZE, row], limit)
    first, last = header_first[row], header_first[row + 1]
    if key < 0 or value < 0 or first < 0 or first > last or last > headers.shape[1]:
        return np.int64(OUTSIDE)
    size = 1 + key + value + _varint_size(last - first)
    for header in range(first, last):
        if headers[_NAME_SIZE, header] < 0:
            return np.int64(NO_NAME)
        name = _field_size(headers[_NAME_START, header], headers[_NAME_SIZE, header], limit)
        content = _field_size(headers[_CONTENT_START, header], headers[_CONTENT_SIZE, header], limit)
        if name < 0 or content < 0:
            return np.int64(OUTSIDE)
        size += name + content
    return np.int64(size)


@helper
def _delta_size(records: Any, row: Any, first: Any) -> Any:
    """Bytes of the two deltas in a batch that begins with the row `first`, or -1 when that is too far away."""
    time, base = records[_TIMESTAMP, row], records[_TIMESTAMP, first]
    time_delta = time - base
    offset_delta = records[_OFFSET, row] - records[_OFFSET, first]
    # The difference of two times has another sign than it should when 64 bits do not hold it.
    if (time ^ base) & (time ^ time_delta) < 0 or offset_delta < 0 or offset_delta > _INT32_MAX:
        return np.int64(-1)
    return np.int64(_varint_size(time_delta) + _varint_size(offset_delta))


@kernel(types.UniTuple(INT, 2), BYTES, TABLE, COLUMN, TABLE, INT, COLUMN, TABLE)
def plan(data: Any, records: Any, header_first: Any, headers: Any, room: Any, sizes: Any, batches: Any) -> Any:
    """Sizes of all records without their length, and the batches' first rows, bytes and greatest times;
    (the number of batches or a fault, the row where it was)."""
    rows = records.shape[1]
    if header_first.shape[0] != rows + 1 or sizes.shape[0] != rows or batches.shape[1] < rows:
        return np.int64(OUTSIDE), np.int64(0)
    batch = np.int64(-1)
    first = np.int64(0)
    for row in range(rows):
        if row > 0 and records[_OFFSET, row] <= records[_OFFSET, row - 1]:
            return np.int64(BAD_ORDER), np.int64(row)
        fixed = _fixed_size(records, header_first, headers, data.shape[0], row)
        if fixed < 0:
            return fixed, np.int64(row)
        size = fixed + _delta_size(records, row, first)
        if batch < 0 or size < fixed or batches[_BYTES, batch] + size + _varint_size(size) > room:
            batch += 1
            first = np.int64(row)
            size = fixed + 2
            batches[_FIRST, batch] = row
            batches[_BYTES, batch] = 0
            batches[_MAX_TIME, batch] = records[_TIMESTAMP, row]
        if size > _INT32_MAX:
            return np.int64(TOO_LARGE), np.int64(row)
        sizes[row] = size
        batches[_BYTES, batch] += size + _varint_size(size)
        batches[_MAX_TIME, batch] = max(batches[_MAX_TIME, batch], records[_TIMESTAMP, row])
    return batch + 1, np.int64(rows)


@helper
def _put_varint(out: Any, position: Any, value: Any) -> Any:
    """Position after it; out has room for it, or the result is past its end."""
    raw = (value << 1) ^ (value >> 63)
    while raw & ~0x7F != 0:
        if position < out.shape[0]:
            out[position] = (raw & 0x7F) | 0x80
        raw = (raw >> 7) & _WITHOUT_SIGN
        position += 1
    if position < out.shape[0]:
        out[position] = raw
    return position + 1


@helper
def _put_field(out: Any, position: Any, data: Any, start: Any, size: Any) -> Any:
    """Position after a field with its size; past the end of out when there is no room."""
    if size < 0:
        return _put_varint(out, position, np.int64(-1))
    position = _put_varint(out, position, size)
    # That none is negative also lets LLVM copy many bytes at a time.
    if start < 0 or position < 0 or size > data.shape[0] - start or size > out.shape[0] - position:
        return np.int64(out.shape[0] + 1)
    for index in range(size):
        out[position + index] = data[start + index]
    return position + size


@kernel(INT, BYTES, TABLE, COLUMN, TABLE, COLUMN, INT, INT, ROOM)
def write(data: Any, records: Any, header_first: Any, headers: Any, sizes: Any, first: Any, last: Any, out: Any) -> Any:
    """The records of one batch, rows first to last - 1, into out; the bytes written, or a fault."""
    if first < 0 or last > records.shape[1] or last > sizes.shape[0] or last >= header_first.shape[0]:
        return np.int64(OUTSIDE)
    position = np.int64(0)
    for row in range(first, last):
        position = _put_varint(out, position, sizes[row])
        if position >= out.shape[0]:
            return np.int64(OUTSIDE)
        out[position] = 0  # attributes
        position = _put_varint(out, position + 1, records[_TIMESTAMP, row] - records[_TIMESTAMP, first])
        position = _put_varint(out, position, records[_OFFSET, row] - records[_OFFSET, first])
        position = _put_field(out, position, data, records[_KEY_START, row], records[_KEY_SIZE, row])
        position = _put_field(out, position, data, records[_VALUE_START, row], records[_VALUE_SIZE, row])
        begin, end = header_first[row], header_first[row + 1]
        if begin < 0 or end > headers.shape[1]:
            return np.int64(OUTSIDE)
        position = _put_varint(out, position, end - begin)
        for header in range(begin, end):
            position = _put_field(out, position, data, headers[_NAME_START, header], headers[_NAME_SIZE, header])
            position = _put_field(out, position, data, headers[_CONTENT_START, header], headers[_CONTENT_SIZE, header])
        if position > out.shape[0]:
            return np.int64(OUTSIDE)
    return position

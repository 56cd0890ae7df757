"""The loops of the native decoder over the headers of batches, compiled by numba.

Nothing here raises: a kernel returns a fault and where it was, and native_decode.py makes the error.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types

from tidelog.protocol.records.compiling import BYTES, INT, TABLE, helper, kernel
from tidelog.protocol.records.faults import BAD_COUNT, BAD_LAST_OFFSET, BAD_MAGIC, BATCH_TOO_SMALL

_HEADER_SIZE: Final = 61
_LOG_OVERHEAD: Final = 12
_RECORD_BYTES_MIN: Final = 7
_INT64_MAX: Final = 2**63 - 1

# Rows of the table of batches, in the order of columns.BATCH_FIELDS.
_POSITION, _BASE_OFFSET, _LENGTH, _EPOCH, _MAGIC, _CRC, _ATTRIBUTES, _LAST_DELTA = range(8)
_BASE_TIME, _MAX_TIME, _PRODUCER, _PRODUCER_EPOCH, _SEQUENCE, _COUNT, _PAYLOAD_START, _PAYLOAD_END = range(8, 16)


@helper
def _big_endian(data: Any, position: Any, size: Any) -> Any:
    """A signed number of 1 to 8 bytes. The caller has made sure that they are there."""
    number = np.int64(data[position])
    if number >= 0x80:
        number -= 0x100
    for index in range(1, size):
        number = (number << 8) | np.int64(data[position + index])
    return number


@helper
def _check_header(batches: Any, row: Any) -> Any:
    if batches[_MAGIC, row] != 2:
        return BAD_MAGIC
    count = batches[_COUNT, row]
    room = batches[_PAYLOAD_END, row] - batches[_PAYLOAD_START, row]
    # What a compressed batch has room for is known later.
    if count < 0 or (batches[_ATTRIBUTES, row] & 7 == 0 and count * _RECORD_BYTES_MIN > room):
        return BAD_COUNT
    last = batches[_LAST_DELTA, row]
    if last < 0 or batches[_BASE_OFFSET, row] > _INT64_MAX - last:
        return BAD_LAST_OFFSET
    return 0


@kernel(types.UniTuple(INT, 3), BYTES)
def count_batches(data: Any) -> Any:
    """(number of whole batches, bytes of them, a fault or 0)."""
    left = data.shape[0]
    position = 0
    count = 0
    while left >= _HEADER_SIZE:
        length = _big_endian(data, position + 8, 4)
        if length < _HEADER_SIZE - _LOG_OVERHEAD:
            return count, position, BATCH_TOO_SMALL
        if length > left - _LOG_OVERHEAD:
            break
        position += _LOG_OVERHEAD + length
        left -= _LOG_OVERHEAD + length
        count += 1
    return count, position, 0


@kernel(types.UniTuple(INT, 2), BYTES, TABLE)
def read_batches(data: Any, batches: Any) -> Any:
    """Headers into their table; (a fault or 0, position of the batch)."""
    position = 0
    size = data.shape[0]
    for row in range(batches.shape[1]):
        if size - position < _HEADER_SIZE:
            return BATCH_TOO_SMALL, position
        length = _big_endian(data, position + 8, 4)
        if length < _HEADER_SIZE - _LOG_OVERHEAD or length > size - position - _LOG_OVERHEAD:
            return BATCH_TOO_SMALL, position
        batches[_POSITION, row] = position
        batches[_BASE_OFFSET, row] = _big_endian(data, position, 8)
        batches[_LENGTH, row] = length
        batches[_EPOCH, row] = _big_endian(data, position + 12, 4)
        batches[_MAGIC, row] = _big_endian(data, position + 16, 1)
        batches[_CRC, row] = _big_endian(data, position + 17, 4) & 0xFFFFFFFF
        batches[_ATTRIBUTES, row] = _big_endian(data, position + 21, 2)
        batches[_LAST_DELTA, row] = _big_endian(data, position + 23, 4)
        batches[_BASE_TIME, row] = _big_endian(data, position + 27, 8)
        batches[_MAX_TIME, row] = _big_endian(data, position + 35, 8)
        batches[_PRODUCER, row] = _big_endian(data, position + 43, 8)
        batches[_PRODUCER_EPOCH, row] = _big_endian(data, position + 51, 2)
        batches[_SEQUENCE, row] = _big_endian(data, position + 53, 4)
        batches[_COUNT, row] = _big_endian(data, position + 57, 4)
        batches[_PAYLOAD_START, row] = position + _HEADER_SIZE
        position += _LOG_OVERHEAD + length
        batches[_PAYLOAD_END, row] = position
        fault = _check_header(batches, row)
        if fault < 0:
            return fault, batches[_POSITION, row]
    return 0, position

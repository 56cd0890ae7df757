"""The loops of a native cleaning over batches, compiled by numba. Every index is checked here: numba checks none.

Of each batch there is an entry in several arrays (native_loops.py makes them), and what becomes of it is a number
(fates.py; numba keeps the values that it has compiled: after a change there, touch this file).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types

from tidelog.log.cleaning.fates import COPY, DROP, GIVEN, LOOK, MAKE, WHOLE
from tidelog.protocol.records.compiling import BYTES, COLUMN, INT, ROOM, TABLE, helper, kernel
from tidelog.protocol.records.machine import copy_bytes, crc32c

_HEADER_SIZE: Final = 61
_LOG_OVERHEAD: Final = 12
_CODEC, _APPEND_TIME, _CONTROL, _HORIZON = 0x07, 0x08, 0x20, 0x40
_LENGTH_AT, _CRC_AT, _ATTRIBUTES_AT, _MAX_TIME_AT, _COUNT_AT = 8, 17, 21, 35, 57
_INT64_MIN: Final = -(2**63)

# Rows of the table of batches, in the order of native_loops.BATCH.
_POSITION, _BATCH_LENGTH, _ATTRIBUTES, _BASE_TIME, _MAX_TIME, _COUNT = range(6)
# Rows of the table of results, in the order of native_loops.
_SIZE, _NEW_MAX_TIME, _NEW_COUNT, _FIRST_ROW, _END_ROW, _AT = range(6)
# Rows of the table of records.
_START, _END, _VALUE_SIZE, _TIME = range(4)


@kernel(types.void, COLUMN, COLUMN, COLUMN, BYTES, INT, INT, ROOM)
def sort_out(
    base_offset: Any, last_delta: Any, attributes: Any, flags: Any, flags_from: Any, latest_offset: Any, fates: Any
) -> Any:
    """For each batch what is known without its records."""
    for batch in range(min(base_offset.shape[0], last_delta.shape[0], attributes.shape[0], fates.shape[0])):
        first = base_offset[batch] - flags_from
        end = first + last_delta[batch] + 1
        if attributes[batch] & _CONTROL != 0:
            fates[batch] = GIVEN
        elif base_offset[batch] > latest_offset:
            fates[batch] = WHOLE
        elif first < 0 or end > flags.shape[0]:
            fates[batch] = LOOK
        else:
            fates[batch] = DROP
            for at in range(first, end):
                if flags[at] != 0:
                    fates[batch] = LOOK
                    break


@kernel(types.void, ROOM, ROOM, TABLE, TABLE, ROOM, INT, TABLE)
def plan(fates: Any, stays: Any, batches: Any, records: Any, found: Any, now_ms: Any, results: Any) -> Any:
    """What becomes of each batch, now that its records can be looked at, and how large what stays of it is. `found` has
    1 for each record that is the last of its key; what goes as an old tombstone is set to 0."""
    rows_max = min(records.shape[1], found.shape[0])
    for batch in range(min(fates.shape[0], stays.shape[0], batches.shape[1], results.shape[1])):
        attributes, record_count = batches[_ATTRIBUTES, batch], batches[_COUNT, batch]
        results[_SIZE, batch] = 0
        results[_NEW_MAX_TIME, batch] = batches[_MAX_TIME, batch]
        results[_NEW_COUNT, batch] = record_count
        fate = fates[batch]
        if fate == LOOK:
            has_horizon = attributes & _HORIZON != 0
            keeps_tombstones = not has_horizon or now_ms < batches[_BASE_TIME, batch]
            count = size = 0
            has_tombstone = False
            max_time = np.int64(_INT64_MIN)
            for row in range(max(results[_FIRST_ROW, batch], 0), min(results[_END_ROW, batch], rows_max)):
                if found[row] == 0:
                    continue
                if records[_VALUE_SIZE, row] < 0:
                    if not keeps_tombstones:
                        found[row] = 0
                        continue
                    has_tombstone = True
                count += 1
                size += records[_END, row] - records[_START, row]
                max_time = max(max_time, records[_TIME, row])
            needs_horizon = has_tombstone and not has_horizon
            if count == 0:
                fate = DROP
            elif count == record_count and not needs_horizon:
                fate = WHOLE
            elif attributes & _CODEC != 0 or needs_horizon:
                fate = MAKE
            else:
                fate = COPY
                results[_SIZE, batch] = _HEADER_SIZE + size
                results[_NEW_COUNT, batch] = count
                if attributes & _APPEND_TIME == 0:
                    results[_NEW_MAX_TIME, batch] = max_time
        if fate == DROP and stays[batch] != 0:
            fate = MAKE
        if fate == WHOLE:
            results[_SIZE, batch] = _LOG_OVERHEAD + batches[_BATCH_LENGTH, batch]
        fates[batch] = fate


@helper
def _put(out: Any, at: Any, value: Any, size: Any) -> Any:
    """A number, the largest byte first. The caller has made sure that there is room."""
    for index in range(size):
        out[at + index] = np.uint8((value >> (8 * (size - 1 - index))) & 0xFF)


@helper
def _copy_records(payload: Any, records: Any, found: Any, first: Any, end: Any, out: Any, at: Any) -> Any:
    """Those that stay, one behind the other; where that ends, -1 when something does not lie where it should."""
    for row in range(max(first, 0), min(end, records.shape[1], found.shape[0])):
        if found[row] == 0:
            continue
        start, size = records[_START, row], records[_END, row] - records[_START, row]
        if start < 0 or size < 0 or size > payload.shape[0] - start or size > out.shape[0] - at:
            return np.int64(-1)
        copy_bytes(payload, start, out, at, size)
        at += size
    return np.int64(at)


@kernel(INT, BYTES, BYTES, ROOM, TABLE, TABLE, ROOM, TABLE, ROOM)
def write(data: Any, payload: Any, fates: Any, batches: Any, records: Any, found: Any, results: Any, out: Any) -> Any:
    """The batches that need no Python, each to its place; -1 when something does not lie where it should."""
    for batch in range(min(fates.shape[0], batches.shape[1], results.shape[1])):
        if fates[batch] != WHOLE and fates[batch] != COPY:
            continue
        position, at, size = batches[_POSITION, batch], results[_AT, batch], results[_SIZE, batch]
        if position < 0 or at < 0 or size < _HEADER_SIZE or size > out.shape[0] - at:
            return -1
        taken = size if fates[batch] == WHOLE else _HEADER_SIZE
        if taken > data.shape[0] - position:
            return -1
        copy_bytes(data, position, out, at, taken)
        if fates[batch] == WHOLE:
            continue
        first, end = results[_FIRST_ROW, batch], results[_END_ROW, batch]
        if _copy_records(payload, records, found, first, end, out, at + _HEADER_SIZE) != at + size:
            return -1
        _put(out, at + _LENGTH_AT, size - _LOG_OVERHEAD, 4)
        _put(out, at + _MAX_TIME_AT, results[_NEW_MAX_TIME, batch], 8)
        _put(out, at + _COUNT_AT, results[_NEW_COUNT, batch], 4)
        _put(out, at + _CRC_AT, crc32c(out, at + _ATTRIBUTES_AT, at + size), 4)
    return 0


@kernel(types.UniTuple(INT, 4), TABLE, INT, INT, INT, INT, INT, TABLE)
def mark(
    kept: Any, start: Any, max_time: Any, max_time_offset: Any, since_index: Any, interval: Any, entries: Any
) -> Any:
    """What Segment._note_batch does, for batches with a row each of place, size, last offset, largest time and number
    of records; (number of index entries, largest time, its offset, bytes since the last entry)."""
    count = 0
    for batch in range(kept.shape[1]):
        if kept[3, batch] > max_time and kept[4, batch] != 0:
            max_time, max_time_offset = kept[3, batch], kept[2, batch]
        if since_index > interval and count < entries.shape[1]:
            entries[0, count], entries[1, count] = kept[2, batch], start + kept[0, batch]
            entries[2, count], entries[3, count] = max_time, max_time_offset
            count += 1
            since_index = 0
        since_index += kept[1, batch]
    return count, max_time, max_time_offset, since_index

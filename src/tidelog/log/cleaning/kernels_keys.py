"""The loops of the native key map, compiled by numba. Every index is checked here: numba checks none."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types

from tidelog.protocol.records.compiling import BYTES, COLUMN, INT, ROOM, helper, kernel
from tidelog.protocol.records.machine import word_at

_WORDS: Final = types.Array(types.uint64, 1, "C")
_TABLE: Final = types.Array(types.uint64, 2, "C")
_U8, _U13, _U16, _U17, _U21, _U32, _U56 = (np.uint64(n) for n in (8, 13, 16, 17, 21, 32, 56))
_U64: Final = np.uint64(64)
_EE: Final = np.uint64(0xEE)
_DD: Final = np.uint64(0xDD)
_FF: Final = np.uint64(0xFF)
_ZERO: Final = np.uint64(0)
_ONE: Final = np.uint64(1)
_INIT0: Final = np.uint64(0x736F6D6570736575)
_INIT1: Final = np.uint64(0x646F72616E646F6D)
_INIT2: Final = np.uint64(0x6C7967656E657261)
_INIT3: Final = np.uint64(0x7465646279746573)


@helper
def _turn(value: Any, by: Any) -> Any:
    return (value << by) | (value >> (_U64 - by))


@helper
def _round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v0 = v0 + v1
    v1 = _turn(v1, _U13) ^ v0
    v0 = _turn(v0, _U32)
    v2 = v2 + v3
    v3 = _turn(v3, _U16) ^ v2
    v0 = v0 + v3
    v3 = _turn(v3, _U21) ^ v0
    v2 = v2 + v1
    v1 = _turn(v1, _U17) ^ v2
    v2 = _turn(v2, _U32)
    return v0, v1, v2, v3


@helper
def _hash(data: Any, start: Any, size: Any, seed: Any) -> Any:
    """SipHash-1-3 with a result of 128 bits, as two words; the low one is never 0 by the caller's doing."""
    k0, k1 = seed[0], seed[1]
    v0, v1, v2, v3 = _INIT0 ^ k0, _INIT1 ^ k1 ^ _EE, _INIT2 ^ k0, _INIT3 ^ k1
    whole = size - size % 8
    for at in range(start, start + whole, 8):
        word = word_at(data, at)
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
    word = (np.uint64(size) & _FF) << _U56
    for index in range(size - whole):
        word |= np.uint64(data[start + whole + index]) << np.uint64(8 * index)
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= _EE
    for _ in range(3):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= _DD
    for _ in range(3):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@helper
def _find(table: Any, low: Any, high: Any) -> Any:
    """The slot that has the hash, or the free one where it belongs. There is always a free one."""
    slots = np.uint64(table.shape[0])
    slot = ((low >> _U32) * slots) >> _U32
    while table[slot, 2] != _ZERO and (table[slot, 0] != low or table[slot, 1] != high):
        slot += _ONE
        if slot == slots:
            slot = _ZERO
    return slot


@kernel(
    types.UniTuple(INT, 3),
    BYTES,
    COLUMN,
    COLUMN,
    COLUMN,
    COLUMN,
    ROOM,
    INT,
    INT,
    INT,
    _WORDS,
    _TABLE,
    INT,
    INT,
)
def put(
    data: Any,
    key_start: Any,
    key_size: Any,
    offset: Any,
    first_record: Any,
    wanted: Any,
    batch: Any,
    first_offset: Any,
    keys_max: Any,
    seed: Any,
    table: Any,
    count: Any,
    fill_max: Any,
) -> Any:
    """From this batch on; (the batch where it ended, keys in the table, 1 when that is too small for the batch)."""
    batches = min(wanted.shape[0], first_record.shape[0] - 1)
    rows = min(key_start.shape[0], key_size.shape[0], offset.shape[0])
    while batch < batches:
        if wanted[batch] == 0:
            batch += 1
            continue
        if count >= keys_max:
            return batch, count, 0
        first, last = max(first_record[batch], 0), min(first_record[batch + 1], rows)
        if count + last - first > fill_max:
            return batch, count, 1
        for row in range(first, last):
            start, size = key_start[row], key_size[row]
            if size < 0 or offset[row] < first_offset or start < 0 or start + size > data.shape[0]:
                continue
            low, high = _hash(data, start, size, seed)
            slot = _find(table, low, high)
            if table[slot, 2] == _ZERO:
                table[slot, 0] = low
                table[slot, 1] = high
                count += 1
            table[slot, 2] = np.uint64(offset[row] + 1)
        batch += 1
    return batch, count, 0


@kernel(types.void, _TABLE, _TABLE)
def move(old: Any, new: Any) -> Any:
    """All entries; the new table is larger."""
    for slot in range(old.shape[0]):
        if old[slot, 2] != _ZERO:
            place = _find(new, old[slot, 0], old[slot, 1])
            new[place, 0] = old[slot, 0]
            new[place, 1] = old[slot, 1]
            new[place, 2] = old[slot, 2]


@kernel(types.void, _TABLE, INT, ROOM)
def flag(table: Any, first_offset: Any, flags: Any) -> Any:
    """1 at each offset that is in the table."""
    for slot in range(table.shape[0]):
        place = np.int64(table[slot, 2]) - 1 - first_offset
        if table[slot, 2] != _ZERO and 0 <= place < flags.shape[0]:
            flags[place] = 1


@kernel(types.void, BYTES, COLUMN, COLUMN, COLUMN, _WORDS, _TABLE, BYTES, INT, ROOM)
def look_up(
    data: Any,
    key_start: Any,
    key_size: Any,
    offset: Any,
    seed: Any,
    table: Any,
    flags: Any,
    flags_from: Any,
    found: Any,
) -> Any:
    """1 for each record of whose key no later one is in the table; by the flags where they reach."""
    rows = min(key_start.shape[0], key_size.shape[0], offset.shape[0], found.shape[0])
    for row in range(rows):
        place = offset[row] - flags_from
        if 0 <= place < flags.shape[0]:
            found[row] = flags[place]
            continue
        start, size = key_start[row], key_size[row]
        if size < 0 or start < 0 or start + size > data.shape[0]:
            continue
        low, high = _hash(data, start, size, seed)
        slot = _find(table, low, high)
        if table[slot, 2] == _ZERO or np.int64(table[slot, 2]) - 1 <= offset[row]:
            found[row] = 1

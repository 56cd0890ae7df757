"""The same as pure_keys.py, compiled by numba: 24 bytes a key, as in Kafka.

An open table of slots, each of three words that lie together: a hash of 128 bits (SipHash-1-3 with the seed as its key)
and the offset plus one, 0 in a free slot. It grows from small to what the keys need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tidelog.log.cleaning import kernels_keys
from tidelog.protocol.records import Columns
from tidelog.protocol.records.compiling import as_bytes

ENTRY_BYTES: Final = 24
_SLOTS: Final = 1 << 14
_SLOTS_MAX: Final = 1 << 32
_GROWTH: Final = 4
_FILL: Final = 0.9


class KeyMap:
    def __init__(self, seed: bytes, keys_max: int) -> None:
        self._seed = np.frombuffer(seed, np.uint64).copy()
        self._keys_max = keys_max
        self._count = 0
        self._table = np.zeros((_SLOTS, 3), np.uint64)

    def __len__(self) -> int:
        return self._count

    def put(self, columns: Columns, wanted: Sequence[bool], first_offset: int) -> int:
        data = as_bytes(memoryview(columns.data))
        mask = np.array(wanted, np.uint8)
        rows: Any = columns.batches.first_record
        batch = 0
        while True:
            batch, self._count, is_crowded = kernels_keys.put(
                data,
                columns.key_start,
                columns.key_size,
                columns.offset,
                rows,
                mask,
                batch,
                first_offset,
                self._keys_max,
                self._seed,
                self._table,
                self._count,
                int(self._table.shape[0] * _FILL),
            )
            if not is_crowded:
                return int(batch)
            self._grow(int(rows[batch + 1] - rows[batch]))

    def _grow(self, more: int) -> None:
        """To hold so many more; no larger than the keys that are allowed need, but for one batch."""
        least = int((self._count + more) / _FILL) + 1
        most = int(self._keys_max / _FILL) + 1
        slots = max(min(self._table.shape[0] * _GROWTH, most), least)
        assert slots < _SLOTS_MAX
        table = np.zeros((slots, 3), np.uint64)
        kernels_keys.move(self._table, table)
        self._table = table

    def flag(self, flags: bytearray, first_offset: int) -> None:
        kernels_keys.flag(self._table, first_offset, np.frombuffer(flags, np.uint8))

    def last_of_key(self, columns: Columns, flags: bytearray, flags_from: int) -> Any:
        found = np.zeros(columns.count, np.uint8)
        kernels_keys.look_up(
            as_bytes(memoryview(columns.data)),
            columns.key_start,
            columns.key_size,
            columns.offset,
            self._seed,
            self._table,
            as_bytes(memoryview(flags)),
            flags_from,
            found,
        )
        return found


def kept_rows(columns: Columns, last_of_key: Any, first: int, end: int, *, tombstones: bool) -> list[int]:
    mask = last_of_key[first:end]
    if not tombstones:
        sizes: Any = columns.value_size
        mask = mask & (sizes[first:end] >= 0)
    rows: list[int] = (np.flatnonzero(mask) + first).tolist()
    return rows

"""The keys of the dirty part of a log and their last offsets, in plain Python: what runs without numba, and what the
native one (native_keys.py) is held against.

A key costs what a hash costs, however long it is. Two keys with one hash would cost the older one its record: the hash
has 128 bits and a secret seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from tidelog.protocol.records import Columns

ENTRY_BYTES: Final = 200
"""Of memory: a dictionary with an object for the hash and one for the offset."""
_HASH_BYTES: Final = 16


class KeyMap:
    def __init__(self, seed: bytes, keys_max: int) -> None:
        self._seed = seed
        self._keys_max = keys_max
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, columns: Columns, wanted: Sequence[bool], first_offset: int) -> int:
        """Take in the keys of the batches that are wanted, from the offset on. How many batches were looked at: with a
        full map it ends before the next one that is wanted."""
        data, offsets, seed = columns.data, self._offsets, self._seed
        rows = columns.batches.first_record
        for batch, is_wanted in enumerate(wanted):
            if not is_wanted:
                continue
            if len(offsets) >= self._keys_max:
                return batch
            for row in range(rows[batch], rows[batch + 1]):
                size = columns.key_size[row]
                if size >= 0 and columns.offset[row] >= first_offset:
                    start = columns.key_start[row]
                    key = blake2b(data[start : start + size], digest_size=_HASH_BYTES, key=seed).digest()
                    offsets[key] = columns.offset[row]
        return len(wanted)

    def flag(self, flags: bytearray, first_offset: int) -> None:
        """Set those of all offsets in here."""
        for offset in self._offsets.values():
            flags[offset - first_offset] = 1

    def last_of_key(self, columns: Columns, flags: bytearray, flags_from: int) -> bytearray:
        """For each record 1 if no later one of its key is known, 0 otherwise or without a key. The flags, from an
        offset on, know it already."""
        data, get, seed = columns.data, self._offsets.get, self._seed
        found = bytearray(columns.count)
        flags_end = flags_from + len(flags)
        for row, (start, size, offset) in enumerate(
            zip(columns.key_start, columns.key_size, columns.offset, strict=True)
        ):
            if flags_from <= offset < flags_end:
                found[row] = flags[offset - flags_from]
            elif size >= 0:
                key = blake2b(data[start : start + size], digest_size=_HASH_BYTES, key=seed).digest()
                found[row] = get(key, -1) <= offset
        return found


def kept_rows(columns: Columns, last_of_key: bytearray, first: int, end: int, *, tombstones: bool) -> list[int]:
    """The rows of a batch that stay."""
    sizes = columns.value_size
    return [row for row in range(first, end) if last_of_key[row] and (tombstones or sizes[row] >= 0)]

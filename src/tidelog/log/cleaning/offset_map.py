"""The last offset of every key in the dirty part of a log, by the key's hash: the plain-Python twin.

A key costs what a hash costs, however long it is. Two keys with one hash would cost the older one its record: the hash
has 128 bits and a secret seed.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

ENTRY_BYTES: Final = 200
"""Of memory: a dictionary with an object for the hash and one for the offset."""
_HASH_BYTES: Final = 16


class OffsetMap:
    def __init__(self, seed: bytes, keys_max: int) -> None:
        self._seed = seed
        self._keys_max = keys_max
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1
        """All keys up to this offset are in here."""

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self._keys_max

    def put(self, key: bytes, offset: int) -> None:
        self._offsets[blake2b(key, digest_size=_HASH_BYTES, key=self._seed).digest()] = offset

    def get(self, key: bytes) -> int:
        """-1 for a key that is not in the dirty part."""
        return self._offsets.get(blake2b(key, digest_size=_HASH_BYTES, key=self._seed).digest(), -1)

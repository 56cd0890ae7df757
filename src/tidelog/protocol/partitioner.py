"""Which partition a key goes to: murmur2 as Java's producer computes it, so that all clients agree on a key's place."""

from __future__ import annotations

from struct import iter_unpack
from typing import Final

from tidelog.kernel.ports import Buffer

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_WORDS: Final = "<I"


def murmur2(data: Buffer) -> int:
    """The 32-bit hash, unsigned (Java shows the same bits as a signed int)."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for (k,) in iter_unpack(_WORDS, memoryview(data)[:whole]):
        k = (k * _M) & _MASK
        k ^= k >> 24
        h = ((h * _M) & _MASK) ^ ((k * _M) & _MASK)
    if length > whole:
        h ^= int.from_bytes(data[whole:], "little")
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


def to_positive(number: int) -> int:
    """Java's way to a number that is not negative: the sign bit is cleared, not the number negated."""
    return number & 0x7FFFFFFF


def partition_for_key(key: Buffer, partitions: int) -> int:
    """The partition of a record with a key, 0 to partitions - 1."""
    return to_positive(murmur2(key)) % partitions

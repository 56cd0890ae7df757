"""murmur2 over many keys, compiled by numba; partitioner.py has it in plain Python."""

from __future__ import annotations

from typing import Any, Final

from tidelog.protocol.records.compiling import BYTES, COLUMN, INT, helper, kernel

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


@helper
def _murmur2(data: Any, start: Any, size: Any) -> Any:
    """64-bit numbers hold every product: both factors are below 2^32 and 2^31."""
    h = _SEED ^ size
    whole = size & ~3
    for at in range(start, start + whole, 4):
        k = (
            (data[at] & 0xFF)
            | ((data[at + 1] & 0xFF) << 8)
            | ((data[at + 2] & 0xFF) << 16)
            | ((data[at + 3] & 0xFF) << 24)
        )
        k = (k * _M) & _MASK
        k ^= k >> 24
        h = ((h * _M) & _MASK) ^ ((k * _M) & _MASK)
    if size > whole:
        for index in range(size - whole):
            h ^= (data[start + whole + index] & 0xFF) << (8 * index)
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


@kernel(INT, BYTES, COLUMN, COLUMN, INT, COLUMN)
def place_keys(data: Any, starts: Any, sizes: Any, partitions: Any, out: Any) -> Any:
    """Sets a partition where out is negative and there is a key; -1 when a key does not lie within data, else 0."""
    rows = out.shape[0]
    if starts.shape[0] != rows or sizes.shape[0] != rows or partitions < 1:
        return -1
    for row in range(rows):
        start, size = starts[row], sizes[row]
        if out[row] >= 0 or size < 0:
            continue
        if start < 0 or size > data.shape[0] - start:
            return -1
        out[row] = (_murmur2(data, start, size) & _POSITIVE) % partitions
    return 0

"""Which partition of an internal topic owns a group, a transactional id or a share group's state."""

from __future__ import annotations

from functools import lru_cache
from struct import unpack


def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 units, as a signed 32-bit number."""
    units: bytes | tuple[int, ...]
    if text.isascii():
        units = text.encode("ascii")
    else:
        encoded = text.encode("utf-16-be", "surrogatepass")
        units = unpack(f">{len(encoded) // 2}H", encoded)
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


@lru_cache(maxsize=16_384)
def partition_for(key: str, partition_count: int) -> int:
    """Kafka's abs() has no positive twin for -2^31 and makes it 0."""
    value = java_string_hash(key)
    return 0 if value == -0x8000_0000 else abs(value) % partition_count

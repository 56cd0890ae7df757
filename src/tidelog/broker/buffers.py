"""Where a connection's bytes land: one read buffer per loop, and pooled private ones for unfinished frames.

Two megabytes per connection would be four gigabytes at two thousand idle connections; an idle one owns nothing here.
"""

from __future__ import annotations

from typing import Final

SHARED_BYTES: Final = 256 * 1024
_SMALLEST: Final = 4 * 1024
_POOLED_BYTES_MAX: Final = 16 * 1024 * 1024


class Buffers:
    """Owned by the loop's thread; buffers come in powers of two and go back when their frame is done."""

    __slots__ = ("_free", "_pooled_bytes", "shared")

    def __init__(self) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self._free: dict[int, list[memoryview]] = {}
        self._pooled_bytes = 0

    def take(self, size: int) -> memoryview:
        """A writable buffer of at least size bytes, its content undefined."""
        capacity = max(_SMALLEST, 1 << (size - 1).bit_length())
        free = self._free.get(capacity)
        if free:
            self._pooled_bytes -= capacity
            return free.pop()
        return memoryview(bytearray(capacity))

    def give(self, buffer: memoryview) -> None:
        """Nobody may hold a view of it any more."""
        capacity = len(buffer)
        if self._pooled_bytes + capacity <= _POOLED_BYTES_MAX:
            self._free.setdefault(capacity, []).append(buffer)
            self._pooled_bytes += capacity

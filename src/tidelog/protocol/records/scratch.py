"""Room for what is decompressed, which a reader of many batches uses again and again."""

from __future__ import annotations

from typing import Final

_LEAST: Final = 64 * 1024


class Scratch:
    """What one decode has put here is overwritten by the next one that is given it."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def room(self, position: int, size: int) -> memoryview:
        """All from the position on, so many bytes at least; what is before it stays."""
        if position + size > len(self._bytes):
            # (Not resized: somebody may still look at the old one.)
            grown = bytearray(max(position + size, 2 * len(self._bytes), _LEAST))
            grown[:position] = memoryview(self._bytes)[:position]
            self._bytes = grown
        return memoryview(self._bytes)[position:]

    def filled(self, size: int) -> memoryview:
        """What is in it, up to there."""
        return memoryview(self._bytes)[:size].toreadonly()

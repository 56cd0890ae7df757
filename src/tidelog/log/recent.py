"""Where the last batches of the active segment start, by their base offset: readers at the tail never search.

Two generations of a few entries each: the older one goes when the newer is full. Most logs are idle and have none.
"""

from __future__ import annotations

from typing import Final

_GENERATION_MAX: Final = 16


class RecentPositions:
    __slots__ = ("_newer", "_older")

    def __init__(self) -> None:
        self._newer: dict[int, int] = {}
        self._older: dict[int, int] = {}

    def note(self, base_offset: int, position: int) -> None:
        newer = self._newer
        if len(newer) >= _GENERATION_MAX:
            self._older = newer
            newer = self._newer = {}
        newer[base_offset] = position

    def get(self, base_offset: int) -> int | None:
        position = self._newer.get(base_offset)
        return self._older.get(base_offset) if position is None else position

    def clear(self) -> None:
        """The segment was rolled or truncated: the offsets may be elsewhere now."""
        self._newer, self._older = {}, {}

"""Deadlines by key, in one heap.

A session is prolonged with every heartbeat and almost never expires, so prolonging only notes the new deadline: the old
entry stays in the heap and is put back when it comes up.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K")


class Timers(Generic[K]):
    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._count = 0

    def __contains__(self, key: K) -> bool:
        return key in self._deadlines

    def schedule(self, key: K, deadline_ms: int) -> None:
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def cancel(self, key: K) -> None:
        self._deadlines.pop(key, None)

    def clear(self) -> None:
        self._deadlines.clear()
        self._queued.clear()
        self._heap.clear()

    def next_ms(self) -> int | None:
        self._settle_head()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> K | None:
        """One key whose deadline has passed. One at a time, since acting on one may cancel another."""
        self._settle_head()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        _, _, key = heappop(self._heap)
        del self._queued[key]
        del self._deadlines[key]
        return key

    def _push(self, key: K, deadline_ms: int) -> None:
        # The number keeps equal deadlines in the order they were set, and keys from being compared.
        self._count += 1
        self._queued[key] = deadline_ms
        heappush(self._heap, (deadline_ms, self._count, key))

    def _settle_head(self) -> None:
        """Make the first entry of the heap one that really is due when it says."""
        heap = self._heap
        while heap:
            queued_ms, _, key = heap[0]
            if self._queued.get(key) != queued_ms:
                heappop(heap)
                continue
            deadline_ms = self._deadlines.get(key)
            if deadline_ms == queued_ms:
                return
            heappop(heap)
            del self._queued[key]
            if deadline_ms is not None:
                self._push(key, deadline_ms)

"""One heap of deadlines and one timer for its earliest, instead of a timer per request."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Final

_SWEEP_AT: Final = 1024


class Deadline:
    __slots__ = ("_callback", "_owner")

    def __init__(self, owner: Deadlines, callback: Callable[[], None]) -> None:
        self._owner = owner
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        if self._callback is not None:
            self._callback = None
            self._owner._cancelled += 1

    @property
    def is_cancelled(self) -> bool:
        return self._callback is None

    def fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class Deadlines:
    """Belongs to the loop that runs when the first deadline is set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []  # when, the order of those with one time, what
        self._timer: asyncio.Handle | None = None
        self._timer_at_s = 0.0
        self._order = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def after(self, delay_s: float, callback: Callable[[], None]) -> Deadline:
        loop = asyncio.get_running_loop()
        self._order += 1
        deadline = Deadline(self, callback)
        heapq.heappush(self._heap, (loop.time() + delay_s, self._order, deadline))
        # Most waits end early; what they leave behind must not outgrow what still waits.
        if self._cancelled > _SWEEP_AT and self._cancelled > len(self._heap) // 2:
            # In place: the callback that made this one may be running within _fire.
            self._heap[:] = [entry for entry in self._heap if not entry[2].is_cancelled]
            heapq.heapify(self._heap)
            self._cancelled = 0
        self._arm(loop)
        return deadline

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        heap = self._heap
        if not heap:
            return
        if self._timer is not None:
            if self._timer_at_s <= heap[0][0]:
                return
            self._timer.cancel()
        # The handle itself cannot be asked: for a time that has come uvloop gives a plain one, without when().
        self._timer_at_s = heap[0][0]
        self._timer = loop.call_at(self._timer_at_s, self._fire)

    def _fire(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        newest = self._order
        heap = self._heap
        try:
            while heap and (heap[0][2].is_cancelled or heap[0][0] <= now_s):
                if heap[0][1] > newest:
                    break  # set by one of these callbacks: the loop has a turn first
                _, _, deadline = heapq.heappop(heap)
                if deadline.is_cancelled:
                    self._cancelled -= 1
                else:
                    deadline.fire()
        finally:
            # Also when a callback failed: the others must not wait for the next who comes.
            self._arm(loop)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _, _, deadline in self._heap:
            deadline.cancel()
        self._heap.clear()
        self._cancelled = 0

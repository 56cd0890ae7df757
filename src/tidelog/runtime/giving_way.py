"""Work that shall not be felt: done in time that nobody else wants, and as the caller is where that is too little.

A thread of the system's idle class (Linux) leaves its core the moment another thread wants it, and a core with nothing
else on it counts as free for others. Under a load that takes all cores it gets next to nothing, and without a privilege
there is no way back from that class: so it is a thread beside the caller, who does the work after a piece that starved.

The idle class is not the last in the queue, though: since Linux 6.6 it takes its small share when it is due, and then
keeps the core until the next tick, four milliseconds at 250 Hz, while others are ready to run. So it also asks, every
fraction of a millisecond, whether somebody is.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

_STARVED_S: Final = 1.0
"""A piece of work that took less says nothing."""
_SHARE_MIN: Final = 0.1
"""Of the time it took: below this it had no core, or waited for the disk, which the caller does as well."""
_RELIEVED_S: Final = 30.0
"""How long the caller does the work before the idle class is tried again; twice as long each time that it starves."""
_RELIEVED_S_MAX: Final = 600.0


def _take_idle_time_only() -> None:
    with contextlib.suppress(OSError, AttributeError):  # elsewhere it has the caller's priority
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def give_way() -> None:
    """Whoever is ready to run on this core does."""
    _yield()


def _stay() -> None:
    """Where the system has no such call."""


_yield: Final[Callable[[], None]] = getattr(os, "sched_yield", _stay)


class GivingWay:
    def __init__(
        self, clock: Callable[[], float] = time.monotonic, used: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock = clock
        self._used = used
        self._idle = ThreadPoolExecutor(1, "idle", _take_idle_time_only)
        self._relieved_until_s = float("-inf")
        self._relieved_s = _RELIEVED_S

    def do(self, work: Callable[[], T]) -> T:
        if self._clock() < self._relieved_until_s:
            return work()
        return self._idle.submit(self._watched, work).result()

    def _watched(self, work: Callable[[], T]) -> T:
        began_s, used_s = self._clock(), self._used()
        try:
            return work()
        finally:
            took_s = self._clock() - began_s
            if took_s < _STARVED_S or self._used() - used_s >= took_s * _SHARE_MIN:
                self._relieved_s = _RELIEVED_S
            else:
                self._relieved_until_s = self._clock() + self._relieved_s
                self._relieved_s = min(self._relieved_s * 2, _RELIEVED_S_MAX)

    def close(self) -> None:
        self._idle.shutdown()

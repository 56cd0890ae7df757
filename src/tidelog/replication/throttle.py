"""So many bytes a second and no more: whoever passes by waits until what came before is paid for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tidelog.kernel.ports import Clock

_WAIT_S: Final = 1.0
_LEAST_S: Final = 1e-6


class Throttle:
    def __init__(self, clock: Clock, bytes_per_s: Callable[[], float]) -> None:
        self._clock = clock
        self._bytes_per_s = bytes_per_s
        self._passed_s = clock.monotonic_s()

    async def pass_by(self, size: int) -> None:
        """The time since the last one was here counts. The limit may change while somebody waits."""
        owed = size - (self._clock.monotonic_s() - self._passed_s) * self._limit()
        while owed > 0:
            wait_s = min(owed / self._limit(), _WAIT_S)
            await asyncio.sleep(wait_s)
            owed -= max(wait_s, _LEAST_S) * self._limit()
        await asyncio.sleep(0)
        self._passed_s = self._clock.monotonic_s()

    def _limit(self) -> float:
        return max(self._bytes_per_s(), 1.0)

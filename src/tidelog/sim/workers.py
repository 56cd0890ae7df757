"""The Workers port without threads: the function runs on the loop, at a random moment of the time that it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import TypeVar

T = TypeVar("T")


class SimWorkers:
    def __init__(self, random: Random, *, delay_ms_max: float = 5.0) -> None:
        self._random = random
        self._delay_ms_max = delay_ms_max

    async def run(self, function: Callable[[], T]) -> T:
        # Others run between the call and the effect, and again between the effect and the answer, as beside a thread.
        await self._pause()
        try:
            return function()
        finally:
            await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.uniform(0, self._delay_ms_max) / 1000)

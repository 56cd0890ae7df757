"""The Clock port on virtual time. One per simulated host: wall clocks differ and step, monotonic time does not."""

from __future__ import annotations

from typing import Final

from tidelog.sim.loop import SimLoop

START_MS: Final = 1_767_225_600_000
"""Where virtual wall clocks begin: 2026-01-01 00:00 UTC."""


class SimClock:
    def __init__(self, loop: SimLoop, *, start_ms: int = START_MS) -> None:
        self._loop = loop
        self._offset_ms = start_ms

    def wall_ms(self) -> int:
        return self._offset_ms + int(self._loop.time() * 1000)

    def monotonic_s(self) -> float:
        return self._loop.time()

    def step(self, by_ms: int) -> None:
        """Somebody sets the clock: the wall jumps, back too, and monotonic time goes on."""
        self._offset_ms += by_ms

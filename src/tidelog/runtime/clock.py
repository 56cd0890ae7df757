"""The Clock port on the operating system's clocks."""

from __future__ import annotations

import time


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        # Not loop.time(): uvloop caches that per turn with millisecond steps, too coarse for the stamps of a request.
        return time.monotonic()

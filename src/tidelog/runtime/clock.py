"""The Clock port on the operating system's clocks."""

from __future__ import annotations

import time


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # Not loop.time(): uvloop caches that per turn with millisecond steps, too coarse for the stamps of a request.
    # And not a function around it: that would be most of what a reading costs.
    monotonic_s = staticmethod(time.monotonic)

"""Now, on both clocks: deadlines must not jump with the wall clock, and records must carry its time."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.kernel.ports import Clock


class Moment(NamedTuple):
    ms: int
    """Milliseconds that never go back, for deadlines. Only differences mean something."""
    wall_ms: int
    """Milliseconds since 1970, for what is stored."""

    @classmethod
    def of(cls, clock: Clock) -> Moment:
        # Rounded: cut off, a clock that stands at the very deadline would be a millisecond short of it for ever.
        return cls(round(clock.monotonic_s() * 1000), clock.wall_ms())

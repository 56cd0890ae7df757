"""What a transactional id can be waiting for."""

from __future__ import annotations

from enum import Enum


class TimerKind(Enum):
    TIMEOUT = "timeout"
    EXPIRY = "expiry"
    MARKERS = "markers"
    WAIT = "wait"


TimerKey = tuple[TimerKind, str]


def on_grid(deadline_ms: int, base_ms: int, interval_ms: int) -> int:
    """The first look at or behind the deadline, of somebody who looks every so often."""
    return base_ms + -(-(deadline_ms - base_ms) // interval_ms) * interval_ms

"""Logs whose cleaning has failed, and until when each is left alone, so that the others have their turn."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from tidelog.kernel.ports import Clock
from tidelog.log.partition_log import PartitionLog

_PAUSE_S_MAX: Final = 3600.0
_DOUBLINGS_MAX: Final = 20


class PuttingOff:
    def __init__(self, clock: Clock, pause_s: Callable[[], float]) -> None:
        """`pause_s`: what the cleaner itself waits when there is nothing to do."""
        self._clock = clock
        self._pause_s = pause_s
        self._until_s: dict[PartitionLog, float] = {}
        self._failures: dict[PartitionLog, int] = {}

    def put_off(self, log: PartitionLog) -> float:
        """For a while, in seconds: each time in a row twice as long."""
        failures = self._failures[log] = self._failures.get(log, 0) + 1
        while_s = min(self._pause_s() * (1 << min(failures, _DOUBLINGS_MAX)), _PAUSE_S_MAX)
        self._until_s[log] = self._clock.monotonic_s() + while_s
        return while_s

    def holds(self, log: PartitionLog) -> bool:
        return self._until_s.get(log, 0.0) > self._clock.monotonic_s()

    def went_well(self, log: PartitionLog) -> None:
        self._until_s.pop(log, None)
        self._failures.pop(log, None)

    def keep(self, logs: Collection[PartitionLog]) -> None:
        """Forget all others."""
        self._until_s = {log: until_s for log, until_s in self._until_s.items() if log in logs}
        self._failures = {log: count for log, count in self._failures.items() if log in logs}

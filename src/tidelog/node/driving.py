"""The time of one kind of coordinator: its runtime never waits and starts nothing, so it is polled here, soon after it
has asked for that and when something is due. Knows nothing of groups or transactions."""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.broker.deadlines import Deadline, Deadlines
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.runtime import CoordinatorRuntime
from tidelog.kernel.ports import Clock


class Driver:
    def __init__(self, clock: Clock, deadlines: Deadlines) -> None:
        self.is_running = False
        self._clock = clock
        self._deadlines = deadlines
        self._runtime: CoordinatorRuntime[Any] | None = None
        self._deadline: Deadline | None = None
        self._is_awake = False

    def start(self, runtime: CoordinatorRuntime[Any]) -> None:
        self._runtime = runtime
        self.is_running = True

    def stop(self) -> None:
        self.is_running = False
        if self._runtime is not None:
            self._runtime.close()

    def wake(self) -> None:
        if not self._is_awake and self.is_running:
            self._is_awake = True
            asyncio.get_running_loop().call_soon(self._poll)

    def _poll(self) -> None:
        self._is_awake = False
        runtime = self._runtime
        if not self.is_running or runtime is None:
            return
        runtime.poll()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        due_ms = runtime.deadline_ms()
        if due_ms is not None:
            delay_s = max(due_ms - Moment.of(self._clock).ms, 0) / 1000
            self._deadline = self._deadlines.after(delay_s, self._poll)

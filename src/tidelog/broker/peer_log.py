"""Log lines about peers that misbehave: so many in a while, then silence and a count. Nobody fills our disk by
sending nonsense."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

LINES_MAX: Final = 20
WINDOW_S: Final = 10.0


class PeerLog:
    """One for all connections of a node."""

    def __init__(self, logger: logging.Logger, monotonic_s: Callable[[], float]) -> None:
        self._logger = logger
        self._monotonic_s = monotonic_s
        self._since_s = monotonic_s()
        self._lines = 0

    @property
    def left_out(self) -> int:
        return max(self._lines - LINES_MAX, 0)

    def warning(self, text: str, *values: object) -> None:
        now_s = self._monotonic_s()
        if now_s - self._since_s >= WINDOW_S:
            if self.left_out:
                self._logger.warning("%d more lines about other peers were left out", self.left_out)
            self._since_s = now_s
            self._lines = 0
        self._lines += 1
        if self._lines <= LINES_MAX:
            self._logger.warning(text, *values)

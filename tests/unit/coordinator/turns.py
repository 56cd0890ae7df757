"""What a turn of the loop does, counted: calls of functions, Python's own and C's. A hundred thousand of them take some
ten milliseconds, on any machine in any mood a fixed number."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

CALLS_MAX = 150_000


class Turns:
    def __init__(self) -> None:
        self.counts: list[int] = []

    def take(self, turn: Callable[[], object]) -> None:
        count = 0

        def note(frame: FrameType, event: str, argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            turn()
        finally:
            sys.setprofile(before)
        self.counts.append(count)

    def check(self, *, at_least: int) -> None:
        """All were short, and all that was to be done needed several of them."""
        assert max(self.counts) <= CALLS_MAX, self.counts
        assert len(self.counts) >= at_least, self.counts

"""Answers on their way out.

A state machine that answers in the middle of a change could be called again by whoever got the answer (a connection
that had more requests waiting), and would be found half changed. So answers are queued until the change is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
ANSWERS_A_TURN: Final = 100


class Waiting(Generic[T]):
    """Somebody who waits for an answer. Answered at most once, and never after `cancel`."""

    __slots__ = ("_answer", "member_id", "when_cancelled")

    def __init__(self, answer: Callable[[T], None]) -> None:
        self._answer: Callable[[T], None] | None = answer
        self.member_id = ""
        self.when_cancelled: Callable[[], None] | None = None

    def __call__(self, response: T) -> None:
        answer, self._answer, self.when_cancelled = self._answer, None, None
        if answer is not None:
            answer(response)

    def cancel(self) -> None:
        """The connection is gone: nobody reads the answer any more."""
        self._answer = None
        when_cancelled, self.when_cancelled = self.when_cancelled, None
        if when_cancelled is not None:
            when_cancelled()


class Outbox:
    """The end of a rebalance answers every member at once: a thousand answers would stop the loop for 50 ms. So a turn
    sends a share of them, and whoever drives the coordinator is asked for another turn."""

    def __init__(self, when_more: Callable[[], None] = lambda: None) -> None:
        self._queue: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._when_more = when_more
        self.is_behind = False
        """Some were left for the next turn; until then all others queue behind them."""

    def send(self, answer: Callable[[T], None], response: T) -> None:
        self._queue.append((answer, response))

    def drain(self) -> None:
        if not self.is_behind:
            self._send(ANSWERS_A_TURN)

    def next_turn(self) -> None:
        self.is_behind = False
        self._send(ANSWERS_A_TURN)

    def drain_all(self) -> None:
        """There will be no other turn."""
        self.is_behind = False
        self._send(len(self._queue))

    def _send(self, count: int) -> None:
        queue = self._queue
        for _ in range(count):
            if not queue:
                return
            answer, response = queue.popleft()
            answer(response)
        if queue and not self.is_behind:
            self.is_behind = True
            self._when_more()

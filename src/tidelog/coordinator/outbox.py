"""Answers on their way out.

A state machine that answers in the middle of a change could be called again by whoever got the answer (a connection
that had more requests waiting), and would be found half changed. So answers are queued until the change is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


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
    def __init__(self) -> None:
        self._queue: deque[tuple[Callable[[Any], None], Any]] = deque()

    def send(self, answer: Callable[[T], None], response: T) -> None:
        self._queue.append((answer, response))

    def drain(self) -> None:
        queue = self._queue
        while queue:
            answer, response = queue.popleft()
            answer(response)

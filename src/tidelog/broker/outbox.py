"""Small answers leave together, when the loop has handled what one wake-up brought: sent one by one between requests,
each wakes its peer anew, and the two kinds of work drive each other out of the processor's caches.

Knows nothing of sockets: whoever stands here is told once to send what it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

TOGETHER_MAX: Final = 64
"""So many that the first does not wait for long: with a thousand connections a turn takes tens of milliseconds."""

AT_ONCE: Final = 16
"""After a turn that brought one alone so many are sent at once: waiting for the end of a turn has its price too."""


class Sender(Protocol):
    def send_ready(self) -> None: ...


class Outbox:
    __slots__ = ("_at_once", "_is_due", "_senders", "_soon")

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        self._soon = soon
        self._senders: list[Sender] = []
        self._is_due = False
        self._at_once = 0

    def add(self, sender: Sender) -> None:
        if self._at_once:
            self._at_once -= 1
            sender.send_ready()
            return
        senders = self._senders
        senders.append(sender)
        if not self._is_due:
            self._is_due = True
            self._soon(self._end_turn)
        elif len(senders) >= TOGETHER_MAX:
            self.send()

    def _end_turn(self) -> None:
        self._is_due = False
        if len(self._senders) <= 1:
            self._at_once = AT_ONCE
        self.send()

    def send(self) -> None:
        senders, self._senders = iter(self._senders), []
        try:
            for sender in senders:
                sender.send_ready()
        finally:
            for sender in senders:  # who failed must not keep the others waiting
                self.add(sender)

"""From what a member counts to notices that have arrived: what the helpers for both client libraries share.

A notice that could not be delivered is sent again with the next one: without it all later ones of the member would say
nothing (tiers.py waits for the one that is missing).
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from random import Random
from typing import TypedDict

from tidelog.audit.counting import Counting, Member
from tidelog.audit.notices import AUDIT_TOPIC, LAKE, LOG, Notice, encode
from tidelog.runtime.clock import SystemClock

Send = Callable[[Notice, bytes, Callable[[bool], None]], None]
"""Publish a notice, and say later whether it arrived."""


def this_member(tier: str, name: str, host: str | None) -> Member:
    """With an incarnation that no other start of it has."""
    if not name:
        raise ValueError("name is empty: the same name at each start is how a restart is known")
    if tier in (LOG, LAKE):
        raise ValueError(f"tier is {tier!r}, which is a tier of its own; name the readers that belong together")
    return Member(tier, host or socket.gethostname(), name, f"{Random().getrandbits(128):032x}")


class Publisher:
    def __init__(self, member: Member, send: Send, *, window_ms: int, topics: tuple[str, ...] = ()) -> None:
        self.member = member
        self._clock = SystemClock()
        self._send = send
        self._unsent: list[Notice] = []
        # Applications share a producer among threads, and hear of deliveries in another one.
        self._lock = threading.RLock()
        self._counting = Counting(member, window_ms=window_ms, now_ms=self.now_ms(), topics=topics)
        with self._lock:
            self._publish(self._counting.hello())

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    # Counting, from any thread

    def sending(self, topic: str, time_ms: int) -> None:
        with self._lock:
            self._counting.sending(topic, time_ms)

    def not_sent(self, time_ms: int) -> None:
        with self._lock:
            self._counting.not_sent(time_ms)

    def sent(self, topic: str, time_ms: int, *, delivered: bool) -> None:
        with self._lock:
            self._counting.sent(topic, time_ms, delivered=delivered)

    def consumed(self, topic: str, time_ms: int, partition: int, offset: int) -> None:
        with self._lock:
            self._counting.consumed(topic, time_ms, partition, offset)

    # Publishing

    def tick(self) -> None:
        """To be called often: publishes when a window has passed."""
        with self._lock:
            notice = self._counting.due(self.now_ms())
            if notice is not None:
                self._publish_all(notice)

    def close(self) -> None:
        with self._lock:
            self._publish_all(self._counting.bye(self.now_ms()))

    def _publish_all(self, notice: Notice) -> None:
        unsent, self._unsent = self._unsent, []
        for one in (*unsent, notice):
            self._publish(one)

    def _publish(self, notice: Notice) -> None:
        def done(arrived: bool) -> None:
            if not arrived:
                with self._lock:
                    self._unsent.append(notice)

        try:
            self._send(notice, encode(notice), done)
        except BufferError:  # the client's queue is full: with the next one
            self._unsent.append(notice)


class Options(TypedDict, total=False):
    """What every producer and consumer that counts may be told."""

    topics: Iterable[str]
    """That it will use; those that it does use are added."""
    host: str | None
    window_ms: int
    audit_topic: str


class Audited:
    """What the helpers for both client libraries have in common: a member that counts, and a topic to publish to."""

    def __init__(
        self,
        tier: str,
        name: str,
        *,
        topics: Iterable[str] = (),
        host: str | None = None,
        window_ms: int = 600_000,
        audit_topic: str = AUDIT_TOPIC,
    ) -> None:
        self._audit_topic = audit_topic
        # Says hello at once: whoever is derived from this can send by now.
        member = this_member(tier, name, host)
        self._publisher = Publisher(member, self._send, window_ms=window_ms, topics=tuple(topics))

    def _send(self, notice: Notice, value: bytes, done: Callable[[bool], None]) -> None:
        raise NotImplementedError

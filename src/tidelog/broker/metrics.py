"""What the broker counts. Plain numbers, added up on the loop; `tidelog.node.metrics` gives them names and a page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.broker.api import Api


class TopicCounters:
    __slots__ = ("bytes_in", "bytes_out", "failed_fetches", "failed_produces", "fetches", "messages_in", "produces")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0


class Metrics:
    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self.topics: dict[str, TopicCounters] = {}
        self.connections_accepted = 0
        self.connections_open = 0
        self.connections_refused = 0
        self.connections_throttled = 0
        self.loop_lag_s_max = 0.0

    def answered(self, api: Api, received_s: float) -> None:
        api.count += 1
        api.seconds += self._monotonic_s() - received_s

    def topic(self, name: str) -> TopicCounters:
        """For names of topics that exist: a peer must not grow this map."""
        counters = self.topics.get(name)
        if counters is None:
            counters = self.topics[name] = TopicCounters()
        return counters

    def forget(self, topic: str) -> None:
        self.topics.pop(topic, None)

"""What the broker counts. Plain numbers, added up on the loop; `tidelog.node.metrics` gives them names and a page."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

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


class LoopLag:
    """How much later than it asked for a timer of the loop is called: the others wait as long for their turn."""

    BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
    _HALVED_AFTER_S: Final = 7.0

    def __init__(self) -> None:
        self.counts = [0] * (len(self.BOUNDS_S) + 1)
        """By the first bound that is not smaller; the last one is for what is above all."""
        self.total_s = 0.0
        self.worst_s = 0.0
        self.recent_s = 0.0
        """The longest of late: it fades."""

    def note(self, lag_s: float, interval_s: float) -> None:
        lag_s = max(lag_s, 0.0)
        self.counts[bisect_left(self.BOUNDS_S, lag_s)] += 1
        self.total_s += lag_s
        self.worst_s = max(self.worst_s, lag_s)
        self.recent_s = max(self.recent_s * 0.5 ** (interval_s / self._HALVED_AFTER_S), lag_s)


class Metrics:
    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self.topics: dict[str, TopicCounters] = {}
        self.connections_accepted = 0
        self.connections_open = 0
        self.connections_refused = 0
        self.connections_throttled = 0
        self.loop_lag = LoopLag()

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

"""What one producer or consumer counts, and when it has something to publish. No clock and no client: time comes in.

A record counts when it is acknowledged, in the window of its own time. A window is complete when it has passed and
nothing of it is under way. A notice goes out for each window that has passed, also for an empty one: silence is how a
member that died is known.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tidelog.audit.notices import Count, Notice, Position


class Member(NamedTuple):
    tier: str
    host: str
    name: str
    incarnation: str


class Counting:
    def __init__(self, member: Member, *, window_ms: int, now_ms: int, topics: tuple[str, ...] = ()) -> None:
        if window_ms < 1:
            raise ValueError(f"window_ms is {window_ms}; a window has at least 1 ms")
        self.member = member
        self._window_ms = window_ms
        self._started_ms = now_ms
        self._told_to_ms = self._begin(now_ms)
        self._sequence = 0
        self._topics = set(topics)
        self._counts: Counter[tuple[str, int]] = Counter()
        self._doubtful: Counter[tuple[str, int]] = Counter()
        self._under_way: Counter[int] = Counter()
        self._handed: dict[tuple[str, int], tuple[int, int]] = {}

    def hello(self) -> Notice:
        """To be published before the first record: it says that there is somebody to wait for."""
        return self._notice(self._told_to_ms)

    def sending(self, topic: str, time_ms: int) -> None:
        self._topics.add(topic)
        self._under_way[self._begin(time_ms)] += 1

    def not_sent(self, time_ms: int) -> None:
        """The client did not take what `sending` has announced."""
        self._landed(self._begin(time_ms))

    def sent(self, topic: str, time_ms: int, *, delivered: bool) -> None:
        """What became of a record that `sending` has announced."""
        begin = self._begin(time_ms)
        self._landed(begin)
        (self._counts if delivered else self._doubtful)[topic, begin] += 1

    def consumed(self, topic: str, time_ms: int, partition: int, offset: int) -> None:
        self._topics.add(topic)
        self._counts[topic, self._begin(time_ms)] += 1
        first, following = self._handed.get((topic, partition), (offset, offset + 1))
        self._handed[topic, partition] = (min(first, offset), max(following, offset + 1))

    def due(self, now_ms: int) -> Notice | None:
        """What is to be published now, if a window has passed since the last time."""
        complete_to_ms = min([self._begin(now_ms), *self._under_way])
        if complete_to_ms <= self._told_to_ms:
            return None
        self._told_to_ms = complete_to_ms
        return self._notice(complete_to_ms)

    def bye(self, now_ms: int) -> Notice:
        """The last notice. With records still under way it does not say that the member ended: nobody knows of them."""
        ended = not self._under_way
        complete_to_ms = min([now_ms + 1, *self._under_way])
        return self._notice(max(complete_to_ms, self._told_to_ms), ended=ended)

    def _notice(self, complete_to_ms: int, *, ended: bool = False) -> Notice:
        places = sorted(self._counts.keys() | self._doubtful.keys())
        counts = tuple(
            Count(topic=topic, begin_ms=begin, count=self._counts[topic, begin], doubtful=self._doubtful[topic, begin])
            for topic, begin in places
        )
        positions = tuple(
            Position(topic=topic, partition=partition, first=first, next=following)
            for (topic, partition), (first, following) in sorted(self._handed.items())
        )
        self._counts.clear()
        self._doubtful.clear()
        self._handed.clear()
        self._sequence += 1
        return Notice(
            **self.member._asdict(),
            sequence=self._sequence,
            started_ms=self._started_ms,
            window_ms=self._window_ms,
            complete_to_ms=complete_to_ms,
            ended=ended,
            topics=tuple(sorted(self._topics)),
            counts=counts,
            positions=positions,
        )

    def _landed(self, begin: int) -> None:
        self._under_way[begin] -= 1
        if not self._under_way[begin]:
            del self._under_way[begin]

    def _begin(self, time_ms: int) -> int:
        return time_ms // self._window_ms * self._window_ms

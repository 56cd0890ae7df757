"""What one member can do without, in the order in which it gives it away.

Partitions that are new to it come first, of the topic of which it has the most. The first member of a large group may
have to give away thousands, one by one, so each must cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import heapify, heappop, heapreplace


class Stock:
    __slots__ = ("_heap", "_is_fresh", "_own", "_parts", "_topics", "left")

    def __init__(
        self, own: dict[bytes, set[int]], target: Mapping[bytes, frozenset[int]], topics: Collection[bytes]
    ) -> None:
        """`own` is changed by what is taken, and by nobody else meanwhile."""
        self._own = own
        self._topics = sorted(topic_id for topic_id, part in own.items() if part and topic_id in topics)
        self.left = sum(len(own[topic_id]) for topic_id in self._topics)
        nothing: frozenset[int] = frozenset()
        self._is_fresh = True
        self._lay_out([own[topic_id] - target.get(topic_id, nothing) for topic_id in self._topics])

    def _lay_out(self, parts: list[set[int]]) -> None:
        self._parts = [sorted(part) for part in parts]
        self._heap = [
            (-len(self._own[topic_id]), -rank) for rank, topic_id in enumerate(self._topics) if self._parts[rank]
        ]
        heapify(self._heap)

    def take(self) -> tuple[bytes, int]:
        if not self._heap and self._is_fresh:
            self._is_fresh = False
            self._lay_out([self._own[topic_id] for topic_id in self._topics])
        count, rank = self._heap[0]
        topic_id, parts = self._topics[-rank], self._parts[-rank]
        partition = parts.pop()
        self._own[topic_id].remove(partition)
        self.left -= 1
        if parts:
            heapreplace(self._heap, (count + 1, rank))
        else:
            heappop(self._heap)
        return topic_id, partition

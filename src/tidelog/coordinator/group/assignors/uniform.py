"""`uniform`: as even as the subscriptions allow, with as little movement as that takes.

Topics with the same subscribers form a pool: any of its partitions may go to any of those members. Three steps:

1. Everyone keeps what it had and may still have.
2. What nobody has goes to the least loaded subscriber, the topics with the fewest subscribers first.
3. While some member of a pool has at least two partitions more than another, one partition moves.
4. While a chain of moves through several pools does the same, its partitions move.

With equal subscriptions there is one pool. Then no two members differ by more than one partition, and no assignment
with that property moves fewer: a partition only ever leaves a member that has too many or goes to one that has too few.
With different subscriptions nothing can be more even either, unless the search for chains was given up (SEARCH_MAX).

Each move, and each chain, makes the sum of the squares of the loads smaller, so this ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from tidelog.coordinator.chores import Work
from tidelog.coordinator.group.assignors.model import Assignment, Member, Topic
from tidelog.coordinator.group.assignors.pools import Pool, pools
from tidelog.coordinator.group.assignors.stock import Stock

SEARCH_MAX: Final = 50_000
"""How many members the search for chains may look at in a group with different subscriptions."""


def uniform_assignor(members: Mapping[str, Member], topics: Mapping[bytes, Topic]) -> Work[Assignment]:
    return _Assigning(members, topics).run()


class _Assigning:
    """One run. Members are numbered in the order of their ids, and ties are broken by these numbers."""

    def __init__(self, members: Mapping[str, Member], topics: Mapping[bytes, Topic]) -> None:
        self.ids = sorted(members)
        self.members = [members[member_id] for member_id in self.ids]
        self.topics = topics
        self.pools: list[Pool] = []
        """Those with the fewest subscribers first: they have the least choice."""
        self.changed: dict[int, dict[bytes, set[int]]] = {}
        """What the members have that do not have their target."""
        self.load: list[int] = []

    def run(self) -> Work[Assignment]:
        found = yield from pools(self.members, self.topics)
        self.pools = sorted(found, key=lambda pool: len(pool.subscribers))
        taken = yield from self._keep()
        for pool in self.pools:
            yield from self._fill(pool, taken)
        # A move in one pool can make room for one in a pool that was done before.
        moves = 1
        while moves:
            moves = 0
            for pool in self.pools:
                moves += yield from self._level(pool)
        if len(self.pools) > 1:
            yield from self._chain()
        assignment: Assignment = {}
        for number, member_id in enumerate(self.ids):
            own = assignment[member_id] = self._result(number)
            yield 2 + len(own)
        return assignment

    def _keep(self) -> Work[dict[bytes, set[int]]]:
        """Step 1: the partitions of each topic that somebody keeps."""
        taken: dict[bytes, set[int]] = {topic_id: set() for pool in self.pools for topic_id in pool.topics}
        for number, member in enumerate(self.members):
            load = 0
            for topic_id, partitions in member.target.items():
                seen = taken.get(topic_id)
                if seen is None or topic_id not in member.topics:
                    self._own(number).pop(topic_id)
                    continue
                count = self.topics[topic_id].partition_count
                if not seen.isdisjoint(partitions) or not _are_within(partitions, count):
                    partitions = frozenset(one for one in partitions - seen if 0 <= one < count)
                    self._own(number)[topic_id] = set(partitions)
                seen |= partitions
                load += len(partitions)
            self.load.append(load)
            yield 1 + 2 * len(member.target) + load // 16
        return taken

    def _fill(self, pool: Pool, taken: Mapping[bytes, set[int]]) -> Work[None]:
        """Step 2."""
        takers: list[tuple[int, int]] = []
        for topic_id in pool.topics:
            count, seen = self.topics[topic_id].partition_count, taken[topic_id]
            yield 2
            if len(seen) == count:
                continue
            if not takers:
                takers = [(self.load[number], number) for number in pool.subscribers]
                heapify(takers)
                yield len(takers) // 4
            for partition in range(count):
                if partition not in seen:
                    load, number = takers[0]
                    self._give(number, topic_id, partition)
                    heapreplace(takers, (load + 1, number))
                    yield 2

    def _level(self, pool: Pool) -> Work[bool]:
        """Step 3 within a pool; whether anything moved.

        A member that gives stays at or above the lowest load and one that takes stays below the highest, so neither
        has to be looked for in the other heap.
        """
        load = self.load
        loads = [load[number] for number in pool.subscribers]
        least = min(loads)
        yield 3 + len(loads) // 12
        if max(loads) <= least + 1:
            return False
        topics = frozenset(pool.topics)
        givers = [(-load[one], one) for one in pool.subscribers if load[one] > least + 1 and self._has_any(one, topics)]
        yield len(loads) // 6 + 2 * len(givers)
        if not givers:
            return False
        takers = [(load[number], number) for number in pool.subscribers]
        heapify(takers)
        heapify(givers)
        stocks: dict[int, Stock] = {}
        while givers and -givers[0][0] > takers[0][0] + 1:
            giver, taker = givers[0][1], takers[0][1]
            stock = stocks.get(giver)
            if stock is None:
                stock = stocks[giver] = Stock(self._own(giver), self.members[giver].target, topics)
                yield 8 + stock.left // 4
            self._give(taker, *stock.take())
            load[giver] -= 1
            heapreplace(takers, (load[taker], taker))
            if stock.left:
                heapreplace(givers, (-load[giver], giver))
            else:
                heappop(givers)
            yield 2
        return bool(stocks)

    def _chain(self) -> Work[None]:
        """Step 4, from the most loaded member down. Who finds nobody to give to is done: all whom it reaches have as
        much as it or one less, so no chain of another ends with them or leads through them."""
        pool_of = {topic_id: pool for pool in self.pools for topic_id in pool.topics}
        givers = [(-load, number) for number, load in enumerate(self.load)]
        heapify(givers)
        least, left = min(self.load), SEARCH_MAX
        while givers and left > 0 and -givers[0][0] > least + 1:
            giver = heappop(givers)[1]
            reached, taker = yield from self._reach(giver, pool_of)
            left -= len(reached)
            if taker is None:
                continue
            while taker != giver:
                before, pool = reached[taker]
                self._give(taker, *self._take(before, pool.topics))
                self.load[before] -= 1
                taker = before
                yield 15
            heappush(givers, (-self.load[giver], giver))

    def _reach(self, giver: int, pool_of: Mapping[bytes, Pool]) -> Work[tuple[dict[int, tuple[int, Pool]], int | None]]:
        """Breadth first, for the shortest chain: who got to a member and by which pool, and the member at its end."""
        reached: dict[int, tuple[int, Pool]] = {}
        seen: set[int] = set()
        members = deque([giver])
        while members:
            member = members.popleft()
            topics = sorted(self._topics_of(member))
            yield 2 + len(topics) // 3
            for topic_id in topics:
                pool = pool_of[topic_id]
                if id(pool) in seen:
                    continue
                seen.add(id(pool))
                for number in pool.subscribers:
                    if number != giver and number not in reached:
                        reached[number] = (member, pool)
                        if self.load[number] < self.load[giver] - 1:
                            return reached, number
                        members.append(number)
                yield 1 + len(pool.subscribers) // 4
        return reached, None

    def _topics_of(self, number: int) -> list[bytes]:
        own: Mapping[bytes, Collection[int]] | None = self.changed.get(number)
        return [topic_id for topic_id, part in (self.members[number].target if own is None else own).items() if part]

    def _has_any(self, number: int, topics: Collection[bytes]) -> bool:
        return any(topic_id in topics for topic_id in self._topics_of(number))

    def _own(self, number: int) -> dict[bytes, set[int]]:
        """What the member has, to be changed."""
        own = self.changed.get(number)
        if own is None:
            target = self.members[number].target
            own = self.changed[number] = {topic_id: set(partitions) for topic_id, partitions in target.items()}
        return own

    def _give(self, number: int, topic_id: bytes, partition: int) -> None:
        own = self._own(number)
        if topic_id in own:
            own[topic_id].add(partition)
        else:
            own[topic_id] = {partition}
        self.load[number] += 1

    def _take(self, number: int, topics: Collection[bytes]) -> tuple[bytes, int]:
        return Stock(self._own(number), self.members[number].target, topics).take()

    def _result(self, number: int) -> dict[bytes, frozenset[int]]:
        """Where nothing changed that is the very object that was given, so that the caller need not compare."""
        own, target = self.changed.get(number), self.members[number].target
        if own is None:
            return target if isinstance(target, dict) else dict(target)
        new = {topic_id: frozenset(partitions) for topic_id, partitions in own.items() if partitions}
        return target if isinstance(target, dict) and target == new else new


def _are_within(partitions: frozenset[int], count: int) -> bool:
    return bool(partitions) and min(partitions) >= 0 and max(partitions) < count

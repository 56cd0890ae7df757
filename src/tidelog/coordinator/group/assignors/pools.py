"""Topics by who subscribes to them. With equal subscriptions that is one pool, however many topics there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from tidelog.coordinator.chores import Work
from tidelog.coordinator.group.assignors.model import Member, Topic


class Pool:
    """Topics with the same subscribers, both in ascending order. Members are known by their numbers."""

    __slots__ = ("subscribers", "topics")

    def __init__(self, subscribers: list[int]) -> None:
        self.subscribers = subscribers
        self.topics: list[bytes] = []


def pools(members: Sequence[Member], topics: Mapping[bytes, Topic]) -> Work[list[Pool]]:
    """In the order of the first topic of each. Topics that do not exist are in none."""
    alike: dict[frozenset[bytes], list[int]] = defaultdict(list)
    for number, member in enumerate(members):
        same = alike[member.topics]
        # A set that is met for the first time is hashed.
        yield 1 if same else 2 + len(member.topics) // 16
        same.append(number)
    subscribed: dict[bytes, list[int]] = defaultdict(list)
    groups = list(alike.values())
    for index, subscription in enumerate(alike):
        for topic_id in subscription:
            if topic_id in topics:
                subscribed[topic_id].append(index)
        yield 2 + len(subscription) // 6
    found: dict[tuple[int, ...], Pool] = {}
    for topic_id in sorted(subscribed):
        key = tuple(subscribed[topic_id])
        if key not in found:
            found[key] = Pool(sorted(number for index in key for number in groups[index]))
            yield 3 + len(found[key].subscribers) // 4
        found[key].topics.append(topic_id)
        yield 2 + len(key) // 16
    return list(found.values())

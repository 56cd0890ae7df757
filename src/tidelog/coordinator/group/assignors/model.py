"""What an assignor is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from tidelog.coordinator.chores import Work


class Member(NamedTuple):
    instance_id: str | None
    rack_id: str | None
    """Not looked at: neither are racks by the assignors of Apache Kafka 4.3.1."""
    topics: frozenset[bytes]
    """Ids. Members with equal subscriptions should share one set: to compare them costs nothing then."""
    target: Mapping[bytes, frozenset[int]]
    """What the last target assignment gave it, whether it still makes sense or not."""


class Topic(NamedTuple):
    partition_count: int
    racks: Sequence[frozenset[str]] | None = None


Assignment: TypeAlias = dict[str, dict[bytes, frozenset[int]]]
"""For every member, also for those that get nothing. Topics without a partition are left out."""

Assignor: TypeAlias = Callable[[Mapping[str, Member], Mapping[bytes, Topic]], Work[Assignment]]
"""Topics that are subscribed to and not among the topics do not exist (any more). A thousand members with subscriptions
of their own take a tenth of a second, so it is work in slices; what it was given must not change meanwhile."""

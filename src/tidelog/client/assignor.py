"""The range assignor, as Java's consumer computes it: per topic, consecutive partitions to members in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.client.metadata import TopicPartition

NAME = "range"


class Subscriber(NamedTuple):
    member_id: str
    instance_id: str | None
    topics: tuple[str, ...]


def assign(subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """Partitions by member id; `partitions` is the number of partitions per topic, a missing topic has none."""
    assignment: dict[str, list[TopicPartition]] = {one.member_id: [] for one in subscribers}
    for topic in sorted({topic for one in subscribers for topic in one.topics}):
        members = sorted((one for one in subscribers if topic in one.topics), key=_order)
        each, extra = divmod(partitions.get(topic, 0), len(members))
        start = 0
        for index, member in enumerate(members):
            end = start + each + (1 if index < extra else 0)
            assignment[member.member_id] += [TopicPartition(topic, partition) for partition in range(start, end)]
            start = end
    return assignment


def _order(member: Subscriber) -> tuple[bool, str]:
    """Static members first, by their instance id, so that a restart with a new member id changes nothing."""
    return (member.instance_id is None, member.instance_id or member.member_id)

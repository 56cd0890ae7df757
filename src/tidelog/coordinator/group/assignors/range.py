"""`range`: of each topic, consecutive partitions to its subscribers in order, as the server-side one of 4.3.1 does.

Topics with equally many partitions and the same subscribers are cut alike, so that a member gets the same numbers of
each: joins need that (co-partitioning). What a member had before plays no part; what keeps partitions in place is the
order of the members. Static ones come first, by their instance id, so that a restart under another member id changes
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from tidelog.coordinator.chores import Work
from tidelog.coordinator.group.assignors.model import Assignment, Member, Topic
from tidelog.coordinator.group.assignors.pools import pools


def range_assignor(members: Mapping[str, Member], topics: Mapping[bytes, Topic]) -> Work[Assignment]:
    ids = sorted(members, key=lambda member_id: _order(member_id, members[member_id]))
    assignment: Assignment = {member_id: {} for member_id in ids}
    for pool in (yield from pools([members[member_id] for member_id in ids], topics)):
        subscribers = [assignment[ids[number]] for number in pool.subscribers]
        cuts: dict[int, list[frozenset[int]]] = {}
        yield 5 + len(subscribers) // 4
        for topic_id in pool.topics:
            count = topics[topic_id].partition_count
            ranges = cuts.get(count)
            if ranges is None:
                ranges = cuts[count] = _cut(count, len(subscribers))
                yield 3 + count // 4 + len(subscribers) // 4
            # Where there are fewer partitions than members, the last ones get none.
            for own, partitions in zip(subscribers, ranges, strict=False):
                own[topic_id] = partitions
            yield 1 + len(ranges) // 6
    for member_id, new in assignment.items():
        assignment[member_id] = _unchanged(members[member_id].target, new)
        yield 1 + len(new) // 6
    return assignment


def _order(member_id: str, member: Member) -> tuple[bool, str, str]:
    return (member.instance_id is None, member.instance_id or member_id, member_id)


def _cut(partition_count: int, parts: int) -> list[frozenset[int]]:
    """The ranges that hold something; with fewer partitions than parts that is one partition each."""
    each, extra = divmod(partition_count, parts)
    bounds = [part * each + min(part, extra) for part in range(parts + 1)]
    return [frozenset(range(start, end)) for start, end in pairwise(bounds) if start < end]


def _unchanged(old: Mapping[bytes, frozenset[int]], new: dict[bytes, frozenset[int]]) -> dict[bytes, frozenset[int]]:
    """The very object that was given where nothing changed, so that the caller need not compare."""
    return old if isinstance(old, dict) and old == new else new

"""The target assignment of a consumer group: what it is computed from, when, and its records.

At most one for each epoch of the group, and not one for each member that joins: the larger the group, the longer the
members that come meanwhile wait for the next one. Small groups do not wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

from tidelog.coordinator.chores import Work
from tidelog.coordinator.group.assignors import ASSIGNORS, Assignment, Member, Topic
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.model import Profile, Target
from tidelog.coordinator.group.consumer.records import ConsumerRecord, MemberTarget, TargetEpoch
from tidelog.coordinator.group.topics import Topics

_UNITS_PER_MS: Final = 10
"""Members and partitions for each millisecond that a group waits: what it costs to assign them, tenfold."""
_NO_WAIT_MS: Final = 50
"""Waits shorter than this are not worth a round trip of the member."""


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Of all that an assignor would see of the topics. Any change of it makes a new epoch."""
    digest = blake2b(digest_size=8)
    for name in sorted(names):
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            digest.update(b"%s%d:%s;" % (topic_id, topics.partition_count(name), name.encode()))
    return int.from_bytes(digest.digest(), "big", signed=True)


def wait_ms(group: ConsumerGroup, topics: Topics, interval_ms: int) -> int:
    """How long after the last target the next one may be computed."""
    units = len(group.members) + sum(map(topics.partition_count, group.topics()))
    wait = min(units // _UNITS_PER_MS, interval_ms)
    return 0 if wait < _NO_WAIT_MS else wait


def compute(group: ConsumerGroup, topics: Topics, default_assignor: str) -> Work[Assignment]:
    """For every member that is there at the first step, what it shall have."""
    known: dict[bytes, Topic] = {}
    ids: dict[str, bytes] = {}
    for name in group.topics():
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            ids[name] = topic_id
            known[topic_id] = Topic(topics.partition_count(name), None)
    preferred = group.preferred_assignor()
    profiles = list(group.members.items())
    yield 3 * len(known) + len(profiles)
    shared: dict[tuple[tuple[str, ...], str], frozenset[bytes]] = {}
    members: dict[str, Member] = {}
    for member_id, profile in profiles:
        before = len(shared)
        subscription = _subscription(group, profile, ids, shared)
        members[member_id] = Member(profile.instance_id, profile.rack_id, subscription, group.target(member_id))
        yield 2 if len(shared) == before else 4 + len(subscription) // 3
    assignor = ASSIGNORS.get(preferred or default_assignor) or ASSIGNORS[default_assignor]
    return (yield from assignor(members, known))


def _subscription(
    group: ConsumerGroup,
    profile: Profile,
    ids: Mapping[str, bytes],
    shared: dict[tuple[tuple[str, ...], str], frozenset[bytes]],
) -> frozenset[bytes]:
    """Members with equal subscriptions share one set, and assignors see that."""
    key = (profile.topics, profile.regex)
    found = shared.get(key)
    if found is None:
        found = shared[key] = frozenset(ids[name] for name in group.topics_of(profile) if name in ids)
    return found


def records_of(group: ConsumerGroup, targets: Mapping[str, Target], epoch: int, wall_ms: int) -> list[ConsumerRecord]:
    """What has changed, and last the epoch: until that is there, the group is one that waits for its target."""
    records: list[ConsumerRecord] = []
    for member_id, target in targets.items():
        if member_id not in group.members:
            continue
        before = group.targets.get(member_id)
        if before is None or (before is not target and before != target):
            records.append(MemberTarget(group.group_id, member_id, target))
    records.append(TargetEpoch(group.group_id, (epoch, wall_ms)))
    return records

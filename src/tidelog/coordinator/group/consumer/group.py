"""A consumer group as its records tell it. Changed by `replay` and nowhere else; decides nothing and sends nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from tidelog.coordinator.group.consumer.model import NEW_MEMBER, Current, Held, MemberState, Profile, Resolved, Target
from tidelog.coordinator.group.consumer.records import (
    ConsumerRecord,
    GroupEpoch,
    MemberCurrent,
    MemberProfile,
    MemberTarget,
    PartitionMetadata,
    ResolvedRegex,
    TargetEpoch,
)

V = TypeVar("V")
_NOTHING: Target = {}


class Live:
    """What of a group lives in memory and is made anew by whoever loads it."""

    __slots__ = (
        "busy_until_ms",
        "computed",
        "computing",
        "connections",
        "is_stale",
        "matched",
        "matching",
        "target_due_ms",
    )

    def __init__(self) -> None:
        self.is_stale = True
        """The topics may have changed since the hash of the epoch was taken."""
        self.target_due_ms = 0
        """Before then no other target is computed."""
        self.computing: object | None = None
        """While a target is computed, in slices: the one whose result counts."""
        self.computed: tuple[int, dict[str, dict[bytes, frozenset[int]]]] | None = None
        """A target, and its epoch, that is to be written."""
        self.matching: set[str] = set()
        """Regular expressions that are held against the topics, in slices."""
        self.matched: dict[str, tuple[frozenset[str], int]] = {}
        """The topics that one has matched, and the version of the metadata that they are from, to be written."""
        self.busy_until_ms = 0
        """Until then all members are asked to come back soon: others may follow the one that came or went."""
        self.connections: dict[str, int] = {}
        """The youngest connection of each member: what still comes out of an older one was sent by a member that has
        given it up. It may say that the member owns nothing, which was true then and is not now."""


class ConsumerGroup:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.live = Live()
        self.is_there = False
        """Whether there is an epoch record: without it the group was deleted, or its first record is on the way."""
        self.epoch = 0
        self.metadata_hash = 0
        self.has_partition_metadata = False
        self.members: dict[str, Profile] = {}
        self.currents: dict[str, Current] = {}
        self.targets: dict[str, Target] = {}
        self.target_epoch = 0
        self.has_target = False
        self.regexes: dict[str, Resolved] = {}
        self.static_ids: dict[str, str] = {}
        """Instance id -> member id."""
        self.classic_count = 0
        """Members that speak the classic protocol."""
        self._named: Counter[str] = Counter()
        self._patterned: Counter[str] = Counter()
        self._owners: dict[bytes, dict[int, str]] = {}

    # replay

    def replay(self, record: ConsumerRecord) -> None:
        match record:
            case GroupEpoch(_, value):
                self.is_there = value is not None
                self.epoch, self.metadata_hash = value or (0, 0)
            case PartitionMetadata(_, is_there):
                self.has_partition_metadata = is_there
            case MemberProfile(_, member_id, profile):
                self._replay_profile(member_id, profile)
            case TargetEpoch(_, target_epoch):
                self.has_target = target_epoch is not None
                self.target_epoch = 0 if target_epoch is None else target_epoch[0]
            case MemberTarget(_, member_id, target):
                _put(self.targets, member_id, target)
            case MemberCurrent(_, member_id, current):
                self._replay_current(member_id, current)
            case ResolvedRegex(_, regex, resolved):
                _put(self.regexes, regex, resolved)

    def _replay_profile(self, member_id: str, profile: Profile | None) -> None:
        before = self.members.get(member_id)
        if profile is None:
            self.live.connections.pop(member_id, None)
        if before is not None:
            self._count(before, -1)
            if before.instance_id is not None and self.static_ids.get(before.instance_id) == member_id:
                del self.static_ids[before.instance_id]
        _put(self.members, member_id, profile)
        if profile is not None:
            self._count(profile, 1)
            if profile.instance_id is not None:
                self.static_ids[profile.instance_id] = member_id

    def _count(self, profile: Profile, by: int) -> None:
        self.classic_count += by if profile.classic is not None else 0
        for name in profile.topics:
            self._named[name] += by
            if not self._named[name]:
                del self._named[name]
        if profile.regex:
            self._patterned[profile.regex] += by
            if not self._patterned[profile.regex]:
                del self._patterned[profile.regex]

    def _replay_current(self, member_id: str, current: Current | None) -> None:
        before = self.currents.get(member_id)
        if before is not None:
            for topic_id, partition in held_by(before):
                owners = self._owners.get(topic_id, {})
                if owners.get(partition) == member_id:
                    del owners[partition]
        _put(self.currents, member_id, current)
        if current is not None:
            for topic_id, partition in held_by(current):
                self._owners.setdefault(topic_id, {})[partition] = member_id

    # questions

    @property
    def is_unused(self) -> bool:
        """Nothing of it is left in the log."""
        return not (
            self.is_there
            or self.members
            or self.currents
            or self.targets
            or self.has_target
            or self.regexes
            or self.has_partition_metadata
        )

    def owner(self, topic_id: bytes, partition: int) -> str | None:
        """Who has the partition, or has not yet said that it has given it up."""
        return self._owners.get(topic_id, {}).get(partition)

    def current(self, member_id: str) -> Current:
        return self.currents.get(member_id, NEW_MEMBER)

    def target(self, member_id: str) -> Target:
        return self.targets.get(member_id, _NOTHING)

    def is_settled(self, member_id: str) -> bool:
        """Nothing is left to do for this member."""
        current = self.current(member_id)
        return current.state == MemberState.STABLE and current.epoch == self.target_epoch == self.epoch

    @property
    def state(self) -> str:
        """As ConsumerGroupDescribe and ListGroups name it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        return "Stable" if all(map(self.is_settled, self.members)) else "Reconciling"

    def uses_regex(self, regex: str) -> bool:
        return regex in self._patterned

    def used_regexes(self) -> list[str]:
        return sorted(self._patterned)

    def topics_of(self, profile: Profile) -> set[str]:
        resolved = self.regexes.get(profile.regex)
        return set(profile.topics) if resolved is None else {*profile.topics, *resolved.topics}

    def topics(
        self,
        *,
        without: Iterable[str] = (),
        plus: Profile | None = None,
        resolved: Mapping[str, Resolved] | None = None,
    ) -> set[str]:
        """All that is subscribed to by name or by a regular expression that is resolved; as if the members `without`
        were gone, one with the profile `plus` had come, and the expressions matched what `resolved` says."""
        regexes = self.regexes if resolved is None else {**self.regexes, **resolved}
        named, patterned = self._named, self._patterned
        gone = [self.members[member_id] for member_id in without if member_id in self.members]
        if gone:
            named, patterned = named.copy(), patterned.copy()
            for profile in gone:
                named.subtract(profile.topics)
                patterned.subtract([profile.regex])
        found = {name for name, count in named.items() if count > 0}
        for regex, count in patterned.items():
            if count > 0 and (matched := regexes.get(regex)) is not None:
                found |= matched.topics
        if plus is not None:
            found |= self.topics_of(plus)
        return found

    def is_subscribed(self, topic: str) -> bool:
        return topic in self._named or any(
            topic in resolved.topics for regex, resolved in self.regexes.items() if regex in self._patterned
        )

    def preferred_assignor(self) -> str | None:
        """The one that most members ask for."""
        votes = Counter(profile.assignor for profile in self.members.values() if profile.assignor is not None)
        return min(votes, key=lambda name: (-votes[name], name), default=None)

    # tombstones

    def removal_of(self, member_id: str) -> list[ConsumerRecord]:
        records: list[ConsumerRecord] = []
        if member_id in self.currents:
            records.append(MemberCurrent(self.group_id, member_id, None))
        if member_id in self.targets:
            records.append(MemberTarget(self.group_id, member_id, None))
        if member_id in self.members:
            records.append(MemberProfile(self.group_id, member_id, None))
        return records

    def removal(self) -> list[ConsumerRecord]:
        """Members before the group that has them, as Apache Kafka wants to read them."""
        group_id = self.group_id
        records: list[ConsumerRecord] = []
        records += [MemberCurrent(group_id, member_id, None) for member_id in self.currents]
        records += [MemberTarget(group_id, member_id, None) for member_id in self.targets]
        if self.has_target:
            records.append(TargetEpoch(group_id, None))
        records += [MemberProfile(group_id, member_id, None) for member_id in self.members]
        records += [ResolvedRegex(group_id, regex, None) for regex in self.regexes]
        if self.has_partition_metadata:
            records.append(PartitionMetadata(group_id, False))
        if self.is_there:
            records.append(GroupEpoch(group_id, None))
        return records


def held_by(current: Current) -> Iterator[tuple[bytes, int]]:
    """All that a member owns: what it has, and what it has not said to have given up."""
    return _each(current.assigned, current.revoking)


def _each(*parts: Held) -> Iterator[tuple[bytes, int]]:
    for held in parts:
        for topic_id, epochs in held.items():
            for partition in epochs:
                yield topic_id, partition


def _put(mapping: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value

"""A member's way through one request, whatever protocol it speaks: into the group, to the target, one step towards it.

A chain of up to three decisions: the member (and the group's next epoch), the target if it is due, and the member's own
step. Each is replayed before the next one is made, so each looks at the group as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.model import Profile, Target
from tidelog.coordinator.group.consumer.ownership import Owned, reconcile
from tidelog.coordinator.group.consumer.records import ConsumerRecord, MemberCurrent, MemberProfile, MemberTarget
from tidelog.coordinator.group.consumer.upkeep import Upkeep
from tidelog.coordinator.group.records import GroupRecord
from tidelog.coordinator.moment import Moment

T = TypeVar("T")
_log = logging.getLogger("tidelog.groups")


class Link(Protocol[T]):
    """Makes a decision that another one follows."""

    def __call__(
        self, records: Sequence[GroupRecord], then: Callable[[Moment], Decision[GroupRecord, T]]
    ) -> Decision[GroupRecord, T]: ...


class Way(NamedTuple, Generic[T]):
    group: ConsumerGroup
    member_id: str
    owned: Owned | None
    """What the member says that it owns."""
    link: Link[T]
    finish: Callable[[Moment], Decision[GroupRecord, T]]


class Steps:
    def __init__(self, upkeep: Upkeep) -> None:
        self._upkeep = upkeep

    def admit(
        self, group: ConsumerGroup, member_id: str, replaced: str | None, profile: Profile, now: Moment
    ) -> list[ConsumerRecord]:
        """Records of a member that is new, has changed, or takes the place of a static one that it was before."""
        before = group.members.get(replaced or member_id)
        records: list[ConsumerRecord] = []
        if replaced is not None:
            records += _replacement(group, replaced, member_id, profile)
        elif before != profile:
            records.append(MemberProfile(group.group_id, member_id, profile))
        gone = [replaced or member_id]
        if before is not None and before.regex != profile.regex:
            records += self._upkeep.unused_regexes(group, without=gone)
        if self._must_bump(group, before, profile):
            if before is None:
                _log.info("group %s: member %s joins", group.group_id, member_id)
            records += self._upkeep.next_epoch(group, now, without=gone, plus=profile)
        if profile.regex and profile.regex not in group.regexes:
            self._upkeep.resolve_soon(group, profile.regex, now.ms)
        return records

    def _must_bump(self, group: ConsumerGroup, before: Profile | None, profile: Profile) -> bool:
        if before is None or before.topics != profile.topics or not group.epoch:
            return True
        if before.regex != profile.regex and {before.regex, profile.regex} & group.regexes.keys():
            return True
        return self._upkeep.has_changed(group)

    def lead(self, way: Way[T], now: Moment) -> Decision[GroupRecord, T]:
        """The member is in the group, and the group has its epoch: on with the target."""
        group = way.group
        group.live.is_stale = False
        if self._upkeep.may_compute_at_once(group, now):
            return way.link(self._upkeep.target_records(group, now), lambda now: self._step(way, now))
        if group.epoch > group.target_epoch:
            self._upkeep.want_target(group, now)
        return self._step(way, now)

    def _step(self, way: Way[T], now: Moment) -> Decision[GroupRecord, T]:
        group, member_id = way.group, way.member_id
        self._upkeep.touch(group, member_id, now)
        current = group.current(member_id)

        def is_free(topic_id: bytes, partition: int) -> bool:
            return group.owner(topic_id, partition) in (None, member_id)

        target = self._subscribed_target(group, member_id)
        following = reconcile(current, group.target_epoch, target, way.owned, is_free)
        if following is current:
            return way.finish(now)
        records = (MemberCurrent(group.group_id, member_id, following),)
        return way.link(records, lambda now: self._stepped(way, now))

    def _stepped(self, way: Way[T], now: Moment) -> Decision[GroupRecord, T]:
        # Only a step begins the wait: a member that goes on owning what it should not does not prolong it.
        self._upkeep.watch_revocation(way.group, way.member_id, now)
        return way.finish(now)

    def _subscribed_target(self, group: ConsumerGroup, member_id: str) -> Target:
        """A target that waits for the next one may give topics that the member has left meanwhile."""
        target = group.target(member_id)
        if group.epoch == group.target_epoch:
            return target
        topics = self._upkeep.topics
        wanted = {topics.topic_id(name) for name in group.topics_of(group.members[member_id])}
        return {topic_id: partitions for topic_id, partitions in target.items() if topic_id in wanted}


def _replacement(group: ConsumerGroup, old_id: str, new_id: str, profile: Profile) -> list[ConsumerRecord]:
    """The new id takes over all that the old one had. No epoch changes: nobody else notices."""
    records = group.removal_of(old_id)
    records.append(MemberProfile(group.group_id, new_id, profile))
    records.append(MemberTarget(group.group_id, new_id, group.target(old_id)))
    records.append(MemberCurrent(group.group_id, new_id, group.current(old_id)._replace(epoch=0, previous_epoch=0)))
    return records

"""Live migration between the protocols (KIP-848): a classic group whose members are consumers becomes a consumer group
when the first consumer of the new protocol joins, and a classic one again when the last of those has gone."""

from __future__ import annotations

from tidelog.coordinator.group.classic import ClassicGroup
from tidelog.coordinator.group.config import GroupConfig
from tidelog.coordinator.group.consumer.embedded import read_assignment, read_subscription, write_assignment
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.model import ClassicSide, Current, Held, Profile, Target
from tidelog.coordinator.group.consumer.records import (
    ConsumerRecord,
    GroupEpoch,
    MemberCurrent,
    MemberProfile,
    MemberTarget,
    TargetEpoch,
)
from tidelog.coordinator.group.member import Member
from tidelog.coordinator.group.state import GroupState
from tidelog.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from tidelog.coordinator.group.topics import Topics
from tidelog.coordinator.moment import Moment

_UPGRADES = ("bidirectional", "upgrade")
_DOWNGRADES = ("bidirectional", "downgrade")


def why_not_upgrade(group: ClassicGroup, config: GroupConfig) -> str | None:
    if config.group_consumer_migration_policy not in _UPGRADES:
        return "it may not be migrated (group.consumer.migration.policy)"
    if not group.uses_consumer_protocol:
        return f"its protocol is {group.protocol_type}"
    if len(group.members) > config.group_consumer_max_size:
        return "it has too many members"
    return None


def upgrade(group: ClassicGroup, topics: Topics, now: Moment) -> list[ConsumerRecord] | str:
    """The same members with the same partitions, in the generation as their epoch; or why that cannot be."""
    group_id, epoch = group.group_id, group.generation
    profiles: list[ConsumerRecord] = []
    targets: list[ConsumerRecord] = []
    currents: list[ConsumerRecord] = []
    seen: set[tuple[bytes, int]] = set()
    for member_id, member in group.members.items():
        profile, target = _profile(member, group.protocol), _target(member, topics)
        if profile is None or isinstance(target, str):
            return target if isinstance(target, str) else f"the subscription of {member_id} cannot be read"
        parts = {(topic_id, partition) for topic_id, indexes in target.items() for partition in indexes}
        if parts & seen:
            return "its own assignor gives a partition to several members"
        seen |= parts
        held: Held = {topic_id: dict.fromkeys(indexes, epoch) for topic_id, indexes in target.items()}
        profiles.append(MemberProfile(group_id, member_id, profile))
        targets.append(MemberTarget(group_id, member_id, target))
        currents.append(MemberCurrent(group_id, member_id, Current(epoch, epoch, assigned=held)))
    head: list[ConsumerRecord] = [GroupEpoch(group_id, (epoch, 0))]
    return [*profiles, *head, *targets, TargetEpoch(group_id, (epoch, now.wall_ms)), *currents]


def _profile(member: Member, protocol: str | None) -> Profile | None:
    subscription = read_subscription(member.metadata(protocol) if protocol else member.protocols[0][1])
    if subscription is None:
        return None
    return Profile(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=subscription.topics,
        regex="",
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        assignor=None,
        classic=ClassicSide(member.session_timeout_ms, member.protocols),
    )


def _target(member: Member, topics: Topics) -> Target | str:
    assignment = read_assignment(member.assignment)
    if assignment is None:
        return f"the assignment of {member.member_id} cannot be read"
    if assignment.has_user_data:
        return "its own assignor keeps data in the assignments, which would be lost"
    named = ((topics.topic_id(name), indexes) for name, indexes in assignment.partitions.items())
    return {topic_id: indexes for topic_id, indexes in named if topic_id is not None and indexes}


def must_downgrade(group: ConsumerGroup, config: GroupConfig) -> bool:
    return (
        bool(group.members)
        and group.classic_count == len(group.members)
        and len(group.members) <= config.group_max_size
        and config.group_consumer_migration_policy in _DOWNGRADES
    )


def downgrade(group: ConsumerGroup, topics: Topics, now: Moment) -> ClassicGroup:
    """The classic group of the members that are left, as its record will say it."""
    classic = ClassicGroup(group.group_id, now.wall_ms)
    classic.state = classic.previous_state = GroupState.STABLE
    # The epoch that they know, not the one that their new target would have had: they are told to join again, and keep
    # what they have until they do.
    classic.generation = max(group.current(member_id).epoch for member_id in group.members)
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    for member_id, profile in group.members.items():
        assert profile.classic is not None, member_id
        member = Member(
            member_id=member_id,
            instance_id=profile.instance_id,
            client_id=profile.client_id,
            client_host=profile.client_host,
            rebalance_timeout_ms=profile.rebalance_timeout_ms,
            session_timeout_ms=profile.classic.session_timeout_ms,
            protocols=profile.classic.protocols,
            assignment=_assignment(group, member_id, topics),
        )
        classic.add(member, None)
    classic.protocol = classic.select_protocol()
    return classic


def _assignment(group: ConsumerGroup, member_id: str, topics: Topics) -> bytes:
    held = group.current(member_id).assigned
    return write_assignment(named({topic_id: frozenset(epochs) for topic_id, epochs in held.items()}, topics), 0)


def named(partitions: Target, topics: Topics) -> dict[str, frozenset[int]]:
    """By name, without topics that are gone."""
    found = ((topics.topic_name(topic_id), indexes) for topic_id, indexes in partitions.items())
    return {name: indexes for name, indexes in found if name is not None}

"""ConsumerGroupDescribe: a consumer group as administrators see it."""

from __future__ import annotations

from typing import Final

from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.model import Profile
from tidelog.coordinator.group.topics import Topics
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse as _Response

DescribedGroup = _Response.DescribedGroup
_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def describe(group: ConsumerGroup, topics: Topics, default_assignor: str) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[_member(group, member_id, profile, topics) for member_id, profile in group.members.items()],
    )


def _member(group: ConsumerGroup, member_id: str, profile: Profile, topics: Topics) -> _Response.Member:
    current = group.current(member_id)
    return _Response.Member(
        member_id=member_id,
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        member_epoch=current.epoch,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=list(profile.topics),
        subscribed_topic_regex=profile.regex,
        assignment=_assignment({topic_id: frozenset(epochs) for topic_id, epochs in current.assigned.items()}, topics),
        target_assignment=_assignment(dict(group.target(member_id)), topics),
        member_type=_CONSUMER_MEMBER if profile.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(partitions: dict[bytes, frozenset[int]], topics: Topics) -> _Response.Assignment:
    """Topics that are gone have no name to be shown by."""
    return _Response.Assignment(
        topic_partitions=[
            _Response.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
            for topic_id, indexes in sorted(partitions.items())
            if (name := topics.topic_name(topic_id)) is not None
        ]
    )


def describe_missing(group_id: str, *, is_classic: bool = False) -> DescribedGroup:
    message = f"Group {group_id} is not a consumer group." if is_classic else f"Group {group_id} not found."
    return DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message)

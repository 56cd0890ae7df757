"""DescribeGroups and ListGroups: a group as administrators see it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.coordinator.group.classic import ClassicGroup
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.member import Member
from tidelog.coordinator.group.state import GroupState
from tidelog.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.describe_groups import DescribeGroupsResponse
from tidelog.protocol.messages.list_groups import ListGroupsResponse

DescribedGroup = DescribeGroupsResponse.DescribedGroup
ListedGroup = ListGroupsResponse.ListedGroup
CLASSIC_TYPE: Final = "classic"
CONSUMER_TYPE: Final = "consumer"
_NOT_FOUND_FROM: Final = 6


def describe(group: ClassicGroup) -> DescribedGroup:
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=[_describe_member(member, group.protocol, is_stable) for member in group.members.values()],
    )


def _describe_member(
    member: Member, protocol: str | None, is_stable: bool
) -> DescribeGroupsResponse.DescribedGroupMember:
    """The metadata is shown while a generation is in force; the assignment stays until there is another."""
    return DescribeGroupsResponse.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol) if is_stable else b"",
        member_assignment=member.assignment,
    )


def describe_missing(group_id: str, version: int) -> DescribedGroup:
    if version < _NOT_FOUND_FROM:
        return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    return DescribedGroup(
        group_id=group_id,
        group_state=GroupState.DEAD.value,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} not found.",
    )


def describe_other(group_id: str, version: int) -> DescribedGroup:
    """A consumer group, to those who ask for a classic one."""
    described = describe_missing(group_id, version)
    if described.error_message is not None:
        described.error_message = f"Group {group_id} is not a classic group."
    return described


def list_groups(
    groups: Iterable[ClassicGroup | ConsumerGroup], states: list[str], types: list[str]
) -> list[ListedGroup]:
    """Filters match in any case; an empty one lets everything through."""
    wanted_states = {state.lower() for state in states}
    wanted_types = {group_type.lower() for group_type in types}
    listed = [_listed(group) for group in groups if not wanted_types or _type_of(group) in wanted_types]
    return [entry for entry in listed if not wanted_states or entry.group_state.lower() in wanted_states]


def _type_of(group: ClassicGroup | ConsumerGroup) -> str:
    return CLASSIC_TYPE if isinstance(group, ClassicGroup) else CONSUMER_TYPE


def _listed(group: ClassicGroup | ConsumerGroup) -> ListedGroup:
    if isinstance(group, ConsumerGroup):
        return ListedGroup(
            group_id=group.group_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            group_state=group.state,
            group_type=CONSUMER_TYPE,
        )
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC_TYPE,
    )

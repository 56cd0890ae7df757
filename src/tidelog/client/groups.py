"""Consumer groups as an administrator sees them: list, describe, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.consumer_protocol import decode_assignment
from tidelog.client.coordinators import Coordinators
from tidelog.client.errors import BrokerError, ClientError, UnsupportedApiError, check
from tidelog.client.fanout import fan_out
from tidelog.client.metadata import TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

CONSUMER_PROTOCOL: Final = "consumer"
DEAD: Final = "Dead"
_CLASSIC_MEMBER: Final = 0


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    """Empty when the broker is too old to tell."""
    type: str


class GroupMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None
    """Of the new protocol (KIP-848), as what follows."""
    target: tuple[TopicPartition, ...] | None = None
    """What it will have when it and the others have done what they were told."""
    is_classic: bool = False
    """It speaks the classic protocol in a group of the new one."""


class GroupDescription(NamedTuple):
    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    """Of the new protocol: it moves on with each change of members, subscriptions or topics."""
    target_epoch: int | None = None
    """The epoch that the target assignment was made for."""


async def list_groups(cluster: Cluster, states: Sequence[str] = ()) -> list[GroupListing]:
    """All groups of all brokers, sorted, in the given states only when some are named."""
    metadata = await cluster.retrying(lambda: cluster.refresh([]))
    found = await asyncio.gather(*(_groups_of(cluster, node, states) for node in sorted(metadata.brokers)))
    return sorted({group for groups in found for group in groups})


async def _groups_of(cluster: Cluster, node: int, states: Sequence[str]) -> list[GroupListing]:
    def request(version: int) -> ListGroupsRequest:
        return ListGroupsRequest(states_filter=list(states)) if version >= 4 else ListGroupsRequest()

    async def attempt() -> list[GroupListing]:
        answer = await cluster.call(node, request, ListGroupsRequest, ListGroupsResponse)
        check(answer.error_code, f"groups of broker {node}")
        return [GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in answer.groups]

    return await cluster.retrying(attempt)


async def describe_groups(cluster: Cluster, groups: Iterable[str]) -> dict[str, GroupDescription | ClientError]:
    """Groups of the new protocol (KIP-848) and classic ones; GROUP_ID_NOT_FOUND for one that does not exist."""
    wanted = list(groups)
    results = await fan_out(
        cluster, Coordinators(cluster), wanted, lambda node, part: _describe_new(cluster, node, part)
    )
    classic = [group for group in wanted if _is_not_new(results[group])]
    if classic:
        found = await fan_out(
            cluster, Coordinators(cluster), classic, lambda node, part: _describe_classic(cluster, node, part)
        )
        results.update(found)
    return results


def _is_not_new(result: GroupDescription | ClientError) -> bool:
    if isinstance(result, UnsupportedApiError):
        return True
    codes = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
    return isinstance(result, BrokerError) and result.code in codes


async def _describe_new(
    cluster: Cluster, node: int, groups: Sequence[str]
) -> Mapping[str, GroupDescription | ClientError]:
    request = ConsumerGroupDescribeRequest(group_ids=list(groups))
    answer = await cluster.call(node, request, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse)
    results: dict[str, GroupDescription | ClientError] = {}
    for group in answer.groups:
        if group.error_code != ErrorCode.NONE:
            results[group.group_id] = BrokerError(group.error_code, f"group {group.group_id}", group.error_message)
            continue
        members = tuple(_new_member(member) for member in group.members)
        results[group.group_id] = GroupDescription(
            group.group_id,
            "Consumer",
            group.group_state,
            CONSUMER_PROTOCOL,
            group.assignor_name,
            node,
            members,
            group.group_epoch,
            group.assignment_epoch,
        )
    return results


def _new_member(member: ConsumerGroupDescribeResponse.Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _partitions(member.assignment),
        member.member_epoch,
        _partitions(member.target_assignment),
        member.member_type == _CLASSIC_MEMBER,
    )


def _partitions(assignment: ConsumerGroupDescribeResponse.Assignment) -> tuple[TopicPartition, ...]:
    found = (TopicPartition(topic.topic_name, one) for topic in assignment.topic_partitions for one in topic.partitions)
    return tuple(sorted(found))


async def _describe_classic(
    cluster: Cluster, node: int, groups: Sequence[str]
) -> Mapping[str, GroupDescription | ClientError]:
    request = DescribeGroupsRequest(groups=list(groups))
    answer = await cluster.call(node, request, DescribeGroupsRequest, DescribeGroupsResponse)
    results: dict[str, GroupDescription | ClientError] = {}
    for group in answer.groups:
        if group.error_code != ErrorCode.NONE:
            results[group.group_id] = BrokerError(group.error_code, f"group {group.group_id}", group.error_message)
        elif group.group_state == DEAD:
            # Until version 6 that is how a broker says that there is none.
            results[group.group_id] = BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id}")
        else:
            results[group.group_id] = _classic_group(group, node)
    return results


def _classic_group(group: DescribeGroupsResponse.DescribedGroup, node: int) -> GroupDescription:
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            decode_assignment(member.member_assignment) if group.protocol_type == CONSUMER_PROTOCOL else (),
        )
        for member in group.members
    )
    return GroupDescription(
        group.group_id, "Classic", group.group_state, group.protocol_type, group.protocol_data, node, members
    )


async def delete_groups(cluster: Cluster, groups: Iterable[str]) -> dict[str, ClientError | None]:
    async def ask(node: int, part: Sequence[str]) -> Mapping[str, ClientError | None]:
        request = DeleteGroupsRequest(groups_names=list(part))
        answer = await cluster.call(node, request, DeleteGroupsRequest, DeleteGroupsResponse)
        return {
            found.group_id: BrokerError(found.error_code, f"group {found.group_id}", found.error_message)
            if found.error_code
            else None
            for found in answer.results
        }

    return await fan_out(cluster, Coordinators(cluster), groups, ask)

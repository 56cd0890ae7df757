"""The offsets that a group has committed: fetch, commit, delete. For members and for administrators alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct

from tidelog.client.cluster import Cluster
from tidelog.client.connection import Request
from tidelog.client.consumer_protocol import by_topic
from tidelog.client.coordinators import Coordinators
from tidelog.client.errors import BrokerError, ClientError, check
from tidelog.client.metadata import TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tidelog.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

ResponseT = TypeVar("ResponseT", bound=Struct)

_LAST_VERSION_WITH_NAMES: Final = 9
_FIRST_FETCH_OF_GROUPS: Final = 8
_FIRST_REQUIRE_STABLE: Final = 7


class Committed(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Membership(NamedTuple):
    """Who commits. The default is an administrator, whom the coordinator lets in only while the group is empty."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


async def ask_coordinator(
    cluster: Cluster,
    group: str,
    request: Request,
    shape: type[Struct],
    response: type[ResponseT],
    *,
    highest: int | None = None,
    timeout_s: float | None = None,
) -> tuple[ResponseT, int]:
    """(answer, version) of one request to the group's coordinator; no retry, but its place is forgotten on failure."""
    coordinators = Coordinators(cluster)
    node = await coordinators.find(group)
    try:
        connection = await cluster.connection(node, "group")
        version = connection.version_of(shape, highest)
        return await connection.call(request, response, version=version, timeout_s=timeout_s), version
    except ClientError:
        coordinators.forget(group)
        raise


def check_group(cluster: Cluster, number: int, group: str) -> None:
    """Raise for an error code of a coordinator's answer; forget the coordinator if it is not one (any more)."""
    if number in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        Coordinators(cluster).forget(group)
    check(number, f"group {group}")


async def fetch_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
) -> dict[TopicPartition, Committed]:
    """What is committed, of the given partitions or of all; a partition without a commit is left out."""
    topics = None if partitions is None else by_topic(partitions)

    def request(version: int) -> OffsetFetchRequest:
        stable = require_stable and version >= _FIRST_REQUIRE_STABLE
        if version < _FIRST_FETCH_OF_GROUPS:
            return OffsetFetchRequest(group_id=group, topics=_old_topics(topics), require_stable=stable)
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=_new_topics(topics))
        return OffsetFetchRequest(groups=[wanted], require_stable=stable)

    async def attempt() -> dict[TopicPartition, Committed]:
        answer, version = await ask_coordinator(
            cluster, group, request, OffsetFetchRequest, OffsetFetchResponse, highest=_LAST_VERSION_WITH_NAMES
        )
        code = answer.error_code if version < _FIRST_FETCH_OF_GROUPS else answer.groups[0].error_code
        check_group(cluster, code, group)
        return _committed(answer.topics if version < _FIRST_FETCH_OF_GROUPS else answer.groups[0].topics)

    return await cluster.retrying(attempt)


async def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    *,
    member: Membership | None = None,
    timeout_s: float | None = None,
) -> dict[TopicPartition, ClientError | None]:
    """Commit; a result per partition. An error of the whole group (a stale generation, say) is raised."""
    member = member or Membership()
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name=topic,
            partitions=[_commit_part(index, offsets[TopicPartition(topic, index)]) for index in indexes],
        )
        for topic, indexes in by_topic(offsets).items()
    ]

    def request(version: int) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id if version >= 7 else None,
            topics=topics,
        )

    async def attempt() -> dict[TopicPartition, ClientError | None]:
        answer, _ = await ask_coordinator(
            cluster, group, request, OffsetCommitRequest, OffsetCommitResponse, highest=_LAST_VERSION_WITH_NAMES
        )
        codes = {
            TopicPartition(topic.name, found.partition_index): found.error_code
            for topic in answer.topics
            for found in topic.partitions
        }
        for code in codes.values():
            if code in _OF_THE_GROUP or code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                check_group(cluster, code, group)
        return {at: None if code == ErrorCode.NONE else BrokerError(code, str(at)) for at, code in codes.items()}

    return await cluster.retrying(attempt, timeout_s=timeout_s) if offsets else {}


async def delete_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ClientError | None]:
    topics = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(
            name=topic,
            partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
        )
        for topic, indexes in by_topic(partitions).items()
    ]

    async def attempt() -> dict[TopicPartition, ClientError | None]:
        request = OffsetDeleteRequest(group_id=group, topics=topics)
        answer, _ = await ask_coordinator(cluster, group, request, OffsetDeleteRequest, OffsetDeleteResponse)
        check_group(cluster, answer.error_code, group)
        return {
            TopicPartition(topic.name, found.partition_index): BrokerError(
                found.error_code, f"{topic.name}-{found.partition_index}"
            )
            if found.error_code
            else None
            for topic in answer.topics
            for found in topic.partitions
        }

    return await cluster.retrying(attempt)


_OF_THE_GROUP: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


def _old_topics(topics: Mapping[str, list[int]] | None) -> list[OffsetFetchRequest.OffsetFetchRequestTopic] | None:
    if topics is None:
        return None
    return [
        OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
        for topic, indexes in topics.items()
    ]


def _new_topics(topics: Mapping[str, list[int]] | None) -> list[OffsetFetchRequest.OffsetFetchRequestTopics] | None:
    if topics is None:
        return None
    return [
        OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
        for topic, indexes in topics.items()
    ]


def _committed(
    topics: Iterable[OffsetFetchResponse.OffsetFetchResponseTopic | OffsetFetchResponse.OffsetFetchResponseTopics],
) -> dict[TopicPartition, Committed]:
    results: dict[TopicPartition, Committed] = {}
    for topic in topics:
        for found in topic.partitions:
            at = TopicPartition(topic.name, found.partition_index)
            check(found.error_code, str(at))
            if found.committed_offset >= 0:
                results[at] = Committed(found.committed_offset, found.committed_leader_epoch, found.metadata or "")
    return results


def _commit_part(index: int, committed: Committed) -> OffsetCommitRequest.OffsetCommitRequestPartition:
    return OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        committed_metadata=committed.metadata,
    )

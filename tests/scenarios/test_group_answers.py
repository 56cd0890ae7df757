"""The same requests to Tidelog and to Apache Kafka: every field of every answer of the group APIs must be the same.

Member ids are numbered in the order in which they appear; members are sorted, since Kafka keeps them in no order.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import Struct

from tests.scenarios.consumer_group_scenes import CONSUMER_SCENES
from tidelog.coordinator.partitioning import partition_for
from tidelog.protocol.batch import Record, iter_headers, iter_records
from tidelog.protocol.codec import encode
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tidelog.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.protocol.records_framing import decode_coordinator_key, decode_coordinator_value
from tidelog.testing import Broker
from tidelog.testing.wire import Wire
from tools.apache import ApacheKafka, why_not

_MEMBER_ID = re.compile(r"(\w*)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_RESPONSES: dict[type[Struct], type[Struct]] = {
    ConsumerGroupDescribeRequest: ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest: ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest: DeleteGroupsResponse,
    DescribeGroupsRequest: DescribeGroupsResponse,
    HeartbeatRequest: HeartbeatResponse,
    JoinGroupRequest: JoinGroupResponse,
    LeaveGroupRequest: LeaveGroupResponse,
    ListGroupsRequest: ListGroupsResponse,
    OffsetCommitRequest: OffsetCommitResponse,
    OffsetDeleteRequest: OffsetDeleteResponse,
    OffsetFetchRequest: OffsetFetchResponse,
    SyncGroupRequest: SyncGroupResponse,
}
Identity = LeaveGroupRequest.MemberIdentity
READY_S = 40.0


class Scene:
    """Clients by name, each with a connection, and a transcript of all they were told."""

    def __init__(self, bootstrap: str, group: str, topic_ids: dict[str, bytes]) -> None:
        self.group = group
        self.topic_ids = topic_ids
        self.lines: list[str] = []
        self._bootstrap = bootstrap
        self._wires: dict[str, Wire] = {}
        self._waiting: dict[str, tuple[type[Struct], int]] = {}
        self._names: dict[str, str] = {}

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    def send(self, client: str, request: Struct, version: int) -> None:
        if client not in self._wires:
            self._wires[client] = Wire(self._bootstrap, client_id=client)
        self._wires[client].send(request, version)
        self._waiting[client] = (_RESPONSES[type(request)], version)

    def receive(self, client: str) -> Any:
        shape, version = self._waiting.pop(client)
        response: Any = self._wires[client].receive(shape, version)
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = 0
        _sort(response, {topic_id: name for name, topic_id in self.topic_ids.items()})
        text = _MEMBER_ID.sub(lambda found: self._short(found[0], found[1]), repr(response))
        for name, topic_id in self.topic_ids.items():
            text = text.replace(repr(topic_id), f"<id of {name}>")
        self.lines.append(f"{client} v{version}: {text}")
        return response

    def call(self, client: str, request: Struct, version: int) -> Any:
        self.send(client, request, version)
        return self.receive(client)

    def _short(self, member_id: str, head: str) -> str:
        return self._names.setdefault(member_id, f"{head}#{len(self._names)}")

    # requests

    def join_request(self, member_id: str = "", **fields: Any) -> JoinGroupRequest:
        protocols = fields.pop("protocols", {"range": subscription("t")})
        defaults: dict[str, Any] = {
            "group_id": self.group,
            "member_id": member_id,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "consumer",
            "protocols": [
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols.items()
            ],
        }
        return JoinGroupRequest(**{**defaults, **fields})

    def joined(self, client: str, version: int = 7, **fields: Any) -> tuple[str, int]:
        """Join, in two steps where the version wants it; the member id and the generation."""
        response = self.call(client, self.join_request(**fields), version)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            response = self.call(client, self.join_request(response.member_id, **fields), version)
        return response.member_id, response.generation_id

    def sync_request(self, member_id: str, generation: int, **fields: Any) -> SyncGroupRequest:
        assignments = fields.pop("assignments", {})
        defaults: dict[str, Any] = {
            "group_id": self.group,
            "member_id": member_id,
            "generation_id": generation,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=assignment)
                for name, assignment in assignments.items()
            ],
        }
        return SyncGroupRequest(**{**defaults, **fields})

    def stable(self, client: str = "a", **fields: Any) -> tuple[str, int]:
        """A group of one member."""
        member_id, generation = self.joined(client, **fields)
        instance = {"group_instance_id": fields["group_instance_id"]} if "group_instance_id" in fields else {}
        protocol_type = fields.get("protocol_type", "consumer")
        request = self.sync_request(
            member_id, generation, assignments={member_id: b"mine"}, protocol_type=protocol_type, **instance
        )
        self.call(client, request, 5)
        return member_id, generation

    def heartbeat(self, client: str, member_id: str, generation: int, version: int = 4, **fields: Any) -> None:
        request = HeartbeatRequest(
            **{"group_id": self.group, "member_id": member_id, "generation_id": generation, **fields}
        )
        self.call(client, request, version)

    def commit_request(self, version: int, topics: dict[str, dict[int, int]], **fields: Any) -> OffsetCommitRequest:
        metadata = fields.pop("metadata", "note")
        partition = OffsetCommitRequest.OffsetCommitRequestPartition
        return OffsetCommitRequest(
            **{
                "group_id": self.group,
                "topics": [
                    OffsetCommitRequest.OffsetCommitRequestTopic(
                        name=name if version < 10 else "",
                        topic_id=self.topic_ids.get(name, b"\x07" * 16) if version >= 10 else bytes(16),
                        partitions=[
                            partition(
                                partition_index=index,
                                committed_offset=offset,
                                committed_leader_epoch=2 if version >= 6 else -1,
                                committed_metadata=metadata,
                            )
                            for index, offset in partitions.items()
                        ],
                    )
                    for name, partitions in topics.items()
                ],
                **fields,
            }
        )

    def commit(self, client: str, version: int, topics: dict[str, dict[int, int]], **fields: Any) -> None:
        self.call(client, self.commit_request(version, topics, **fields), version)

    def fetch(self, client: str, version: int, topics: dict[str, list[int]] | None, *groups: str) -> None:
        if version < 8:
            asked = [
                OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=partitions)
                for name, partitions in (topics or {}).items()
            ]
            request = OffsetFetchRequest(group_id=self.group, topics=None if topics is None else asked)
        else:
            request = OffsetFetchRequest(groups=[self._fetch_group(name, version, topics) for name in groups])
        self.call(client, request, version)

    def _fetch_group(
        self, group: str, version: int, topics: dict[str, list[int]] | None
    ) -> OffsetFetchRequest.OffsetFetchRequestGroup:
        asked = [
            OffsetFetchRequest.OffsetFetchRequestTopics(
                name=name if version < 10 else "",
                topic_id=self.topic_ids.get(name, b"\x07" * 16) if version >= 10 else bytes(16),
                partition_indexes=partitions,
            )
            for name, partitions in (topics or {}).items()
        ]
        return OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None if topics is None else asked)


def _sort(response: Any, names: dict[bytes, str]) -> None:
    if isinstance(response, JoinGroupResponse):
        response.members.sort(key=lambda member: member.member_id)
    if isinstance(response, DescribeGroupsResponse):
        response.groups.sort(key=lambda group: group.group_id)
        for described in response.groups:
            described.members.sort(key=lambda member: member.member_id)
    if isinstance(response, DeleteGroupsResponse):
        response.results.sort(key=lambda result: result.group_id)
    if isinstance(response, OffsetFetchResponse):
        response.groups.sort(key=lambda group: group.group_id)
        for fetched in response.groups:
            _sort_topics(fetched.topics, names)
    if isinstance(response, OffsetFetchResponse | OffsetCommitResponse | OffsetDeleteResponse):
        _sort_topics(response.topics, names)


def _sort_topics(topics: list[Any], names: dict[bytes, str]) -> None:
    topics.sort(key=lambda topic: topic.name or names.get(topic.topic_id, ""))
    for topic in topics:
        topic.partitions.sort(key=lambda partition: partition.partition_index)


def subscription(*topics: str) -> bytes:
    return b"\x00\x00" + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


# the scenes


def joins_that_are_refused(scene: Scene) -> None:
    refused: list[dict[str, Any]] = [
        {"group_id": ""},
        {"session_timeout_ms": 5_999},
        {"session_timeout_ms": 1_800_001},
        {"protocol_type": ""},
        {"protocols": {}},
        {"member_id": "nobody"},
    ]
    for version in range(10):
        for fields in refused:
            scene.call("a", scene.join_request(**fields), version)


def joins_of_every_version(scene: Scene) -> None:
    group = scene.group
    for version in range(10):
        scene.group = f"{group}-{version}"
        member_id, generation = scene.joined("a", version)
        scene.call("a", scene.sync_request(member_id, generation, assignments={member_id: b"mine"}), min(version, 5))


def members_that_do_not_fit(scene: Scene) -> None:
    member_id, _ = scene.stable(protocols={"range": b"", "roundrobin": b""})
    scene.call("b", scene.join_request(protocol_type="connect"), 7)
    scene.call("b", scene.join_request(protocols={"sticky": b""}), 7)
    scene.call("b", scene.join_request("nobody"), 7)
    scene.call("b", scene.join_request(member_id, group_instance_id="i"), 7)


def a_rebalance_of_two(scene: Scene) -> None:
    first, generation = scene.stable(protocols={"range": b"x", "roundrobin": b"y"})
    pending = scene.call("b", scene.join_request(protocols={"roundrobin": b"z"}), 9).member_id
    scene.send("b", scene.join_request(pending, protocols={"roundrobin": b"z"}), 9)
    _until_rebalancing(scene, first, generation)
    scene.heartbeat("c", first, generation)
    scene.call("c", scene.sync_request(first, generation), 5)
    scene.commit("c", 7, {"t": {0: 4}}, member_id=first, generation_id_or_member_epoch=generation)
    scene.call("c", DescribeGroupsRequest(groups=[scene.group]), 5)
    scene.send("a", scene.join_request(first, protocols={"range": b"x", "roundrobin": b"y"}), 9)
    leader = scene.receive("a")
    scene.receive("b")
    scene.call("c", DescribeGroupsRequest(groups=[scene.group]), 5)
    scene.heartbeat("c", pending, leader.generation_id)
    scene.heartbeat("c", pending, generation)
    scene.commit("c", 7, {"t": {0: 5}}, member_id=first, generation_id_or_member_epoch=leader.generation_id)
    scene.commit("c", 7, {"t": {0: 6}}, member_id=first, generation_id_or_member_epoch=generation)
    fields: dict[str, Any] = {"protocol_name": "roundrobin"}
    request = scene.sync_request(first, leader.generation_id, assignments={first: b"1", pending: b"2"}, **fields)
    scene.call("a", request, 5)
    scene.call("b", scene.sync_request(pending, leader.generation_id, **fields), 5)
    scene.call("b", scene.join_request(pending, protocols={"roundrobin": b"z"}), 9)
    scene.call("c", DescribeGroupsRequest(groups=[scene.group]), 5)


def _until_rebalancing(scene: Scene, member_id: str, generation: int) -> None:
    """The JoinGroup of another connection has arrived."""
    request = HeartbeatRequest(group_id=scene.group, member_id=member_id, generation_id=generation)
    for _ in range(200):
        response = scene.call("probe", request, 4)
        scene.lines.pop()
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return
        time.sleep(0.01)
    raise AssertionError("the other member has not joined")


def syncs_that_are_refused(scene: Scene) -> None:
    for version in range(6):
        scene.call("a", scene.sync_request("nobody", 1), version)
        scene.call("a", scene.sync_request("nobody", 1, group_id=""), version)
    scene.call("a", scene.sync_request("nobody", 1, protocol_type=None), 5)
    scene.call("a", scene.sync_request("nobody", 1, protocol_name=None), 5)
    member_id, generation = scene.stable()
    scene.call("a", scene.sync_request("nobody", generation), 5)
    scene.call("a", scene.sync_request(member_id, generation - 1), 5)
    scene.call("a", scene.sync_request(member_id, generation + 1), 5)
    scene.call("a", scene.sync_request(member_id, generation, protocol_type="connect"), 5)
    scene.call("a", scene.sync_request(member_id, generation, protocol_name="roundrobin"), 5)
    scene.call("a", scene.sync_request(member_id, generation, group_instance_id="i"), 5)
    scene.call("a", scene.sync_request(member_id, generation), 0)


def heartbeats_that_are_refused(scene: Scene) -> None:
    for version in range(5):
        scene.heartbeat("a", "nobody", 1, version)
        scene.heartbeat("a", "nobody", 1, version, group_id="")
    member_id, generation = scene.stable()
    scene.heartbeat("a", "nobody", generation)
    scene.heartbeat("a", member_id, generation - 1)
    scene.heartbeat("a", member_id, generation + 1)
    scene.heartbeat("a", member_id, generation, group_instance_id="i")
    scene.heartbeat("a", member_id, generation)


def leaving(scene: Scene) -> None:
    def leave_as_nobody(version: int, group: str) -> None:
        members = [Identity(member_id="nobody")]
        fields: dict[str, Any] = {"members": members} if version >= 3 else {"member_id": "nobody"}
        scene.call("a", LeaveGroupRequest(group_id=group, **fields), version)

    for version in range(6):
        leave_as_nobody(version, scene.group)
        leave_as_nobody(version, "")
    member_id, _ = scene.stable()
    for version in range(6):
        leave_as_nobody(version, scene.group)
    members = [
        Identity(member_id="nobody"),
        Identity(member_id="", group_instance_id="nobody"),
        Identity(member_id=""),
        Identity(member_id=member_id, group_instance_id="i"),
        Identity(member_id=member_id),
        Identity(member_id=member_id),
    ]
    scene.call("a", LeaveGroupRequest(group_id=scene.group, members=members), 4)
    scene.call("a", LeaveGroupRequest(group_id=scene.group, members=[]), 4)
    scene.call("a", DescribeGroupsRequest(groups=[scene.group]), 5)
    pending = scene.call("a", scene.join_request(), 9).member_id
    scene.call("a", LeaveGroupRequest(group_id=scene.group, members=[Identity(member_id=pending)]), 4)
    scene.call("a", scene.join_request(pending), 9)


def static_members(scene: Scene) -> None:
    first, generation = scene.stable("a", version=7, group_instance_id="i")
    for version in (5, 8, 9):
        response = scene.call("b", scene.join_request(group_instance_id="i"), version)
    second = response.member_id
    fenced: dict[str, Any] = {"group_instance_id": "i"}
    scene.heartbeat("a", first, generation, **fenced)
    scene.heartbeat("a", first, generation)
    scene.call("a", scene.sync_request(first, generation, **fenced), 5)
    scene.call("a", scene.join_request(first, **fenced), 7)
    scene.commit("a", 7, {"t": {0: 1}}, member_id=first, generation_id_or_member_epoch=generation, **fenced)
    members = [Identity(member_id=first, group_instance_id="i")]
    scene.call("a", LeaveGroupRequest(group_id=scene.group, members=members), 4)
    scene.call("b", scene.sync_request(second, generation, **fenced), 5)
    scene.heartbeat("b", second, generation, **fenced)
    scene.call("b", DescribeGroupsRequest(groups=[scene.group]), 5)
    scene.call("b", scene.join_request(group_instance_id="i", protocols={"sticky": b""}), 7)
    members = [Identity(member_id="", group_instance_id="i")]
    scene.call("z", LeaveGroupRequest(group_id=scene.group, members=members), 4)
    scene.call("z", DescribeGroupsRequest(groups=[scene.group]), 5)


def commits_without_a_group(scene: Scene) -> None:
    for version in range(2, 11):
        scene.commit("a", version, {"t": {0: version}})
        scene.commit("a", version, {"t": {0: 5, 9: 5}, "gone": {0: 1}})
        scene.commit("a", version, {"gone": {0: 1}}, generation_id_or_member_epoch=3, member_id="nobody")
        scene.commit("a", version, {})
        scene.commit("a", version, {"t": {1: 5}}, metadata=None)
        scene.commit("a", version, {"t": {2: 5}}, metadata="x" * 4_097)
        scene.commit("a", version, {"t": {0: 5}}, group_id="")
        none = f"{scene.group}-none"
        fields: dict[str, Any] = {"group_id": none, "generation_id_or_member_epoch": 3, "member_id": "nobody"}
        scene.commit("a", version, {"t": {0: 5}}, **fields)
    scene.commit("a", 3, {"t": {3: 5}}, retention_time_ms=1_000_000)
    scene.fetch("a", 7, None)


def commits_to_a_group(scene: Scene) -> None:
    member_id, generation = scene.stable()
    for version in range(2, 11):
        for name, epoch in ((member_id, generation), (member_id, generation - 1), (member_id, generation + 1)):
            scene.commit("a", version, {"t": {0: 5}}, member_id=name, generation_id_or_member_epoch=epoch)
        scene.commit("a", version, {"t": {0: 5}}, member_id="nobody", generation_id_or_member_epoch=generation)
        scene.commit("a", version, {"t": {0: 5}}, member_id="nobody", generation_id_or_member_epoch=-1)
        scene.commit("a", version, {"t": {0: 5}})


def fetches_of_every_version(scene: Scene) -> None:
    scene.commit("a", 7, {"t": {0: 5, 2: 7}, "u": {1: 6}})
    for version in range(1, 11):
        groups = (scene.group, f"{scene.group}-none", "")
        scene.fetch("a", version, {"t": [0, 1, 2, 9], "gone": [0], "u": []}, *groups)
        scene.fetch("a", version, {}, *groups)
        if version >= 2:
            scene.fetch("a", version, None, *groups)


def descriptions(scene: Scene) -> None:
    scene.stable()
    for version in range(7):
        scene.call("a", DescribeGroupsRequest(groups=[scene.group, f"{scene.group}-none", ""]), version)
        scene.call("a", DescribeGroupsRequest(groups=[]), version)
        if version >= 3:
            names = [scene.group, f"{scene.group}-none"]
            scene.call("a", DescribeGroupsRequest(groups=names, include_authorized_operations=True), version)


def lists(scene: Scene) -> None:
    scene.stable()
    group = scene.group
    scene.group = f"{group}-simple"
    scene.commit("a", 7, {"t": {0: 1}})
    filters: list[dict[str, Any]] = [
        {},
        {"states_filter": ["stable"]},
        {"states_filter": ["EMPTY", "Stable"]},
        {"states_filter": ["nonsense"]},
        {"types_filter": ["Classic"]},
        {"types_filter": ["consumer"]},
        {"types_filter": ["nonsense"]},
    ]
    for version in range(6):
        for fields in filters:
            if version >= (5 if "types_filter" in fields else 4 if fields else 0):
                response = scene.call("a", ListGroupsRequest(**fields), version)
                found = sorted((entry for entry in response.groups if entry.group_id.startswith(group)), key=str)
                scene.lines[-1] = f"v{version} {fields}: {response.error_code} {found}"


def deletions(scene: Scene) -> None:
    member_id, _ = scene.stable()
    group = scene.group
    scene.group = f"{group}-simple"
    scene.commit("a", 7, {"t": {0: 1}})
    for version in range(3):
        names = [group, f"{group}-none", ""]
        scene.call("a", DeleteGroupsRequest(groups_names=names), version)
    scene.call("a", DeleteGroupsRequest(groups_names=[scene.group, scene.group]), 2)
    scene.call("a", DeleteGroupsRequest(groups_names=[scene.group]), 2)
    scene.fetch("a", 7, None)
    scene.group = group
    scene.call("a", LeaveGroupRequest(group_id=group, members=[Identity(member_id=member_id)]), 4)
    scene.call("a", DeleteGroupsRequest(groups_names=[group]), 1)
    scene.call("a", DescribeGroupsRequest(groups=[group]), 6)


def deletions_of_offsets(scene: Scene) -> None:
    def delete(group: str, **topics: list[int]) -> None:
        shape = OffsetDeleteRequest
        asked = [
            shape.OffsetDeleteRequestTopic(
                name=name, partitions=[shape.OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in topics.items()
        ]
        scene.call("a", OffsetDeleteRequest(group_id=group, topics=asked), 0)

    delete("", t=[0])
    delete(f"{scene.group}-none", t=[0])
    member_id, generation = scene.stable()
    owner: dict[str, Any] = {"member_id": member_id, "generation_id_or_member_epoch": generation}
    scene.commit("a", 7, {"t": {0: 1}, "u": {0: 1, 1: 2}}, **owner)
    delete(scene.group, t=[0, 9])
    delete(scene.group, u=[0, 3])
    delete(scene.group, gone=[0])
    delete(scene.group)
    scene.fetch("a", 7, None)
    scene.group = f"{scene.group}-connect"
    scene.stable("b", protocol_type="connect")
    delete(scene.group, t=[0])


SCENES: list[Callable[[Scene], None]] = [
    joins_that_are_refused,
    joins_of_every_version,
    members_that_do_not_fit,
    a_rebalance_of_two,
    syncs_that_are_refused,
    heartbeats_that_are_refused,
    leaving,
    static_members,
    commits_without_a_group,
    commits_to_a_group,
    fetches_of_every_version,
    descriptions,
    lists,
    deletions,
    deletions_of_offsets,
    *CONSUMER_SCENES,
]


def prepared(bootstrap: str) -> dict[str, bytes]:
    """Two topics and a coordinator that answers; the ids of the topics."""
    with Wire(bootstrap) as wire:
        topics = [
            CreateTopicsRequest.CreatableTopic(name=name, num_partitions=4, replication_factor=1) for name in "tu"
        ]
        wire.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5, CreateTopicsResponse)
        # Apache makes its internal topic first: beside other tests that takes a while.
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            found = wire.call(FindCoordinatorRequest(key="any"), 1, FindCoordinatorResponse)
            request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in "tu"])
            known = wire.call(request, 12, MetadataResponse).topics
            probe = wire.call(HeartbeatRequest(group_id="any", member_id="x"), 3, HeartbeatResponse)
            if found.error_code == 0 and probe.error_code == ErrorCode.UNKNOWN_MEMBER_ID and not _missing(known):
                return {topic.name: topic.topic_id for topic in known if topic.name is not None}
            time.sleep(0.05)
    raise AssertionError("the broker does not get ready")


def _missing(topics: list[MetadataResponse.MetadataResponseTopic]) -> bool:
    return any(topic.error_code or any(part.error_code for part in topic.partitions) for topic in topics)


def transcript(bootstrap: str, topic_ids: dict[str, bytes], play: Callable[[Scene], None]) -> str:
    scene = Scene(bootstrap, play.__name__, topic_ids)
    try:
        play(scene)
    finally:
        scene.close()
    return "\n".join(scene.lines)


@pytest.fixture(scope="module")
def tidelog() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if missing := why_not():
        pytest.skip(f"no Apache Kafka to compare with: {missing}")
    with ApacheKafka(tmp_path_factory.mktemp("apache"), heap="384m") as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture(scope="module")
def tidelog_topics(tidelog: str) -> dict[str, bytes]:
    return prepared(tidelog)


@pytest.fixture(scope="module")
def apache_topics(apache: str) -> dict[str, bytes]:
    return prepared(apache)


@pytest.mark.java
@pytest.mark.parametrize("play", SCENES, ids=lambda play: play.__name__)
def test_answers_are_apaches(
    play: Callable[[Scene], None],
    tidelog: str,
    apache: str,
    tidelog_topics: dict[str, bytes],
    apache_topics: dict[str, bytes],
) -> None:
    ours = transcript(tidelog, tidelog_topics, play)
    assert ours.splitlines() == transcript(apache, apache_topics, play).splitlines()


# what is stored


def a_life(scene: Scene) -> None:
    """A group from its first member to its deletion, each step answered before the next."""
    member_id, generation = scene.stable(group_instance_id=None)
    owner: dict[str, Any] = {"member_id": member_id, "generation_id_or_member_epoch": generation}
    scene.commit("a", 9, {"t": {0: 4, 1: 5}, "u": {3: 6}}, **owner)
    scene.commit("a", 3, {"t": {2: 7}}, retention_time_ms=1_000_000, **owner)
    scene.commit("a", 9, {"t": {0: 8}}, metadata="ä" * 100, **owner)
    scene.call("a", LeaveGroupRequest(group_id=scene.group, members=[Identity(member_id=member_id)]), 4)
    scene.stable("b", group_instance_id="i")
    scene.call("c", scene.join_request(group_instance_id="i"), 9)
    members = [Identity(member_id="", group_instance_id="i")]
    scene.call("z", LeaveGroupRequest(group_id=scene.group, members=members), 4)
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="u", partitions=[partition(partition_index=3)])
    scene.call("z", OffsetDeleteRequest(group_id=scene.group, topics=[topic]), 0)
    scene.commit("z", 9, {"t": {1: 9}})


def stored(bootstrap: str, group: str, partition: int, topic_ids: dict[str, bytes]) -> list[str]:
    """The batches of a group in the offsets topic: what their headers say, and their records."""
    asked = FetchRequest.FetchPartition(partition=partition, partition_max_bytes=1 << 20)
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic="__consumer_offsets", partitions=[asked])])
    with Wire(bootstrap) as wire:
        data = bytes(wire.call(request, 11, FetchResponse).responses[0].partitions[0].records or b"")
    names: dict[str, str] = {}
    lines: list[str] = []
    for position, header in iter_headers(data):
        records = list(iter_records(data[position : position + header.size], header))
        if all(group.encode() in (record.key or b"") for record in records):
            fields = (header.attributes, header.producer_id, header.producer_epoch, header.base_sequence, header.magic)
            lines.append(f"batch {fields} of {header.record_count}")
            lines.extend(_stored_record(record, topic_ids, names) for record in records)
    return lines


def _stored_record(record: Record, topic_ids: dict[str, bytes], names: dict[str, str]) -> str:
    key = decode_coordinator_key(record.key or b"")
    assert key is not None
    value: Any = None
    if record.value is not None:
        decoded = decode_coordinator_value(key, record.value)
        assert decoded is not None
        value = decoded
        for name in ("current_state_timestamp", "commit_timestamp", "expire_timestamp"):
            # Set or not set is a fact, when is not.
            if getattr(value[0], name, -1) > 0:
                setattr(value[0], name, 1)
    text = f"{key} {value} {record.headers}"
    for name, topic_id in topic_ids.items():
        text = text.replace(repr(topic_id), f"<id of {name}>")
    return _MEMBER_ID.sub(lambda found: names.setdefault(found[0], f"{found[1]}#{len(names)}"), text)


@pytest.mark.java
def test_records_are_apaches(
    tidelog: str, apache: str, tidelog_topics: dict[str, bytes], apache_topics: dict[str, bytes]
) -> None:
    group = a_life.__name__
    assert transcript(tidelog, tidelog_topics, a_life) == transcript(apache, apache_topics, a_life)
    ours = stored(tidelog, group, partition_for(group, 5), tidelog_topics)
    assert len(ours) > 20
    assert ours == stored(apache, group, partition_for(group, 50), apache_topics)

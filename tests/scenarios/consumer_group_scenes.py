"""Scenes of the new group protocol (KIP-848) for test_group_answers.py, as far as both brokers must answer the same.

Epochs are numbered in the order in which they appear: Apache Kafka counts one more for a new group. Texts of errors and
heartbeat intervals are each broker's own.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tidelog.protocol.codec import encode
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest

if TYPE_CHECKING:
    from tests.scenarios.test_group_answers import Scene

_JOIN: dict[str, Any] = {
    "member_id": "a",
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


def _beat(scene: Scene, label: str, version: int = 1, **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(**{"group_id": scene.group, **fields})
    response = scene.call("c", request, version)
    parts = response.assignment and [sorted(part.partitions) for part in response.assignment.topic_partitions]
    scene.lines[-1] = f"{label}: {ErrorCode(response.error_code).name}, epoch {_epoch(scene, response)}, {parts}"
    return response


def _epoch(scene: Scene, response: Any) -> Any:
    if response.error_code or response.member_epoch <= 0:
        return response.member_epoch
    seen: dict[int, int] = scene.__dict__.setdefault("epochs", {})
    return f"#{seen.setdefault(response.member_epoch, len(seen))}"


def consumers_that_are_refused(scene: Scene) -> None:
    for label, fields in {
        "nobody's epoch": {"member_epoch": 1},
        "nobody leaves": {"member_epoch": -1},
        "nobody leaves for a while": {"member_epoch": -2, "instance_id": "i"},
        "no group": {"group_id": ""},
        "a blank group": {"group_id": " "},
        "no member": {"member_id": ""},
        "an empty instance": {"instance_id": ""},
        "an empty rack": {"rack_id": ""},
        "no time-out": {"rebalance_timeout_ms": -1},
        "owns nothing said": {"topic_partitions": None},
        "no subscription": {"subscribed_topic_names": None},
        "leaves for a while without an instance": {"member_epoch": -2},
        "an epoch that is none": {"member_epoch": -3},
        "another assignor": {"server_assignor": "best"},
        "no regular expression": {"subscribed_topic_regex": "("},
    }.items():
        _beat(scene, label, **{**_JOIN, **fields})


def a_consumer_comes_and_goes(scene: Scene) -> None:
    epoch = _beat(scene, "joins", **_JOIN).member_epoch
    _beat(scene, "nothing new", member_id="a", member_epoch=epoch)
    _beat(scene, "too new", member_id="a", member_epoch=epoch + 1)
    _beat(scene, "unknown", member_id="b", member_epoch=epoch)
    _beat(scene, "joins again", **_JOIN)
    scene.call("c", DescribeGroupsRequest(groups=[scene.group]), 5)
    scene.call("c", DescribeGroupsRequest(groups=[scene.group]), 6)
    described = scene.call("c", ConsumerGroupDescribeRequest(group_ids=[scene.group, "nobody's"]), 1)
    missing, group = sorted(described.groups, key=lambda entry: -entry.error_code)
    member = group.members[0]
    scene.lines[-1] = f"{group.group_state} {group.assignor_name} {group.group_epoch == group.assignment_epoch} " + (
        f"{member.subscribed_topic_names} {member.subscribed_topic_regex!r} {member.client_id} {member.member_type} "
        f"{[part.partitions for part in member.target_assignment.topic_partitions]} "
        f"{missing.error_code} {missing.error_message}"
    )
    _beat(scene, "leaves", member_id="a", member_epoch=-1)
    _beat(scene, "leaves again", member_id="a", member_epoch=-1)


def a_static_consumer(scene: Scene) -> None:
    epoch = _beat(scene, "joins", instance_id="i", **_JOIN).member_epoch
    _beat(scene, "another one", instance_id="i", **{**_JOIN, "member_id": "b"})
    _beat(scene, "another's heartbeat", instance_id="i", member_id="b", member_epoch=epoch)
    _beat(scene, "another instance", instance_id="j", member_id="a", member_epoch=epoch)
    _beat(scene, "leaves for a while", instance_id="i", member_id="a", member_epoch=-2)
    _beat(scene, "is not there", instance_id="i", member_id="a", member_epoch=epoch)
    _beat(scene, "is back", instance_id="i", **{**_JOIN, "member_id": "c"})
    _beat(scene, "the id of before", member_id="a", member_epoch=epoch)
    _beat(scene, "the id of before, by its instance", instance_id="i", member_id="a", member_epoch=epoch)


def commits_of_consumers(scene: Scene) -> None:
    epoch = _beat(scene, "joins", **_JOIN).member_epoch
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    for member_id, at, version in [
        ("a", epoch, 9),
        ("a", epoch + 1, 9),
        ("a", 0, 9),
        ("a", -1, 9),
        ("b", epoch, 9),
        ("", -1, 9),
        ("a", epoch, 8),
    ]:
        request = OffsetCommitRequest(
            group_id=scene.group, member_id=member_id, generation_id_or_member_epoch=at, topics=[topic]
        )
        scene.call("c", request, version)
    for who, at in [("a", epoch), ("a", epoch + 1), ("b", epoch), ("", -1), (None, -1)]:
        asked = group(group_id=scene.group, member_id=who, member_epoch=at, topics=None)
        scene.call("c", OffsetFetchRequest(groups=[asked]), 9)


def a_regular_expression(scene: Scene) -> None:
    fields = {**_JOIN, "subscribed_topic_names": None, "subscribed_topic_regex": "[tu]"}
    response = _beat(scene, "joins", **fields)
    deadline = time.monotonic() + 20
    while response.assignment is None or len(response.assignment.topic_partitions) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        scene.lines.pop()
        response = _beat(scene, "has both", **fields)
    scene.lines[-1] = scene.lines[-1].split("epoch")[0] + str(
        sorted(len(part.partitions) for part in response.assignment.topic_partitions)
    )


def a_consumer_for_a_group_with_data_in_its_assignments(scene: Scene) -> None:
    """librdkafka's cooperative-sticky keeps some there from the second generation on."""
    member_id, generation = scene.joined("a")
    owned = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[0, 1, 2, 3])
    value = encode(ConsumerProtocolAssignment(assigned_partitions=[owned], user_data=b"sticky"), 0)
    assignments = {member_id: b"\x00\x00" + value}
    scene.call("a", scene.sync_request(member_id, generation, assignments=assignments), 5)
    _beat(scene, "is refused", **{**_JOIN, "member_id": "b"})
    scene.heartbeat("a", member_id, generation)
    scene.call("a", DescribeGroupsRequest(groups=[scene.group]), 5)


CONSUMER_SCENES = [
    consumers_that_are_refused,
    a_consumer_comes_and_goes,
    a_static_consumer,
    commits_of_consumers,
    a_regular_expression,
    a_consumer_for_a_group_with_data_in_its_assignments,
]

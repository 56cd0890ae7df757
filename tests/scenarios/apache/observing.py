"""What a broker shows of all that it stores, as one value: two brokers on the same directory must show the same."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.scenarios.apache.content import LOADING
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tidelog.testing.wire import Wire

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
_TOPIC, _BROKER = 2, 4
_SET_BY_SOMEBODY = (1, 2, 3)  # of a topic, of one broker, of all brokers
# Observing may write to them; what they mean is asked of the coordinators.
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")

Partition = tuple[str, int]
Setting = tuple[str, str | None]


class Record(NamedTuple):
    offset: int
    leader_epoch: int | None
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str | None


class Group(NamedTuple):
    state: str
    protocol_type: str
    protocol: str
    members: list[tuple[str, str | None, str, bytes, bytes]]


class Observed(NamedTuple):
    cluster_id: str | None
    topics: dict[str, tuple[bytes, int]]
    topic_configs: dict[str, list[Setting]]
    broker_configs: dict[str, list[Setting]]
    offsets: dict[Partition, dict[int, tuple[int, int, int]]]
    records: dict[Partition, list[Record]]
    groups: dict[str, Group]
    committed: dict[str, dict[Partition, Committed]]


def observe(bootstrap: str, *, times: Sequence[int], node_id: int = 1, isolation: str = "read_committed") -> Observed:
    """`times` are looked up in every partition, in milliseconds."""
    with Wire(bootstrap) as wire:
        metadata = wire.call(MetadataRequest(topics=None), 12, MetadataResponse)
        assert [broker.node_id for broker in metadata.brokers] == [node_id]
        topics = {
            topic.name: (topic.topic_id, len(topic.partitions)) for topic in metadata.topics if topic.name is not None
        }
        for topic in metadata.topics:
            assert topic.error_code == ErrorCode.NONE, (topic.name, ErrorCode(topic.error_code).name)
            assert {(part.error_code, part.leader_id) for part in topic.partitions} == {(0, node_id)}, topic
        shown = [(name, count) for name, (_, count) in sorted(topics.items()) if name not in _INTERNAL]
        partitions = [(name, index) for name, count in shown for index in range(count)]
        _wait_for_leaders(wire, partitions)
        return Observed(
            cluster_id=metadata.cluster_id,
            topics=topics,
            topic_configs={name: _settings(wire, _TOPIC, name) for name in topics},
            broker_configs={name: _settings(wire, _BROKER, name) for name in ("", str(node_id))},
            offsets={partition: _look_ups(wire, partition, times) for partition in partitions},
            records=_records(bootstrap, partitions, isolation),
            groups=_groups(wire),
            committed=_committed(wire),
        )


def _settings(wire: Wire, kind: int, name: str) -> list[Setting]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    result = wire.call(DescribeConfigsRequest(resources=[resource]), 4, DescribeConfigsResponse).results[0]
    assert result.error_code == ErrorCode.NONE, (name, result.error_message)
    # What came from server.properties is of the broker that reads it, not of the directory.
    return sorted((entry.name, entry.value) for entry in result.configs if entry.config_source in _SET_BY_SOMEBODY)


def _look_ups(wire: Wire, partition: Partition, times: Sequence[int]) -> dict[int, tuple[int, int, int]]:
    found = {when: _look_up(wire, partition, when) for when in (EARLIEST, LATEST, MAX_TIMESTAMP, *times)}
    # The epoch at the end of the log, which is also its beginning when it is empty, is new with every start.
    for when in (EARLIEST, LATEST):
        if found[when][0] == found[LATEST][0]:
            found[when] = (*found[when][:2], -1)
    return found


def _look_up(wire: Wire, partition: Partition, when: int) -> tuple[int, int, int]:
    answer = _list_offset(wire, partition, when)
    assert answer.error_code == ErrorCode.NONE, (partition, when, ErrorCode(answer.error_code).name)
    return answer.offset, answer.timestamp, answer.leader_epoch


def _list_offset(wire: Wire, partition: Partition, when: int) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition[1], timestamp=when)
    topic = ListOffsetsRequest.ListOffsetsTopic(name=partition[0], partitions=[wanted])
    found = wire.call(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7, ListOffsetsResponse)
    return found.topics[0].partitions[0]


def _wait_for_leaders(wire: Wire, partitions: list[Partition]) -> None:
    """Apache's broker answers clients before it leads the last of its partitions."""
    deadline = time.monotonic() + 30
    for partition in partitions:
        while _list_offset(wire, partition, LATEST).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            assert time.monotonic() < deadline, f"nobody leads {partition}"
            time.sleep(0.05)


def _records(bootstrap: str, partitions: list[Partition], isolation: str) -> dict[Partition, list[Record]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "observer",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": True,
        }
    )
    found: dict[Partition, list[Record]] = {partition: [] for partition in partitions}
    open_ends = set(partitions)
    # Not "the beginning" as the client remembers it: where the log starts is the broker's to say.
    consumer.assign([TopicPartition(name, index, -2) for name, index in partitions])
    while open_ends:
        message = consumer.poll(20)
        assert message is not None, f"nothing more came of {sorted(open_ends)}"
        partition = (str(message.topic()), int(message.partition() or 0))
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            open_ends.discard(partition)
        else:
            found[partition].append(_record(message))
    consumer.close()
    return found


def _record(message: Message) -> Record:
    return Record(
        message.offset(),
        message.leader_epoch(),
        message.timestamp(),
        message.key(),
        message.value(),
        message.headers(),
    )


def _group_ids(wire: Wire) -> list[str]:
    """Both brokers answer before their coordinators have read all of their partitions; the last to come up is waited
    for."""
    deadline = time.monotonic() + 30
    while (listed := wire.call(ListGroupsRequest(), 4, ListGroupsResponse)).error_code in LOADING:
        assert time.monotonic() < deadline, "the groups are never loaded"
        time.sleep(0.05)
    assert listed.error_code == ErrorCode.NONE
    return sorted(group.group_id for group in listed.groups if group.group_id != "observer")


def _groups(wire: Wire) -> dict[str, Group]:
    described = wire.call(DescribeGroupsRequest(groups=_group_ids(wire)), 5, DescribeGroupsResponse).groups
    return {
        group.group_id: Group(
            group.group_state,
            group.protocol_type,
            group.protocol_data,
            sorted(
                (m.member_id, m.group_instance_id, m.client_id, m.member_metadata, m.member_assignment)
                for m in group.members
            ),
        )
        for group in described
    }


def _committed(wire: Wire) -> dict[str, dict[Partition, Committed]]:
    asked = [
        OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None, member_id=None)
        for group in _group_ids(wire)
    ]
    answer = wire.call(OffsetFetchRequest(groups=asked, require_stable=True), 9, OffsetFetchResponse)
    found: dict[str, dict[Partition, Committed]] = {}
    for group in answer.groups:
        assert group.error_code == ErrorCode.NONE, (group.group_id, ErrorCode(group.error_code).name)
        found[group.group_id] = {
            (topic.name, part.partition_index): Committed(
                part.committed_offset, part.committed_leader_epoch, part.metadata
            )
            for topic in group.topics
            for part in topic.partitions
        }
    return found

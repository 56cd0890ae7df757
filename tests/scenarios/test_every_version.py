"""Every API that is advertised answers a plain request in every version that is advertised, in success and in error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct

from tidelog.broker.registry import registered_apis
from tidelog.protocol.apis import APIS
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from tidelog.protocol.messages.alter_configs import AlterConfigsRequest
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.create_partitions import CreatePartitionsRequest
from tidelog.protocol.messages.create_topics import CreateTopicsRequest
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest
from tidelog.protocol.messages.delete_records import DeleteRecordsRequest
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest
from tidelog.protocol.messages.describe_configs import DescribeConfigsRequest
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tidelog.protocol.messages.describe_producers import DescribeProducersRequest
from tidelog.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.protocol.messages.end_txn import EndTxnRequest
from tidelog.protocol.messages.fetch import FetchRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest
from tidelog.protocol.messages.leave_group import LeaveGroupRequest
from tidelog.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest
from tidelog.protocol.messages.offset_delete import OffsetDeleteRequest
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest
from tidelog.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tidelog.protocol.messages.produce import ProduceRequest
from tidelog.protocol.messages.sync_group import SyncGroupRequest
from tidelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tidelog.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from tidelog.testing import Broker
from tidelog.testing.wire import Wire


def _id(version: int, since: int, topic_id: bytes) -> bytes:
    return topic_id if version >= since else bytes(16)


def add_partitions(topic: str, topic_id: bytes, v: int) -> Struct:
    topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])]
    if v < 4:
        return AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)
    one = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(transactional_id="x", topics=topics)
    return AddPartitionsToTxnRequest(transactions=[one])


def produce(topic: str, topic_id: bytes, v: int) -> Struct:
    records = bytes(build_batch([RecordInput(b"k", b"v", 1_000)]))
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    named = ProduceRequest.TopicProduceData(
        name="" if v >= 13 else topic, topic_id=_id(v, 13, topic_id), partition_data=[data]
    )
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[named])


def fetch(topic: str, topic_id: bytes, v: int) -> Struct:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    named = FetchRequest.FetchTopic(
        topic="" if v >= 13 else topic, topic_id=_id(v, 13, topic_id), partitions=[partition]
    )
    return FetchRequest(max_wait_ms=0, topics=[named])


def list_offsets(topic: str, topic_id: bytes, v: int) -> Struct:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])]
    )


def metadata(topic: str, topic_id: bytes, v: int) -> Struct:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=v < 4)


def offset_commit(topic: str, topic_id: bytes, v: int) -> Struct:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    named = OffsetCommitRequest.OffsetCommitRequestTopic(
        name="" if v >= 10 else topic, topic_id=_id(v, 10, topic_id), partitions=[partition]
    )
    return OffsetCommitRequest(group_id=f"commit-{v}", topics=[named])


def offset_fetch(topic: str, topic_id: bytes, v: int) -> Struct:
    if v < 8:
        named = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
        return OffsetFetchRequest(group_id="commit-2", topics=[named])
    grouped = OffsetFetchRequest.OffsetFetchRequestTopics(
        name="" if v >= 10 else topic, topic_id=_id(v, 10, topic_id), partition_indexes=[0]
    )
    return OffsetFetchRequest(
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="commit-2", topics=[grouped])]
    )


def find_coordinator(topic: str, topic_id: bytes, v: int) -> Struct:
    return FindCoordinatorRequest(coordinator_keys=["g"]) if v >= 4 else FindCoordinatorRequest(key="g")


def join_group(topic: str, topic_id: bytes, v: int) -> Struct:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"x")
    return JoinGroupRequest(
        group_id=f"join-{v}",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )


def sync_group(topic: str, topic_id: bytes, v: int) -> Struct:
    names = {"protocol_type": "consumer", "protocol_name": "range"} if v >= 5 else {}
    return SyncGroupRequest(group_id="nobody", generation_id=1, member_id="m", **names)


def leave_group(topic: str, topic_id: bytes, v: int) -> Struct:
    if v < 3:
        return LeaveGroupRequest(group_id="nobody", member_id="m")
    return LeaveGroupRequest(group_id="nobody", members=[LeaveGroupRequest.MemberIdentity(member_id="m")])


def create_topics(topic: str, topic_id: bytes, v: int) -> Struct:
    named = CreateTopicsRequest.CreatableTopic(name=f"created-{v}", num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[named], timeout_ms=1000)


def delete_topics(topic: str, topic_id: bytes, v: int) -> Struct:
    if v < 6:
        return DeleteTopicsRequest(topic_names=["not-there"], timeout_ms=1000)
    return DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="not-there")], timeout_ms=1000)


def delete_records(topic: str, topic_id: bytes, v: int) -> Struct:
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)
    return DeleteRecordsRequest(topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[partition])])


def offset_for_leader_epoch(topic: str, topic_id: bytes, v: int) -> Struct:
    partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    named = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[partition])
    return OffsetForLeaderEpochRequest(replica_id=-1 if v >= 3 else -2, topics=[named])


def describe_configs(topic: str, topic_id: bytes, v: int) -> Struct:
    shape = DescribeConfigsRequest.DescribeConfigsResource
    resources = [
        shape(resource_type=2, resource_name=topic, configuration_keys=None),
        shape(resource_type=4, resource_name="1", configuration_keys=None),
        shape(resource_type=2, resource_name="not-there", configuration_keys=None),
    ]
    return DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=v >= 3)


def alter_configs(topic: str, topic_id: bytes, v: int) -> Struct:
    config = AlterConfigsRequest.AlterableConfig(name="retention.ms", value="1000000")
    return AlterConfigsRequest(
        resources=[AlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])]
    )


def incremental_alter_configs(topic: str, topic_id: bytes, v: int) -> Struct:
    shape = IncrementalAlterConfigsRequest
    config = shape.AlterableConfig(name="retention.ms", value="1000000")
    return shape(resources=[shape.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])])


def describe_log_dirs(topic: str, topic_id: bytes, v: int) -> Struct:
    return DescribeLogDirsRequest(topics=None)


def create_partitions(topic: str, topic_id: bytes, v: int) -> Struct:
    named = CreatePartitionsRequest.CreatePartitionsTopic(name="not-there", count=2, assignments=None)
    return CreatePartitionsRequest(topics=[named], timeout_ms=1000)


def describe_topic_partitions(topic: str, topic_id: bytes, v: int) -> Struct:
    return DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest(name=topic)], cursor=None)


def offset_delete(topic: str, topic_id: bytes, v: int) -> Struct:
    return OffsetDeleteRequest(group_id="nobody", topics=[])


def write_txn_markers(topic: str, topic_id: bytes, v: int) -> Struct:
    named = WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])
    marker = WriteTxnMarkersRequest.WritableTxnMarker(producer_id=900, producer_epoch=v, topics=[named])
    return WriteTxnMarkersRequest(markers=[marker])


def txn_offset_commit(topic: str, topic_id: bytes, v: int) -> Struct:
    """Of a transactional id that nobody has heard of."""
    partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    named = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])
    return TxnOffsetCommitRequest(transactional_id="nobody", group_id="g", producer_id=1, topics=[named])


def describe_producers(topic: str, topic_id: bytes, v: int) -> Struct:
    return DescribeProducersRequest(topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])])


def api_versions(topic: str, topic_id: bytes, v: int) -> Struct:
    return ApiVersionsRequest(client_software_name="a", client_software_version="1") if v >= 3 else ApiVersionsRequest()


REQUESTS: dict[str, Callable[[str, bytes, int], Struct]] = {
    "Produce": produce,
    "Fetch": fetch,
    "ListOffsets": list_offsets,
    "Metadata": metadata,
    "OffsetCommit": offset_commit,
    "OffsetFetch": offset_fetch,
    "FindCoordinator": find_coordinator,
    "JoinGroup": join_group,
    "Heartbeat": lambda t, i, v: HeartbeatRequest(group_id="nobody", generation_id=1, member_id="m"),
    "LeaveGroup": leave_group,
    "SyncGroup": sync_group,
    "DescribeGroups": lambda t, i, v: DescribeGroupsRequest(groups=["nobody"]),
    "ListGroups": lambda t, i, v: ListGroupsRequest(),
    "ApiVersions": api_versions,
    "CreateTopics": create_topics,
    "DeleteTopics": delete_topics,
    "DeleteRecords": delete_records,
    "AddPartitionsToTxn": add_partitions,
    "AddOffsetsToTxn": lambda t, i, v: AddOffsetsToTxnRequest(transactional_id="x", group_id="g"),
    "EndTxn": lambda t, i, v: EndTxnRequest(transactional_id="x"),
    "DescribeTransactions": lambda t, i, v: DescribeTransactionsRequest(transactional_ids=["x"]),
    "ListTransactions": lambda t, i, v: ListTransactionsRequest(state_filters=["Ongoing"]),
    "InitProducerId": lambda t, i, v: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
    "OffsetForLeaderEpoch": offset_for_leader_epoch,
    "DescribeConfigs": describe_configs,
    "AlterConfigs": alter_configs,
    "DescribeLogDirs": describe_log_dirs,
    "CreatePartitions": create_partitions,
    "DeleteGroups": lambda t, i, v: DeleteGroupsRequest(groups_names=["nobody"]),
    "IncrementalAlterConfigs": incremental_alter_configs,
    "OffsetDelete": offset_delete,
    "ConsumerGroupHeartbeat": lambda t, i, v: ConsumerGroupHeartbeatRequest(
        group_id="nobody", member_id="m", member_epoch=5
    ),
    "ConsumerGroupDescribe": lambda t, i, v: ConsumerGroupDescribeRequest(group_ids=["nobody"]),
    "DescribeCluster": lambda t, i, v: DescribeClusterRequest(),
    "ListConfigResources": lambda t, i, v: ListConfigResourcesRequest(),
    "DescribeTopicPartitions": describe_topic_partitions,
    "WriteTxnMarkers": write_txn_markers,
    "TxnOffsetCommit": txn_offset_commit,
    "DescribeProducers": describe_producers,
}

# What the plain requests above are expected to be refused with, wherever a code stands in the answer.
EXPECTED: dict[str, set[ErrorCode]] = {
    "ConsumerGroupHeartbeat": {ErrorCode.GROUP_ID_NOT_FOUND},
    "ConsumerGroupDescribe": {ErrorCode.GROUP_ID_NOT_FOUND},
    "AddOffsetsToTxn": {ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    "EndTxn": {ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    "DescribeTransactions": {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND},
    "JoinGroup": {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED},
    "SyncGroup": {ErrorCode.UNKNOWN_MEMBER_ID},
    "Heartbeat": {ErrorCode.UNKNOWN_MEMBER_ID},
    "LeaveGroup": {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID},
    "DescribeGroups": {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND},
    "DeleteGroups": {ErrorCode.GROUP_ID_NOT_FOUND},
    "OffsetDelete": {ErrorCode.GROUP_ID_NOT_FOUND},
    "DeleteTopics": {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    "CreatePartitions": {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    "DescribeConfigs": {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    "TxnOffsetCommit": {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.INVALID_PRODUCER_ID_MAPPING},
}
CASES = [(api.name, version) for api in registered_apis() for version in api.versions]


def codes_in(value: Any) -> set[ErrorCode]:
    if isinstance(value, Struct):
        found = {ErrorCode(value.error_code)} if hasattr(value, "error_code") else set()
        return found.union(*(codes_in(getattr(value, name)) for name in value.__struct_fields__))
    if isinstance(value, list):
        return set().union(*(codes_in(item) for item in value))
    return set()


@pytest.fixture(scope="module")
def topic(broker: Broker) -> tuple[str, bytes]:
    name = broker.create_topic("every-version")
    with Wire(broker.bootstrap_servers) as wire:
        found = wire.call(MetadataRequest(topics=None), 12, MetadataResponse)
        for key_type in (0, 1):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"])
            wire.call(request, 4, FindCoordinatorResponse)
    return name, next(topic.topic_id for topic in found.topics if topic.name == name)


def test_a_plain_request_is_known_for_every_api() -> None:
    assert {name for name, _ in CASES} == set(REQUESTS)


@pytest.mark.parametrize(("name", "version"), CASES, ids=[f"{name}-v{version}" for name, version in CASES])
def test_every_advertised_version_is_answered(wire: Wire, topic: tuple[str, bytes], name: str, version: int) -> None:
    api = next(api for api in APIS.values() if api.name == name)
    response: Any = wire.call(REQUESTS[name](*topic, version), version, api.response_class())
    assert codes_in(response) <= EXPECTED.get(name, {ErrorCode.NONE})

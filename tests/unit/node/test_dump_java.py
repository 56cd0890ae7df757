"""The data directory of a stopped node, read by Apache's own DumpLogSegments with its decoders: metadata log and
snapshot, group offsets, plain logs, indexes, producer snapshots. Its exit code is always 0, so its text is read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.log.test_dump_java import without_first_offsets
from tidelog.protocol.batch import RecordInput, build_batch, iter_headers, iter_records
from tidelog.protocol.compression import Codec
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.protocol.records_framing import decode_metadata_record
from tidelog.raft.snapshots import list_snapshots, read_snapshot
from tidelog.runtime.disk import OsDisk
from tidelog.testing import Broker
from tidelog.testing.wire import Wire
from tools.apache import run_tool, why_not

pytestmark = pytest.mark.java

DUMP = "org.apache.kafka.tools.DumpLogSegments"
COMPLAINTS = re.compile(
    r"mismatch|non-consecutive|isvalid: false|corrupt|invalid|exception|error|not found|could not", re.I
)
CONFIG = {"metadata.log.max.record.bytes.between.snapshots": "1500", "offsets.topic.num.partitions": "2"}


def produce(wire: Wire, topic: str, batch: bytes) -> None:
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    answer = wire.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[named]), 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def join(wire: Wire, group: str) -> None:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(
        name="range", metadata=b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"
    )
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    joined = wire.call(request, 3, JoinGroupResponse)
    assert joined.error_code == ErrorCode.NONE
    given = SyncGroupRequest.SyncGroupRequestAssignment(
        member_id=joined.member_id, assignment=b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"
    )
    sync = SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[given]
    )
    assert wire.call(sync, 2, SyncGroupResponse).error_code == ErrorCode.NONE


def commit(wire: Wire, group: str, offset: int) -> None:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="plain", partitions=[partition])
    answer = wire.call(OffsetCommitRequest(group_id=group, topics=[topic]), 8, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def use(broker: Broker) -> None:
    """A little of everything that ends in files."""
    with Wire(broker.bootstrap_servers) as wire:
        broker.create_topic("plain", config={"segment.bytes": "1048576", "retention.ms": "-1"})
        for number in range(6):
            broker.create_topic(f"extra-{number}", partitions=2)
        wire.call(DeleteTopicsRequest(topic_names=["extra-0"]), 5, DeleteTopicsResponse)
        grown = CreatePartitionsRequest.CreatePartitionsTopic(name="extra-1", count=3, assignments=None)
        wire.call(CreatePartitionsRequest(topics=[grown]), 3, CreatePartitionsResponse)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        producer_id = wire.call(request, 4, InitProducerIdResponse).producer_id
        for number in range(40):
            records = [RecordInput(b"key-%d" % number, os.urandom(30_000), 1_700_000_000_000 + number)]
            codec = list(Codec)[number % 5]
            batch = build_batch(records, codec=codec, producer_id=producer_id, producer_epoch=0, base_sequence=number)
            produce(wire, "plain", bytes(batch))
        wire.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4, FindCoordinatorResponse)
        commit(wire, "simple", 7)
        join(wire, "classic")
        modern = ConsumerGroupHeartbeatRequest(
            group_id="modern",
            member_id="m",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["plain"],
            subscribed_topic_regex="plain",
            topic_partitions=[],
        )
        for _ in range(2):
            assert wire.call(modern, 1, ConsumerGroupHeartbeatResponse).error_code == 0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if (reason := why_not()) is not None:
        pytest.skip(f"no Apache Kafka to read with: {reason}")
    directory = tmp_path_factory.mktemp("stopped")
    with Broker(CONFIG, data=directory) as broker:
        use(broker)
    with Broker(CONFIG, data=directory):
        pass
    yield directory


def dump(files: list[Path], *options: str) -> list[str]:
    assert files
    text = without_first_offsets(run_tool(DUMP, *options, "--files", ",".join(map(str, files))))
    lines = text.splitlines()
    complaints = [line for line in lines if COMPLAINTS.search(line.split(" payload: ")[0])]
    assert complaints == []
    return lines


def payloads(lines: list[str]) -> list[Any]:
    return [json.loads(line.split(" payload: ", 1)[1]) for line in lines if " payload: {" in line]


def kinds(records: list[Any]) -> list[str]:
    """TopicRecord as the tool writes it: TOPIC_RECORD."""
    names = [type(record).__name__ for record in records]
    return [re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper() for name in names]


def values_of(content: bytes) -> list[bytes]:
    return [
        record.value or b""
        for position, header in iter_headers(content)
        if not header.is_control
        for record in iter_records(content[position : position + header.size])
    ]


def test_the_metadata_log_and_its_snapshot(data: Path) -> None:
    directory = data / "__cluster_metadata-0"
    disk = OsDisk()
    (snapshot,) = list_snapshots(disk, str(directory))
    log = sorted(directory.glob("*.log"))
    values = [value for file in log for value in values_of(file.read_bytes())]
    held, _ = read_snapshot(disk, str(directory), snapshot)
    lines = dump([*log, directory / snapshot.file_name], "--cluster-metadata-decoder")
    found = payloads(lines)
    ours = [decode_metadata_record(value) for value in (*values, *held)]
    assert [entry["type"] for entry in found if entry["type"].endswith("_RECORD")] == kinds(
        [decoded[0] for decoded in ours if decoded is not None]
    )
    assert all(decoded is not None for decoded in ours)
    topics = {entry["data"]["name"] for entry in found if entry["type"] == "TOPIC_RECORD"}
    assert {"plain", "extra-5", "__consumer_offsets"} <= topics
    text = "\n".join(lines)
    assert "LeaderChange: " in text and "SnapshotHeader " in text and "SnapshotFooter " in text
    configs = [entry["data"] for entry in found if entry["type"] == "CONFIG_RECORD"]
    assert {"resourceType": 2, "resourceName": "plain", "name": "retention.ms", "value": "-1"} in configs
    disk.close()


def test_the_groups_and_their_offsets(data: Path) -> None:
    lines = dump(sorted(data.glob("__consumer_offsets-*/*.log")), "--offsets-decoder")
    entries = [line for line in lines if " key: " in line]
    keys = [json.loads(line.split(" key: ", 1)[1].split(" payload: ", 1)[0]) for line in entries]
    committed = {"group": "simple", "topic": "plain", "partition": 0}
    assert any(key["data"] == committed for key in keys)
    assert any(key["data"] == {"group": "classic"} for key in keys)
    values = [json.loads(line.split(" payload: ", 1)[1]) for line in entries if " payload: {" in line]
    assert any(value["data"].get("offset") == 7 for value in values)
    modern = {int(key["type"]) for key in keys if key["data"].get("groupId") == "modern"}
    assert modern == {3, 5, 6, 7, 8, 16}
    assert any(value["data"].get("assignedPartitions") for value in values)
    assert any(value["data"].get("protocolType") == "consumer" for value in values)


def test_plain_logs_every_codec_and_their_indexes_and_snapshots(data: Path) -> None:
    directory = data / "plain-0"
    logs, indexes = sorted(directory.glob("*.log")), sorted(directory.glob("*.*index"))
    assert len(logs) > 1 and len(indexes) == 2 * len(logs)
    files = [*logs, *indexes, *sorted(directory.glob("*.snapshot"))]
    lines = dump(files, "--deep-iteration", "--print-data-log")
    text = "\n".join(lines)
    assert re.findall(r"\| offset: (\d+) ", text) == [str(number) for number in range(40)]
    assert re.findall(r" key: (key-\d+) ", text) == [f"key-{number}" for number in range(40)]
    assert set(re.findall(r"compresscodec: (\w+)", text)) == {codec.name.lower() for codec in Codec}
    assert f"Dumping {indexes[0]}" in text and "lastSequence: 39" in text

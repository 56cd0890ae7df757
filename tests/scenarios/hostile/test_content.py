"""What peers may put into requests: bombs, names that are paths, escape codes or megabytes, frames of any size. Each is
answered or ends its own connection; a client beside it is served, and memory stays where it was."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from functools import cache

import pytest

from tests.scenarios.hostile.node import MIB, NodeUnderAttack, produce, serves
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.compression import Codec
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tidelog.testing.wire import Wire


@pytest.fixture(scope="module")
def node() -> Iterator[NodeUnderAttack]:
    with NodeUnderAttack() as node:
        with Wire(node.bootstrap_servers) as wire:  # which makes the offsets' topic
            wire.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4, FindCoordinatorResponse)
        yield node


@pytest.fixture
def wire(node: NodeUnderAttack) -> Iterator[Wire]:
    with Wire(node.bootstrap_servers) as wire:
        yield wire


# bombs


@cache
def bomb(codec: Codec) -> bytes:
    return bytes(build_batch([RecordInput(b"k", bytes(17_000_000), 1)], codec=codec))


@pytest.mark.parametrize("config", [{"cleanup.policy": "compact"}, {"compression.type": "uncompressed"}], ids=str)
def test_decompression_bombs(node: NodeUnderAttack, wire: Wire, config: dict[str, str]) -> None:
    topic, beside = node.create_topic(config=config), node.create_topic()
    before = node.memory_bytes
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY):
        for _ in range(3):
            assert produce(wire, topic, bomb(codec)) is ErrorCode.INVALID_RECORD
    assert serves(node, beside, rounds=3)
    assert node.memory_bytes - before < 60 * MIB


def test_a_batch_that_says_more_than_it_holds(node: NodeUnderAttack, wire: Wire) -> None:
    """Lengths within the compressed stream that no stream can keep."""
    topic = node.create_topic(config={"cleanup.policy": "compact"})
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY):
        batch = build_batch([RecordInput(b"k", b"v" * 1000, 1)], codec=codec)
        payload = bytes(batch[61:])
        for cut in (0, 1, 5, len(payload) // 2):
            spoiled = batch[:61] + payload[:cut] + b"\xff\xff\xff\x7f" * 3
            struct.pack_into(">i", spoiled, 8, len(spoiled) - 12)
            struct.pack_into(">I", spoiled, 17, _crc(spoiled))
            assert produce(wire, topic, bytes(spoiled)) is ErrorCode.INVALID_RECORD


def _crc(batch: bytearray) -> int:
    from crc32c import crc32c

    found: int = crc32c(memoryview(batch)[21:])
    return found


# frames


def test_frames_of_any_size(node: NodeUnderAttack) -> None:
    topic = node.create_topic()
    before = node.memory_bytes
    for size in (-1, -(2**31), 2**31 - 1, (100 << 20) + 1, 0, 1, 7):
        with Wire(node.bootstrap_servers) as bad:
            bad.socket.sendall(struct.pack(">i", size) + bytes(max(min(size, 100), 0)))
            assert bad.socket.recv(1) == b"", f"a frame of {size} bytes ends its connection"
    for _ in range(50):  # the largest that is allowed, announced and begun
        with Wire(node.bootstrap_servers) as large:
            large.socket.sendall(struct.pack(">i", 100 << 20) + bytes(1000))
    assert serves(node, topic, rounds=3)
    assert node.memory_bytes - before < 20 * MIB


def test_elements_that_cost_more_than_they_weigh(node: NodeUnderAttack) -> None:
    """Three bytes each: a frame of 30 MB would be gigabytes of objects."""
    topic = node.create_topic()
    before = node.memory_bytes
    head = encode_request(MetadataRequest(topics=[]), 9, 1, None)[4:]
    count = 10_000_000
    body = head[:11] + b"\x81\xad\xe2\x04" + b"\x02a\x00" * count + head[12:]
    with Wire(node.bootstrap_servers) as bad:
        bad.socket.sendall(struct.pack(">i", len(body)) + body)
        assert bad.socket.recv(1) == b""
    assert serves(node, topic, rounds=3)
    assert node.memory_bytes - before < 60 * MIB


# names

PATHS = [
    "../up",
    "..",
    ".",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "..\\..\\x",
    "a\0b",
    "con\n",
    "\x1b[31m",
    "ünï",
    "😀",
    "x" * 250,
]


def test_topics_named_like_paths_are_refused_and_nothing_is_made(node: NodeUnderAttack, wire: Wire) -> None:
    before = sorted(os.listdir(node.data))
    topics = [CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in PATHS]
    answer = wire.call(CreateTopicsRequest(topics=topics), 7, CreateTopicsResponse)
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.INVALID_TOPIC_EXCEPTION}
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in [*PATHS, "x" * 32767]]
    found = wire.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 9, MetadataResponse)
    assert {topic.error_code for topic in found.topics} == {ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert sorted(os.listdir(node.data)) == before


def test_names_that_collide_in_metrics(node: NodeUnderAttack, wire: Wire) -> None:
    node.create_topic("a.b_c")
    for name in ("a_b.c", "a.b.c", "a_b_c"):
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        answer = wire.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse).topics[0]
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_groups_and_members_may_be_called_anything_that_a_string_can_hold(node: NodeUnderAttack, wire: Wire) -> None:
    """They are no files: all of these are kept, listed, shown in the metrics and deleted like others."""
    topic = node.create_topic()
    names = [*PATHS, "x" * 32767, '"quoted"', "{a=b}"]
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    named = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])
    for name in names:
        answer = wire.call(OffsetCommitRequest(group_id=name, topics=[named]), 8, OffsetCommitResponse)
        while answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            answer = wire.call(OffsetCommitRequest(group_id=name, topics=[named]), 8, OffsetCommitResponse)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    listed = wire.call(ListGroupsRequest(), 4, ListGroupsResponse)
    assert {group.group_id for group in listed.groups} >= set(names)
    assert node.metric(f'kafka_consumergroup_current_offset_sum{{consumergroup="..",topic="{topic}"}}') == 1
    deleted = wire.call(DeleteGroupsRequest(groups_names=names), 2, DeleteGroupsResponse)
    assert {group.error_code for group in deleted.results} == {ErrorCode.NONE}


@pytest.mark.parametrize("client_id", ["../../x", "a\nERROR forged: line", "\x1b[2J", "x" * 32767])
def test_client_ids_reach_no_log_line_and_no_path(node: NodeUnderAttack, client_id: str) -> None:
    with Wire(node.bootstrap_servers, client_id=client_id) as wire:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        join = JoinGroupRequest(
            group_id="g", session_timeout_ms=6000, rebalance_timeout_ms=6000, protocol_type="c", protocols=[protocol]
        )
        assert wire.call(join, 5, JoinGroupResponse).error_code == ErrorCode.MEMBER_ID_REQUIRED
        wire.socket.sendall(struct.pack(">i", -1))
        assert wire.socket.recv(1) == b""
    assert "forged" not in node.log and "\x1b" not in node.log


def test_the_node_found_no_bug_of_its_own(node: NodeUnderAttack) -> None:
    assert "Traceback" not in node.log and "CRITICAL" not in node.log

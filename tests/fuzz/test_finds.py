"""What ./dev fuzz found, each as the request that did it: a node that stopped, an answer that could not be written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tidelog.testing import Broker
from tidelog.testing.wire import Wire

LONGEST = "x" * 32767


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        with Wire(broker.bootstrap_servers) as wire:
            wire.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4, FindCoordinatorResponse)
        yield broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as wire:
        yield wire


def join(*protocols: str, instance_id: str | None = None, group_id: str = "g") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=b"m") for name in protocols],
    )


def test_a_protocol_named_twice_counts_once(wire: Wire) -> None:
    """Its support was counted twice, nobody seemed to support it, and the node stopped."""
    answer = wire.call(join("range", "range", group_id="twice"), 3, JoinGroupResponse)
    assert (answer.error_code, answer.protocol_name) == (ErrorCode.NONE, "range")


@pytest.mark.parametrize("version", [10, 11, 12])
def test_an_unknown_topic_id_in_a_version_whose_answer_needs_a_name(wire: Wire, version: int) -> None:
    topic = MetadataRequest.MetadataRequestTopic(topic_id=b"\x01" * 16, name=None)
    answer = wire.call(MetadataRequest(topics=[topic]), version, MetadataResponse).topics[0]
    assert (answer.error_code, answer.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None if version >= 12 else "")


def test_a_message_that_quotes_too_much_is_cut(wire: Wire) -> None:
    """A string of the protocol has an end; the node stopped when its own sentence was longer."""
    topic = CreateTopicsRequest.CreatableTopic(name=LONGEST, num_partitions=1, replication_factor=1)
    answer = wire.call(CreateTopicsRequest(topics=[topic]), 6, CreateTopicsResponse).topics[0]
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert answer.error_message is not None and answer.error_message.endswith("...")
    assert len(answer.error_message) <= 1024


def test_a_member_id_made_of_a_long_name_can_be_told(broker: Broker, wire: Wire) -> None:
    answer = wire.call(join("range", instance_id=LONGEST, group_id="static"), 8, JoinGroupResponse)
    assert answer.error_code == ErrorCode.NONE and answer.leader == answer.member_id
    with Wire(broker.bootstrap_servers, client_id=LONGEST) as named:
        answer = named.call(join("range", group_id="named"), 8, JoinGroupResponse)
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert answer.member_id.startswith("xxx") and len(answer.member_id) < 1100


def test_a_retention_without_end_is_the_longest_there_is(broker: Broker, wire: Wire) -> None:
    topic = broker.create_topic()
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    named = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])
    request = OffsetCommitRequest(group_id="long", retention_time_ms=2**63 - 1, topics=[named])
    answer = wire.call(request, 2, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

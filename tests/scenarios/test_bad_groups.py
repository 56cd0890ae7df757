"""Bad requests about groups and transactions get Kafka's error code and change nothing: no record is written, and what
was there is there afterwards. The codes are those of test_group_answers.py and test_transaction_answers.py, which ask a
running Apache Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidelog.protocol.batch import TRANSACTIONAL, RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from tidelog.testing import Broker
from tidelog.testing.wire import Wire

GROUP, TXN = 0, 1
MEMBER = str(uuid.UUID(int=7))
PARTITIONS = 2


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    properties = {"offsets.topic.num.partitions": str(PARTITIONS), "transaction.state.log.num.partitions": "2"}
    with Broker(properties) as broker:
        broker.create_topic("t")
        yield broker


class Scene:
    """A group of the new protocol with one member, and a transactional id with nothing open."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        for key_type in (GROUP, TXN):
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"])
            while wire.call(find, 4, FindCoordinatorResponse).coordinators[0].error_code != ErrorCode.NONE:
                pass
        joined = self.ask(
            ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=MEMBER,
                member_epoch=0,
                rebalance_timeout_ms=1000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            ),
            1,
            ConsumerGroupHeartbeatResponse,
        )
        assert joined.error_code == ErrorCode.NONE
        self.epoch: int = joined.member_epoch
        made = self.ask(
            InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4, InitProducerIdResponse
        )
        while made.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            made = self.ask(
                InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4, InitProducerIdResponse
            )
        assert made.error_code == ErrorCode.NONE
        self.producer_id: int = made.producer_id
        self.producer_epoch: int = made.producer_epoch

    def ask(self, request: Any, version: int, shape: Any) -> Any:
        return self.wire.call(request, version, shape)

    def ends(self) -> dict[tuple[str, int], int]:
        """Where all logs end that a request could have written to."""
        found = {}
        for topic, count in (("t", 1), ("__consumer_offsets", PARTITIONS), ("__transaction_state", 2)):
            partitions = [
                ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count)
            ]
            named = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=partitions)
            answer = self.ask(ListOffsetsRequest(replica_id=-1, topics=[named]), 5, ListOffsetsResponse)
            for partition in answer.topics[0].partitions:
                found[topic, partition.partition_index] = partition.offset
        return found

    # requests: each gives the error code of its answer

    def heartbeat(self, **fields: Any) -> int:
        request = ConsumerGroupHeartbeatRequest(**({"group_id": "g", "member_id": MEMBER} | fields))
        return int(self.ask(request, 1, ConsumerGroupHeartbeatResponse).error_code)

    def joining(self, **fields: Any) -> int:
        new: dict[str, Any] = {"member_id": "new", "member_epoch": 0, "rebalance_timeout_ms": 1000}
        return self.heartbeat(**(new | {"subscribed_topic_names": ["t"], "topic_partitions": []} | fields))

    def classic_join(self, **fields: Any) -> int:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        known: dict[str, Any] = {"group_id": "other", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
        known |= {"member_id": "", "protocol_type": "consumer", "protocols": [protocol]}
        return int(self.ask(JoinGroupRequest(**(known | fields)), 5, JoinGroupResponse).error_code)

    def commit(self, topic: str = "t", **fields: Any) -> int:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        named = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])
        request = OffsetCommitRequest(**({"group_id": "g", "member_id": MEMBER} | fields), topics=[named])
        return int(self.ask(request, 9, OffsetCommitResponse).topics[0].partitions[0].error_code)

    def init(self, **fields: Any) -> int:
        known: dict[str, Any] = {"transactional_id": "x", "transaction_timeout_ms": 1000}
        return int(self.ask(InitProducerIdRequest(**(known | fields)), 4, InitProducerIdResponse).error_code)

    def end(self, version: int = 3, **fields: Any) -> int:
        known: dict[str, Any] = {"transactional_id": "x", "committed": True}
        known |= {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch}
        return int(self.ask(EndTxnRequest(**(known | fields)), version, EndTxnResponse).error_code)

    def add(self, topic: str = "t", **fields: Any) -> int:
        named = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])
        known: dict[str, Any] = {"v3_and_below_transactional_id": "x", "v3_and_below_topics": [named]}
        known |= {
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.producer_epoch,
        }
        answer = self.ask(AddPartitionsToTxnRequest(**(known | fields)), 3, AddPartitionsToTxnResponse)
        (result,) = answer.results_by_topic_v3_and_below
        return int(result.results_by_partition[0].partition_error_code)

    def add_offsets(self, **fields: Any) -> int:
        known: dict[str, Any] = {"transactional_id": "x", "group_id": "g"}
        known |= {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch}
        return int(self.ask(AddOffsetsToTxnRequest(**(known | fields)), 3, AddOffsetsToTxnResponse).error_code)

    def commit_in_transaction(self, **fields: Any) -> int:
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        named = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
        known: dict[str, Any] = {"transactional_id": "x", "group_id": "g", "topics": [named]}
        known |= {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch}
        known |= {"member_id": MEMBER, "generation_id_or_member_epoch": self.epoch}
        answer = self.ask(TxnOffsetCommitRequest(**(known | fields)), 3, TxnOffsetCommitResponse)
        return int(answer.topics[0].partitions[0].error_code)

    def produce(self, version: int, **header: Any) -> int:
        known = {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch, "base_sequence": 0}
        batch = build_batch([RecordInput(None, b"v", 1)], attributes=TRANSACTIONAL, **(known | header))
        data = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
        named = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
        request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=1000, topic_data=[named])
        answer = self.ask(request, version, ProduceResponse)
        return int(answer.responses[0].partition_responses[0].error_code)


E_ = ErrorCode
CASES: dict[str, tuple[Callable[[Scene], int], ErrorCode]] = {
    # groups
    "an unknown member": (lambda s: s.heartbeat(member_id="who", member_epoch=1), E_.UNKNOWN_MEMBER_ID),
    "an epoch that is over": (lambda s: s.heartbeat(member_epoch=s.epoch + 5), E_.FENCED_MEMBER_EPOCH),
    "an epoch below all": (lambda s: s.heartbeat(member_epoch=-3), E_.INVALID_REQUEST),
    "a group that is none": (lambda s: s.heartbeat(group_id="none", member_epoch=1), E_.GROUP_ID_NOT_FOUND),
    "an empty group id": (lambda s: s.joining(group_id=""), E_.INVALID_REQUEST),
    "no rebalance time-out": (lambda s: s.joining(rebalance_timeout_ms=-1), E_.INVALID_REQUEST),
    "no subscription": (lambda s: s.joining(subscribed_topic_names=None), E_.INVALID_REQUEST),
    "an assignor that is none": (lambda s: s.joining(server_assignor="best"), E_.UNSUPPORTED_ASSIGNOR),
    "a pattern that is none": (
        lambda s: s.joining(subscribed_topic_names=None, subscribed_topic_regex="(("),
        E_.INVALID_REGULAR_EXPRESSION,
    ),
    "a session time-out too short": (lambda s: s.classic_join(session_timeout_ms=1), E_.INVALID_SESSION_TIMEOUT),
    "a session time-out too long": (lambda s: s.classic_join(session_timeout_ms=2**31 - 1), E_.INVALID_SESSION_TIMEOUT),
    "a member of before": (lambda s: s.classic_join(member_id="who"), E_.UNKNOWN_MEMBER_ID),
    # offsets
    "a commit of nobody": (
        lambda s: s.commit(member_id="who", generation_id_or_member_epoch=s.epoch),
        E_.UNKNOWN_MEMBER_ID,
    ),
    "a commit in another epoch": (
        lambda s: s.commit(generation_id_or_member_epoch=s.epoch + 9),
        E_.STALE_MEMBER_EPOCH,
    ),
    "a commit to a topic that is gone": (
        lambda s: s.commit("gone", generation_id_or_member_epoch=s.epoch),
        E_.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    # transactions
    "a time-out above the most": (lambda s: s.init(transaction_timeout_ms=900_001), E_.INVALID_TRANSACTION_TIMEOUT),
    "a time-out of nothing": (lambda s: s.init(transaction_timeout_ms=0), E_.INVALID_TRANSACTION_TIMEOUT),
    "an empty transactional id": (lambda s: s.init(transactional_id=""), E_.INVALID_REQUEST),
    "an id that is another's": (lambda s: s.init(producer_id=987_654, producer_epoch=0), E_.PRODUCER_FENCED),
    "the end of what never began": (lambda s: s.end(), E_.INVALID_TXN_STATE),
    "the same of version 2": (lambda s: s.end(5), E_.INVALID_TXN_STATE),
    "the end by nobody": (lambda s: s.end(transactional_id="none"), E_.INVALID_PRODUCER_ID_MAPPING),
    "the end by a zombie": (lambda s: s.end(producer_epoch=s.producer_epoch + 1), E_.PRODUCER_FENCED),
    "a partition that is none": (lambda s: s.add("gone"), E_.UNKNOWN_TOPIC_OR_PARTITION),
    "a partition for a zombie": (
        lambda s: s.add(v3_and_below_producer_epoch=s.producer_epoch + 1),
        E_.PRODUCER_FENCED,
    ),
    "offsets for nobody": (lambda s: s.add_offsets(transactional_id="none"), E_.INVALID_PRODUCER_ID_MAPPING),
    "offsets outside a transaction": (lambda s: s.commit_in_transaction(), E_.INVALID_TXN_STATE),
    "records outside a transaction": (lambda s: s.produce(9), E_.INVALID_TXN_STATE),
    "the same, told to who knows of it": (lambda s: s.produce(11), E_.TRANSACTION_ABORTABLE),
    "records of a zombie": (lambda s: s.produce(12, producer_epoch=s.producer_epoch + 1), E_.INVALID_PRODUCER_EPOCH),
}


@pytest.fixture(scope="module")
def scene(broker: Broker) -> Iterator[Scene]:
    with Wire(broker.bootstrap_servers) as wire:
        yield Scene(wire)


@pytest.mark.parametrize("name", CASES)
def test_is_refused_and_changes_nothing(scene: Scene, name: str) -> None:
    ask, expected = CASES[name]
    before = scene.ends()
    assert ErrorCode(ask(scene)) is expected
    assert scene.ends() == before
    assert scene.heartbeat(member_epoch=scene.epoch) == ErrorCode.NONE, "the member is as it was"

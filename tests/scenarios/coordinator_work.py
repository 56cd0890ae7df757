"""What keeps coordinators busy, request by request: groups of both protocols, commits, transactional ids. For tests
that want `__consumer_offsets` and `__transaction_state` full of records that later ones have replaced."""

from __future__ import annotations

import time
from typing import Any

from msgspec import Struct

from tidelog.client.consumer_protocol import encode_assignment, encode_subscription
from tidelog.client.metadata import TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from tidelog.testing.wire import Wire

Producer = tuple[int, int]
TOPIC = "data"
PARTITIONS = 6
_LATER = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_WITHIN_S = 30.0
_SESSION_MS = 600_000
_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction


class Coordinators:
    """Asked over one connection. What is told to come later is asked again, as clients do."""

    def __init__(self, address: str) -> None:
        self._wire = Wire(address)
        for kind in (0, 1):  # the first to ask has the internal topics made
            self.want(FindCoordinatorRequest(key_type=kind, coordinator_keys=["any"]), 4, FindCoordinatorResponse)

    def __enter__(self) -> Coordinators:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()

    def ask(self, request: Struct, version: int, shape: type[Struct]) -> Any:
        deadline = time.monotonic() + _WITHIN_S
        while True:
            answer: Any = self._wire.call(request, version, shape)
            if _code(answer) not in _LATER or time.monotonic() > deadline:
                return answer
            time.sleep(0.002)

    def want(self, request: Struct, version: int, shape: type[Struct]) -> Any:
        answer = self.ask(request, version, shape)
        assert _code(answer) is ErrorCode.NONE, answer
        return answer

    # commits

    def commit(self, group: str, offset: int, *, metadata: str = "", **fields: Any) -> None:
        partitions = [
            OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset + index, committed_metadata=metadata
            )
            for index in range(PARTITIONS)
        ]
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
        request = OffsetCommitRequest(group_id=group, topics=[topic], **fields)
        # Version 4 is the last in which a commit says itself how long it is kept.
        self.want(request, 4 if "retention_time_ms" in fields else 8, OffsetCommitResponse)

    # a member of a classic group

    def join(self, group: str, member_id: str = "") -> tuple[str, int]:
        """As its only member, and its leader. (member id, generation)"""
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=encode_subscription([TOPIC]))
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_SESSION_MS,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        joined = self.ask(request, 5, JoinGroupResponse)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return self.join(group, joined.member_id)
        assert joined.error_code == ErrorCode.NONE, joined
        all_of_it = encode_assignment([TopicPartition(TOPIC, index) for index in range(PARTITIONS)])
        mine = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=all_of_it)
        sync = SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[mine]
        )
        self.want(sync, 3, SyncGroupResponse)
        return joined.member_id, joined.generation_id

    def beat_classic(self, group: str, member_id: str, generation: int) -> str:
        request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
        return ErrorCode(self.ask(request, 3, HeartbeatResponse).error_code).name

    # a member of a group of the new protocol

    def beat(self, group: str, member_id: str, epoch: int, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
        return self.ask(request, 1, ConsumerGroupHeartbeatResponse)

    def join_new(self, group: str, member_id: str) -> int:
        """Its epoch."""
        fields = {"rebalance_timeout_ms": _SESSION_MS, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
        answer = self.beat(group, member_id, 0, **fields)
        assert answer.error_code == ErrorCode.NONE, answer
        return int(answer.member_epoch)

    # transactions

    def init(self, name: str) -> Any:
        """The answer: of an id in the middle of a transaction the next producer may come after some time."""
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_SESSION_MS)
        return self.ask(request, 4, InitProducerIdResponse)

    def begin(self, name: str) -> Producer:
        answer = self.init(name)
        assert answer.error_code == ErrorCode.NONE, answer
        return answer.producer_id, answer.producer_epoch

    def add(self, name: str, producer: Producer, partition: int) -> str:
        """The error's name: of the first version of transactions."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[_Topic(name=TOPIC, partitions=[partition])],
        )
        return _code(self.ask(request, 3, AddPartitionsToTxnResponse)).name

    def add_second(self, name: str, producer: Producer, partition: int) -> str:
        transaction = _Transaction(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[_Topic(name=TOPIC, partitions=[partition])],
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        return _code(self.ask(request, 5, AddPartitionsToTxnResponse)).name

    def end(self, name: str, producer: Producer, *, committed: bool, version: int = 3) -> Producer:
        """The producer of the next one: version 5 gives each transaction an epoch of its own."""
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=committed
        )
        answer = self.want(request, version, EndTxnResponse)
        return producer if version < 5 else (answer.producer_id, answer.producer_epoch)

    def commit_in_transaction(self, name: str, producer: Producer, group: str, offset: int) -> None:
        who = {"transactional_id": name, "group_id": group, "producer_id": producer[0], "producer_epoch": producer[1]}
        self.want(AddOffsetsToTxnRequest(**who), 3, AddOffsetsToTxnResponse)
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
        self.want(TxnOffsetCommitRequest(**who, topics=[topic]), 3, TxnOffsetCommitResponse)


def _code(answer: Any) -> ErrorCode:
    """The first error in it, wherever it stands."""
    if isinstance(answer, list):
        return next((code for one in answer if (code := _code(one)) is not ErrorCode.NONE), ErrorCode.NONE)
    if not isinstance(answer, Struct):
        return ErrorCode.NONE
    names = answer.__struct_fields__
    for name in names:
        if name.endswith("error_code") and (found := getattr(answer, name)):
            return ErrorCode(found)
    return next(
        (code for name in names if (code := _code(getattr(answer, name))) is not ErrorCode.NONE), ErrorCode.NONE
    )

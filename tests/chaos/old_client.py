"""A transactional producer of version 1, request by request, as librdkafka sends them: AddPartitionsToTxn v0, EndTxn
v1, one epoch for many transactions. It dials again when it is told to, and repeats what it got no answer to."""

from __future__ import annotations

import time
from collections.abc import Callable

from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.codec import decode
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.frame import read_response_head
from tidelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.testing.wire import Wire

TRANSACTIONAL = 0x10
TRANSACTION = 1
"""The key type of FindCoordinator."""
WAIT_S = 30.0
_AGAIN = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


def until_ready(ask: Callable[[], int]) -> ErrorCode:
    """The first answer that does not say "later"."""
    deadline = time.monotonic() + WAIT_S
    while (code := ErrorCode(ask())) in _AGAIN and time.monotonic() < deadline:
        time.sleep(0.02)
    return code


class OldClient:
    def __init__(self, address: str, transactional_id: str, topic: str) -> None:
        self.transactional_id = transactional_id
        self.topic = topic
        self._address = address
        self.wire = Wire(address)
        self._leader = Wire(address)
        self._sequences: dict[int, int] = {}

    def close(self) -> None:
        self.wire.close()
        self._leader.close()

    def dial_again(self) -> None:
        """The connection to the coordinator only, as when an answer did not come in time."""
        self.wire.close()
        self.wire = Wire(self._address)

    def init(self, timeout_ms: int = 60_000) -> None:
        find = FindCoordinatorRequest(key=self.transactional_id, key_type=TRANSACTION)
        code = until_ready(lambda: self.wire.call(find, 2, FindCoordinatorResponse).error_code)
        assert code == ErrorCode.NONE, code.name
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms)

        def ask() -> int:
            answer = self.wire.call(request, 1, InitProducerIdResponse)
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
            return answer.error_code

        code = until_ready(ask)
        assert code == ErrorCode.NONE, code.name

    def add_request(self, *partitions: int) -> AddPartitionsToTxnRequest:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=self.topic, partitions=list(partitions))
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[topic],
        )

    def add(self, *partitions: int) -> ErrorCode:
        request = self.add_request(*partitions)
        return until_ready(lambda: added_code(self.wire.call(request, 0, AddPartitionsToTxnResponse)))

    def produce(self, partition: int, value: str) -> int:
        """The offset that the record got."""
        sequence = self._sequences.get(partition, 0)
        batch = build_batch(
            [RecordInput(None, value.encode(), timestamp=1)],
            attributes=TRANSACTIONAL,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
        )
        data = ProduceRequest.PartitionProduceData(index=partition, records=bytes(batch))
        topic = ProduceRequest.TopicProduceData(name=self.topic, partition_data=[data])
        request = ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=10_000, topic_data=[topic])
        offset = -1

        def ask() -> int:
            nonlocal offset
            answer = self._leader.call(request, 7, ProduceResponse).responses[0].partition_responses[0]
            offset = answer.base_offset
            return answer.error_code

        code = until_ready(ask)
        assert code == ErrorCode.NONE, code.name
        self._sequences[partition] = sequence + 1
        return offset

    def end_request(self, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )

    def end(self, *, commit: bool) -> ErrorCode:
        request = self.end_request(commit=commit)
        return until_ready(lambda: self.wire.call(request, 1, EndTxnResponse).error_code)


def added_code(answer: AddPartitionsToTxnResponse) -> int:
    return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code


def end_answer(frame: bytes, version: int = 1) -> ErrorCode | None:
    """None: the broker closed the connection."""
    if not frame:
        return None
    _, position = read_response_head(EndTxnResponse.API_KEY, version, frame)
    return ErrorCode(decode(EndTxnResponse, version, frame[position:]).error_code)


def add_answer(frame: bytes) -> ErrorCode | None:
    if not frame:
        return None
    _, position = read_response_head(AddPartitionsToTxnResponse.API_KEY, 0, frame)
    return ErrorCode(added_code(decode(AddPartitionsToTxnResponse, 0, frame[position:])))


def state_of(address: str, transactional_id: str) -> tuple[str, set[tuple[str, int]]]:
    """The transaction's state and its partitions, as the coordinator describes them."""
    with Wire(address) as wire:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (found,) = wire.call(request, 0, DescribeTransactionsResponse).transaction_states
    assert found.error_code == ErrorCode.NONE, ErrorCode(found.error_code).name
    return found.transaction_state, {(topic.topic, index) for topic in found.topics for index in topic.partitions}


def last_stable_offset(address: str, topic: str, partition: int = 0) -> int:
    return end_offset(address, topic, partition, committed=True)


def end_offset(address: str, topic: str, partition: int, *, committed: bool) -> int:
    """The last stable offset, or the high watermark."""
    at = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=-1)
    asked = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[at])
    with Wire(address) as wire:
        request = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=[asked])
        (found,) = wire.call(request, 5, ListOffsetsResponse).topics[0].partitions
    assert found.error_code == ErrorCode.NONE, ErrorCode(found.error_code).name
    return found.offset

"""What tests of transactions through a node share: a coordinator that is told what to answer, requests, markers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tidelog.log.transactions import Marker
from tidelog.node.node import Node
from tidelog.protocol.batch import TRANSACTIONAL, RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.fetch import FetchRequest
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.replication.markers import write_marker
from tidelog.replication.partition import Partition

Name = tuple[str, int]


class Asked(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[Name, ...]
    add: bool


class FakeVerifier:
    """Says yes at once, unless it is told to wait or to say something else."""

    def __init__(self, node: Node) -> None:
        self.asked: list[Asked] = []
        self.code = ErrorCode.NONE
        self.waits = False
        self.pending: list[Callable[[], None]] = []
        node.services.transactions = self

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[Name],
        *,
        add: bool,
        done: Callable[[Mapping[Name, ErrorCode]], None],
    ) -> None:
        self.asked.append(Asked(transactional_id, producer_id, producer_epoch, tuple(partitions), add))
        answer = dict.fromkeys(partitions, self.code)
        if self.waits:
            self.pending.append(lambda: done(answer))
        else:
            done(answer)

    def answer(self) -> None:
        """Those that wait, in order."""
        pending, self.pending = self.pending, []
        for done in pending:
            done()


def batch(producer_id: int = 5, epoch: int = 0, sequence: int = 0, *, attributes: int = TRANSACTIONAL) -> bytes:
    return bytes(
        build_batch(
            [RecordInput(None, b"v%d" % sequence, 1)],
            attributes=attributes,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    )


def produce(
    *batches: bytes, transactional_id: str | None = "id", acks: int = -1, first_partition: int = 0
) -> ProduceRequest:
    """One batch for each partition of the topic."""
    data = [
        ProduceRequest.PartitionProduceData(index=index, records=records)
        for index, records in enumerate(batches, first_partition)
    ]
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=data)
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=[topic])


def outcome(answer: ProduceResponse) -> list[tuple[ErrorCode, int]]:
    """Error and base offset of each partition."""
    return [
        (ErrorCode(partition.error_code), partition.base_offset)
        for topic in answer.responses
        for partition in topic.partition_responses
    ]


def partition_of(node: Node, index: int = 0, topic: str = "t") -> Partition:
    partition = node.services.partitions.get(topic, index)
    assert partition is not None
    return partition


def end(
    node: Node,
    producer_id: int = 5,
    *,
    commit: bool,
    epoch: int = 0,
    version: int = 1,
    index: int = 0,
    topic: str = "t",
) -> list[ErrorCode]:
    """Write the marker; the code is in the list as soon as it is known."""
    codes: list[ErrorCode] = []
    marker = Marker(producer_id, epoch, 0, commit, version)
    write_marker(partition_of(node, index, topic), marker, 1, codes.append)  # the time of the batches: no roll between
    return codes


def fetch(offset: int, *, wait_ms: int = 0, committed: bool = True, min_bytes: int = 1) -> FetchRequest:
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic="t", partitions=[wanted])
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=1 << 20, isolation_level=int(committed), topics=[topic]
    )

"""Scenes for test_transaction_answers.py about the data: Produce, Fetch, TxnOffsetCommit, WriteTxnMarkers
and DescribeProducers, and what is in the log afterwards."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tidelog.protocol.batch import TRANSACTIONAL, RecordInput, build_batch, iter_headers, iter_records
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from tidelog.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from tests.scenarios.test_transaction_answers import Scene

Producer = tuple[int, int]


class Data:
    """The topic of a scene, with two partitions."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.topic = f"data-of-{scene.name}"
        wanted = CreateTopicsRequest.CreatableTopic(name=self.topic, num_partitions=2, replication_factor=1)
        scene.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7, CreateTopicsResponse)
        for _ in range(500):
            if self._latest(0).error_code == ErrorCode.NONE:
                break
            time.sleep(0.02)

    def batch(self, producer: Producer, sequence: int, *, attributes: int = TRANSACTIONAL, count: int = 1) -> bytes:
        now_ms = int(time.time() * 1000)
        return bytes(
            build_batch(
                [RecordInput(None, b"%d" % sequence, now_ms)] * count,
                attributes=attributes,
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=sequence,
            )
        )

    def produce(
        self, *batches: bytes, version: int = 11, name: str | None = "", acks: int = -1, patient: bool = True
    ) -> None:
        """A batch for each partition, in the name of the scene unless another is given."""
        partitions = [
            ProduceRequest.PartitionProduceData(index=index, records=records) for index, records in enumerate(batches)
        ]
        topic = ProduceRequest.TopicProduceData(name=self.topic, partition_data=partitions)
        request = ProduceRequest(
            transactional_id=self.scene.name if name == "" else name, acks=acks, timeout_ms=10_000, topic_data=[topic]
        )
        for _ in range(200):
            answer = self.scene.call(request, version, ProduceResponse)
            found = sorted(
                (part.index, ErrorCode(part.error_code).name, part.base_offset)
                for topic in answer.responses
                for part in topic.partition_responses
            )
            # Version 1 is told so while a transaction ends: how often is a matter of time.
            if not patient or not any(code == "NOT_ENOUGH_REPLICAS" for _, code, _ in found):
                break
            time.sleep(0.02)
        self.scene.say(f"produce v{version}: {found}")

    def _latest(self, isolation: int, timestamp: int = -1) -> Any:
        wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=self.topic, partitions=[wanted])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[topic])
        return self.scene.call(request, 7, ListOffsetsResponse).topics[0].partitions[0]

    def stable_by_time(self) -> None:
        """The newest record, and one by its time, of those that a reader of committed records may have."""
        found = [self._latest(1, timestamp) for timestamp in (-3, 1)]
        self.scene.say(f"stable by time: {[(ErrorCode(one.error_code).name, one.offset) for one in found]}")

    def latest(self) -> None:
        self.scene.say(f"latest: {[self._latest(isolation).offset for isolation in (0, 1)]}")

    def read(self, offset: int = 0, *, committed: bool = True, version: int = 11) -> None:
        """What is in partition 0, and what is said of it."""
        wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            isolation_level=int(committed),
            max_bytes=1 << 20,
            topics=[FetchRequest.FetchTopic(topic=self.topic, partitions=[wanted])],
        )
        data = self.scene.call(request, version, FetchResponse).responses[0].partitions[0]
        listed = data.aborted_transactions
        aborted = None if listed is None else [(self.scene.id(one.producer_id), one.first_offset) for one in listed]
        self.scene.say(
            f"read v{version} from {offset}: {ErrorCode(data.error_code).name} {data.high_watermark}"
            f" {data.last_stable_offset} {data.log_start_offset} {aborted}"
        )
        records = bytes(data.records or b"")
        for position, header in iter_headers(records):
            shown = (header.base_offset, header.attributes, self.scene.id(header.producer_id), header.producer_epoch)
            content = [
                (record.offset, record.key, record.value)
                for record in iter_records(records[position : position + header.size], header)
            ]
            self.scene.say(f"  {shown} {header.base_sequence} {header.leader_epoch} {content}")

    def mark(
        self,
        producer: Producer,
        *,
        commit: bool,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
        version: int = 2,
        topic: str | None = None,
    ) -> None:
        named = WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic or self.topic, partition_indexes=[0])
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=producer[0],
            producer_epoch=producer[1],
            transaction_result=commit,
            topics=[named],
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        answer = self.scene.call(WriteTxnMarkersRequest(markers=[marker]), version, WriteTxnMarkersResponse)
        codes = [
            ErrorCode(part.error_code).name for one in answer.markers for told in one.topics for part in told.partitions
        ]
        self.scene.say(f"marker v{version}: {codes}")

    def producers(self) -> None:
        wanted = DescribeProducersRequest.TopicRequest(name=self.topic, partition_indexes=[0, 7])
        answer = self.scene.call(DescribeProducersRequest(topics=[wanted]), 0, DescribeProducersResponse)
        for part in answer.topics[0].partitions:
            shown = sorted(
                (
                    self.scene.id(one.producer_id),
                    one.producer_epoch,
                    one.last_sequence,
                    one.coordinator_epoch,
                    one.current_txn_start_offset,
                )
                for one in part.active_producers
            )
            self.scene.say(f"producers of {part.partition_index}: {ErrorCode(part.error_code).name} {shown}")

    def commit_offset(
        self, producer: Producer, offset: int, *, version: int = 3, topic: str | None = None, **fields: Any
    ) -> None:
        shape = TxnOffsetCommitRequest
        part = shape.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = shape(
            transactional_id=self.scene.name,
            group_id="some group",
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[shape.TxnOffsetCommitRequestTopic(name=topic or self.topic, partitions=[part])],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        answer = self.scene.call(request, version, TxnOffsetCommitResponse)
        codes = [ErrorCode(part.error_code).name for topic in answer.topics for part in topic.partitions]
        self.scene.say(f"commit of offset {offset} v{version}: {codes}")

    def committed(self, *, stable: bool = True) -> None:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=self.topic, partition_indexes=[0])
        request = OffsetFetchRequest(group_id="some group", topics=[topic], require_stable=stable)
        answer = self.scene.call(request, 7, OffsetFetchResponse)
        part = answer.topics[0].partitions[0]
        self.scene.say(f"committed: {ErrorCode(part.error_code).name} {part.committed_offset}")


def data_of_version_1(scene: Scene) -> None:
    data = Data(scene)
    producer = scene.init(2)
    for version in (3, 9, 10, 11):
        data.produce(data.batch(producer, 0), version=version)
    scene.add(producer, (data.topic, 0))
    data.produce(data.batch(producer, 0), data.batch(producer, 0), version=9)
    data.produce(data.batch(producer, 1, count=3))
    data.produce(data.batch(producer, 1, count=3))
    data.produce(data.batch(producer, 7))
    data.latest()
    data.read()
    scene.end(producer, True)
    scene.settle("CompleteCommit")
    data.produce(data.batch(producer, 4), patient=False)
    data.latest()
    data.producers()
    scene.add(producer, (data.topic, 0))
    data.produce(data.batch(producer, 4))
    scene.end(producer, False)
    scene.settle("CompleteAbort")
    for version in (4, 5, 7, 11):
        data.read(version=version)
    data.read(5)
    data.read(committed=False)
    data.producers()


def data_of_version_2(scene: Scene) -> None:
    data = Data(scene)
    producer = scene.init(5)
    data.produce(data.batch(producer, 3), version=12)
    data.produce(data.batch(producer, 0), data.batch(producer, 0), version=12)
    data.stable_by_time()
    data.produce(data.batch(producer, 1), version=12)
    scene.settle("Ongoing")
    data.producers()
    following = scene.end(producer, True, 5)
    scene.settle("CompleteCommit")
    data.produce(data.batch(producer, 2), version=12)
    data.produce(data.batch(following, 2), version=12)
    data.produce(data.batch(following, 0), version=12)
    following = scene.end(following, False, 5)
    scene.settle("CompleteAbort")
    data.produce(data.batch(following, 0), version=12)
    data.latest()
    data.read()
    data.read(committed=False)
    data.producers()


def data_that_is_refused(scene: Scene) -> None:
    data = Data(scene)
    producer = scene.init(2)
    other = (producer[0] + 1_000_000, 0)
    data.produce(data.batch(producer, 0), name=None)
    data.produce(data.batch(producer, 0, attributes=0), data.batch(producer, 0), name=None)
    data.produce(data.batch(producer, 0), data.batch(other, 0))
    data.produce(data.batch(other, 0), version=10)
    data.produce(data.batch(other, 0), version=12)
    data.produce(data.batch((producer[0], 9), 0), version=10)
    data.produce(data.batch((producer[0], 9), 0), version=11)
    data.produce(data.batch((producer[0], 9), 0), version=12)
    data.produce(data.batch(producer, 0), name="nobody", version=10)
    data.produce(data.batch(producer, 0), name="nobody", version=12)
    scene.add(producer, (data.topic, 0))
    data.produce(data.batch(producer, 0))
    data.produce(data.batch(producer, 1, attributes=0), name=None)
    data.produce(data.batch(producer, 1))
    bumped = scene.init(4, producer)
    data.produce(data.batch(producer, 2))
    data.read()
    data.latest()
    scene.add(bumped, (data.topic, 0))
    data.produce(data.batch(bumped, 2))
    data.produce(data.batch(bumped, 0))
    data.producers()


def offsets_in_a_transaction(scene: Scene) -> None:
    data = Data(scene)
    producer = scene.init(2)
    for version in (0, 2, 3, 4):
        data.commit_offset(producer, 5, version=version)
    data.commit_offset(producer, 5, topic="no such topic")
    data.commit_offset(producer, 5, group_id="")
    scene.add_offsets(producer)
    for version in (0, 3, 4):
        data.commit_offset(producer, 5 + version, version=version)
    data.commit_offset((producer[0], 7), 5)
    data.commit_offset((producer[0] + 1_000_000, 0), 5)
    data.commit_offset(producer, 5, generation_id_or_member_epoch=4, member_id="nobody")
    data.commit_offset(producer, 5, member_id="nobody")
    data.commit_offset(producer, 5, group_instance_id="nobody")
    data.committed()
    data.committed(stable=False)
    scene.end(producer, True)
    scene.settle("CompleteCommit")
    data.committed()
    data.commit_offset(producer, 11)
    data.commit_offset(producer, 12, version=5)
    data.committed()
    scene.end(producer, False)
    scene.settle("CompleteAbort")
    data.committed()


def markers(scene: Scene) -> None:
    data = Data(scene)
    producer = scene.init(2)
    scene.add(producer, (data.topic, 0))
    data.produce(data.batch(producer, 0))
    data.mark(producer, commit=False, topic="no such topic")
    data.mark(producer, commit=False, transaction_version=2)
    data.producers()
    data.mark(producer, commit=False, coordinator_epoch=5, version=1)
    data.producers()
    data.mark(producer, commit=True, coordinator_epoch=4)
    data.mark(producer, commit=True, coordinator_epoch=5)
    data.mark((producer[0], 3), commit=True, coordinator_epoch=5, transaction_version=2)
    data.mark((producer[0], 2), commit=True, coordinator_epoch=5)
    data.producers()
    data.latest()
    # It is known to both; 4.3.1 writes it again, a later one does not, and neither does Tidelog.
    data.mark((producer[0], 3), commit=True, coordinator_epoch=5, transaction_version=2)
    data.producers()


DATA_SCENES = [data_of_version_1, data_of_version_2, data_that_is_refused, offsets_in_a_transaction, markers]

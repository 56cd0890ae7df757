"""A log that was damaged while the node was down: its clients hear Kafka's error, everything else is served."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tidelog.node.metrics import render
from tidelog.protocol.batch import RecordInput, build_batch, iter_headers
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.testing import Broker
from tidelog.testing.wire import Wire

BATCHES = 6
BAD = 3


def produce(wire: Wire, topic: str, number: int) -> None:
    batch = build_batch([RecordInput(b"k", b"value-%d" % number, 1000 + number)])
    data = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
    named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    answer = wire.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[named]), 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def fetch(wire: Wire, *wanted: tuple[str, int]) -> list[tuple[ErrorCode, int]]:
    """For each (topic, offset) the error and the number of batches."""
    topics = [
        FetchRequest.FetchTopic(
            topic=topic,
            partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)],
        )
        for topic, offset in wanted
    ]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)
    data = [topic.partitions[0] for topic in wire.call(request, 11, FetchResponse).responses]
    return [(ErrorCode(found.error_code), len(list(iter_headers(found.records or b"")))) for found in data]


def offset_for(wire: Wire, topic: str, timestamp: int) -> tuple[ErrorCode, int]:
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])])
    found = wire.call(request, 5, ListOffsetsResponse).topics[0].partitions[0]
    return ErrorCode(found.error_code), found.offset


def test_a_damaged_batch_gets_corrupt_message_and_the_rest_is_served(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker:
        broker.create_topic("hurt")
        broker.create_topic("sound")
        with Wire(broker.bootstrap_servers) as wire:
            for number in range(BATCHES):
                produce(wire, "hurt", number)
                produce(wire, "sound", number)
    path = tmp_path / "hurt-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    bad = content.index(b"value-%d" % BAD)
    content[bad] ^= 1
    path.write_bytes(content)

    with Broker(data=tmp_path) as broker:
        with Wire(broker.bootstrap_servers) as wire:
            assert fetch(wire, ("hurt", 0), ("sound", 0)) == [(ErrorCode.NONE, BAD), (ErrorCode.NONE, BATCHES)]
            for _ in range(2):
                assert fetch(wire, ("hurt", BAD), ("sound", BAD)) == [
                    (ErrorCode.CORRUPT_MESSAGE, 0),
                    (ErrorCode.NONE, BATCHES - BAD),
                ]
            assert fetch(wire, ("hurt", BAD + 1)) == [(ErrorCode.NONE, BATCHES - BAD - 1)]
            assert offset_for(wire, "hurt", 1000 + BAD) == (ErrorCode.CORRUPT_MESSAGE, -1)
            assert offset_for(wire, "hurt", 1001 + BAD) == (ErrorCode.NONE, BAD + 1)
            produce(wire, "hurt", BATCHES)
            assert fetch(wire, ("hurt", BATCHES)) == [(ErrorCode.NONE, 1)]
        assert broker.log.count("is damaged at position") == 1
        assert broker._node is not None
        assert "tidelog_log_damaged_batches_total 1\n" in render(broker._node)
        read_by_a_client(broker)


def read_by_a_client(broker: Broker) -> None:
    """librdkafka gives what comes before, then the error; a reader that steps over it goes on."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition("hurt", 0, 0)])
    values: list[bytes | None] = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        values.append(message.value())
    assert message is not None and (error := message.error()) is not None
    assert error.code() == KafkaError.INVALID_MSG
    assert values == [b"value-%d" % number for number in range(BAD)]
    consumer.seek(TopicPartition("hurt", 0, BAD + 1))
    while (message := consumer.poll(20)) is not None and message.error() is not None:
        pass  # the fetches that were under way had the same answer
    assert message is not None and message.value() == b"value-%d" % (BAD + 1)
    consumer.close()

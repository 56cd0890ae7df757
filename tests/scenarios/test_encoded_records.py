"""What the encoder makes is taken by a node and read by librdkafka, in every compression."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from tidelog.protocol.compression import Codec
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.protocol.records import encode
from tidelog.protocol.records.from_arrow import from_arrow
from tidelog.testing import Broker
from tidelog.testing.wire import Wire

RECORDS = 500


def table() -> pa.RecordBatch:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.record_batch(
        {
            "key": pa.array([None if number % 3 == 0 else b"%d" % number for number in range(RECORDS)]),
            "value": pa.array([None if number % 7 == 0 else bytes(number) for number in range(RECORDS)]),
            "timestamp": pa.array([1_700_000_000_000 + number for number in range(RECORDS)], pa.timestamp("ms")),
            "headers": pa.array(
                [[{"key": "h", "value": b"%d" % number}] if number % 5 == 0 else None for number in range(RECORDS)],
                headers,
            ),
        }
    )


def produce(wire: Wire, topic: str, batch: bytes) -> int:
    part = ProduceRequest.PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[part])],
    )
    answer = wire.call(request, 9, ProduceResponse).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NONE
    return answer.base_offset


@pytest.mark.parametrize("codec", Codec)
def test_librdkafka_reads_what_was_encoded(broker: Broker, wire: Wire, codec: Codec) -> None:
    topic = broker.create_topic()
    batches = encode(from_arrow(table()), batch_bytes=20_000, codec=codec)
    assert len(batches) > 5
    for batch in batches:
        produce(wire, topic, bytes(batch))
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "none", "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(RECORDS, timeout=30)
    consumer.close()
    assert [message.error() for message in messages] == [None] * RECORDS
    assert [message.offset() for message in messages] == list(range(RECORDS))
    found = [(message.key(), message.value(), message.timestamp()[1], message.headers()) for message in messages]
    assert found == [
        (
            None if number % 3 == 0 else b"%d" % number,
            None if number % 7 == 0 else bytes(number),
            1_700_000_000_000 + number,
            [("h", b"%d" % number)] if number % 5 == 0 else None,
        )
        for number in range(RECORDS)
    ]

"""Records go in as they are and come out as they were."""

from __future__ import annotations

import random
import time

import pytest

from tests.clients.matrix import feature, section
from tests.clients.model import (
    COMPRESSIONS,
    Client,
    ConsumerOptions,
    Partition,
    ProducerOptions,
    Record,
    Refused,
    read,
    values,
)
from tests.clients.served import Served, stored_batches

pytestmark = section("Produce")

MESSAGE_TOO_LARGE = 10


def read_from(client: Client, partition: Partition, count: int) -> list[Record]:
    consumer = client.consumer(ConsumerOptions())
    consumer.assign(partition)
    try:
        return read(consumer, count)
    finally:
        consumer.close()


@feature("compression: {compression}", compression=COMPRESSIONS)
def test_compression(client: Client, topic: str, broker: Served, compression: str) -> None:
    sent = [Record(value=b"%04d " % number * 40, key=b"key %d" % number) for number in range(100)]
    assert client.produce(topic, sent, ProducerOptions(compression=compression)) == list(range(100))
    found = read_from(client, (topic, 0), 100)
    assert [(record.key, record.value) for record in found] == [(record.key, record.value) for record in sent]
    assert [record.offset for record in found] == list(range(100))
    assert {batch.codec for batch in stored_batches(broker, topic)} == {COMPRESSIONS.index(compression)}


@feature("acks: {acks}", acks=("0", "1", "all"))
def test_acks(client: Client, topic: str, acks: str) -> None:
    offsets = client.produce(topic, [Record(value=b"one"), Record(value=b"two")], ProducerOptions(acks=acks))
    if acks != "0":
        assert offsets == [0, 1]
    assert values(read_from(client, (topic, 0), 2)) == [b"one", b"two"]


@feature("idempotent producer")
def test_idempotent(client: Client, topic: str, broker: Served) -> None:
    sent = [Record(value=b"%d" % number) for number in range(20)]
    assert client.produce(topic, sent, ProducerOptions(idempotent=True)) == list(range(20))
    assert client.produce(topic, sent, ProducerOptions(idempotent=True)) == list(range(20, 40))
    found = stored_batches(broker, topic)
    assert len({batch.producer_id for batch in found}) == 2
    assert min(batch.producer_id for batch in found) >= 0
    assert found[0].base_sequence == 0
    assert values(read_from(client, (topic, 0), 40)) == values(sent) * 2


@feature("keys, headers, nulls and timestamps")
def test_whole_records(client: Client, topic: str) -> None:
    sent = [
        Record(
            value=b"v", key=b"k", headers=(("a", b"1"), ("a", b"2"), ("empty", b"")), timestamp_ms=1_700_000_000_000
        ),
        Record(value=None, key=b"tombstone", timestamp_ms=1_600_000_000_000),
        Record(value=b"", key=None, timestamp_ms=1_700_000_000_001),
        Record(value="ä€😀".encode(), key=b"\x00\xff", timestamp_ms=1_700_000_000_002),
    ]
    client.produce(topic, sent, ProducerOptions())
    for before, after in zip(sent, read_from(client, (topic, 0), 4), strict=True):
        assert (after.key, after.value, after.headers) == (before.key, before.value, before.headers)
        assert (after.timestamp_ms, after.append_time) == (before.timestamp_ms, False)


@feature("headers without a value")
def test_null_header(client: Client, topic: str) -> None:
    headers = (("none", None), ("one", b"1"))
    client.produce(topic, [Record(value=b"v", headers=headers)], ProducerOptions())
    assert [record.headers for record in read_from(client, (topic, 0), 1)] == [headers]


@feature("records up to max.message.bytes")
def test_large_records(client: Client, topic: str) -> None:
    options = ProducerOptions(request_bytes_max=4_000_000)
    noise = random.Random(7).randbytes(1_100_000)
    assert client.produce(topic, [Record(value=noise[:1_048_000])], options) == [0]
    with pytest.raises(Refused) as larger:
        client.produce(topic, [Record(value=noise)], options)
    assert larger.value.code == MESSAGE_TOO_LARGE
    assert client.produce(topic, [Record(value=b"small again")], options) == [1]
    assert values(read_from(client, (topic, 0), 2)) == [noise[:1_048_000], b"small again"]


@feature("append time")
def test_append_time(client: Client, name: str) -> None:
    client.create_topic(name, 1, {"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    sent = [Record(value=b"%d" % number * 100, timestamp_ms=1_000) for number in range(10)]
    client.produce(name, sent, ProducerOptions(compression="gzip"))
    for record in read_from(client, (name, 0), 10):
        assert record.append_time
        assert record.timestamp_ms is not None
        assert before_ms <= record.timestamp_ms <= time.time() * 1000


@feature("compression changed by the topic")
def test_recompressed(client: Client, name: str, broker: Served) -> None:
    client.create_topic(name, 1, {"compression.type": "zstd"})
    sent = [Record(value=b"%d" % number * 100, headers=(("h", b"v"),)) for number in range(20)]
    assert client.produce(name, sent, ProducerOptions(compression="lz4", idempotent=True)) == list(range(20))
    found = read_from(client, (name, 0), 20)
    assert [(record.value, record.headers) for record in found] == [(record.value, record.headers) for record in sent]
    assert {batch.codec for batch in stored_batches(broker, name)} == {COMPRESSIONS.index("zstd")}

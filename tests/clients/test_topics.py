"""Topics come, grow, lose their oldest records and go."""

from __future__ import annotations

import pytest

from tests.clients.matrix import feature, section
from tests.clients.model import Client, ConsumerOptions, ProducerOptions, Record, Refused, read, values

pytestmark = section("Topics")

TOPIC_ALREADY_EXISTS = 36
UNKNOWN_TOPIC_OR_PARTITION = 3
OFFSET_OUT_OF_RANGE = 1
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40


@feature("create topic")
def test_create_topic(client: Client, name: str) -> None:
    client.create_topic(name, 3, {"retention.ms": "86400000"})
    assert client.partition_count(name) == 3
    assert client.topic_config(name)["retention.ms"] == "86400000"
    with pytest.raises(Refused) as again:
        client.create_topic(name)
    assert again.value.code == TOPIC_ALREADY_EXISTS
    with pytest.raises(Refused) as nonsense:
        client.create_topic(f"{name}-2", 1, {"retention.ms": "soon"})
    assert nonsense.value.code == INVALID_CONFIG


@feature("list and describe topics")
def test_describe(client: Client, topic: str) -> None:
    assert topic in client.topics()
    assert client.partition_count(topic) == 1
    with pytest.raises(Refused) as unknown:
        client.partition_count(f"{topic}-unknown")
    assert unknown.value.code == UNKNOWN_TOPIC_OR_PARTITION


@feature("create partitions")
def test_create_partitions(client: Client, topic: str) -> None:
    client.create_partitions(topic, 4)
    assert client.partition_count(topic) == 4
    with pytest.raises(Refused) as fewer:
        client.create_partitions(topic, 2)
    assert fewer.value.code == INVALID_PARTITIONS
    client.produce(topic, [Record(value=b"last", partition=3)], ProducerOptions())
    consumer = client.consumer(ConsumerOptions())
    consumer.assign((topic, 3))
    assert values(read(consumer, 1)) == [b"last"]
    consumer.close()


@feature("delete topic")
def test_delete_topic(client: Client, topic: str) -> None:
    client.delete_topic(topic)
    assert topic not in client.topics()
    with pytest.raises(Refused) as again:
        client.delete_topic(topic)
    assert again.value.code == UNKNOWN_TOPIC_OR_PARTITION
    client.create_topic(topic)
    assert client.produce(topic, [Record(value=b"anew")], ProducerOptions()) == [0]


@feature("delete records")
def test_delete_records(client: Client, topic: str) -> None:
    client.produce(topic, [Record(value=b"%d" % number) for number in range(10)], ProducerOptions())
    assert client.delete_records((topic, 0), 4) == 4
    consumer = client.consumer(ConsumerOptions())
    assert consumer.bounds((topic, 0)) == (4, 10)
    consumer.assign((topic, 0))
    assert values(read(consumer, 6)) == [b"%d" % number for number in range(4, 10)]
    consumer.close()
    with pytest.raises(Refused) as beyond:
        client.delete_records((topic, 0), 11)
    assert beyond.value.code == OFFSET_OUT_OF_RANGE

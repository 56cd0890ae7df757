"""Assigned partitions are read from anywhere, and by any client what any other wrote."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from tests.clients.matrix import CLIENTS, feature, section
from tests.clients.model import (
    COMPRESSIONS,
    Client,
    ConsumerOptions,
    ProducerOptions,
    Record,
    read,
    values,
    wait_for,
)
from tests.clients.served import Served, stored_batches

pytestmark = section("Consume")


def numbered(count: int, *, start_ms: int = 1_700_000_000_000) -> list[Record]:
    return [Record(value=b"%d" % number, timestamp_ms=start_ms + number * 1000) for number in range(count)]


@feature("assign, from the earliest")
def test_earliest(client: Client, name: str) -> None:
    client.create_topic(name, 3)
    client.produce(
        name, [Record(value=b"%d" % number, partition=number % 3) for number in range(30)], ProducerOptions()
    )
    consumer = client.consumer(ConsumerOptions(reset="earliest"))
    consumer.assign((name, 0), (name, 2))
    found = read(consumer, 20)
    assert sorted((record.partition, record.offset) for record in found) == [
        (partition, offset) for partition in (0, 2) for offset in range(10)
    ]
    assert all(record.value == b"%d" % (record.offset * 3 + record.partition) for record in found)
    consumer.close()


@feature("assign, from the latest")
def test_latest(client: Client, topic: str) -> None:
    client.produce(topic, [Record(value=b"old")] * 5, ProducerOptions())
    consumer = client.consumer(ConsumerOptions(reset="latest"))
    consumer.assign((topic, 0))
    numbers = itertools.count()

    def newest() -> list[Record]:
        client.produce(topic, [Record(value=b"new %d" % next(numbers))], ProducerOptions())
        return consumer.poll()

    found = wait_for("a record written after the consumer looked", newest)
    assert all(str(record.value).startswith("b'new") for record in found)
    consumer.close()


@feature("seek to an offset")
def test_seek(client: Client, topic: str) -> None:
    client.produce(topic, numbered(10), ProducerOptions())
    consumer = client.consumer(ConsumerOptions())
    consumer.assign((topic, 0))
    read(consumer, 10)
    consumer.seek((topic, 0), 6)
    assert values(read(consumer, 4)) == [b"6", b"7", b"8", b"9"]
    consumer.seek_to_beginning((topic, 0))
    assert values(read(consumer, 10))[0] == b"0"
    assert consumer.bounds((topic, 0)) == (0, 10)
    consumer.close()


@feature("seek by time")
def test_seek_by_time(client: Client, topic: str) -> None:
    start_ms = 1_700_000_000_000
    client.produce(topic, numbered(10, start_ms=start_ms), ProducerOptions(compression="gzip"))
    consumer = client.consumer(ConsumerOptions())
    consumer.assign((topic, 0))
    read(consumer, 10)
    assert consumer.offset_for_time((topic, 0), start_ms - 1) == 0
    assert consumer.offset_for_time((topic, 0), start_ms + 3000) == 3
    assert consumer.offset_for_time((topic, 0), start_ms + 9001) is None
    offset = consumer.offset_for_time((topic, 0), start_ms + 6500)
    assert offset == 7
    consumer.seek((topic, 0), offset)
    assert values(read(consumer, 3)) == [b"7", b"8", b"9"]
    consumer.close()


@feature("its batches are read by every other client")
def test_read_by_others(client: Client, topic: str, broker: Served, client_of: Callable[[str], Client]) -> None:
    sent = []
    for compression in COMPRESSIONS:
        records = [
            Record(value=b"%s %d " % (compression.encode(), number) * 30, key=b"k", headers=(("h", b"%d" % number),))
            for number in range(20)
        ]
        client.produce(topic, records, ProducerOptions(compression=compression))
        sent += [(record.key, record.value, record.headers) for record in records]
    assert {batch.codec for batch in stored_batches(broker, topic)} == set(range(len(COMPRESSIONS)))
    for reader in CLIENTS:
        consumer = client_of(reader).consumer(ConsumerOptions())
        consumer.assign((topic, 0))
        found = read(consumer, len(sent))
        consumer.close()
        assert [(record.key, record.value, record.headers) for record in found] == sent, f"read by {reader}"

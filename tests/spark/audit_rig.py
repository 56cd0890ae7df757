"""For the tests of the audit: records with real clients, and tables that hold what another client has read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    time_ms: int


class MemoryTable:
    """Rows in the order of chance and in small batches, as a table with many files may give them."""

    def __init__(self, rows: Iterable[Row], batch_rows: int = 50) -> None:
        self.held = list(rows)
        self._batch_rows = batch_rows

    def rows(self) -> Iterator[pa.RecordBatch]:
        shuffled = list(self.held)
        Random(7).shuffle(shuffled)
        for first in range(0, len(shuffled), self._batch_rows):
            part = shuffled[first : first + self._batch_rows]
            columns = list(zip(*part, strict=True))
            yield pa.record_batch([*columns[:3], [time * 1000 for time in columns[3]]], schema=SCHEMA)

    def without(self, topic: str, partition: int, offsets: Sequence[int]) -> MemoryTable:
        lost = {(topic, partition, offset) for offset in offsets}
        assert lost <= {row[:3] for row in self.held}
        return MemoryTable(row for row in self.held if row[:3] not in lost)

    def with_again(self, topic: str, partition: int, offsets: Sequence[int], copies: int = 1) -> MemoryTable:
        again = {(topic, partition, offset) for offset in offsets}
        return MemoryTable([*self.held, *(row for row in self.held if row[:3] in again for _ in range(copies))])

    def plus(self, *rows: Row) -> MemoryTable:
        return MemoryTable([*self.held, *rows])


def landed(bootstrap: str, partitions: Iterable[tuple[str, int]], isolation: str = "read_committed") -> MemoryTable:
    """What librdkafka reads of these partitions up to their ends now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "lander",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        left = set(partitions)
        consumer.assign([TopicPartition(*at, 0) for at in left])
        rows: list[Row] = []
        while left:
            for message in consumer.consume(5000, 0.5):
                error = message.error()
                at = (message.topic(), message.partition())
                if error is None:
                    rows.append(Row(*at, message.offset(), message.timestamp()[1]))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(at)
                else:
                    raise AssertionError(error)
        return MemoryTable(rows)
    finally:
        consumer.close()


def produce(bootstrap: str, topic: str, records: Iterable[tuple[int, int]], **config: object) -> None:
    """(partition, time in ms) each; in one batch as far as it goes, for tests that need one."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5000, "enable.idempotence": True, **config})
    for partition, time_ms in records:
        producer.produce(topic, b"value", partition=partition, timestamp=time_ms)
    assert producer.flush(30) == 0


def transact(bootstrap: str, topic: str, name: str, endings: Iterable[tuple[int, bool]], partition: int = 0) -> None:
    """A transaction for each (records, whether it is committed)."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 5})
    producer.init_transactions(30)
    for count, is_committed in endings:
        producer.begin_transaction()
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=partition)
        assert producer.flush(30) == 0
        if is_committed:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def delete_before(bootstrap: str, topic: str, partition: int, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
        assert future.result(30).low_watermark == offset


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics([topic]).values():
        future.result(30)

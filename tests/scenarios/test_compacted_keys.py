"""A compacted topic in a real process on a real disk, seen from outside: what a consumer finds is the last value of
every key, whatever the cleaner was doing when the node was killed."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tidelog.testing import Broker

CONFIG = {"log.cleaner.backoff.ms": "100", "log.segment.delete.delay.ms": "100"}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(2 << 20),
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
RECORDS = 1_200_000
KEYS = 300_000
CLEANED_S = 90.0


class Writer:
    """Random keys, a tenth of them deleted, and what must be left."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "linger.ms": 20,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 500_000,
            }
        )
        self._chance = random.Random(seed)
        self._number = 0
        self.last: dict[bytes, bytes | None] = {}

    def write(self, count: int) -> None:
        chance, last, produce = self._chance, self.last, self._producer.produce
        for _ in range(count):
            self._number += 1
            key = b"key-%d" % chance.randrange(KEYS)
            value = None if chance.random() < 0.1 else b"value-%d" % self._number
            while True:
                try:
                    produce("keys", value, key, partition=0)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            last[key] = value
        assert self._producer.flush(60) == 0

    def end(self) -> int:
        """The offset behind all that was written."""
        return self._number


def read_all(broker: Broker) -> list[tuple[int, bytes, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("keys", 0, 0)])
    found: list[tuple[int, bytes, bytes | None]] = []
    while True:
        messages = consumer.consume(100_000, timeout=10)
        assert messages, f"only {len(found)} records came, and no end"
        for message in messages:
            if (error := message.error()) is None:
                found.append((message.offset() or 0, message.key() or b"", message.value()))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                consumer.close()
                return found


def wait_cleaned(data: Path, until: int) -> None:
    """Up to an offset. The checkpoint is the one place where that can be seen from outside."""
    deadline = time.monotonic() + CLEANED_S
    lines: list[str] = []
    while time.monotonic() < deadline:
        try:
            lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()
        except FileNotFoundError:
            lines = []
        for line in lines:
            if line.startswith("keys 0 ") and int(line.rpartition(" ")[2]) >= until:
                return
        time.sleep(0.05)
    pytest.fail(f"not cleaned to {until} after {CLEANED_S} s: {lines}")


def compare(found: list[tuple[int, bytes, bytes | None]], last: dict[bytes, bytes | None]) -> None:
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets)), "an offset went back"
    seen = {key: value for _, key, value in found}
    wanted = {key: value for key, value in last.items() if value is not None}
    assert {key: value for key, value in seen.items() if value is not None} == wanted


@pytest.mark.timeout(300)
def test_millions_of_random_keys_compacted_and_compared(tmp_path: Path) -> None:
    with Broker(CONFIG, process=True, data=tmp_path) as broker:
        broker.create_topic("keys", config=COMPACTED)
        writer = Writer(broker, seed=7)
        writer.write(RECORDS)
        # The active segment is never cleaned: its part is at most what fits into one.
        wait_cleaned(tmp_path, writer.end() * 3 // 4)
        found = read_all(broker)
        assert len(found) < RECORDS * 2 // 3, "next to nothing was cleaned"
        compare(found, writer.last)


@pytest.mark.timeout(300)
def test_kills_while_the_cleaner_works(tmp_path: Path) -> None:
    """Six kills -9 at random moments of cleaning and writing."""
    chance = random.Random(3)
    broker = Broker(CONFIG, process=True, data=tmp_path).start()
    last: dict[bytes, bytes | None] = {}
    end = 0
    try:
        broker.create_topic("keys", config=COMPACTED | {"segment.bytes": str(1 << 20)})
        for number in range(6):
            writer = Writer(broker, seed=number)
            writer.write(40_000)
            last |= writer.last
            end += writer.end()
            time.sleep(chance.random() * 0.4)  # somewhere within the cleaner's work: there is no event to wait for
            broker.kill()
            broker = Broker(CONFIG, process=True, data=tmp_path).start()
        wait_cleaned(tmp_path, end // 2)
        compare(read_all(broker), last)
    finally:
        broker.stop()

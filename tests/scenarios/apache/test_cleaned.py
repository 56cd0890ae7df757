"""A directory whose compacted topic Tidelog has cleaned goes to Apache Kafka and comes back: the same records, the same
committed positions, and Apache's cleaner goes on where ours has ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.scenarios.apache.content import commit, create, produce
from tests.scenarios.apache.stages import at_apache, at_tidelog
from tidelog.log.checkpoints import CLEANER_OFFSETS, decode_offsets
from tools.apache import why_not

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]
TOPIC = "cleaned"
CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "86400000",
}
CLEANER = {"log.cleaner.backoff.ms": "200", "log.flush.offset.checkpoint.interval.ms": "500"}
RECORDS = 400
KEYS = 40


def fill(bootstrap: str, first: int) -> None:
    """Plain and transactional, some of it aborted, some of it tombstones; each part in a segment of its own."""
    plain = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4"})
    start_ms = int(time.time() * 1000) - 86_400_000 + first * 10_000
    for number in range(first, first + RECORDS // 2):
        value = None if number % 9 == 8 else b"plain %d" % number
        plain.produce(TOPIC, value, b"%d" % (number * 7 % KEYS), partition=0, timestamp=start_ms + number * 100)
        if number % 50 == 49:
            plain.flush(10)
    plain.flush(10)
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t{first}"})
    transactional.init_transactions(20)
    for batch in range(4):
        transactional.begin_transaction()
        for number in range(batch, batch + 10):
            transactional.produce(
                TOPIC,
                b"%s %d" % (b"good" if batch % 2 else b"bad", first + number),
                b"%d" % number,
                partition=0,
                timestamp=start_ms + 60_000 * (batch + 1),
            )
        transactional.flush(10)
        transactional.commit_transaction(20) if batch % 2 else transactional.abort_transaction(20)


def read(bootstrap: str) -> list[tuple[int, bytes | None, bytes | None, int]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"})
    try:
        at = TopicPartition(TOPIC, 0, 0)
        consumer.assign([at])
        _, high = consumer.get_watermark_offsets(at, timeout=10)
        found = []
        deadline = time.monotonic() + 30
        while consumer.position([at])[0].offset < high:
            assert time.monotonic() < deadline, consumer.position([at])
            for message in consumer.consume(500, 0.2):
                assert message.error() is None
                found.append((message.offset(), message.key(), message.value(), message.timestamp()[1]))
        return found
    finally:
        consumer.close()


def cleaned_to(data: Path) -> int:
    path = data / CLEANER_OFFSETS
    return decode_offsets(path.read_bytes(), str(path)).get((TOPIC, 0), 0) if path.exists() else 0


def wait_cleaned(data: Path, after: int) -> int:
    deadline = time.monotonic() + 60
    while (found := cleaned_to(data)) <= after:
        assert time.monotonic() < deadline, f"cleaned to {found}"
        time.sleep(0.2)
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if missing := why_not():
        pytest.skip(f"no Apache Kafka to exchange directories with: {missing}")
    yield tmp_path_factory.mktemp("cleaned")


def values(records: list[tuple[int, bytes | None, bytes | None, int]]) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value, _ in records}


def test_apache_opens_reads_and_cleans_what_we_have_cleaned(home: Path) -> None:
    data = home / "data"
    with at_tidelog([data], CLEANER) as broker:
        bootstrap = broker.bootstrap_servers
        create(bootstrap, {TOPIC: (1, CONFIG), "other": (1, {})})
        produce(bootstrap, "other", 5, int(time.time() * 1000))
        fill(bootstrap, 0)
        before = read(bootstrap)
        fill(bootstrap, RECORDS)
        first = wait_cleaned(data, RECORDS // 2)
        commit(bootstrap, "simple", {(TOPIC, 0): 17})
        mine = read(bootstrap)
        assert len(mine) < len(before) + RECORDS / 2
    assert not list((data / f"{TOPIC}-0").glob("*.swap"))
    with at_apache(home / "apache", [data], properties={"log.cleaner.backoff.ms": "500"}) as kafka:
        bootstrap = kafka.bootstrap_servers
        theirs = read(bootstrap)
        assert values(theirs) == values(mine)
        assert set(theirs) <= set(mine)
        fill(bootstrap, 2 * RECORDS)
        produce(bootstrap, TOPIC, 3, int(time.time() * 1000))
        second = wait_cleaned(data, first)
        theirs = read(bootstrap)
    assert "as uncleanable" not in kafka.output
    with at_tidelog([data], CLEANER) as broker:
        assert values(read(broker.bootstrap_servers)) == values(theirs)
        assert cleaned_to(data) >= second

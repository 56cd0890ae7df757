"""Producers and consumers of both client libraries that count, a real node, and the tiers that come of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from tidelog.audit import confluent, kafka_python
from tidelog.audit.notices import AUDIT_TOPIC
from tidelog.audit.reading import ReadTiers, read_tiers
from tidelog.audit.stamps import stamp_of
from tidelog.client.cluster import Cluster
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.net import OsNet
from tidelog.testing import Broker

WINDOW_MS = 3_600_000
LATER_MS = 1 << 60


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def tiers_of(bootstrap: str, *, topic: str = AUDIT_TOPIC) -> ReadTiers:
    async def read() -> ReadTiers:
        async with Cluster(OsNet(), SystemClock(), bootstrap) as cluster:
            return await read_tiers(cluster, window_ms=WINDOW_MS, topic=topic)

    return asyncio.run(read())


def read_all(consumer: confluent.AuditedConsumer, count: int) -> Counter[int]:
    """Windows of the records, by the times that the log has."""
    found: Counter[int] = Counter()
    while found.total() < count:
        for message in consumer.consume(100, 5):
            assert message.error() is None
            stamp = stamp_of(message.headers())
            assert stamp is not None and stamp.time_ms == message.timestamp()[1] and stamp.host == "web-3"
            found[stamp.time_ms // WINDOW_MS * WINDOW_MS] += 1
    return found


def test_two_client_libraries_a_log_and_two_groups_balance(bootstrap: str) -> None:
    topic = "orders"
    theirs = confluent.AuditedProducer(
        Producer({"bootstrap.servers": bootstrap}), name="checkout", host="web-3", window_ms=WINDOW_MS
    )
    for number in range(30):
        theirs.produce(topic, b"%d" % number, headers={"mine": b"1"})
        theirs.poll(0)
    assert theirs.close() == 0
    python = kafka_python.AuditedProducer(
        KafkaProducer(bootstrap_servers=bootstrap), name="refunds", host="web-3", window_ms=WINDOW_MS
    )
    for number in range(12):
        python.send(topic, b"%d" % number)
    python.close()

    config = {"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
    client = Consumer(config)
    client.subscribe([topic])
    publish = Producer({"bootstrap.servers": bootstrap})
    consumer = confluent.AuditedConsumer(client, publish, tier="billing", name="b1", window_ms=WINDOW_MS)
    log = read_all(consumer, 42)
    consumer.close()
    reader = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    at = KafkaPythonPartition(topic, 0)
    reader.assign([at])
    reader.seek_to_beginning(at)
    other_publish = KafkaProducer(bootstrap_servers=bootstrap)
    other = kafka_python.AuditedConsumer(reader, other_publish, tier="search", name="s1", window_ms=WINDOW_MS)
    seen = 0
    while seen < 42:
        seen += sum(len(records) for records in other.poll(timeout_ms=1000).values())
    other.close()
    other_publish.close()

    tiers = tiers_of(bootstrap)
    windows = tiers.judge(topic, log, now_ms=LATER_MS, lake=log)
    assert {one.verdict for one in windows} == {"balanced"}, windows
    assert sum(one.counts["producer"] for one in windows) == 42
    assert set(windows[0].counts) == {"producer", "log", "billing", "search", "lake"}
    assert tiers.strangers == 0
    # A row that the lake lost.
    short = log.copy()
    short[max(log)] -= 1
    assert [one.verdict for one in tiers.judge(topic, log, now_ms=LATER_MS, lake=short)][-1] == "off"


def test_a_producer_that_is_not_closed_leaves_its_windows_unknown(bootstrap: str) -> None:
    topic = "payments"
    producer = confluent.AuditedProducer(
        Producer({"bootstrap.servers": bootstrap}), name="gone", host="web-9", window_ms=WINDOW_MS, topics=[topic]
    )
    delivered: list[int] = []
    producer.produce(topic, b"x", on_delivery=lambda _error, message: delivered.append(message.timestamp()[1]))
    assert producer.flush(30) == 0
    assert len(delivered) == 1
    begin = delivered[0] // WINDOW_MS * WINDOW_MS
    windows = tiers_of(bootstrap).judge(topic, {begin: 1}, now_ms=LATER_MS)
    assert [one.verdict for one in windows] == ["unknown"]
    assert windows[0].reasons == ("producer gone on web-9 has not told of it",)


def test_a_producer_goes_on_to_count_when_its_first_notices_are_deleted(bootstrap: str) -> None:
    topic, counts = "refunds", "refund-counts"
    options = {"host": "web-3", "window_ms": WINDOW_MS, "topics": [topic], "audit_topic": counts}
    client = Producer({"bootstrap.servers": bootstrap})
    closed = confluent.AuditedProducer(client, name="gone", **options)
    closed.produce(topic, b"x", timestamp=WINDOW_MS)
    closed.close()
    producer = confluent.AuditedProducer(client, name="stays", **options)
    assert producer.flush(30) == 0
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # Two notices of the one, and the hello of the other.
    for future in admin.delete_records([TopicPartition(counts, 0, 3)]).values():
        assert future.result(30).low_watermark == 3
    nobody = tiers_of(bootstrap, topic=counts)
    assert nobody.forgotten_before_ms is not None, "nothing is left, and all may have been told"
    times: list[int] = []
    producer.produce(topic, b"x", on_delivery=lambda _error, message: times.append(message.timestamp()[1]))
    producer.close()
    now = times[0] // WINDOW_MS * WINDOW_MS
    windows = tiers_of(bootstrap, topic=counts).judge(topic, {WINDOW_MS: 1, now: 1}, now_ms=LATER_MS)
    assert [one.verdict for one in windows] == ["unknown", "balanced"], windows
    assert "may be deleted from the audit topic" in windows[0].reasons[0]

"""The audit of a compacted topic, before and after a real cleaning."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.spark.audit_rig import MemoryTable, Row, landed
from tidelog.spark.audit import audit
from tidelog.spark.link import Link
from tidelog.testing import Broker

pytestmark = pytest.mark.timeout(300)
CONFIG = {"log.cleaner.backoff.ms": "100"}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}
RECORDS = 3_000
KEYS = 300
BEGIN_MS = 1_790_000_000_000


def settled(broker: Broker, topic: str) -> MemoryTable:
    """What is left when the cleaner has done its work: each key once in front of the segment that is written."""
    written = max(int(file.stem) for file in Path(broker.data, f"{topic}-0").glob("*.log"))
    assert written >= KEYS, "there is nothing to clean"
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        found = landed(broker.bootstrap_servers, [(topic, 0)])
        if sum(row.offset < written for row in found.held) == KEYS:
            return found
    raise AssertionError("the cleaner does not clean, or does not end")


def test_a_compacted_topic_is_judged_by_its_final_view() -> None:
    with Broker(CONFIG, process=True) as broker, Link({"bootstrap.servers": broker.bootstrap_servers}) as link:
        bootstrap = broker.bootstrap_servers
        topic = broker.create_topic(config=COMPACTED)
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
        for number in range(RECORDS):
            producer.produce(topic, b"%d " % number * 200, b"%d" % (number * 7919 % KEYS), timestamp=BEGIN_MS + number)
        assert producer.flush(60) == 0
        # A flow that has read all of it before the cleaner came; offsets and times are as they were produced.
        everything = MemoryTable(Row(topic, 0, number, BEGIN_MS + number) for number in range(RECORDS))
        survivors = settled(broker, topic)
        kept = sorted(row.offset for row in survivors.held)
        report = audit(link, everything, [topic], window_ms=100)
        assert report.balanced, report.table()
        assert report.total("records") == len(kept)
        assert report.total("cleaned") == RECORDS - len(kept)
        assert report.partitions[0].log.decoded > 0
        # Each key is among the last records as often as any other, so the last 300 are there, wherever segments begin.
        assert len(report.windows) >= 3
        expected = Counter(BEGIN_MS + offset - offset % 100 for offset in kept)
        assert {window.begin_ms: window.records for window in report.windows} == expected
        assert {window.begin_ms: window.rows for window in report.windows} == expected
        # A flow that came after the cleaner has the rest only, and is as right.
        report = audit(link, survivors, [topic])
        assert report.balanced and report.total("cleaned") == 0
        # Lost and doubled ones are named, also between gaps.
        first, *_, last = kept
        bad = everything.without(topic, 0, [first, last]).with_again(topic, 0, [kept[5]])
        report = audit(link, bad, [topic])
        assert [(span.first, span.last) for span in report.missing] == [(first, first), (last, last)]
        assert [(span.first, span.last) for span in report.doubled] == [(kept[5], kept[5])]
        assert not report.surplus

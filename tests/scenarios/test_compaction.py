"""A node of its own process cleans a topic in its helper while it serves: what a consumer finds, and what the command
line says of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tidelog.testing import Broker
from tools.ports import free_port

pytestmark = pytest.mark.timeout(120)
CONFIG = {
    "log.cleaner.backoff.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "300",
}
TOPIC = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1048576"}
RECORDS = 40_000
KEYS = 2_000


def tidelog(bootstrap: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "tidelog", *arguments, "--bootstrap-server", bootstrap]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def consume(bootstrap: str) -> list[tuple[int, bytes | None, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    try:
        at = TopicPartition("c", 0, 0)
        consumer.assign([at])
        _, high = consumer.get_watermark_offsets(at, timeout=10)
        found: list[tuple[int, bytes | None, bytes | None]] = []
        deadline = time.monotonic() + 60
        while consumer.position([at])[0].offset < high:
            assert time.monotonic() < deadline, consumer.position([at])
            found += [(one.offset(), one.key(), one.value()) for one in consumer.consume(5000, 0.2)]
        return found
    finally:
        consumer.close()


def test_a_consumer_finds_the_last_value_of_each_key(tmp_path: Path) -> None:
    random = Random(1)
    expected: dict[bytes, bytes] = {}
    # The command finds it by the config: the port must be one.
    listener = f"127.0.0.1:{free_port()}"
    with Broker({**CONFIG, "tidelog.http.listener": listener}, process=True, data=tmp_path) as broker:
        bootstrap = broker.bootstrap_servers
        options = [part for name, value in TOPIC.items() for part in ("-c", f"{name}={value}")]
        tidelog(bootstrap, "topic", "create", "c", "-p", "1", *options)
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": RECORDS})
        for number in range(RECORDS):
            key, value = b"%d" % random.randrange(KEYS), b"%d " % number * 30
            expected[key] = value
            producer.produce("c", value, key)
        assert producer.flush(60) == 0
        described: dict[str, Any] = {}
        deadline = time.monotonic() + 60
        while described.get("last_clean_ms") is None or described["dirty_ratio"] > 0:
            assert time.monotonic() < deadline, described
            [topic] = json.loads(tidelog(bootstrap, "topic", "describe", "c", "--json"))
            [described] = topic["partitions"]
        assert described["dirty_ratio"] == 0
        assert 2000 <= time.gmtime(described["last_clean_ms"] / 1000).tm_year < 2100
        [_, line] = tidelog(bootstrap, "topic", "describe", "c").splitlines()
        assert re.search(r"\tDirty: 0\.00\tCleaned: 20\d\d-\d\d-\d\dT[\d:.]+Z$", line), line
        found = consume(bootstrap)
    assert {key: value for _, key, value in found} == expected
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
    assert len(found) < RECORDS / 2
    with Broker(CONFIG, process=True, data=tmp_path) as broker:
        assert {key: value for _, key, value in consume(broker.bootstrap_servers)} == expected

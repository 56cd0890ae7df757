"""No Linux-only call is required: the node serves with uvloop, fcntl and the positional file calls hidden."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, sys
sys.modules["uvloop"] = None
sys.modules["fcntl"] = None
sys.modules["resource"] = None
for name in ("pread", "preadv", "pwrite", "pwritev", "writev", "fdatasync", "posix_fadvise", "sendfile"):
    if hasattr(os, name):
        delattr(os, name)

import asyncio
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from tidelog.testing import Broker

import tempfile
data = tempfile.mkdtemp()
for expected in (0, 3):
    with Broker(data=data) as broker:
        assert type(broker._runner.loop).__module__.startswith("asyncio")
        if not expected:
            broker.create_topic("t")
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        offsets = [producer.send("t", b"v%d" % n, partition=0).get(10).offset for n in range(3)]
        producer.close()
        assert offsets == [expected, expected + 1, expected + 2], offsets
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
        consumer.assign([TopicPartition("t", 0)])
        values = []
        while len(values) < expected + 3:
            for records in consumer.poll(timeout_ms=10_000).values():
                values += [record.value for record in records]
        consumer.close()
        assert values == [b"v0", b"v1", b"v2"] * (1 + expected // 3), values
        try:
            Broker(data=data).start()
        except Exception as error:
            assert "in use by another node" in str(error), error
        else:
            raise AssertionError("two nodes on one directory")
print("served")
"""


def test_a_node_serves_without_anything_that_only_linux_has() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "served\n"), done.stderr

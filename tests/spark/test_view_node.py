"""A view of a compacted topic on a real node: what a consumer sees who reads the topic from its beginning."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.spark.view_rig import read
from tidelog.runtime.clock import SystemClock
from tidelog.spark.lake import LakeTable
from tidelog.spark.pipeline.checking import check
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.proof import Proof
from tidelog.spark.pipeline.runner import Runner
from tidelog.spark.pipeline.sinks import table_of
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}
PARTITIONS = 2
PIPELINE = """\
name: shop
bootstrap.servers: {servers}
lake: lake
defaults:
  restart: {{first: 100ms, most: 200ms, give_up_after: 20}}
flows:
  events: {{kind: ingest, topics: customers}}
  customers: {{kind: view, from: events, buckets: 4}}
"""
Seen = dict[bytes, tuple[bytes, int, int]]  # by key: value, partition, offset


def produce(broker: Broker, seed: int, number: int) -> None:
    random = Random(seed)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20})
    for n in range(number):
        key = b"customer %d" % random.randrange(200)
        producer.produce("customers", None if random.random() < 0.2 else b"%d " % (seed * number + n) * 250, key)
    assert producer.flush(60) == 0


def consume(broker: Broker) -> tuple[set[tuple[int, int]], Seen]:
    """All that is there, from the beginning on: where the records are, and what they come to."""
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**config, "enable.auto.commit": False, "fetch.wait.max.ms": 10})
    left = set(range(PARTITIONS))
    consumer.assign([TopicPartition("customers", partition, 0) for partition in left])
    records, seen = set(), Seen()
    try:
        while left:
            for message in consumer.consume(5000, 0.5):
                error, partition, offset = message.error(), message.partition(), message.offset()
                assert partition is not None and offset is not None
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF
                    left.discard(partition)
                    continue
                records.add((partition, offset))
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                if value is None:
                    seen.pop(key, None)
                else:
                    seen[key] = (bytes(value), partition, offset)
    finally:
        consumer.close()
    return records, seen


def cleaned(broker: Broker, produced: int) -> Seen:
    """When the cleaner has taken most of it."""
    deadline = time.monotonic() + 200
    while True:
        records, seen = consume(broker)
        if len(records) < produced * 0.7:
            return seen
        assert time.monotonic() < deadline, "the cleaner does not clean"


def cleaned_of(broker: Broker, rows: Seen) -> None:
    """When the cleaner has taken a record of the view, because there is a later one."""
    deadline = time.monotonic() + 200
    while {(partition, offset) for _, partition, offset in rows.values()} <= consume(broker)[0]:
        assert time.monotonic() < deadline, "the cleaner does not clean"


def test_the_view_is_what_a_consumer_sees_of_the_compacted_topic(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker({"log.cleaner.backoff.ms": "100"}, process=True) as broker:
        pipeline = load_text(PIPELINE.format(servers=broker.bootstrap_servers), tmp_path, "shop.yaml", {})
        flow = pipeline.flows["customers"]
        broker.create_topic("customers", partitions=PARTITIONS, config=COMPACTED)
        told: list[str] = []

        def run() -> None:
            runner = Runner(pipeline, spark, SystemClock(), told.append, once=True)
            assert runner.run() == 0, told

        produce(broker, 1, 1500)
        with monkeypatch.context() as patch:
            _fail_once_after_the_tables_commit(patch, flow.table.path)
            run()
        assert any("killed here" in line for line in told)
        produce(broker, 2, 4500)
        seen = cleaned(broker, 6000)
        run()
        assert len(seen) > 100
        rows = {key: (v, p, o) for key, v, p, o in read(table_of(flow.table), "key", "value", "partition", "offset")}
        assert rows == seen
        proof = checked(pipeline, spark)
        assert (proof.verdict, proof.counts["rows"], proof.remarks) == ("balanced", len(seen), ())
        # The flow is behind: what it shows is not in the log any more, and not wrong for that.
        produce(broker, 3, 4500)
        cleaned_of(broker, rows)
        proof = checked(pipeline, spark)
        assert proof.balanced, proof.table()
        assert proof.remarks and proof.counts["rows"] < len(seen)


def checked(pipeline: Pipeline, spark: SparkSession) -> Proof:
    ((_, found),) = check(pipeline, ["customers"], lambda line: None, spark=spark)
    assert isinstance(found, Proof)
    return found


def _fail_once_after_the_tables_commit(patch: pytest.MonkeyPatch, path: str) -> None:
    """Before Spark's own: the batch comes again."""
    replace, failed = LakeTable.replace, []

    def failing(self: LakeTable, *arguments: Any, **keywords: Any) -> Any:
        done = replace(self, *arguments, **keywords)
        if self.uri == path and not failed:
            failed.append(path)
            raise RuntimeError("killed here")
        return done

    patch.setattr(LakeTable, "replace", failing)

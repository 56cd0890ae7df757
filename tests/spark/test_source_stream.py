"""`spark.readStream.format("tidelog")`: micro-batches, limits, restarts, and what becomes of the log meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.sourcing import Log, Row, bare, ordered, rows_of
from tidelog.client.errors import raise_first
from tidelog.client.metadata import TopicPartition
from tidelog.client.topics import create_partitions, delete_records, delete_topics
from tidelog.spark.link import Link

pytestmark = pytest.mark.timeout(300)


class Sink:
    """Keeps what each micro-batch brought."""

    def __init__(self) -> None:
        self.batches: list[list[Row]] = []

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.batches.append(rows_of(frame))

    @property
    def rows(self) -> list[Row]:
        return ordered(*self.batches)

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]


class Runs:
    """A query that is run to its end again and again (Trigger.AvailableNow), from one checkpoint."""

    def __init__(self, spark: SparkSession, log: Log, checkpoint: Path, **options: str) -> None:
        self.spark, self.log, self.checkpoint, self.options = spark, log, checkpoint, options

    def once(self, **options: str) -> tuple[Sink, Any]:
        sink = Sink()
        frame = self.log.stream(self.spark, **{**self.options, **options}).load()
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return sink, query


@pytest.fixture
def runs(spark: SparkSession, log: Log, tmp_path: Path) -> Callable[..., Runs]:
    return lambda **options: Runs(spark, log, tmp_path / "checkpoint", **options)


def numbered(count: int, partition: int = 0) -> list[dict[str, Any]]:
    return [{"value": b"%d" % number, "partition": partition} for number in range(count)]


def test_a_query_reads_on_where_it_stopped_within_its_limits_and_sees_new_partitions(
    log: Log, runs: Callable[..., Runs]
) -> None:
    topic = log.topic(2)
    first = log.produce(topic, numbered(90, 0) + numbered(10, 1))
    query = runs(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="50", commitGroup=f"of-{topic}")
    sink, done = query.once()
    assert sink.sizes == [50, 50]  # 45 and 5 of the two partitions, twice
    assert [len([row for row in batch if row.partition == 1]) for batch in sink.batches] == [5, 5]
    assert sink.rows == ordered(first)
    progress = [json.loads(one.json)["sources"][0] for one in done.recentProgress if one.numInputRows]
    ends = [json.loads(json.dumps(one["endOffset"])) for one in progress]
    assert [end[topic] for end in ends] == [{"0": 45, "1": 5}, {"0": 90, "1": 10}]
    with Link({"bootstrap.servers": log.bootstrap}) as link:
        assert ends[0]["$ids"] == link.topic_ids([topic])
        assert link.committed(f"of-{topic}") == {(topic, 0): 90, (topic, 1): 10}
    behind = [one["latestOffset"]["$behind"] for one in progress]
    assert [part["maxOffsetsBehindLatest"] for part in behind] == ["45", "0"]
    assert [part["minOffsetsBehindLatest"] for part in behind] == ["5", "0"]
    assert int(behind[0]["estimatedTotalBytesBehindLatest"]) > 0
    # Nothing new, then new records in old and new partitions.
    assert query.once()[0].rows == []
    raise_first(log.ask(lambda cluster: create_partitions(cluster, {topic: 3})).values())
    with Link({"bootstrap.servers": log.bootstrap}) as link:
        while len(link.existing([topic])[topic]) < 3:  # Apache's answer comes before its brokers know
            time.sleep(0.05)
    second = log.produce(topic, numbered(5, 0) + numbered(7, 2))
    assert query.once()[0].rows == ordered(second)


def test_bytes_bound_a_batch_and_headers_come_along(log: Log, runs: Callable[..., Runs]) -> None:
    topic = log.topic()
    records = [{"value": b"x" * 1000, "headers": [("n", b"%d" % number)]} for number in range(200)]
    rows = log.produce(topic, records)
    query = runs(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="60k", includeHeaders="true")
    sink, _ = query.once()
    assert sink.rows == rows
    assert len(sink.batches) == 4  # 200 records of a little more than 1,000 bytes
    assert 50 <= min(sink.sizes[:-1]) <= max(sink.sizes) <= 60


def test_a_query_that_starts_at_the_end_reads_what_comes(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    topic = log.topic()
    log.produce(topic, numbered(20))
    sink = Sink()
    frame = log.stream(spark, subscribe=topic, minOffsetsPerTrigger="8", maxTriggerDelay="1h").load()
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="100 milliseconds").start()
    try:
        while not query.recentProgress:  # the first micro-batch says where the end was
            query.awaitTermination(1)
        first = log.produce(topic, numbered(5))  # the first ones are taken, however few
        query.processAllAvailable()
        assert bare(sink.rows) == first
        second = log.produce(topic, numbered(5))
        seen = len(query.recentProgress)
        query.awaitTermination(1)
        assert bare(sink.rows) == first, f"five are fewer than minOffsetsPerTrigger, after {seen} triggers"
        second += log.produce(topic, numbered(5))
        query.processAllAvailable()
        assert bare(sink.rows) == first + second
    finally:
        query.stop()


def test_a_topic_that_is_created_again_is_not_taken_for_the_old_one(log: Log, runs: Callable[..., Runs]) -> None:
    topic = log.topic()
    log.produce(topic, numbered(30))
    query = runs(subscribe=topic, startingOffsets="earliest")
    assert len(query.once()[0].rows) == 30
    log.ask(lambda cluster: delete_topics(cluster, [topic]))
    with Link({"bootstrap.servers": log.bootstrap}) as link:
        while link.existing([topic]):
            pass
    log.topic(name=topic)
    rows = log.produce(topic, numbered(40))  # more than before: by offsets alone it would look like ten new ones
    with pytest.raises(StreamingQueryException, match=f"topic {topic} was deleted and created again: its id was"):
        query.once()
    assert query.once(failOnDataLoss="false")[0].rows == rows
    assert query.once()[0].rows == []


def test_retention_that_overtakes_a_query_ends_it_or_is_left_out(log: Log, runs: Callable[..., Runs]) -> None:
    topic = log.topic()
    log.produce(topic, numbered(10))
    query = runs(subscribe=topic, startingOffsets="earliest")
    assert len(query.once()[0].rows) == 10
    rows = log.produce(topic, numbered(30))
    log.ask(lambda cluster: delete_records(cluster, {TopicPartition(topic, 0): 25}))
    with pytest.raises(StreamingQueryException, match=f"{topic}-0 begins at offset 25: 10 to 24 were deleted"):
        query.once()
    assert query.once(failOnDataLoss="false")[0].rows == rows[15:]
    log.ask(lambda cluster: delete_topics(cluster, [topic]))
    with pytest.raises(StreamingQueryException, match=f"{topic}-0 was deleted"):
        query.once()

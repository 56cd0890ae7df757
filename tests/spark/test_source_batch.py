"""`spark.read.format("tidelog")`: whole frames against what a real client wrote, on Tidelog and on Apache Kafka."""

from __future__ import annotations

import datetime
import json
import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.sourcing import Log, Row, bare, ordered, rows_of, send
from tidelog.client.metadata import TopicPartition
from tidelog.client.topics import delete_records
from tidelog.protocol.batch import iter_headers, set_crc
from tidelog.spark.link import Link

pytestmark = pytest.mark.timeout(300)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MINUTE_MS = 60_000


def read(spark: SparkSession, log: Log, **options: str) -> list[Row]:
    """From the broker and from its files, which must be the same."""
    found = rows_of(log.reader(spark, **options).load())
    assert rows_of(log.reader(spark, **options, read="segments", logDirs=str(log.data)).load()) == found
    return found


@pytest.fixture(scope="module")
def two_topics(log: Log) -> tuple[str, str, list[Row]]:
    """Two topics of two partitions: every compression, headers of every kind, null and empty keys and values."""
    first, second = log.topic(2), log.topic(2)
    start_ms = int(time.time() * 1000) - 60 * MINUTE_MS
    rows: list[Row] = []
    for step, codec in enumerate(CODECS):
        for topic, partition in ((first, 0), (first, 1), (second, 1)):
            records = [
                {
                    "key": None if number % 7 == 0 else b"k%d" % number,
                    "value": None if number % 11 == 0 else b"" if number % 13 == 0 else b"%d-" % number * 20,
                    "headers": [("h", b"1"), ("h", None), ("ü", b"")][: number % 4],
                    "partition": partition,
                    "timestamp": start_ms + step * MINUTE_MS + number,
                }
                for number in range(60)
            ]
            rows += log.produce(topic, records, **{"compression.type": codec})
    return first, second, ordered(rows)


def test_the_whole_frame_is_what_was_produced(spark: SparkSession, log: Log, two_topics: tuple) -> None:
    first, second, rows = two_topics
    frame = log.reader(spark, subscribe=f"{first},{second}", includeHeaders="true", minPartitions="7").load()
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert 7 <= frame.rdd.getNumPartitions() <= 9
    assert rows_of(frame) == rows
    assert read(spark, log, subscribe=f"{first},{second}", includeHeaders="true", minPartitions="5") == rows


def test_a_pattern_or_single_partitions_name_what_is_read(spark: SparkSession, log: Log, two_topics: tuple) -> None:
    first, second, rows = two_topics
    whole = log.reader(spark, subscribePattern=f"{first}|{second}.", maxRecordsPerPartition="77").load()
    assert whole.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert rows_of(whole) == bare(row for row in rows if row.topic == first)
    assert whole.rdd.getNumPartitions() == 8  # twice 300 in parts of 75
    assigned = log.reader(spark, assign=json.dumps({first: [1], second: [0, 1]})).load()
    assert rows_of(assigned) == bare(row for row in rows if (row.topic, row.partition) != (first, 0))


def test_offsets_and_times_bound_what_is_read(spark: SparkSession, log: Log, two_topics: tuple) -> None:
    first, _, rows = two_topics
    mine = bare(row for row in rows if row.topic == first)
    offsets = {"startingOffsets": {first: {"0": 13, "1": -2}}, "endingOffsets": {first: {"0": 200, "1": 290}}}
    by_offset = log.reader(spark, subscribe=first, **{name: json.dumps(part) for name, part in offsets.items()}).load()
    assert rows_of(by_offset) == [
        row for row in mine if (13 <= row.offset < 200 if row.partition == 0 else row.offset < 290)
    ]
    # Each codec's records begin a minute later than those before.
    start = min(row.timestamp for row in mine)
    low, high = start + MINUTE_MS, start + 3 * MINUTE_MS + 10
    by_time = log.reader(spark, subscribe=first, startingTimestamp=str(low), endingTimestamp=str(high)).load()
    assert rows_of(by_time) == [row for row in mine if low <= row.timestamp < high]
    late = json.dumps({first: {"0": high, "1": high + 60 * MINUTE_MS}})
    strategy = {"startingOffsetsByTimestamp": late, "startingOffsetsByTimestampStrategy": "latest"}
    assert rows_of(log.reader(spark, subscribe=first, **strategy).load()) == [
        row for row in mine if row.partition == 0 and row.timestamp >= high
    ]
    with pytest.raises(PySparkException, match=f"startingOffsetsByTimestamp: {first}-1 has no record of that time"):
        log.reader(spark, subscribe=first, startingOffsetsByTimestamp=late).load().count()


def test_filters_narrow_the_plan_where_that_is_asked_for_and_allowed(
    spark: SparkSession, log: Log, two_topics: tuple
) -> None:
    first, second, rows = two_topics
    low = min(row.timestamp for row in rows) + 3 * MINUTE_MS
    moment = datetime.datetime.fromtimestamp(low / 1000, datetime.UTC)
    options = {"subscribe": f"{first},{second}", "maxRecordsPerPartition": "60", "filterPushdown": "true"}
    wanted = (F.col("partition") == 1) & (F.col("timestamp") >= F.lit(moment)) & (F.col("offset") < 290)
    narrow = log.reader(spark, **options).load().where(wanted)
    expected = bare(row for row in rows if row.partition == 1 and row.timestamp >= low and row.offset < 290)
    assert rows_of(narrow) == expected
    assert narrow.rdd.getNumPartitions() == 4  # 110 of 300 offsets in two partitions, in parts of at most 60
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        wide = log.reader(spark, **options).load().where(wanted)
        assert rows_of(wide) == expected
        assert wide.rdd.getNumPartitions() == 15
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_a_frame_can_be_used_again_after_a_filter(spark: SparkSession, log: Log, two_topics: tuple) -> None:
    """With push-down Spark would keep the first filter for the second use, and one side's for both."""
    first, _, rows = two_topics
    mine = [row for row in rows if row.topic == first]
    frame = log.reader(spark, subscribe=first).load()
    assert frame.where("partition = 1 and offset < 10").count() == 10
    assert frame.count() == len(mine)
    assert (
        frame.where("partition = 1 and offset < 10").union(frame.where("partition = 0 and offset < 20")).count() == 30
    )


def test_aborted_and_open_transactions_are_left_out_unless_they_are_asked_for(spark: SparkSession, log: Log) -> None:
    topic = log.topic()
    producer = Producer({"bootstrap.servers": log.bootstrap, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions()
    shown: list[Row] = []
    hidden: list[Row] = []
    for number, end in enumerate(("commit", "abort", "commit", "abort", "abort", "commit", "open")):
        producer.begin_transaction()
        rows = send(producer, topic, [{"value": b"%d %d" % (number, one)} for one in range(20)])
        producer.flush()
        if end == "commit":
            producer.commit_transaction()
        elif end == "abort":
            producer.abort_transaction()
        (shown if end == "commit" else hidden).extend(rows)
        # What a producer without transactions writes between them, while they are open.
        shown += log.produce(topic, [{"value": b"between"}]) if end != "open" else []
    small = {"kafka__max.partition.fetch.bytes": "600", "minPartitions": "5"}  # a transaction in several chunks
    assert read(spark, log, subscribe=topic, **small) == ordered(shown)
    assert read(spark, log, subscribe=topic, isolation="read_uncommitted", **small) == ordered(shown, hidden)
    producer.abort_transaction()


def test_a_compacted_topic_has_gaps_and_every_last_value(spark: SparkSession, log: Log) -> None:
    topic = log.topic(cleanup_policy="compact", segment_bytes="1048576", min_cleanable_dirty_ratio="0.01")
    records = [{"key": b"%d" % (number % 30), "value": b"%d " % number * 2000} for number in range(400)]
    rows = log.produce(topic, records, **{"batch.size": 50_000})
    written = sum(len(row.value or b"") for row in rows)  # not a first look at the log, which may be cleaned by then
    with Link({"bootstrap.servers": log.bootstrap}) as link:
        deadline = time.monotonic() + 200
        while sum(len(chunk.data) for chunk in link.fetch(topic, 0, 0, 400)) >= written:
            assert time.monotonic() < deadline, "the log is not cleaned"
            time.sleep(0.1)
    for way in ({}, {"read": "segments", "logDirs": str(log.data)}):
        # (It may be cleaned again between the two.)
        found = rows_of(log.reader(spark, subscribe=topic, minPartitions="4", **way).load())
        assert len(found) < len(rows)
        assert set(found) <= set(rows)
        assert len(set(found)) == len(found)
        assert {row.key: row.value for row in found} == {row.key: row.value for row in rows}


def test_what_retention_took_ends_the_query_or_is_left_out(spark: SparkSession, log: Log) -> None:
    topic = log.topic()
    rows = log.produce(topic, [{"value": b"%d" % number} for number in range(100)])
    log.ask(lambda cluster: delete_records(cluster, {TopicPartition(topic, 0): 40}))
    asked = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 10}})}
    with pytest.raises(
        PySparkException, match=rf"offset 10 of {topic}-0 is not in its log \(40 to 100\).*failOnDataLoss"
    ):
        log.reader(spark, **asked).load().count()
    assert read(spark, log, **asked, failOnDataLoss="false") == rows[40:]
    assert read(spark, log, subscribe=topic) == rows[40:]
    # Planned before, read after: the task finds out.
    frames = [log.reader(spark, subscribe=topic, failOnDataLoss=word).load() for word in ("true", "false")]
    plans = [frame.rdd.map(lambda row: row.offset) for frame in frames]
    assert [plan.getNumPartitions() for plan in plans] == [1, 1]
    log.ask(lambda cluster: delete_records(cluster, {TopicPartition(topic, 0): 70}))
    with pytest.raises(Exception, match="the log begins at 70, offset 40 is gone"):
        plans[0].collect()
    assert plans[1].collect() == list(range(70, 100))


def test_segments_are_read_where_they_are_and_the_broker_where_they_are_not(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    """A copy of the files, with other values in it, shows where the rows come from."""
    topic = log.topic()
    rows = log.produce(topic, [{"value": b"from the broker"}] * 50)
    folder = tmp_path / f"{topic}-0"
    shutil.copytree(log.data / folder.name, folder)
    file = folder / "00000000000000000000.log"
    data = bytearray(file.read_bytes().replace(b"from the broker", b"from the file!!"))
    for position, header in list(iter_headers(data)):
        set_crc(memoryview(data)[position : position + header.size])
    file.write_bytes(data)
    options = {"subscribe": topic, "read": "segments", "logDirs": f"/not/here,{tmp_path}"}
    assert rows_of(log.reader(spark, **options).load()) == [row._replace(value=b"from the file!!") for row in rows]
    # Planned with the directory, read without it.
    plan = log.reader(spark, **options).load().rdd.map(lambda row: bytes(row.value))
    assert plan.getNumPartitions() == 1
    shutil.rmtree(folder)
    assert plan.collect() == [b"from the broker"] * 50

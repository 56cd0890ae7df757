"""Whole frames through the sink, by Spark: what the source reads of it, where keys are placed, errors, streams."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.sinking import committed_values
from tests.spark.sourcing import Log
from tidelog.protocol.partitioner import partition_for_key
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(900)
PAGE = Path(__file__).parents[2] / "docs" / "spark-sink.md"
COLUMNS = (
    "key binary, value binary, topic string, partition int, headers array<struct<key string, value binary>>, n int"
)


@pytest.fixture(scope="module")
def log(broker: Broker) -> Log:
    return Log(broker.bootstrap_servers)


def write(log: Log, frame: DataFrame, **options: str) -> None:
    writer = frame.write.format("tidelog").mode("append").option("kafka.bootstrap.servers", log.bootstrap)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.save()


def rows(log: Log, spark: SparkSession, topic: str) -> list[Any]:
    frame = log.reader(spark, subscribe=topic, includeHeaders="true").load()
    return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))


def test_what_was_written_is_read(spark: SparkSession, log: Log) -> None:
    """Keys, tombstones, headers, two topics, given partitions, columns that are nobody's; in every kind of batch."""
    first, second = log.topic(4), log.topic(2)
    pairs = [("trace", b"1"), ("empty", b""), ("none", None)]
    data = [
        (
            b"%d" % n if n % 3 else None,
            b"v%d" % n if n % 5 else None,
            second if n % 7 == 0 else first,
            n % 2 if n % 4 == 0 else None,
            pairs[: n % 4] or None,
            n,
        )
        for n in range(200)
    ]
    write(
        log,
        spark.createDataFrame(data, COLUMNS).repartition(3),
        kafka__compression__type="zstd",
        kafka__batch__size="500",
    )
    got = rows(log, spark, first) + rows(log, spark, second)

    def seen(key: Any, value: Any, topic: str, headers: Any) -> tuple[Any, ...]:
        return (key, value, topic, tuple(tuple(one) for one in headers or ()))

    assert Counter(seen(row.key, row.value, row.topic, row.headers) for row in got) == Counter(
        seen(key, value, topic, headers) for key, value, topic, _, headers, _ in data
    )
    given = {(key, value, topic): partition for key, value, topic, partition, _, _ in data if value is not None}
    for row in got:
        wanted = given.get((row.key, row.value, row.topic))
        if wanted is not None:
            assert row.partition == wanted
        elif row.key is not None and row.value is not None:
            assert row.partition == partition_for_key(bytes(row.key), 4 if row.topic == first else 2)


def test_a_column_may_give_the_time(spark: SparkSession, log: Log) -> None:
    topic = log.topic()
    frame = spark.sql("SELECT 'a' AS value, TIMESTAMP'2020-01-02 03:04:05.678901Z' AS At UNION ALL SELECT 'b', NULL")
    write(log, frame.coalesce(1), topic=topic, timestampColumn="at")
    times = {bytes(row.value): row.timestamp.timestamp() for row in rows(log, spark, topic)}
    assert times[b"a"] == 1577934245.678
    assert times[b"b"] > 1577934245.678


def test_a_version_of_an_application_is_written_once(spark: SparkSession, log: Log) -> None:
    topic = log.topic(2)
    frame = spark.range(0, 50, 1, 2).selectExpr("cast(id as string) value")
    for version in ("7", "7", "8"):
        write(log, frame, topic=topic, txnAppId="orders", txnVersion=version)
    assert Counter(committed_values(log.bootstrap, topic)) == Counter([*range(50), *range(50)])


def test_at_least_once_needs_no_transaction(spark: SparkSession, log: Log) -> None:
    topic = log.topic(2)
    frame = spark.range(0, 50, 1, 2).selectExpr("cast(id as string) value")
    write(log, frame, topic=topic, delivery="at_least_once", kafka__compression__type="lz4")
    write(log, frame, topic=topic, delivery="at_least_once", kafka__acks="1")
    assert Counter(committed_values(log.bootstrap, topic)) == Counter([*range(50), *range(50)])
    assert {row.offset for row in rows(log, spark, topic) if row.partition == 0} == set(
        range(sum(row.partition == 0 for row in rows(log, spark, topic)))
    ), "markers of transactions would leave gaps"


def test_a_stream_goes_on_where_it_was_stopped(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    """Two runs of two epochs each."""
    target = log.topic(3)
    (tmp_path / "input").mkdir()
    for first in (0, 100):
        for begin in (first, first + 50):
            (tmp_path / "input" / f"{begin}.txt").write_text("\n".join(map(str, range(begin, begin + 50))))
        frame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "input"))
        writer = frame.writeStream.format("tidelog").queryName(f"from-{first}").option("topic", target)
        writer = writer.option("kafka.bootstrap.servers", log.bootstrap)
        query = writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        assert query.exception() is None
        assert sorted(committed_values(log.bootstrap, target)) == list(range(first + 100))


def test_the_programs_of_the_page_run(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) == 2
    for block in blocks:
        program = block.replace("127.0.0.1:9092", log.bootstrap).replace("/tmp/", f"{tmp_path}/")
        exec(compile(program, str(PAGE), "exec"), names)
    texts = [bytes(row.value).decode() for row in rows(log, spark, "orders-loud")]
    assert sorted(texts) == sorted(f"ORDER {number}" for number in range(1000))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("'a' as value", {"topic": "t", "delivery": "once"}, "delivery=once: expected exactly_once or at_least_once"),
        ("'a' as key", {"topic": "t"}, "the column value is not found; the frame has key"),
        ("'a' as value, cast(null as string) as topic", {}, "a row has null as its topic"),
        ("'a' as value, 9 as partition", {"topic": "nine"}, "partition 9; topic nine has the partitions 0 to 0"),
    ],
)
def test_what_cannot_be_done_is_said(
    spark: SparkSession, log: Log, columns: str, options: dict[str, str], message: str
) -> None:
    """tests/unit/spark/test_sink_options.py has all that is said before a job starts."""
    with pytest.raises(Exception) as caught:
        write(log, spark.range(1).selectExpr(*columns.split(", ")), **options)
    assert message in str(caught.value)

"""What the tests of the source share: topics filled by a real client that tells what it wrote, and frames as rows."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Message, Producer
from pyspark.sql import DataFrame, SparkSession

from tidelog.client.cluster import Cluster
from tidelog.client.errors import raise_first
from tidelog.client.topics import NewTopic, create_topics
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.net import OsNet

T = TypeVar("T")
_numbers = itertools.count(1)


class Row(NamedTuple):
    """A row of the source, with the time in ms."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...] | None = None


class Log:
    """A broker under test and what its topics are made of."""

    def __init__(self, bootstrap: str, data: str | os.PathLike[str] = "") -> None:
        """`data`: its data directory, for tests that look into it."""
        self.bootstrap = bootstrap
        self.data = Path(data)

    def ask(self, work: Callable[[Cluster], Awaitable[T]]) -> T:
        """One thing of an administrator."""

        async def run() -> T:
            async with Cluster(OsNet(), SystemClock(), self.bootstrap) as cluster:
                return await work(cluster)

        return asyncio.run(run())

    def topic(self, partitions: int = 1, *, name: str | None = None, **configs: str) -> str:
        name = name or f"source-{os.getpid()}-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        new = NewTopic(name=name, partitions=partitions, replication_factor=1, configs=settings)
        raise_first(self.ask(lambda cluster: create_topics(cluster, [new])).values())
        return name

    def produce(self, topic: str, records: Sequence[Mapping[str, Any]], **configs: Any) -> list[Row]:
        """The rows that the records are, by the broker's own answers. Each gets partition 0 unless it names one."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, **configs})
        rows = send(producer, topic, records)
        assert producer.flush(60) == 0
        return rows

    def reader(self, spark: SparkSession, **options: str) -> Any:
        return _options(spark.read.format("tidelog"), self.bootstrap, options)

    def stream(self, spark: SparkSession, **options: str) -> Any:
        return _options(spark.readStream.format("tidelog"), self.bootstrap, options)


def send(producer: Producer, topic: str, records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Rows that are there once the producer is flushed."""
    rows: list[Row] = []

    def delivered(error: object, message: Message, record: Mapping[str, Any]) -> None:
        assert error is None, error
        kind, timestamp = message.timestamp()
        headers = tuple(record.get("headers", ())) or None  # the report leaves them out
        at = (message.topic(), message.partition(), message.offset())
        rows.append(Row(*at, message.key(), message.value(), timestamp, kind - 1, headers))

    for record in records:
        producer.produce(topic, **{"partition": 0, **record}, on_delivery=partial(delivered, record=record))
        producer.poll(0)
    return rows


def _options(reader: Any, bootstrap: str, options: Mapping[str, str]) -> Any:
    reader = reader.option("kafka.bootstrap.servers", bootstrap)
    for name, value in options.items():
        # Names with a dot are written with two underscores.
        reader = reader.option(name.replace("__", "."), value)
    return reader


def rows_of(frame: DataFrame) -> list[Row]:
    """The whole frame, in the order of the log."""
    table = frame.toArrow().to_pydict()
    headers = table.get("headers", [None] * len(table["offset"]))
    rows = [
        Row(
            table["topic"][i],
            table["partition"][i],
            table["offset"][i],
            table["key"][i],
            table["value"][i],
            round(table["timestamp"][i].timestamp() * 1000),
            table["timestampType"][i],
            None if headers[i] is None else tuple((one["key"], one["value"]) for one in headers[i]),
        )
        for i in range(len(table["offset"]))
    ]
    return sorted(rows, key=lambda row: row[:3])


def ordered(*parts: Iterable[Row]) -> list[Row]:
    return sorted(itertools.chain(*parts), key=lambda row: row[:3])


def bare(rows: Iterable[Row]) -> list[Row]:
    """Without headers, as they are read unless they are asked for."""
    return [row._replace(headers=None) for row in rows]

"""What the tests of the sink share: an epoch without Spark, and a topic as a reader of committed records sees it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from tidelog.spark.link import Link
from tidelog.spark.sink.committing import Committer
from tidelog.spark.sink.options import SinkOptions, parse_sink_options
from tidelog.spark.sink.receipts import Receipt
from tidelog.spark.sink.task import write_rows

NAMES = ("key", "value")


def options(bootstrap: str, **more: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": bootstrap, **{name.replace("__", "."): text for name, text in more.items()}}
    return parse_sink_options(given, stream=True)


def batch(numbers: Iterable[int]) -> pa.RecordBatch:
    texts = [str(number).encode() for number in numbers]
    return pa.record_batch([pa.array(texts, pa.binary()), pa.array(texts, pa.binary())], list(NAMES))


def attempt(given: SinkOptions, sink: str, name: str, numbers: Iterable[int]) -> Receipt:
    """What one attempt at a task leaves behind: rows in an open transaction."""
    receipt = write_rows([batch(numbers)], given, NAMES, sink, name)
    assert isinstance(receipt, Receipt)
    return receipt


def attempts(given: SinkOptions, sink: str, run: str, numbers: Sequence[int], tasks: int) -> list[Receipt]:
    """All tasks of an epoch."""
    return [attempt(given, sink, f"{run}.{task}.0", numbers[task::tasks]) for task in range(tasks)]


class Died(Exception):
    """A driver, at a point."""


def commit(given: SinkOptions, sink: str, epoch: int, receipts: Sequence[Receipt], die_at: str | None = None) -> None:
    """A driver of its own, as after a restart: it knows nothing but what the log tells."""

    def step(name: str) -> None:
        if name == die_at:
            raise Died(name)

    with Link(given.kafka) as link:
        Committer(link, given, sink, step).commit_epoch(epoch, receipts)


def committed_values(bootstrap: str, topic: str) -> list[int]:
    return [int(message.value()) for message in committed_messages(bootstrap, topic)]


def committed_messages(bootstrap: str, topic: str) -> list[Message]:
    """All that a reader with read_committed sees up to the end of the log, by librdkafka. It waits for open
    transactions in the way."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checks",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        partitions = consumer.list_topics(topic, 60).topics[topic].partitions
        ends = {index: consumer.get_watermark_offsets(TopicPartition(topic, index), 60)[1] for index in partitions}
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in partitions])
        found: list[Message] = []
        while ends:
            message = consumer.poll(60)
            assert message is not None, f"nothing more came; {ends} are not at their ends"
            if message.error() is not None:  # the end of what is stable
                index = message.partition()
                if message.offset() >= ends.get(index, 0):
                    ends.pop(index, None)
            else:
                found.append(message)
        return found
    finally:
        consumer.close()

"""The last reads: everything that a reader of committed data finds, from the beginning to the end."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.chaos.history import Assign, End, Op, Poll, Recorder
from tests.chaos.labels import label_of

WAIT_S = 90.0


def key_of(topic: str | None, partition: int | None) -> str:
    return f"{topic}/{partition}"


def read_all(
    servers: str, keys: Iterable[str], recorder: Recorder | None = None, *, committed: bool = True
) -> dict[str, list[str]]:
    """The values of every partition. It ends at the last stable offset: an open transaction would hide the rest, so
    the caller waits until all have ended."""
    places = [key.rpartition("/") for key in keys]
    config = {
        "bootstrap.servers": servers,
        "group.id": "judge",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, int(number), 0) for topic, _, number in places])
    values: dict[str, list[str]] = {f"{topic}/{number}": [] for topic, _, number in places}
    if recorder is not None:
        recorder.note(Assign(tuple(values)))
    ended: set[str] = set()
    deadline = time.monotonic() + WAIT_S
    while len(ended) < len(values):
        assert time.monotonic() < deadline, f"these cannot be read to their ends: {sorted(values.keys() - ended)}"
        op: Op | None = None
        for message in consumer.consume(1000, timeout=0.1):
            key = key_of(message.topic(), message.partition())
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    ended.add(key)
                continue
            value = label_of(message)
            values[key].append(value)
            if recorder is not None:
                op = op or recorder.begin()
                op.actions.append(Poll(key, value, message.offset() or 0))
        if recorder is not None and op is not None:
            op.uncommitted = not committed
            recorder.end(op, "ok")
    if recorder is not None:
        positions = consumer.position([TopicPartition(topic, int(number)) for topic, _, number in places])
        recorder.note(*(End(key_of(at.topic, at.partition), max(at.offset, 0)) for at in positions))
    consumer.close()
    return values

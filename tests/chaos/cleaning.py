"""The end of a run in compacted topics: records that let the last segments roll, until the cleaner has been
everywhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.history import Recorder, Send
from tests.chaos.labels import ID, labelled
from tests.chaos.reading import read_all

CLEANED_S = 60.0
BETWEEN_S = 0.5
"""Longer than a segment lasts: every nudge rolls the one before."""
NAME = "nudge"


def wait_cleaned(servers: str, keys: Sequence[str], recorder: Recorder, say: Callable[[str], None]) -> str | None:
    """Until nothing is left that has a successor but nudges; the reason when that does not come about."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})
    deadline = time.monotonic() + CLEANED_S
    nudges = 0
    while True:
        nudges += 1
        for key in keys:
            _nudge(producer, key, nudges, recorder)
        producer.flush(10)
        time.sleep(BETWEEN_S)
        left = {key: _superseded(values) for key, values in read_all(servers, keys).items()}
        if all(count <= nudges for count in left.values()):
            return None
        if time.monotonic() > deadline:
            return f"the cleaner does not get to the end, records that have a successor: {left}"
        say(f"{sum(left.values())} records to clean")


def _superseded(values: list[str]) -> int:
    return len(values) - len({value.partition("=")[0] for value in values})


def _nudge(producer: Producer, key: str, number: int, recorder: Recorder) -> None:
    topic, _, partition = key.rpartition("/")
    name = f"{recorder.process}:{number}"
    send = Send(key, labelled(NAME, name, is_tombstone=False))
    op = recorder.begin(send)

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            send.offset = message.offset()
        recorder.end(op, "ok" if error is None else "unknown")

    headers = [(ID, name.encode())]
    producer.produce(topic, "0", NAME, partition=int(partition), headers=headers, on_delivery=delivered)

"""The balances of a bank, read from the beginning of its partition to the last stable offset."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.chaos.cleaning import NAME
from tests.chaos.labels import label_of

ACCOUNTS = 8
OPENING = 100
READ_S = 30.0


def read_balances(servers: str, topic: str) -> tuple[list[tuple[int, str]], dict[str, int]]:
    """(offset, label) of all that was read, and the last balance of each account. With one transactional id for the
    bank, no transaction stands astride the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "auditors",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    polls: list[tuple[int, str]] = []
    balances: dict[str, int] = {}
    deadline = time.monotonic() + READ_S
    try:
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, timeout=0.5):
                error = message.error()
                if error is None:
                    polls.append((message.offset() or 0, label_of(message)))
                    name = (message.key() or b"").decode()
                    if name != NAME:
                        balances[name] = int(message.value() or 0)
                elif error.code() == KafkaError._PARTITION_EOF:
                    return polls, balances
        raise TimeoutError(f"{topic} cannot be read to its end")
    finally:
        consumer.close()

"""One librdkafka consumer in a process of its own, for test_group_storm.py: says when it gets and loses partitions.

It ends, and leaves its group, when its standard input does. A line is `+` or `-`, the machine's monotonic clock in
nanoseconds and the partitions; losing is said when the partitions are given back, not before.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import confluent_kafka as ck


def say(sign: str, partitions: list[ck.TopicPartition]) -> None:
    print(sign, time.monotonic_ns(), *(one.partition for one in partitions), flush=True)


def main(topic: str, config: dict[str, Any]) -> None:
    consumer = ck.Consumer(config)
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    def assigned(consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        say("+", partitions)
        consumer.incremental_assign(partitions)

    def revoked(consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        say("-", partitions)
        consumer.incremental_unassign(partitions)

    threading.Thread(target=wait_for_end, daemon=True).start()
    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not ended.is_set():
        consumer.poll(0.05)
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))

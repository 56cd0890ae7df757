"""How long consumers that keep their partitions hear nothing when another one joins: librdkafka's, with records coming
in to every partition a hundred times a second."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

PARTITIONS = 6
MEMBERS = 4
"""Two of them have two partitions, two have one. A fifth takes one partition: three members are not concerned."""
PERIOD_S = 0.01
SETTLE_S = 1.5
PATIENCE_S = 60.0


class Gap(NamedTuple):
    unconcerned_ms: float
    """Longest silence of a partition of a member that lost none."""
    kept_ms: float
    """Of the other partition of the member that lost one."""
    moved_ms: float
    """Of the partition that went to the new member."""
    before_ms: float
    """Of any partition in the two seconds before, when nothing happened."""
    settled_ms: float
    """From the new member's subscription until a record came to it."""


class _Arrivals:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.last_s: dict[int, float] = {}
        self.longest_s: dict[int, float] = {}
        self.owner: dict[int, int] = {}

    def arrived(self, partition: int, owner: int) -> None:
        now_s = time.perf_counter()
        with self.lock:
            if partition in self.last_s:
                waited_s = now_s - self.last_s[partition]
                self.longest_s[partition] = max(self.longest_s.get(partition, 0.0), waited_s)
            self.last_s[partition] = now_s
            self.owner[partition] = owner

    def forget(self) -> dict[int, float]:
        """The longest silences up to now, and begin anew."""
        with self.lock:
            found, self.longest_s = self.longest_s, {}
            return found

    def shares(self) -> list[int]:
        with self.lock:
            return sorted(Counter(self.owner.values()).values())


def measure(address: str, topic: str, group: str, config: dict[str, str]) -> Gap:
    """`config` names the protocol: partition.assignment.strategy, or group.protocol=consumer."""
    arrivals, stop = _Arrivals(), threading.Event()
    threads = [threading.Thread(target=_produce, args=(address, topic, stop))]
    arguments = (address, topic, group, config, arrivals, stop)
    threads += [threading.Thread(target=_consume, args=(number, *arguments)) for number in range(MEMBERS)]
    try:
        for thread in threads:
            thread.start()
        _wait(lambda: arrivals.shares() == [1, 1, 2, 2], "the first members")
        time.sleep(SETTLE_S)
        arrivals.forget()
        time.sleep(SETTLE_S)
        before = max(arrivals.forget().values())
        owners = dict(arrivals.owner)
        started_s = time.perf_counter()
        new = threading.Thread(target=_consume, args=(MEMBERS, *arguments))
        threads.append(new)
        new.start()
        _wait(lambda: MEMBERS in arrivals.owner.values(), "the new member")
        settled_s = time.perf_counter() - started_s
        time.sleep(SETTLE_S)
        silences = arrivals.forget()
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    moved = {partition for partition, owner in owners.items() if arrivals.owner[partition] != owner}
    losers = {owners[partition] for partition in moved}
    kept = {partition for partition, owner in owners.items() if owner in losers} - moved

    def longest(partitions: set[int]) -> float:
        return max((silences[partition] * 1000 for partition in partitions), default=0.0)

    unconcerned = owners.keys() - moved - kept
    return Gap(longest(unconcerned), longest(kept), longest(moved), before * 1000, settled_s * 1000)


def _wait(check: Callable[[], bool], what: str) -> None:
    deadline_s = time.perf_counter() + PATIENCE_S
    while not check():
        if time.perf_counter() > deadline_s:
            raise RuntimeError(f"{what}: not settled after {PATIENCE_S:.0f} s")
        time.sleep(0.02)


def _produce(address: str, topic: str, stop: threading.Event) -> None:
    import confluent_kafka as ck

    producer = ck.Producer({"bootstrap.servers": address, "linger.ms": 0, "acks": "1"})
    next_s = time.perf_counter()
    while not stop.is_set():
        for partition in range(PARTITIONS):
            producer.produce(topic, value=b"x" * 50, partition=partition)
        producer.poll(0)
        next_s += PERIOD_S
        time.sleep(max(0.0, next_s - time.perf_counter()))
    producer.flush(10)


def _consume(
    owner: int, address: str, topic: str, group: str, config: dict[str, str], arrivals: _Arrivals, stop: threading.Event
) -> None:
    import confluent_kafka as ck

    base: dict[str, Any] = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "latest"}
    consumer = ck.Consumer(base | {"enable.auto.commit": False} | config)
    consumer.subscribe([topic])
    while not stop.is_set():
        for message in consumer.consume(100, timeout=0.02):
            if message.error() is None:
                arrivals.arrived(message.partition(), owner)
    consumer.close()

"""How long consumers that keep their partitions hear nothing when another one joins, with records coming in to every
partition a hundred times a second."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from bench.gap_consumers import Consumers, Java, Librdkafka

PARTITIONS = 6
MEMBERS = 4
"""Two of them have two partitions, two have one. A fifth takes one partition: three members are not concerned."""
PERIOD_S = 0.01
SETTLE_S = 1.5
PATIENCE_S = 45.0


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

    def arrived(self, partition: int, owner: int, at_s: float) -> None:
        with self.lock:
            if partition in self.last_s:
                waited_s = at_s - self.last_s[partition]
                self.longest_s[partition] = max(self.longest_s.get(partition, 0.0), waited_s)
            self.last_s[partition] = at_s
            self.owner[partition] = owner

    def forget(self) -> dict[int, float]:
        """The longest silences up to now, and begin anew."""
        with self.lock:
            found, self.longest_s = self.longest_s, {}
            return found

    def shares(self) -> list[int]:
        with self.lock:
            return sorted(Counter(self.owner.values()).values())


def measure(address: str, topic: str, group: str, client: str, config: Mapping[str, str]) -> Gap:
    """`config` names the protocol: partition.assignment.strategy, or group.protocol=consumer."""
    arrivals, stop = _Arrivals(), threading.Event()
    producer = threading.Thread(target=_produce, args=(address, topic, stop))
    kind = Java if client == "java" else Librdkafka
    consumers: Consumers = kind(address, topic, group, config, arrivals.arrived)
    try:
        producer.start()
        for number in range(MEMBERS):
            consumers.start(number)
        _wait(lambda: arrivals.shares() == [1, 1, 2, 2], "the first members")
        time.sleep(SETTLE_S)
        arrivals.forget()
        time.sleep(SETTLE_S)
        before = max(arrivals.forget().values())
        owners = dict(arrivals.owner)
        started_s = time.perf_counter()
        consumers.start(MEMBERS)
        _wait(lambda: MEMBERS in arrivals.owner.values(), "the new member")
        settled_s = time.perf_counter() - started_s
        time.sleep(SETTLE_S)
        silences = arrivals.forget()
    finally:
        stop.set()
        consumers.stop()
        producer.join()
    return _gap(owners, dict(arrivals.owner), silences, before, settled_s)


def _gap(
    owners: dict[int, int], owners_after: dict[int, int], silences: dict[int, float], before: float, settled_s: float
) -> Gap:
    moved = {partition for partition, owner in owners.items() if owners_after[partition] != owner}
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

"""Real members that join, leave and are killed at random, on both protocols: no partition has two owners at once.

The larger storm has scripted members on virtual time: tests/sim/group_storm.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidelog.testing import Broker

PARTITIONS = 12
PLACES = 5
STORMS = 2
STORM_S = 4.0
CALM_S = 60.0
SESSION_MS = 10_000
"""A client that gets no turn for longer is rightly taken for dead; its partitions then have two owners for a while."""
CONFIG = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "0",
}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": 200,
    },
    "consumer": {"group.protocol": "consumer"},
}


class Owned:
    """Which member had each partition, from when to when. Spans are compared at the end, when every line is there."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.spans: dict[int, list[tuple[int, int | None, str]]] = {number: [] for number in range(PARTITIONS)}

    def told(self, member: str, sign: str, at_ns: int, partitions: list[int]) -> None:
        with self.lock:
            for partition in partitions:
                if sign == "+":
                    self.spans[partition].append((at_ns, None, member))
                else:
                    self._close(partition, member, at_ns)

    def gone(self, member: str, at_ns: int) -> None:
        with self.lock:
            for partition in self.spans:
                self._close(partition, member, at_ns)

    def _close(self, partition: int, member: str, at_ns: int) -> None:
        spans = self.spans[partition]
        for place, (start_ns, end_ns, owner) in enumerate(spans):
            if owner == member and end_ns is None:
                spans[place] = (start_ns, at_ns, owner)

    def owners(self) -> dict[int, list[str]]:
        with self.lock:
            return {
                partition: [owner for _, end_ns, owner in spans if end_ns is None]
                for partition, spans in self.spans.items()
            }

    def check(self) -> int:
        """How many spans there are; two that overlap are a failure."""
        for partition, spans in self.spans.items():
            spans.sort(key=lambda span: span[0])
            for (_, end_ns, before), (start_ns, _, after) in pairwise(spans):
                assert end_ns is not None and end_ns <= start_ns, f"partition {partition}: {before} and {after}"
        return sum(map(len, self.spans.values()))


class MemberProcess:
    def __init__(self, name: str, topic: str, config: dict[str, Any], owned: Owned) -> None:
        self.name = name
        self._owned = owned
        script = Path(__file__).with_name("storm_member.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script), topic, json.dumps(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            sign, at_ns, *partitions = line.split()
            self._owned.told(self.name, sign, int(at_ns), list(map(int, partitions)))

    def end(self, kill: bool) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        if kill:
            # What it owned it had until here at least; nobody may have been given it before its session ends.
            killed_ns = time.monotonic_ns()
            self._process.kill()
        self._process.stdin.close()
        self._process.wait(30)
        self._reader.join(30)
        self._process.stdout.close()
        self._owned.gone(self.name, killed_ns if kill else time.monotonic_ns())


def live(
    name: str, topic: str, config: dict[str, Any], owned: Owned, over: threading.Event, calm: threading.Event
) -> None:
    """One member after the other, until the storm is over; the last one stays until it is calm."""
    random = Random(name)
    life = 0
    while not over.is_set():
        life += 1
        member = MemberProcess(f"{name}-{life}", topic, config, owned)
        over.wait(random.uniform(1.0, 5.0))
        if over.is_set():
            calm.wait(CALM_S + 10)
        member.end(kill=not over.is_set() and random.random() < 0.5)


def storm(number: int, topic: str, common: dict[str, Any], groups: dict[str, Owned]) -> None:
    """Members come and go, then those who are left stay until each partition has one owner, then all leave."""
    over, calm = threading.Event(), threading.Event()
    places = [
        threading.Thread(
            target=live,
            args=(f"{number}-{place}", topic, PROTOCOLS[group] | common | {"group.id": group}, owned, over, calm),
        )
        for group, owned in groups.items()
        for place in range(PLACES)
    ]
    for place in places:
        place.start()
    try:
        time.sleep(STORM_S)
        over.set()
        deadline_s = time.monotonic() + CALM_S
        while any(len(owners) != 1 for owned in groups.values() for owners in owned.owners().values()):
            found = {group: owned.owners() for group, owned in groups.items()}
            assert time.monotonic() < deadline_s, f"owners after a minute: {found}"
            time.sleep(0.05)
    finally:
        over.set()
        calm.set()
        for place in places:
            place.join(60)


@pytest.mark.timeout(300)  # each storm may take CALM_S, and the sessions of the killed end before it is calm
def test_no_partition_has_two_owners_in_a_storm() -> None:
    """Over two groups at once, one of each protocol."""
    with Broker(CONFIG, process=True) as broker:
        topic = broker.create_topic("storm", partitions=PARTITIONS)
        common = {"bootstrap.servers": broker.bootstrap_servers, "enable.auto.commit": False}
        groups = {group: Owned() for group in PROTOCOLS}
        for number in range(STORMS):
            storm(number, topic, common, groups)
        for owned in groups.values():
            # While a storm lasts a classic group may be in one long rebalance; but at each end of one all is owned.
            assert owned.check() >= STORMS * PARTITIONS

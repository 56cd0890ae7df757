"""Which workers make up each workload, and when it is at its end.

w2: idempotent producers of three libraries, retries forced, readers by assignment. w3: transactions of sends and polls,
of both versions. w4: exactly-once copying by groups. w5: banks in compacted topics. w6: groups of every protocol,
members that come, go and stall. w7: writes and deletes in a compacted topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.chaos.banks import ACCOUNTS, OPENING, read_balances
from tests.chaos.brokers import Lab
from tests.chaos.crew import Crew
from tests.chaos.faults import DEFAULT
from tests.chaos.history import Bank, Committed, Copy, Meta, Recorder, Total
from tests.chaos.old_client import end_offset
from tests.chaos.workers.base import TRANSACTION_MS

CATCH_UP_S = 90.0
ABORT_BOUND_S = 15.0


@dataclass
class Workload:
    name: str
    topics: dict[str, int]
    staff: Callable[[Crew, bool], None]
    """Adds the workers; with Java or without."""
    faults: tuple[str, ...] = DEFAULT
    copies: list[Copy] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)
    """Groups that must have read all of a topic in the end."""
    banks: list[Bank] = field(default_factory=list)
    is_compacted: bool = False

    def meta(self, seed: int, broker: str) -> Meta:
        compacted = list(self.topics) if self.is_compacted else []
        return Meta(
            workload=self.name, seed=seed, broker=broker, copies=self.copies, compacted=compacted, banks=self.banks
        )

    @property
    def keys(self) -> list[str]:
        return [f"{topic}/{number}" for topic, count in self.topics.items() for number in range(count)]


def _w2(crew: Crew, java: bool) -> None:
    for client in ("confluent", "aiokafka", "kafka-python"):
        crew.add("sender", client, pause_s=0.02)
    crew.add("reader", "confluent")


def _w3(crew: Crew, java: bool) -> None:
    # More pairs of hands than partitions: their transactions meet.
    for number in range(3):
        crew.add("mixer", "confluent", partitions=4, transactional_id=f"mixer-{number}")
    crew.add("mixer", "aiokafka", partitions=4, transactional_id="mixer-aiokafka")
    if java:
        crew.add("mixer", "java", partitions=4, transactional_id="mixer-java")
    crew.add("reader", "confluent", partitions=4)


def _w4(crew: Crew, java: bool) -> None:
    crew.add("sender", "confluent", topic="in", pause_s=0.03)
    fields = {"topic": "in", "target": "out", "group": "copiers"}
    for number in range(2):
        crew.add("copier", "confluent", transactional_id=f"copier-{number}", **fields)
    if java:
        crew.add("copier", "java", transactional_id="copier-java", **fields)


GROUPS = {"eager": "range", "cooperative": "cooperative-sticky", "static": "range", "new": "consumer"}


def _w6(crew: Crew, java: bool) -> None:
    crew.add("sender", "confluent", topic="in", partitions=4, pause_s=0.03)
    for group, assignor in GROUPS.items():
        for number in range(2):
            instance = f"static-{number}" if group == "static" else ""
            crew.add("member", "confluent", topic="in", group=group, assignor=assignor, instance=instance)
    if java:
        crew.add("member", "java", topic="in", group="java-new", assignor="consumer")
        crew.add("member", "java", topic="in", group="java-cooperative", assignor="cooperative-sticky")


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "300",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "500",
}
"""Cleaned all the time, and tombstones go while their successors come."""
CLEANER = {"log.cleaner.backoff.ms": "100"}
BANKS = [Bank(topic=f"bank{number}", accounts=ACCOUNTS, total=ACCOUNTS * OPENING) for number in range(2)]


def _w5(crew: Crew, java: bool) -> None:
    for bank in BANKS:
        crew.add("banker", "confluent", topic=bank.topic, partitions=1, transactional_id=bank.topic)
        crew.add("auditor", "confluent", topic=bank.topic, partitions=1, pause_s=0.1)


def _w7(crew: Crew, java: bool) -> None:
    for number in range(2):
        crew.add("keeper", "confluent", partitions=2, transactional_id=f"keeper-{number}")
    crew.add("keeper", "confluent", partitions=2, pause_s=0.02)
    crew.add("reader", "confluent", partitions=2)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "w2", {"t": 3}, _w2, faults=("kill-node", "cut", "lose-answers", "lose-answers", "pause-client", "calm")
        ),
        Workload("w3", {"t": 4}, _w3),
        Workload(
            "w4",
            {"in": 3, "out": 3},
            _w4,
            copies=[Copy(source="in", target="out", group="copiers")],
            groups={"copiers": "in"},
        ),
        Workload("w5", {bank.topic: 1 for bank in BANKS}, _w5, banks=BANKS, is_compacted=True),
        Workload("w6", {"in": 4}, _w6, groups=dict.fromkeys(GROUPS, "in")),
        Workload("w7", {"t": 2}, _w7, is_compacted=True),
    )
}


def positions(servers: str, group: str, keys: Iterable[str]) -> dict[str, int | None]:
    places = [TopicPartition(key.rpartition("/")[0], int(key.rpartition("/")[2])) for key in keys]
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    try:
        told = consumer.committed(places, timeout=10)
    finally:
        consumer.close()
    return {f"{at.topic}/{at.partition}": at.offset if at.offset >= 0 else None for at in told}


def ends(servers: str, keys: Iterable[str]) -> dict[str, int]:
    """The last stable offsets."""
    settings = {"bootstrap.servers": servers, "group.id": "judge", "isolation.level": "read_committed", "log_level": 0}
    consumer = Consumer(settings)
    found = {}
    for key in keys:
        topic, _, number = key.rpartition("/")
        found[key] = consumer.get_watermark_offsets(TopicPartition(topic, int(number)), timeout=10)[1]
    consumer.close()
    return found


def wait_caught_up(lab: Lab, workload: Workload, say: Callable[[str], None], fill: Callable[[], None]) -> str | None:
    """Until every group has committed all of its topic; the reason when that does not come about. `fill` replaces
    workers that have ended: who was fenced is gone."""
    said = -1
    deadline = time.monotonic() + CATCH_UP_S
    for group, topic in workload.groups.items():
        keys = [key for key in workload.keys if key.rpartition("/")[0] == topic]
        while True:
            try:
                wanted = ends(lab.direct, keys)
                found = positions(lab.direct, group, keys)
            except KafkaException as error:
                say(str(error))
                found, wanted = {}, {"": -1}
            behind = {key: (found.get(key), end) for key, end in wanted.items() if end and found.get(key) != end}
            if not behind:
                break
            if time.monotonic() > deadline:
                return f"group {group} does not get to the end: {behind}"
            if len(behind) != said:
                said = len(behind)
                say(f"group {group} is behind in {said} partitions")
            fill()
            time.sleep(0.3)
    return None


def wait_stable(lab: Lab, workload: Workload, say: Callable[[str], None]) -> str | None:
    """Until no transaction is open: those of clients that are gone end by their time-out."""
    deadline = time.monotonic() + TRANSACTION_MS / 1000 + ABORT_BOUND_S
    while True:
        unstable = {}
        for key in workload.keys:
            topic, _, number = key.rpartition("/")
            stable = end_offset(lab.direct, topic, int(number), committed=True)
            end = end_offset(lab.direct, topic, int(number), committed=False)
            if stable != end:
                unstable[key] = (stable, end)
        if not unstable:
            return None
        if time.monotonic() > deadline:
            return f"transactions stay open, last stable and end offsets: {unstable}"
        say(f"{len(unstable)} partitions have open transactions")
        time.sleep(0.5)


def note_positions(lab: Lab, workload: Workload, recorder: Recorder) -> None:
    """What the groups have committed, as a new client is told."""
    for group, topic in workload.groups.items():
        keys = [key for key in workload.keys if key.rpartition("/")[0] == topic]
        op = recorder.begin()
        op.actions = [Committed(group, key, offset) for key, offset in positions(lab.direct, group, keys).items()]
        recorder.end(op, "ok")


def note_totals(lab: Lab, workload: Workload, recorder: Recorder) -> None:
    for bank in workload.banks:
        _, balances = read_balances(lab.direct, bank.topic)
        recorder.note(Total(f"{bank.topic}/0", len(balances), sum(balances.values())))

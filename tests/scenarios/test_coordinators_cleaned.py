"""Coordinators that load `__consumer_offsets` and `__transaction_state` after a cleaning show and do what they did
before it, and load the compacted tail only.

A node without a cleaner writes the logs and is killed. Its directory is copied. A node with one cleans the original
until the tombstones are gone too, and is killed. Then the two directories are opened, and everything that clients can
ask, and what is answered to their next requests, must be the same.
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.planting import DROPS_LAST, planted
from tests.scenarios.coordinator_work import PARTITIONS, TOPIC, Coordinators, Producer
from tidelog.client.cluster import Cluster
from tidelog.client.configs import ConfigChange, Operation, Resource, ResourceType, alter_configs
from tidelog.client.errors import ClientError
from tidelog.client.group_offsets import delete_offsets, fetch_offsets
from tidelog.client.groups import delete_groups, describe_groups, list_groups
from tidelog.client.metadata import TopicPartition
from tidelog.client.transactions import describe_transactions, list_transactions
from tidelog.coordinator.partitioning import partition_for
from tidelog.protocol.batch import iter_headers, iter_records
from tidelog.protocol.errors import ErrorCode
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.loop import run
from tidelog.runtime.net import OsNet
from tidelog.testing import Broker

pytestmark = pytest.mark.timeout(500)
CONFIG = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "group.max.session.timeout.ms": "600000",
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.session.timeout.ms": "600000",
    # A kill leaves what the kernel has: synced or not is another test's business.
    "tidelog.sync.mode": "page-cache",
}
UNCLEANED = {"log.cleaner.enable": "false"}
SHORT_LIVED = {
    "transactional.id.expiration.ms": "300",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    "offsets.retention.check.interval.ms": "100",
}
ROUNDS = 60
OFFSETS, STATE = "__consumer_offsets-0", "__transaction_state-0"


def named(stem: str, partition: int) -> str:
    """A group in that partition of two."""
    return next(name for n in range(100) if partition_for(name := f"{stem}-{n}", 2) == partition)


PLAIN = [named(stem, 0) for stem in ("plain-a", "plain-b", "plain-c")]
CLASSIC, NEW, DELETED, EXPIRED = (named(stem, 0) for stem in ("classic", "new", "deleted", "expired"))
FILLER = named("filler", 0)
PENDING = named("pending", 1)  # its open transaction holds up the cleaning of its partition
GROUPS = [*PLAIN, CLASSIC, NEW, DELETED, EXPIRED, PENDING]
IDS = ["empty", "committed", "second", "aborted", "ongoing", "offsets", "expired"]


class Work:
    """The state that is made, and what its clients have to remember of it."""

    def __init__(self) -> None:
        self.member = ""
        self.generation = 0
        self.epoch = 0
        self.producers: dict[str, Producer] = {}

    def short_lived(self, broker: Broker) -> None:
        with Coordinators(broker.bootstrap_servers) as coordinators:
            asked(broker, _shorten)
            coordinators.commit(EXPIRED, 5, retention_time_ms=1)
            coordinators.begin("expired")
        deadline = time.monotonic() + 30
        while asked(broker, _short_lived) != ({}, []):
            assert time.monotonic() < deadline, "they do not expire"
            time.sleep(0.05)

    def do(self, broker: Broker) -> None:
        with Coordinators(broker.bootstrap_servers) as coordinators:
            self._groups(coordinators)
            self._transactions(coordinators)
            asked(broker, _delete)
            coordinators.commit_in_transaction("offsets", self.producers["offsets"], PENDING, 77)

    def _groups(self, coordinators: Coordinators) -> None:
        self.epoch = coordinators.join_new(NEW, "stays")
        for number in range(ROUNDS):
            for group in [*PLAIN, DELETED]:
                coordinators.commit(group, 100 * number, metadata=f"round {number}")
            if number % 4 == 0:
                self.member, self.generation = coordinators.join(CLASSIC, self.member)
                coordinators.join_new(NEW, f"goes-{number}")
                coordinators.beat(NEW, f"goes-{number}", -1)
            who = {"member_id": self.member, "generation_id_or_member_epoch": self.generation}
            coordinators.commit(CLASSIC, number, **who)
        coordinators.commit(PENDING, 10)
        answer = coordinators.beat(NEW, "stays", self.epoch)
        assert answer.error_code == ErrorCode.NONE, answer
        self.epoch = answer.member_epoch

    def _transactions(self, coordinators: Coordinators) -> None:
        producers = self.producers
        for name in IDS[:-1]:
            producers[name] = coordinators.begin(name)
        for number in range(ROUNDS):
            producers["empty"] = coordinators.begin("empty")
            for name in ("committed", "aborted", "ongoing"):
                assert coordinators.add(name, producers[name], number % PARTITIONS) == "NONE"
                coordinators.end(name, producers[name], committed=name != "aborted")
            assert coordinators.add_second("second", producers["second"], number % PARTITIONS) == "NONE"
            producers["second"] = coordinators.end("second", producers["second"], committed=True, version=5)
        assert coordinators.add("ongoing", producers["ongoing"], 3) == "NONE"
        # Until the markers of the last ones are written.
        for name in ("committed", "aborted", "second"):
            coordinators.init(name)

    def next_answers(self, broker: Broker) -> list[object]:
        """What the clients are told when they go on."""
        with Coordinators(broker.bootstrap_servers) as coordinators:
            stale = self.producers["ongoing"][0], self.producers["ongoing"][1] - 1
            beat = coordinators.beat(NEW, "stays", self.epoch)
            found: list[object] = [
                coordinators.beat_classic(CLASSIC, self.member, self.generation),
                coordinators.beat_classic(CLASSIC, self.member, self.generation - 1),
                coordinators.join(CLASSIC, self.member),
                (beat.error_code, beat.member_epoch),
                coordinators.beat(NEW, "goes-0", self.epoch).error_code,
                coordinators.add("ongoing", self.producers["ongoing"], 4),
                coordinators.add("ongoing", stale, 4),
                coordinators.end("offsets", self.producers["offsets"], committed=True),
            ]
            found += [(name, coordinators.init(name)) for name in IDS if name != "expired"]
        found.append(asked(broker, _pending))
        return found


def asked(broker: Broker, question: Any) -> Any:
    async def main() -> Any:
        async with Cluster(OsNet(), SystemClock(), broker.bootstrap_servers) as cluster:
            return await question(cluster)

    return run(main())


async def _shorten(cluster: Cluster) -> None:
    """The segments: many of them are closed then, and only those are cleaned."""
    change = ConfigChange("internal.segment.bytes", Operation.SET, "20000")
    topics = [Resource(ResourceType.TOPIC, log.removesuffix("-0")) for log in (OFFSETS, STATE)]
    changed = await alter_configs(cluster, {topic: [change] for topic in topics})
    assert set(changed.values()) == {None}, changed


async def _short_lived(cluster: Cluster) -> Any:
    return await fetch_offsets(cluster, EXPIRED), await list_transactions(cluster)


async def _delete(cluster: Cluster) -> None:
    assert await delete_groups(cluster, [DELETED]) == {DELETED: None}
    gone = TopicPartition(TOPIC, 2)
    assert await delete_offsets(cluster, PLAIN[0], [gone]) == {gone: None}


async def _pending(cluster: Cluster) -> Any:
    return await fetch_offsets(cluster, PENDING, require_stable=True)


async def _all(cluster: Cluster) -> dict[str, Any]:
    """All that an administrator can see of it."""
    seen: dict[str, Any] = {
        "groups": [group for group in await list_groups(cluster) if group.group_id != FILLER],
        "offsets": {group: await fetch_offsets(cluster, group) for group in GROUPS},
        "transactions": [one for one in await list_transactions(cluster) if one.transactional_id != FILLER],
    }
    seen["described"] = _told(await describe_groups(cluster, GROUPS))
    seen["states"] = _told(await describe_transactions(cluster, IDS))
    return seen


def _told(results: dict[str, Any]) -> dict[str, Any]:
    return {name: str(found) if isinstance(found, ClientError) else found for name, found in results.items()}


def fill(broker: Broker) -> None:
    """Records that change nothing of what is compared: what is behind them can be cleaned again."""
    with Coordinators(broker.bootstrap_servers) as coordinators:
        for number in range(40):
            coordinators.commit(FILLER, number)
        producer = coordinators.begin(FILLER)
        for number in range(40):
            assert coordinators.add(FILLER, producer, number % PARTITIONS) == "NONE"
            coordinators.end(FILLER, producer, committed=True)


def records(data: Path, log: str) -> list[tuple[bytes, bool]]:
    """(key, whether it is a tombstone) of all records in closed segments."""
    found: list[tuple[bytes, bool]] = []
    for file in sorted((data / log).glob("*.log"))[:-1]:
        try:
            content = file.read_bytes()
        except FileNotFoundError:  # it has just given way
            continue
        for position, header in iter_headers(content):
            if not header.is_control:
                batch = content[position : position + header.size]
                found += [(one.key or b"", one.value is None) for one in iter_records(batch, header)]
    return found


def is_clean(data: Path, log: str) -> bool:
    found = records(data, log)
    return bool(found) and len({key for key, _ in found}) == len(found)


def wait_clean(data: Path) -> None:
    deadline = time.monotonic() + 150
    while not all(is_clean(data, log) for log in (OFFSETS, STATE)):
        assert time.monotonic() < deadline, Counter(records(data, OFFSETS)).most_common(3)
        time.sleep(0.05)


def clean(broker: Broker, data: Path) -> None:
    """Again and again: a tombstone goes with a later cleaning than the one that met it first."""
    wait_clean(data)
    deadline = time.monotonic() + 150
    while any(is_tombstone for log in (OFFSETS, STATE) for _, is_tombstone in records(data, log)):
        assert time.monotonic() < deadline, "tombstones stay"
        fill(broker)
        wait_clean(data)


def size(data: Path, log: str) -> int:
    return sum(file.stat().st_size for file in (data / log).glob("*.log"))


def loaded(log: str) -> int:
    counts = [int(count) for count in re.findall(r"loaded partition \d+: (\d+) records", log)]
    assert len(counts) == 3, log
    return sum(counts)


class Written(NamedTuple):
    work: Work
    seen: dict[str, Any]
    data: Path
    """No cleaner has been there."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    work, data = Work(), tmp_path_factory.mktemp("written") / "data"
    with Broker({**CONFIG, **UNCLEANED, **SHORT_LIVED}, data=data) as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        work.short_lived(broker)
    broker = Broker({**CONFIG, **UNCLEANED}, process=True, data=data).start()
    work.do(broker)
    seen = asked(broker, _all)
    broker.kill()
    return Written(work, seen, data)


def test_a_cleaned_log_loads_as_the_whole_one_did(
    written: Written, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    work, before = written.work, written.seen
    data, whole = (shutil.copytree(written.data, tmp_path / name) for name in ("cleaned", "whole"))
    assert before["offsets"][DELETED] == before["offsets"][EXPIRED] == {}
    assert TopicPartition(TOPIC, 2) not in before["offsets"][PLAIN[0]]
    states = {one.transactional_id: one.state for one in before["transactions"]}
    assert states == {
        "empty": "Empty",
        "committed": "Empty",
        "aborted": "Empty",
        "second": "Empty",
        "ongoing": "Ongoing",
        "offsets": "Ongoing",
    }
    broker = Broker(CONFIG, process=True, data=data).start()
    clean(broker, data)
    assert asked(broker, _all) == before
    broker.kill()
    assert size(data, OFFSETS) < size(whole, OFFSETS) / 2
    assert size(data, STATE) < size(whole, STATE) / 2
    caplog.set_level(logging.INFO, "tidelog")
    with Broker({**CONFIG, **UNCLEANED}, data=data) as broker:  # after a kill
        assert asked(broker, _all) == before
    with Broker({**CONFIG, **UNCLEANED}, data=data) as broker:  # after a clean stop
        assert asked(broker, _all) == before
        found, count = work.next_answers(broker), loaded(broker.log)
    with Broker({**CONFIG, **UNCLEANED}, data=whole) as broker:
        assert asked(broker, _all) == before
        assert found == work.next_answers(broker)
        assert count < loaded(broker.log) / 2


def test_a_cleaner_that_drops_a_last_record_is_noticed(written: Written, tmp_path: Path) -> None:
    """The comparison can fail."""
    data = shutil.copytree(written.data, tmp_path / "cleaned")
    with planted(tmp_path / "bug", DROPS_LAST):
        broker = Broker(CONFIG, process=True, data=data).start()
        wait_clean(data)
    broker.kill()
    with Broker({**CONFIG, **UNCLEANED}, data=data) as broker:
        assert asked(broker, _all) != written.seen

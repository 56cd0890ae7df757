"""W3 and W4 in simulation: transactional producers of both versions beside each other, two processes for each
transactional id, copiers that commit their positions within, readers of both isolation levels; kills, power cuts, late
requests, sleep beyond the time-out. The rules are in ledger.py."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.sim.groups_workload import net_of, raise_from
from tests.sim.ledger import Ledger
from tests.sim.sharing import SESSION_MS
from tests.sim.stations import IN, INPUT, OUT, PARTITIONS, WORK, Copier, Sharer, Station, Writer
from tests.sim.transactors import TIMEOUT_MS
from tests.sim.workload import PAGE_CACHE, SMALL, check_failure, start
from tidelog.client.cluster import Cluster
from tidelog.client.errors import BrokerError
from tidelog.client.fetching import READ_COMMITTED, READ_UNCOMMITTED, Fetched, FetchLimits, fetch_from
from tidelog.client.metadata import TopicPartition
from tidelog.client.topics import NewTopic, create_topics
from tidelog.coordinator.decision import Decision
from tidelog.coordinator.txn import init
from tidelog.coordinator.txn.transaction import LAST_EPOCH, EndDecision, Needs
from tidelog.protocol.batch import crc_is_valid, iter_headers, iter_records
from tidelog.sim.net import NetOptions
from tidelog.testing.simulation import SimulatedWorld

CHAOS_S = 4.0
PLACES = [TopicPartition(topic, index) for topic in (WORK, OUT) for index in range(PARTITIONS)]
CONFIG = {
    **SMALL,
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
CLEANING = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.cleaner.delete.retention.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "log.roll.ms": "400",
}


class Watcher:
    """Reads all partitions again and again, and what it sees it checks at once."""

    def __init__(self, ledger: Ledger, *, committed: bool, has_gaps: bool = False) -> None:
        self._ledger = ledger
        self._has_gaps = has_gaps
        self._committed = committed
        self.positions = dict.fromkeys(PLACES, 0)
        self.values: dict[TopicPartition, list[bytes]] = {at: [] for at in PLACES}
        self._stable = dict.fromkeys(PLACES, 0)
        self.ends = dict.fromkeys(PLACES, (0, 0))

    async def run(self, cluster: Cluster) -> None:
        while True:
            await self.read(cluster, max_wait_ms=100)
            await asyncio.sleep(0.05)

    async def read_all(self, cluster: Cluster) -> None:
        while await self.read(cluster, max_wait_ms=0):
            pass

    async def read(self, cluster: Cluster, *, max_wait_ms: int) -> bool:
        """Once from all partitions; whether it got on anywhere."""
        isolation = READ_COMMITTED if self._committed else READ_UNCOMMITTED
        limits = FetchLimits(max_wait_ms=max_wait_ms, partition_max_bytes=400, isolation_level=isolation)

        async def attempt() -> dict[TopicPartition, Fetched]:
            await cluster.ensure_partitions(PLACES)
            answers = await fetch_from(cluster, cluster.metadata.leader(PLACES[0]), self.positions, limits)
            for at, answer in answers.items():
                if isinstance(answer, BrokerError):
                    cluster.forget_topic(at.topic)
                    raise answer
            return {at: answer for at, answer in answers.items() if isinstance(answer, Fetched)}

        before = dict(self.positions)
        for at, found in (await cluster.retrying(attempt)).items():
            self._take(at, found)
        return self.positions != before

    def _take(self, at: TopicPartition, found: Fetched) -> None:
        position = self.positions[at]
        high, stable = found.high_watermark, found.last_stable_offset
        assert 0 <= stable <= high, f"{at}: the last stable offset {stable} is beyond the high watermark {high}"
        assert stable >= self._stable[at], f"{at}: the last stable offset went back to {stable}"
        self._stable[at], self.ends[at] = stable, (stable, high)
        limit = stable if self._committed else high
        aborted = sorted((one.first_offset, one.producer_id) for one in found.aborted)
        dropping: set[int] = set()
        for start_at, header in iter_headers(found.records):
            batch = found.records[start_at : start_at + header.size]
            assert crc_is_valid(batch, header), f"{at}: a damaged batch was served"
            while aborted and aborted[0][0] <= header.last_offset:
                dropping.add(aborted.pop(0)[1])
            if header.is_control:
                dropping.discard(header.producer_id)
                assert header.last_offset < limit, f"{at}: a marker at {header.last_offset} is beyond {limit}"
                position = max(position, header.last_offset + 1)
                continue
            for record in iter_records(batch, header):
                if record.offset < position:
                    continue
                assert record.offset == position or self._has_gaps, f"{at}: {record.offset} follows {position - 1}"
                assert record.offset < limit, f"{at}: offset {record.offset} is beyond {limit}"
                position = record.offset + 1
                if not self._committed or header.producer_id not in dropping:
                    self._ledger.is_read(at, record.offset, record.value or b"", committed=self._committed)
                    self.values[at].append(record.value or b"")
            if self._has_gaps:
                position = max(position, header.last_offset + 1)
        self.positions[at] = position


async def chaos(world: SimulatedWorld, *, kills: int, power: bool) -> None:
    for _ in range(kills):
        if world.random.random() < 0.6:
            world.disk.faults.crash_at = world.disk.operations + world.random.randint(1, 120)
        world.disk.faults.sync_delay_s = world.random.choice([0.002, 0.02, 0.2])
        await world.crash_or(0.3, 2 * CHAOS_S / (kills + 1))
        check_failure(world)
        world.kill(power_cut=power)
        await start(world)
    world.disk.faults.sync_delay_s = 0.002


async def create_all(cluster: Cluster, configs: Mapping[str, str]) -> None:
    configs = {"internal.segment.bytes": "600", **configs}
    topics = [NewTopic(name=name, partitions=PARTITIONS, configs=configs) for name in (WORK, OUT, IN)]
    await cluster.retrying(lambda: create_topics(cluster, topics))


LATE = NetOptions(delay=0.06, delay_ms_max=2_500)
EPOCHS_LEFT = 6
"""Before those of a producer id run out, where that is what a run is about."""


class Plan(NamedTuple):
    """What a run of transactions is about."""

    late: NetOptions | None = None
    shares: bool = False
    """The copiers are members of a group (KIP-447), each with a transactional id of its own."""
    exhausts: bool = False
    """The first epochs are the last ones: 32,767 transactions would take too long."""
    compacts: Mapping[str, str] = MappingProxyType({})
    """Configs of the topics, if they are compacted. Every record has a key of its own: the cleaner may take what was
    aborted, and no more."""


async def run_late_requests(seed: int) -> Ledger:
    """Nothing but late requests, of clients that keep their epoch: each is sent again on another connection, and the
    first one arrives in the middle of a later transaction."""
    return await run_plan(seed, Plan(late=LATE))


async def run_transactions(seed: int) -> Ledger:
    random = Random(f"{seed}-plan")
    return await run_plan(seed, Plan(shares=random.random() < 0.4, exhausts=random.random() < 0.3))


async def run_compacted(seed: int) -> Ledger:
    retention_ms = Random(f"{seed}-compacted").choice(("0", "300", "60000"))
    return await run_plan(seed, Plan(compacts={**COMPACTED, "delete.retention.ms": retention_ms}))


async def run_plan(seed: int, plan: Plan) -> Ledger:
    if not plan.exhausts:
        return await _run(seed, plan)
    begin = init.begin

    def with_few_epochs(*arguments: Any) -> EndDecision | Needs:
        decision = begin(*arguments)
        if isinstance(decision, Needs):
            return decision
        (record,) = decision.records
        assert record.value is not None
        epoch = LAST_EPOCH - EPOCHS_LEFT
        records = (record._replace(value=record.value._replace(producer_epoch=epoch)),)
        return Decision(records, decision.response._replace(producer_epoch=epoch))

    init.begin = with_few_epochs
    try:
        return await _run(seed, plan)
    finally:
        init.begin = begin


async def _stations(world: SimulatedWorld, ledger: Ledger, random: Random, plan: Plan, admin: Cluster) -> list[Station]:
    stations: list[Station] = [
        Writer(world, ledger, "w1", "t1"),
        Writer(world, ledger, "w2", "t1" if random.random() < 0.5 else "t2"),
    ]
    for name in ("c1", "c2"):
        if plan.shares:
            topic_id = (await admin.topic(IN)).topic_id
            stations.append(Sharer(world, ledger, name, f"copy-{name}", topic_id))
        else:
            stations.append(Copier(world, ledger, name, "copy"))
    for station in stations if plan.late else ():
        station.versions = (1,)
    return stations


async def _run(seed: int, plan: Plan) -> Ledger:
    late = plan.late
    random = Random(f"{seed}-transactions")
    mode = PAGE_CACHE if late or random.random() < 0.3 else {}
    compacts = bool(plan.compacts)
    config = {**CONFIG, **mode, **(CLEANING if compacts else {})}
    world = SimulatedWorld(seed, net=late or net_of(random), config=config)
    ledger = Ledger(world.loop.time)
    assert await world.start()
    async with world.client("admin") as admin, world.client("c") as first, world.client("u") as second:
        await create_all(admin, plan.compacts)
        stations = await _stations(world, ledger, random, plan, admin)
        working = [asyncio.ensure_future(station.run()) for station in stations]
        reading = [
            asyncio.ensure_future(Watcher(ledger, committed=True, has_gaps=compacts).run(first)),
            asyncio.ensure_future(Watcher(ledger, committed=False, has_gaps=compacts).run(second)),
        ]
        faults = asyncio.gather(
            asyncio.sleep(CHAOS_S),
            chaos(world, kills=0 if late else random.choice([0, 1, 2]), power=not mode and random.random() < 0.7),
        )
        await asyncio.wait([faults, *reading], return_when=asyncio.FIRST_COMPLETED)
        raise_from([*working, *reading])
        await faults
        world.net.options = NetOptions()
        for station in stations:
            station.is_ending = True
        ended = asyncio.gather(*working)
        await asyncio.wait([ended, *reading], return_when=asyncio.FIRST_COMPLETED, timeout=120)
        raise_from([*working, *reading])
        assert ended.done(), "after two quiet minutes a producer has not ended"
        # All time-outs pass, late requests arrive.
        await asyncio.sleep(TIMEOUT_MS / 1000 + 5.0)
        raise_from(reading)
        for task in reading:
            task.cancel()
        check_failure(world)
        assert world.node is not None
        ledger.cleanings = world.node.cleaner.cleanings
        before = await judge(admin, ledger, compacts)
        await world.stop() if random.random() < 0.5 else world.kill(power_cut=not mode)
        assert await world.start()
        assert await judge(admin, ledger, compacts) == before, "after a restart other records are committed"
    await world.stop()
    ledger.check(before)
    copied = sorted(
        int(value.rpartition(b"/")[2]) for at, there in before.items() if at.topic == OUT for value in there
    )
    assert copied == list(range(INPUT)), f"the copy of 0 to {INPUT - 1} is {copied}"
    return ledger


async def judge(cluster: Cluster, ledger: Ledger, has_gaps: bool) -> dict[TopicPartition, list[bytes]]:
    """What a reader of committed records finds; no transaction hangs."""
    watcher = Watcher(ledger, committed=True, has_gaps=has_gaps)
    await watcher.read_all(cluster)
    for at, (stable, high) in watcher.ends.items():
        assert stable == high, f"{at}: a transaction hangs: stable to {stable} of {high}"
        assert watcher.positions[at] == high, f"{at}: read to {watcher.positions[at]} of {high}"
    return watcher.values

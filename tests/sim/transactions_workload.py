"""W3 and W4 in simulation: transactional producers of both versions beside each other, two processes for each
transactional id, copiers that commit their positions within, readers of both isolation levels; kills, power cuts, late
requests, sleep beyond the time-out. The rules are in ledger.py."""

from __future__ import annotations

import asyncio
from random import Random

from tests.sim.groups_workload import net_of, raise_from
from tests.sim.ledger import Ledger
from tests.sim.peer import Peer
from tests.sim.transactors import TIMEOUT_MS, Over, Transactor, Version
from tests.sim.workload import PAGE_CACHE, SMALL, check_failure, start
from tidelog.client.cluster import Cluster
from tidelog.client.errors import BrokerError
from tidelog.client.fetching import READ_COMMITTED, READ_UNCOMMITTED, Fetched, FetchLimits, fetch_from
from tidelog.client.metadata import TopicPartition
from tidelog.client.topics import NewTopic, create_topics
from tidelog.protocol.batch import crc_is_valid, iter_headers, iter_records
from tidelog.sim.net import NetOptions
from tidelog.testing.simulation import SimulatedWorld

WORK, OUT, IN = "work", "out", "in"
PARTITIONS = 2
INPUT = 10
"""Records of the input: the copiers know them by their offsets."""
CHAOS_S = 4.0
GROUP = "copiers"
SOURCE = TopicPartition(IN, 0)
PLACES = [TopicPartition(topic, index) for topic in (WORK, OUT) for index in range(PARTITIONS)]
CONFIG = {
    **SMALL,
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
}


class Station:
    """One place where producers of one transactional id run, a life after the other."""

    versions: tuple[Version, ...] = (1, 2)

    def __init__(self, world: SimulatedWorld, ledger: Ledger, name: str, transactional_id: str) -> None:
        self.world = world
        self.ledger = ledger
        self.name = name
        self.random = Random(world.random.getrandbits(64))
        self.is_ending = False
        self._transactional_id = transactional_id

    async def run(self) -> None:
        number = 0
        while not self.is_over():
            number += 1
            peer = Peer(self.world, f"{self.name}-{number}", timeout_s=0.7)
            await peer.find_coordinator(self._transactional_id, transactional=True)
            version = self.random.choice(self.versions)
            life = self.world.loop.next_number()
            producer = Transactor(self.ledger, peer, self.random, self._transactional_id, life, version)
            try:
                await producer.start()
                await self.live(producer)
            except Over:
                if self.random.random() < 0.5:
                    peer.hang_up()
                else:
                    peer.die(silent=self.random.random() < 0.5)
            await asyncio.sleep(self.random.uniform(0.0, 0.3))

    def is_over(self) -> bool:
        return self.is_ending

    async def live(self, producer: Transactor) -> None:
        raise NotImplementedError

    async def sleep(self) -> None:
        """Now and then beyond the time-out of a transaction."""
        if not self.is_ending and self.random.random() < 0.06:
            await asyncio.sleep(self.random.uniform(0.3, 2.0) * TIMEOUT_MS / 1000)
        else:
            await asyncio.sleep(self.random.expovariate(20))


class Writer(Station):
    """Writes to several partitions, and commits, aborts or walks away."""

    async def live(self, producer: Transactor) -> None:
        for _ in range(self.random.randint(1, 6)):
            transaction = self.ledger.begins(self.name)
            for number in range(self.random.randint(1, 3)):
                at = TopicPartition(WORK, self.random.randrange(PARTITIONS))
                count = self.random.randint(1, 3)
                await producer.send(
                    transaction, at, [b"%s/%d/%d" % (transaction.name.encode(), number, part) for part in range(count)]
                )
                await self.sleep()
            match self.random.random():
                case chance if chance < 0.75:
                    await producer.end(transaction, commit=True)
                case chance if chance < 0.9:
                    await producer.end(transaction, commit=False)
                case _:
                    raise Over("it has walked away", refused=False)
            await self.sleep()
            if self.is_ending:
                return


class Copier(Station):
    """Reads on from the group's position, writes what it has read, and commits the position with it."""

    is_done = False

    def is_over(self) -> bool:
        return self.is_done

    async def live(self, producer: Transactor) -> None:
        await producer.peer.find_coordinator(GROUP)
        for _ in range(self.random.randint(1, 4) if not self.is_ending else 100):
            position = await producer.fetch_offset(GROUP, SOURCE)
            if position >= INPUT:
                self.is_done = True
                return
            transaction = self.ledger.begins(self.name)
            following = min(position + self.random.randint(1, 3), INPUT)
            for offset in range(position, following):
                at = TopicPartition(OUT, offset % PARTITIONS)
                await producer.send(transaction, at, [b"%s/%d" % (transaction.name.encode(), offset)])
            await self.sleep()
            await producer.commit_offset(GROUP, SOURCE, following)
            await producer.end(transaction, commit=self.random.random() < 0.85)
            await self.sleep()


class Watcher:
    """Reads all partitions again and again, and what it sees it checks at once."""

    def __init__(self, ledger: Ledger, *, committed: bool) -> None:
        self._ledger = ledger
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
                assert record.offset == position, f"{at}: {record.offset} follows {position - 1}"
                assert record.offset < limit, f"{at}: offset {record.offset} is beyond {limit}"
                position += 1
                if not self._committed or header.producer_id not in dropping:
                    self._ledger.is_read(at, record.offset, record.value or b"", committed=self._committed)
                    self.values[at].append(record.value or b"")
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


async def create_all(cluster: Cluster) -> None:
    configs = {"internal.segment.bytes": "600"}
    topics = [NewTopic(name=name, partitions=PARTITIONS, configs=configs) for name in (WORK, OUT, IN)]
    await cluster.retrying(lambda: create_topics(cluster, topics))


async def run_late_requests(seed: int) -> Ledger:
    """Nothing but late requests, of clients that keep their epoch: each is sent again on another connection, and the
    first one arrives in the middle of a later transaction."""
    return await run_transactions(seed, LATE)


LATE = NetOptions(delay=0.06, delay_ms_max=2_500)


async def run_transactions(seed: int, late: NetOptions | None = None) -> Ledger:
    random = Random(f"{seed}-transactions")
    mode = PAGE_CACHE if late or random.random() < 0.3 else {}
    world = SimulatedWorld(seed, net=late or net_of(random), config={**CONFIG, **mode})
    ledger = Ledger(world.loop.time)
    assert await world.start()
    async with world.client("admin") as admin, world.client("c") as first, world.client("u") as second:
        await create_all(admin)
        stations: list[Station] = [
            Writer(world, ledger, "w1", "t1"),
            Writer(world, ledger, "w2", "t1" if random.random() < 0.5 else "t2"),
            Copier(world, ledger, "c1", "copy"),
            Copier(world, ledger, "c2", "copy"),
        ]
        for station in stations if late else ():
            station.versions = (1,)
        working = [asyncio.ensure_future(station.run()) for station in stations]
        reading = [
            asyncio.ensure_future(Watcher(ledger, committed=True).run(first)),
            asyncio.ensure_future(Watcher(ledger, committed=False).run(second)),
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
        before = await judge(admin, ledger)
        await world.stop() if random.random() < 0.5 else world.kill(power_cut=not mode)
        assert await world.start()
        assert await judge(admin, ledger) == before, "after a restart other records are committed"
    await world.stop()
    ledger.check(before)
    copied = sorted(
        int(value.rpartition(b"/")[2]) for at, there in before.items() if at.topic == OUT for value in there
    )
    assert copied == list(range(INPUT)), f"the copy of 0 to {INPUT - 1} is {copied}"
    return ledger


async def judge(cluster: Cluster, ledger: Ledger) -> dict[TopicPartition, list[bytes]]:
    """What a reader of committed records finds; no transaction hangs."""
    watcher = Watcher(ledger, committed=True)
    await watcher.read_all(cluster)
    for at, (stable, high) in watcher.ends.items():
        assert stable == high, f"{at}: a transaction hangs: stable to {stable} of {high}"
        assert watcher.positions[at] == high, f"{at}: read to {watcher.positions[at]} of {high}"
    return watcher.values

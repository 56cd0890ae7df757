"""W6 in simulation: members of one group come, work, sleep, die and come back while the node is killed, its power cut
and its network bad; the topic grows. The rules are in ownership.py."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TypeAlias

from tests.sim.history import TOPIC, History
from tests.sim.members import GROUP, SESSION_MS, BaseMember, Cast, ClassicMember, ConsumerMember
from tests.sim.ownership import NOTHING, Ownership
from tests.sim.peer import Peer
from tests.sim.workload import PAGE_CACHE, SMALL, check_failure, start
from tidelog.client.cluster import Cluster
from tidelog.client.errors import BrokerError, ClientError, raise_first
from tidelog.client.group_offsets import fetch_offsets
from tidelog.client.metadata import TopicPartition
from tidelog.client.topics import NewTopic, create_partitions, create_topics
from tidelog.protocol.errors import ErrorCode
from tidelog.sim.net import NetOptions
from tidelog.testing.simulation import SimulatedWorld

SLOTS = 3
CHAOS_S = 6.0
FIRST_PARTITIONS = 3
LAST_PARTITIONS = 5
CONFIG = {
    **SMALL,
    "offsets.topic.num.partitions": "1",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}


Kinds: TypeAlias = tuple[type[BaseMember], ...]
"""Of one protocol, or of both: a group that has members of the new one is a group of the new one."""


class Slot:
    """One place in the group: a process after the other."""

    def __init__(self, world: SimulatedWorld, cast: Cast, number: int, kinds: Kinds, *, static: bool) -> None:
        self._world = world
        self._cast = cast
        self._number = number
        self._kinds = kinds
        self._instance_id = f"i{number}" if static else None
        self._random = Random(world.random.getrandbits(64))
        self._lives = 0
        self.is_ending = False
        """From then on it has one life, and no more accidents."""
        self.member: BaseMember | None = None

    async def run(self) -> None:
        while True:
            self._lives += 1
            peer = Peer(self._world, f"m{self._number}-{self._lives}")
            await peer.find_coordinator(GROUP)
            self.member = self._random.choice(self._kinds)(self._cast, peer, self._random, self._instance_id)
            beats = self._random.randint(3, 20)
            while beats or self.is_ending:
                await self._round(self.member)
                beats -= 1 if beats else 0
                await asyncio.sleep(self._random.uniform(0.1, 0.4))
            await self._end(self.member, peer)
            await asyncio.sleep(self._random.choice([0.0, 0.2, 2.0]))

    async def _round(self, member: BaseMember) -> None:
        try:
            await member.beat()
            if not self.is_ending and self._random.random() < 0.1:
                # Asleep, perhaps for longer than its session; then it commits what it has done.
                await member.commit(lambda: self._random.uniform(0.2, 2.5 * SESSION_MS / 1000))
            await member.fetch()
            if self._random.random() < 0.7:
                await member.commit()
            if not self.is_ending and self._random.random() < 0.05:
                member.peer.hang_up()
        except ClientError as error:
            assert not isinstance(error, BrokerError) or error.code in EXPECTED, error

    async def _end(self, member: BaseMember, peer: Peer) -> None:
        is_dynamic = self._instance_id is None or isinstance(member, ConsumerMember)
        if is_dynamic and self._random.random() < 0.5:
            with suppress(ClientError):
                await member.leave()
        member.is_out()
        peer.die(silent=self._random.random() < 0.3)
        self.member = None


EXPECTED = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
}


def net_of(random: Random) -> NetOptions:
    return NetOptions(
        cut_connection=random.choice([0, 0, 0.002, 0.01]),
        delay=random.choice([0, 0, 0.01, 0.03]),
        delay_ms_max=random.choice([300, 4000]),
        refuse_connect=random.choice([0, 0.05]),
    )


async def chaos(world: SimulatedWorld, *, kills: int, power: bool) -> None:
    for _ in range(kills):
        if world.random.random() < 0.5:
            world.disk.faults.crash_at = world.disk.operations + world.random.randint(1, 60)
        world.disk.faults.sync_delay_s = world.random.choice([0.002, 0.05, 0.3])
        await world.crash_or(0.3, 2 * CHAOS_S / (kills + 1))
        check_failure(world)
        world.kill(power_cut=power)
        await start(world)
    world.disk.faults.sync_delay_s = 0.002


async def grow(world: SimulatedWorld, cast: Cast, cluster: Cluster) -> None:
    await world.pause(0.5, CHAOS_S)

    async def attempt() -> None:
        result = (await create_partitions(cluster, {TOPIC: LAST_PARTITIONS}))[TOPIC]
        if not (isinstance(result, BrokerError) and result.code == ErrorCode.INVALID_PARTITIONS):
            raise_first([result])

    await cluster.retrying(attempt)
    cast.partition_count = LAST_PARTITIONS


async def converge(world: SimulatedWorld, cast: Cast, slots: list[Slot]) -> None:
    """Once nothing happens any more every partition has an owner, and keeps it."""
    stable = 0
    for _ in range(400):
        await asyncio.sleep(0.1)
        owned = [at for slot in slots if slot.member for at in cast.ownership.owned(slot.member.member_id)]
        stable = stable + 1 if sorted(owned) == list(range(LAST_PARTITIONS)) else 0
        if stable == 10:
            return
    raise AssertionError(f"after 40 quiet seconds only the partitions {sorted(owned)} have an owner")


async def run_groups(seed: int) -> Ownership:
    random = Random(f"{seed}-groups")
    mode = PAGE_CACHE if random.random() < 0.3 else {}
    world = SimulatedWorld(seed, net=net_of(random), config={**CONFIG, **mode})
    history, ownership = History(), Ownership(world.loop.time)
    assert await world.start()
    async with world.client("admin") as cluster:
        topic = NewTopic(name=TOPIC, partitions=FIRST_PARTITIONS)
        await cluster.retrying(lambda: create_topics(cluster, [topic]))
        cast = Cast(history, ownership, (await cluster.topic(TOPIC)).topic_id)
        cast.partition_count = FIRST_PARTITIONS
        kinds: Kinds = random.choice([(ClassicMember,), (ConsumerMember,), (ClassicMember, ConsumerMember)])
        statics = random.choice([0, 0, 1, 2])
        slots = [Slot(world, cast, number, kinds, static=number < statics) for number in range(SLOTS)]
        tasks = [asyncio.ensure_future(slot.run()) for slot in slots]
        kills = random.choice([0, 1, 2])
        working = asyncio.gather(
            asyncio.sleep(CHAOS_S),
            chaos(world, kills=kills, power=not mode and random.random() < 0.7),
            grow(world, cast, cluster),
        )
        await asyncio.wait([working, *tasks], return_when=asyncio.FIRST_COMPLETED)
        raise_from(tasks)
        await working
        world.net.options = NetOptions()
        for slot in slots:
            slot.is_ending = True
        calming = asyncio.ensure_future(converge(world, cast, slots))
        await asyncio.wait([calming, *tasks], return_when=asyncio.FIRST_COMPLETED)
        raise_from(tasks)
        await calming
        check_failure(world)
        for task in tasks:
            task.cancel()
        await world.stop() if random.random() < 0.5 else world.kill(power_cut=not mode)
        assert await world.start()
        await check_offsets(cluster, ownership)
    await world.stop()
    return ownership


def raise_from(tasks: list[asyncio.Future[None]]) -> None:
    for task in tasks:
        if task.done():
            task.result()


async def check_offsets(cluster: Cluster, ownership: Ownership) -> None:
    found = await fetch_offsets(cluster, GROUP)
    for partition in range(LAST_PARTITIONS):
        committed = found.get(TopicPartition(TOPIC, partition))
        ownership.check_at_end(partition, NOTHING if committed is None else committed.metadata)

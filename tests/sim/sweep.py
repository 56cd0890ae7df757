"""One short life of a node, and a fault at each of its disk operations in turn: no room, an I/O error, a kill, a cut.

The life has every kind of write: format and metadata, topics that come and go, rolls, producer snapshots, commits,
retention, checkpoints, snapshots of the metadata, a clean stop and a second start."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal, get_args

from tests.sim.clients import init_producer_id
from tests.sim.history import History, check_all
from tests.sim.workload import SMALL, check_failure
from tidelog.client.cluster import Cluster
from tidelog.client.errors import BrokerError, raise_first
from tidelog.client.group_offsets import Committed, commit_offsets, fetch_offsets
from tidelog.client.metadata import TopicPartition
from tidelog.client.options import ClientOptions
from tidelog.client.producing import produce
from tidelog.client.topics import NewTopic, create_topics, delete_topics
from tidelog.kernel.errors import DiskError, DiskFullError
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.simulation import SimulatedWorld

Fault = Literal["full", "error", "kill", "power"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
TOPIC = "work"
AT = TopicPartition(TOPIC, 0)
GROUP = "group"
BATCHES = 8
CONFIG = {
    **SMALL,
    "offsets.topic.num.partitions": "1",
    "log.retention.check.interval.ms": "250",
    "log.flush.offset.checkpoint.interval.ms": "330",
}
TOPIC_CONFIG = {
    "internal.segment.bytes": "400",
    "retention.bytes": "600",
    "file.delete.delay.ms": "100",
}


@dataclass
class Life:
    """What is done to the node, and by when it is done."""

    world: SimulatedWorld
    fault: Fault | None = None
    at: int = 0
    is_over: bool = False

    def arm(self) -> None:
        """The fault waits for its operation; a disk after a crash has none of its own accord."""
        disk = self.world.disk
        if self.fault is None or disk.operations >= self.at:
            return
        if self.fault == "full":
            disk.faults.full_at = range(self.at, self.at + 1)
        elif self.fault == "error":
            disk.faults.fail_at = self.at
        else:
            disk.faults.crash_at = self.at

    async def start(self) -> None:
        """Until it has started: the fault may hit a start, which then fails whole and is tried again."""
        while True:
            try:
                if await self.world.start():
                    return
            except DiskError as error:
                assert self.fault == "error" or (self.fault == "full" and isinstance(error, DiskFullError)), error
                # The process is gone; with an I/O error the machine goes, too.
                if self.fault == "error":
                    self.world.disk = self.world.disk.crash(keep_page_cache=False)

    async def keep_alive(self) -> None:
        """Start the node again whenever the fault has ended it."""
        while True:
            await self.world.crash_or(3600.0, 3600.0)
            check_failure(self.world, DiskError if self.fault == "error" else None)
            self.world.kill(power_cut=self.fault in ("power", "error"))
            await asyncio.sleep(0.05)
            await self.start()

    async def stop(self) -> None:
        """A clean stop, which the fault may turn into another."""
        world = self.world
        try:
            is_clean = await world.stop()
        except DiskError as error:
            assert self.fault == "error" or (self.fault == "full" and isinstance(error, DiskFullError)), error
            is_clean = False
        if not is_clean:
            world.kill(power_cut=self.fault in ("power", "error"))
        self.arm()


def options(name: str) -> ClientOptions:
    return ClientOptions(
        client_id=name,
        connect_timeout_s=0.3,
        request_timeout_s=1.0,
        bootstrap_timeout_s=60.0,
        api_timeout_s=60.0,
        retry_backoff_ms_max=100.0,
    )


async def first_life(world: SimulatedWorld, cluster: Cluster, history: History) -> None:
    await made(cluster, TOPIC)
    producer_id = await init_producer_id(cluster)
    for number in range(BATCHES):
        value = b"p/%d/0/%s" % (number, b"." * 60)
        history.attempted.add(value)
        batch = build_batch(
            [RecordInput(b"p", value, world.clock.wall_ms())],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=number,
        )
        done = await produce(cluster, AT, batch)
        history.acknowledge(AT, done.base_offset, [value])
        if number % 4 == 1:
            await committed(cluster, number)
        if number == 3:
            await made(cluster, "other")
    await gone(cluster, "other")
    await asyncio.sleep(0.8)  # upkeep: retention, removals, checkpoints


async def made(cluster: Cluster, name: str) -> None:
    async def attempt() -> None:
        result = (await create_topics(cluster, [NewTopic(name=name, partitions=1, configs=TOPIC_CONFIG)]))[name]
        if not (isinstance(result, BrokerError) and result.code == ErrorCode.TOPIC_ALREADY_EXISTS):
            raise_first([result])

    await cluster.retrying(attempt)


async def gone(cluster: Cluster, name: str) -> None:
    async def attempt() -> None:
        result = (await delete_topics(cluster, [name]))[name]
        if not (isinstance(result, BrokerError) and result.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise_first([result])

    await cluster.retrying(attempt)


async def committed(cluster: Cluster, offset: int) -> None:
    async def attempt() -> None:
        raise_first((await commit_offsets(cluster, GROUP, {AT: Committed(offset)})).values())

    await cluster.retrying(attempt)


async def run_sweep(seed: int, fault: Fault | None = None, at: int = 0) -> int:
    """The whole life with the fault at one operation; how many operations there were."""
    world = SimulatedWorld(seed, config=CONFIG)
    life = Life(world, fault, at)
    history = History()
    life.arm()
    await life.start()
    keeper = asyncio.ensure_future(life.keep_alive())
    async with world.client("client", options("client")) as cluster:
        await first_life(world, cluster, history)
    assert not keeper.done(), keeper.exception()
    keeper.cancel()
    await life.stop()
    await life.start()
    keeper = asyncio.ensure_future(life.keep_alive())
    async with world.client("judge", options("judge")) as cluster:
        await check_all(cluster, history, [AT])
        assert (await fetch_offsets(cluster, GROUP))[AT].offset == 5, "an acknowledged commit is lost"
        assert sorted((await cluster.all_topics()).topics) == ["__consumer_offsets", TOPIC]
    keeper.cancel()
    operations = world.disk.operations
    await life.stop()
    return operations

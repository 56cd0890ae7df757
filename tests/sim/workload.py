"""A whole node, its clients and what is done to it: `run_plan` is every workload of this kind, a Plan tells them apart.

W1 and W2 of a commit log: producers with acks=all, with and without idempotence, over several partitions, one with
acks=1, a group that commits, a reader. The rules are in history.py."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.sim.clients import Committer, Kind, Producer, Reader
from tests.sim.history import PARTITIONS, TOPIC, History, check_all
from tidelog.client.errors import BrokerError
from tidelog.client.topics import NewTopic, create_topics
from tidelog.kernel.errors import DiskError
from tidelog.protocol.errors import ErrorCode
from tidelog.sim.net import NetOptions
from tidelog.testing.simulation import SimulatedWorld

SMALL = {"log.index.interval.bytes": "64", "metadata.log.max.record.bytes.between.snapshots": "400"}
PRODUCERS = (Kind(), Kind(idempotent=True), Kind(idempotent=True))


@dataclass(frozen=True, kw_only=True)
class Plan:
    chaos: Callable[[SimulatedWorld], Awaitable[None]]
    """What happens to the node while its clients work."""
    net: Callable[[int], NetOptions] = lambda seed: NetOptions()
    config: Mapping[str, str] = field(default_factory=dict)
    topic: Mapping[str, str] = field(default_factory=dict)
    producers: tuple[Kind, ...] = PRODUCERS
    power_cut: bool = False
    """Whether the last end before the final reads may be a power cut."""
    batches: int = 25


async def run_plan(seed: int, plan: Plan) -> History:
    world = SimulatedWorld(seed, net=plan.net(seed), config={**SMALL, **plan.config})
    world.disk.faults.cold_reads = Random(f"{seed}-cold").choice((0.0, 0.2, 0.9))
    history = History()
    world.before_kill = history.note_deleted
    assert await world.start()
    await create_topic(world, plan.topic)
    reading = Reader(world, history, "reader")
    reader = asyncio.ensure_future(reading.run())
    producers = [Producer(world, history, f"p{number}", kind) for number, kind in enumerate(plan.producers)]
    committer = Committer(world, history, "committer")
    await asyncio.gather(
        plan.chaos(world), committer.run(plan.batches), *(producer.run(plan.batches) for producer in producers)
    )
    assert not reader.done(), reader.exception()
    reader.cancel()
    check_failure(world)
    if world.random.random() < 0.5:
        await world.stop()
    else:
        world.kill(power_cut=plan.power_cut)
    assert await world.start()
    async with world.client("judge") as cluster:
        await check_all(cluster, history)
        await committer.check(cluster)
    await world.stop()
    history.reads = reading.reads
    return history


async def create_topic(world: SimulatedWorld, configs: Mapping[str, str]) -> None:
    async with world.client("admin") as admin:
        topic = NewTopic(name=TOPIC, partitions=PARTITIONS, configs={"internal.segment.bytes": "1500", **configs})
        created = (await create_topics(admin, [topic]))[TOPIC]
        # A client that lost the first answer hears that the topic is there.
        assert not isinstance(created, BrokerError) or created.code == ErrorCode.TOPIC_ALREADY_EXISTS, created


def check_failure(world: SimulatedWorld, expected: type[BaseException] | None = None) -> None:
    """A node ends itself for a reason that was given to it, or not at all."""
    failure = world.failure
    if failure is not None and (expected is None or not isinstance(failure, expected)):
        raise AssertionError(f"the node stopped: {failure!r}") from failure


async def restart(world: SimulatedWorld, *, power_cut: bool = False) -> None:
    """Kill the node, leave it dead for a while, and start it until that succeeds."""
    world.kill(power_cut=power_cut)
    await start(world)


async def start(world: SimulatedWorld) -> None:
    await world.pause(0, 1.0)
    while not await world.start():
        await world.pause(0, 0.2)


# Kills


async def kills(world: SimulatedWorld) -> None:
    """At random times and at random disk operations, in the middle of a write; now and then a clean stop."""
    for _ in range(4):
        is_clean = world.random.random() < 0.3
        if not is_clean and world.random.random() < 0.6:
            world.disk.faults.crash_at = world.disk.operations + world.random.randint(1, 40)
        world.disk.faults.sync_delay_s = world.random.choice([0.002, 0.05])
        await world.crash_or(0.05, 3.0)
        check_failure(world)
        if is_clean:
            await world.stop()
            await start(world)
        else:
            await restart(world)


def rough_net(seed: int) -> NetOptions:
    random = Random(f"{seed}-options")
    return NetOptions(
        cut_connection=random.choice([0, 0, 0.002, 0.01]),
        delay=random.choice([0, 0.01]),
        delay_ms_max=random.choice([200, 5000]),
        refuse_connect=random.choice([0, 0.05]),
    )


PAGE_CACHE = {"tidelog.sync.mode": "page-cache"}


async def run_workload(seed: int) -> History:
    """kill -9, in both modes: what was written is there."""
    mode = PAGE_CACHE if seed % 2 else {}
    return await run_plan(seed, Plan(chaos=kills, net=rough_net, config=mode))


# Power cuts


async def power_cuts(world: SimulatedWorld) -> None:
    """What was not synced is there, torn, or gone, as chance has it; the next start may be cut short, too."""
    for _ in range(4):
        if world.random.random() < 0.7:
            world.disk.faults.crash_at = world.disk.operations + world.random.randint(1, 60)
        world.disk.faults.sync_delay_s = world.random.choice([0.0, 0.002, 0.05, 0.3])
        await world.crash_or(0.05, 2.0)
        check_failure(world)
        world.kill(power_cut=world.random.random() < 0.8)
        await world.pause(0, 0.5)
        if world.random.random() < 0.3:
            world.disk.faults.crash_at = world.disk.operations + world.random.randint(1, 60)
        while not await world.start():
            await world.pause(0, 0.2)


async def run_power_cuts(seed: int) -> History:
    """Synced mode: nothing that was acknowledged with acks=all, or read by anybody, is taken by a power cut."""
    # The reader sees what acks=1 wrote only when that is safe, too.
    # Batches that span sectors can be torn within.
    producers = (Kind(acks=1, padding=150), Kind(padding=150), Kind(idempotent=True), Kind(idempotent=True))
    upkeep = {"log.flush.offset.checkpoint.interval.ms": "700", "log.retention.check.interval.ms": "100"}
    topic = {"retention.bytes": "2000", "internal.segment.bytes": "900", "file.delete.delay.ms": "100"}
    return await run_plan(
        seed,
        Plan(
            chaos=power_cuts,
            producers=producers,
            config=upkeep,
            # In half of the runs segments go while others come.
            topic=topic if seed % 2 else {},
            power_cut=True,
        ),
    )


async def torn(world: SimulatedWorld) -> None:
    """Much that is not synced when the power goes: the start finds batches of which sectors are missing."""
    for _ in range(5):
        world.disk.faults.sync_delay_s = 0.5
        await world.crash_or(0.2, 1.0)
        check_failure(world)
        world.disk.faults.sync_delay_s = 0.002
        await restart(world, power_cut=True)


async def run_torn(seed: int) -> History:
    hasty = Kind(acks=1, padding=300)
    topic = {"internal.segment.bytes": "6000"}
    return await run_plan(
        seed, Plan(chaos=torn, producers=(hasty, hasty, hasty, Kind()), topic=topic, power_cut=True, batches=30)
    )


# Slow disks


async def stalls(world: SimulatedWorld) -> None:
    """F13: syncs that take 10 ms to 2 s, and now and then five seconds; two kills on top."""
    for number in range(8):
        world.disk.faults.sync_delay_s = world.random.choice([0.01, 0.1, 0.5, 2.0, 5.0])
        await world.pause(0.1, 3.0)
        check_failure(world)
        if number % 4 == 3:
            world.disk.faults.sync_delay_s = 0.002
            await restart(world, power_cut=True)
    world.disk.faults.sync_delay_s = 0.002


async def run_slow_disk(seed: int) -> History:
    return await run_plan(seed, Plan(chaos=stalls, power_cut=True, batches=20))


# Disks that fail


async def bad_disk(world: SimulatedWorld) -> None:
    """One change, one sync or a few reads fail. The node ends itself, or goes on; the machine is then mended."""
    for _ in range(4):
        faults = world.disk.faults
        match world.random.choice(["change", "syncs", "reads"]):
            case "change":
                faults.fail_at = world.disk.operations + world.random.randint(1, 60)
            case "syncs":
                faults.fail_syncs = True
            case "reads":
                faults.read_error = 0.3
        await world.crash_or(0.1, 2.0)
        check_failure(world, DiskError)
        faults.read_error = 0.0
        world.kill(power_cut=True)
        await world.pause(0, 0.5)
        while not await world.start():
            await world.pause(0, 0.2)


async def run_bad_disk(seed: int) -> History:
    return await run_plan(seed, Plan(chaos=bad_disk, power_cut=True))


# Disks that fill


async def fills_up(world: SimulatedWorld) -> None:
    """Room goes and comes back, at one operation or for a while. The node serves on; kills come on top."""
    for number in range(6):
        faults = world.disk.faults
        if world.random.random() < 0.5:
            faults.capacity_bytes = used_bytes(world) + world.random.randint(0, 1500)
        else:
            first = world.disk.operations + world.random.randint(1, 40)
            faults.full_at = range(first, first + world.random.choice([1, 2, 5, 30]))
        await world.crash_or(0.2, 2.0)
        check_failure(world)
        faults.capacity_bytes = None
        faults.full_at = range(0)
        await world.pause(0, 0.5)
        check_failure(world)
        if number % 3 == 2:
            await restart(world, power_cut=world.random.random() < 0.5)


def used_bytes(world: SimulatedWorld) -> int:
    disk = world.disk
    disk.faults.capacity_bytes = 1 << 40
    total, free = disk.space("/")
    return total - free


async def run_full_disk(seed: int) -> History:
    """What did not fit was refused and is nowhere; reads and retention go on; writes come back."""
    config = {"log.retention.check.interval.ms": "400", "log.flush.offset.checkpoint.interval.ms": "300"}
    topic = {"retention.bytes": "4000", "file.delete.delay.ms": "100"}
    plain = Kind(storage_error_is_refusal=True, padding=100)
    producers = (plain, Kind(idempotent=True, padding=50), Kind(idempotent=True))
    return await run_plan(
        seed, Plan(chaos=fills_up, producers=producers, config=config, topic=topic, power_cut=True, batches=30)
    )


WORKLOADS: dict[str, Callable[[int], Coroutine[Any, Any, History]]] = {
    "log": run_workload,
    "power": run_power_cuts,
    "torn": run_torn,
    "slow": run_slow_disk,
    "bad": run_bad_disk,
    "full": run_full_disk,
}

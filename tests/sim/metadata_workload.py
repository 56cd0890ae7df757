"""Topics and configs under power cuts: the metadata log is synced before anyone hears of a change.

One client works through its own topics one after the other, so each has at most one change whose outcome is unknown.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tidelog.client.cluster import Cluster
from tidelog.client.configs import ConfigChange, Operation, Resource, ResourceType, alter_configs, describe_configs
from tidelog.client.errors import BrokerError, ClientError
from tidelog.client.topics import NewTopic, create_topics, delete_topics
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.simulation import SimulatedWorld

NAMES = [f"topic-{number}" for number in range(4)]


@dataclass
class Expectation:
    """What a topic may look like: its retention.ms, None for no topic. More than one while an answer is missing."""

    possible: set[str | None] = field(default_factory=lambda: {None})

    def trying(self, state: str | None) -> None:
        self.possible.add(state)

    def knows(self, state: str | None) -> None:
        self.possible = {state}


async def work(world: SimulatedWorld, expectations: dict[str, Expectation], rounds: int) -> None:
    async with world.client("admin") as cluster:
        for number in range(rounds):
            name = world.random.choice(NAMES)
            expected = expectations[name]
            retention = str(1000 + number)
            if len(expected.possible) == 1 and expected.possible != {None}:
                if world.random.random() < 0.3:
                    expected.trying(None)
                    results: dict[str, object] = {**await delete_topics(cluster, [name])}
                    settle(expected, results[name], None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    continue
                expected.trying(retention)
                resource = Resource(ResourceType.TOPIC, name)
                change = ConfigChange("retention.ms", Operation.SET, retention)
                settle(expected, (await alter_configs(cluster, {resource: [change]}))[resource], retention)
            elif expected.possible == {None}:
                expected.trying(retention)
                topic = NewTopic(name=name, partitions=2, configs={"retention.ms": retention})
                settle(
                    expected, (await create_topics(cluster, [topic]))[name], retention, ErrorCode.TOPIC_ALREADY_EXISTS
                )
            await asyncio.sleep(world.random.expovariate(10))


def settle(expected: Expectation, result: object, state: str | None, done_before: ErrorCode | None = None) -> None:
    """The client retries: an answer that it is done already comes from its own first try."""
    if not isinstance(result, ClientError) or (isinstance(result, BrokerError) and result.code == done_before):
        expected.knows(state)


async def check(cluster: Cluster, expectations: dict[str, Expectation]) -> None:
    known = (await cluster.all_topics()).topics
    for name, expected in expectations.items():
        state = None
        if name in known:
            entries = await describe_configs(cluster, Resource(ResourceType.TOPIC, name), ["retention.ms"])
            state = next(entry.value for entry in entries if entry.name == "retention.ms")
        assert state in expected.possible, f"{name} is {state}, expected one of {expected.possible}"


async def run_metadata(seed: int, *, rounds: int = 30, cuts: int = 4) -> dict[str, Expectation]:
    world = SimulatedWorld(seed, config={"metadata.log.max.record.bytes.between.snapshots": "500"})
    expectations = {name: Expectation() for name in NAMES}
    assert await world.start()

    async def cut_power() -> None:
        for _ in range(cuts):
            if world.random.random() < 0.7:
                world.disk.faults.crash_at = world.disk.operations + world.random.randint(1, 60)
            await world.crash_or(0.1, 2.0)
            world.kill(power_cut=True)
            await world.pause(0, 0.5)
            while not await world.start():
                await world.pause(0, 0.2)

    await asyncio.gather(cut_power(), work(world, expectations, rounds))
    world.kill(power_cut=True)
    assert await world.start()
    async with world.client("judge") as cluster:
        await check(cluster, expectations)
    await world.stop()
    return expectations

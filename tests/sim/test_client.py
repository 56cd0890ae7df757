"""Our producer and our group members on a network that cuts and delays, with the node killed under them."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.client.consumer import Consumer, ConsumerOptions
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST
from tidelog.client.producer import Producer, ProducerOptions
from tidelog.client.topics import NewTopic, create_topics
from tidelog.sim.loop import run
from tidelog.sim.net import NetOptions
from tidelog.testing.simulation import SimulatedWorld

TOPIC = "t"
PARTITIONS = 3
RECORDS = 150
ROUGH = NetOptions(cut_connection=0.01, delay=0.02, delay_ms_max=500, refuse_connect=0.1)


async def world_of(seed: int) -> SimulatedWorld:
    world = SimulatedWorld(seed, net=ROUGH)
    assert await world.start()
    async with world.client("setup") as cluster:
        await cluster.retrying(lambda: create_topics(cluster, [NewTopic(name=TOPIC, partitions=PARTITIONS)]))
    return world


async def kill_now_and_then(world: SimulatedWorld) -> None:
    for _ in range(3):
        await world.pause(0.2, 1.0)
        world.kill()
        await world.pause(0.1, 2.0)
        assert await world.start()


async def send_all(world: SimulatedWorld, *, idempotence: bool) -> dict[bytes, tuple[int, int]]:
    """Where every record went, as the producer was told."""
    places: dict[bytes, tuple[int, int]] = {}
    async with world.client("producer") as cluster:
        options = ProducerOptions(linger_ms=1, batch_bytes=300, idempotence=idempotence)
        async with Producer(cluster, options) as producer:
            sent = []
            for number in range(RECORDS):
                value = b"%d" % number
                sent.append((value, await producer.send(TOPIC, value, partition=number % PARTITIONS)))
                await asyncio.sleep(world.random.expovariate(50))
        for value, future in sent:
            placed = await future
            places[value] = (placed.partition, placed.offset)
    return places


async def read_all(world: SimulatedWorld, count: int) -> dict[tuple[int, int], bytes]:
    async with world.client("reader") as cluster, Consumer(cluster) as consumer:
        await consumer.assign(dict.fromkeys([TopicPartition(TOPIC, index) for index in range(PARTITIONS)], EARLIEST))
        found: dict[tuple[int, int], bytes] = {}
        while len(found) < count:
            for record in await consumer.poll(5.0):
                found[record.partition, record.offset] = record.value or b""
        return found


@pytest.mark.parametrize("seed", range(8))
def test_an_idempotent_producer_delivers_every_record_once_and_in_order(seed: int) -> None:
    async def scenario() -> None:
        world = await world_of(seed)
        killer = asyncio.create_task(kill_now_and_then(world))
        places = await send_all(world, idempotence=True)
        await killer
        found = await read_all(world, RECORDS)
        assert sorted(found.values()) == sorted(places), "a record is missing or there twice"
        for value, (partition, offset) in places.items():
            assert offset == -1 or found[partition, offset] == value
        for partition in range(PARTITIONS):
            values = [int(value) for (where, _), value in sorted(found.items()) if where == partition]
            assert values == sorted(values)

    run(scenario(), seed)


@pytest.mark.parametrize("seed", range(4))
def test_a_plain_producer_delivers_every_record_at_least_once(seed: int) -> None:
    async def scenario() -> None:
        world = await world_of(seed)
        killer = asyncio.create_task(kill_now_and_then(world))
        places = await send_all(world, idempotence=False)
        await killer
        found = await read_all(world, RECORDS)
        for value, place in places.items():
            assert found[place] == value

    run(scenario(), seed)


@pytest.mark.parametrize("seed", range(8))
def test_a_group_consumes_everything_while_members_come_and_go(seed: int) -> None:
    async def scenario() -> None:
        world = await world_of(seed)
        seen: set[bytes] = set()

        async def member(name: str, stays_s: float) -> None:
            options = ConsumerOptions(
                group_id="g",
                offset_reset="earliest",
                heartbeat_interval_ms=500,
                session_timeout_ms=6_000,
                rebalance_timeout_ms=10_000,
                auto_commit_interval_ms=500,
            )
            async with world.client(name) as cluster, Consumer(cluster, options) as consumer:
                await consumer.subscribe([TOPIC])
                deadline_s = world.loop.time() + stays_s
                while world.loop.time() < deadline_s and len(seen) < RECORDS:
                    seen.update(record.value or b"" for record in await consumer.poll(1.0, max_records=20))

        async with asyncio.TaskGroup() as group:
            group.create_task(send_all(world, idempotence=True))
            group.create_task(kill_now_and_then(world))
            group.create_task(member("stayer", 600))
            for number in range(3):
                group.create_task(member(f"guest-{number}", world.random.uniform(1, 20)))
        assert len(seen) == RECORDS

    run(scenario(), seed)

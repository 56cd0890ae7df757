"""Retention beside appends, on a disk whose checkpoints take long: what a power cut brings back must fit together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.sim.clients import Kind, Producer
from tests.sim.history import History, check_all, partitions
from tests.sim.workload import create_topic
from tidelog.sim.loop import run
from tidelog.testing.simulation import SimulatedWorld


def slow_checkpoints(world: SimulatedWorld) -> None:
    disk = world.disk
    replace_files = disk.replace_files

    def slowly(files: Sequence[tuple[str, bytes]]) -> asyncio.Future[None]:
        disk.faults.sync_delay_s = 1.0
        try:
            return replace_files(files)
        finally:
            disk.faults.sync_delay_s = 0.002

    disk.replace_files = slowly  # type: ignore[method-assign]


async def scenario(seed: int) -> None:
    world = SimulatedWorld(seed, config={"log.retention.check.interval.ms": "100"})
    history = History()
    world.before_kill = history.note_deleted
    assert await world.start()
    await create_topic(world, {"retention.bytes": "300", "internal.segment.bytes": "200"})
    slow_checkpoints(world)
    producer = asyncio.ensure_future(Producer(world, history, "p", Kind(idempotent=True)).run(80))
    for _ in range(3):
        await asyncio.sleep(1.101)  # the end of a checkpoint, the first segments renamed
        world.kill(power_cut=True)
        assert await world.start()
        slow_checkpoints(world)
    await producer
    async with world.client("judge") as cluster:
        await check_all(cluster, history)
    assert any(history.log_starts[at] for at in partitions()), "retention took nothing"


def test_segments_that_expire_during_a_checkpoint_are_not_part_of_it() -> None:
    for seed in range(25):
        run(scenario(seed), seed)

from __future__ import annotations

import asyncio

import pytest

from tidelog.sim.clock import START_MS, SimClock
from tidelog.sim.loop import run, sim_loop
from tidelog.sim.workers import SimWorkers


def test_both_clocks_follow_virtual_time_and_only_the_wall_steps() -> None:
    async def main() -> None:
        clock = SimClock(sim_loop())
        await asyncio.sleep(2.5)
        assert (clock.wall_ms(), clock.monotonic_s()) == (START_MS + 2500, 2.5)
        clock.step(-10_000)
        assert (clock.wall_ms(), clock.monotonic_s()) == (START_MS - 7500, 2.5)

    run(main())


def test_others_run_while_a_worker_works() -> None:
    async def main() -> list[str]:
        seen: list[str] = []
        workers = SimWorkers(sim_loop().random)
        task = asyncio.create_task(workers.run(lambda: seen.append("work")))
        await asyncio.sleep(0)
        seen.append("loop")
        await task
        return seen

    assert run(main()) == ["loop", "work"]


def test_a_failure_in_a_worker_reaches_the_caller() -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await SimWorkers(sim_loop().random).run(lambda: 1 / 0)

    run(main())

"""So many bytes a second and no more."""

from __future__ import annotations

import asyncio

from tidelog.replication.throttle import Throttle
from tidelog.sim.clock import SimClock
from tidelog.sim.loop import run, sim_loop


def test_who_passes_waits_for_what_it_brings() -> None:
    async def main() -> None:
        throttle = Throttle(SimClock(sim_loop()), lambda: 100.0)
        await throttle.pass_by(250)
        assert 2.4 < sim_loop().time() < 2.6
        await asyncio.sleep(2)
        await throttle.pass_by(100)
        assert 4.4 < sim_loop().time() < 4.6, "the time since the last one counts"

    run(main())


def test_a_limit_that_is_raised_counts_at_once() -> None:
    async def main() -> None:
        limits = [1.0]
        throttle = Throttle(SimClock(sim_loop()), lambda: limits[0])
        passing = asyncio.ensure_future(throttle.pass_by(10_000))
        await asyncio.sleep(5)
        limits[0] = 1e6
        await passing
        assert sim_loop().time() < 8

    run(main())


def test_without_a_limit_nobody_waits() -> None:
    async def main() -> None:
        await Throttle(SimClock(sim_loop()), lambda: 1.7976931348623157e308).pass_by(1 << 40)
        assert sim_loop().time() < 0.001

    run(main())

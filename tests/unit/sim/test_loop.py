from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from tidelog.sim.loop import DeadlockError, SimulationError, run, sim_loop
from tidelog.sim.process import SimProcess


def test_a_year_of_sleep_costs_nothing() -> None:
    async def main() -> float:
        await asyncio.sleep(365 * 86_400)
        return asyncio.get_running_loop().time()

    assert run(main(), limit_s=1e9) == 365 * 86_400


def test_timeouts_happen_in_virtual_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 30)
        return asyncio.get_running_loop().time()

    assert run(main()) == 30


def test_timers_due_together_run_in_the_order_they_were_made() -> None:
    seen: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in range(100):
            loop.call_at(5.0, seen.append, number)
        await asyncio.sleep(6)

    run(main())
    assert seen == list(range(100))


def test_a_cancelled_timer_does_not_run() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(300):
            loop.call_later(1, pytest.fail).cancel()
        await asyncio.sleep(2)

    run(main())


def test_a_stall_names_the_tasks_and_the_lines() -> None:
    async def wait_for_nobody() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        await asyncio.create_task(wait_for_nobody(), name="the sleeper")

    with pytest.raises(DeadlockError, match=r"the sleeper \(wait_for_nobody at test_loop.py:\d+\)") as caught:
        run(main(), seed=42)
    assert "seed 42" in caught.value.__notes__[0]


def test_a_stall_behind_a_timer_that_never_ends_is_found_by_the_limit() -> None:
    async def tick() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(1)

    async def main() -> None:
        ticker = asyncio.create_task(tick())
        await asyncio.get_running_loop().create_future()
        await ticker

    with pytest.raises(DeadlockError, match="limit of 100 s"):
        run(main(), limit_s=100)


def test_a_busy_loop_is_found() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(SimulationError, match="round and round"):
        run(main())


def test_a_failure_that_nobody_sees_fails_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(1, lambda: 1 / 0)
        await asyncio.sleep(2)

    with pytest.raises(SimulationError, match="ZeroDivisionError"):
        run(main())


def test_threads_are_refused() -> None:
    async def main() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(SimulationError, match="Workers port"):
        run(main())


def test_tasks_left_behind_are_cancelled_and_run_their_finally() -> None:
    ended: list[str] = []

    async def stay() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append("stay")

    async def main() -> None:
        asyncio.get_running_loop().create_task(stay())
        await asyncio.sleep(1)

    run(main())
    assert ended == ["stay"]


class TestKill:
    def test_nothing_of_a_killed_process_runs(self) -> None:
        seen: list[str] = []

        async def child() -> None:
            try:
                await asyncio.sleep(10)
            finally:
                seen.append("child finally")
                await asyncio.sleep(1)
                seen.append("child finally, after a wait")

        async def node() -> None:
            asyncio.get_running_loop().call_later(10, seen.append, "timer")
            async with asyncio.TaskGroup() as group:
                group.create_task(child())
                seen.append("started")
                await asyncio.sleep(10)

        async def main() -> list[str]:
            process = SimProcess(sim_loop(), "n1")
            process.start(node())
            await asyncio.sleep(5)
            process.kill()
            await asyncio.sleep(20)
            return list(seen)

        assert run(main()) == ["started"]

    def test_its_tasks_are_not_named_in_a_stall(self) -> None:
        async def main() -> None:
            process = SimProcess(sim_loop(), "n1")
            process.start(asyncio.sleep(10), name="dead one")
            await asyncio.sleep(1)
            process.kill()
            await asyncio.get_running_loop().create_future()

        with pytest.raises(DeadlockError) as caught:
            run(main())
        assert "dead one" not in str(caught.value)

    def test_an_unkilled_process_runs_to_its_end(self) -> None:
        async def main() -> str:
            return await SimProcess(sim_loop(), "n1").start(asyncio.sleep(10, "done"))

        assert run(main()) == "done"


_ORDER = """
import asyncio
from tidelog.sim.loop import run

seen = []

async def wait(n):
    try:
        await asyncio.sleep(100)
    except asyncio.CancelledError:
        seen.append(n)
        raise

async def fail():
    await asyncio.sleep(1)
    raise ValueError

async def main():
    try:
        async with asyncio.TaskGroup() as group:
            for n in range(20):
                ballast.append(bytearray(n * 37))
                group.create_task(wait(n))
            group.create_task(fail())
    except* ValueError:
        pass
    return asyncio.get_running_loop().random.random()

ballast = []
print(run(main(), seed=3), seen)
"""


def test_two_hash_seeds_give_one_run() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _ORDER], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert "19" in outputs.pop()


def test_the_loop_draws_from_its_seed() -> None:
    async def draw() -> float:
        return sim_loop().random.random()

    assert run(draw(), 7) == run(draw(), 7) != run(draw(), 8)

"""Jobs in a helper process: steps and results, errors, a helper that dies, and one that is used again."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tidelog.kernel.errors import DiskFullError, HelperGoneError, JobFailedError, TidelogError
from tidelog.kernel.ports import Disk, Job
from tidelog.runtime.jobs import ProcessJobs
from tidelog.runtime.workers import ThreadWorkers


class Counting:
    """Tells its process and how far it is; writes the count into a file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._count = 0

    def prepare(self) -> None:
        pass

    def step(self, disk: Disk, give_way: Callable[[], None]) -> object:
        self._count += 1
        disk.open(self._path, create=True).append((b"x",))
        return os.getpid(), self._count


class Failing:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def prepare(self) -> None:
        pass

    def step(self, disk: Disk, give_way: Callable[[], None]) -> object:
        raise self._error


class UnportableError(TidelogError):
    """Raised on purpose, but made of something else than it shows."""

    def __init__(self, number: int) -> None:
        super().__init__(f"number {number + 1}")


class FailingUnportably:
    def prepare(self) -> None:
        pass

    def step(self, disk: Disk, give_way: Callable[[], None]) -> object:
        raise UnportableError(1)


class Endless:
    def prepare(self) -> None:
        pass

    def step(self, disk: Disk, give_way: Callable[[], None]) -> object:
        threading.Event().wait()
        return None


class Polite:
    """Tells how it is to give way."""

    def prepare(self) -> None:
        pass

    def step(self, disk: Disk, give_way: Callable[[], None]) -> object:
        give_way()
        return f"{give_way.__module__}.{give_way.__qualname__}"


def with_jobs(scene: Callable[[ProcessJobs], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        workers = ThreadWorkers()
        jobs = ProcessJobs(workers)
        try:
            await asyncio.wait_for(scene(jobs), 60)
        finally:
            jobs.close()
            workers.close()

    asyncio.run(main())


def test_a_job_is_told_how_to_give_way() -> None:
    async def scene(jobs: ProcessJobs) -> None:
        job = await jobs.start(Polite())
        assert await job.step() == "tidelog.runtime.giving_way.give_way"
        await job.close()

    with_jobs(scene)


def test_a_job_keeps_its_state_in_another_process(tmp_path: Path) -> None:
    async def scene(jobs: ProcessJobs) -> None:
        path = os.fspath(tmp_path / "file")
        job = await jobs.start(Counting(path))
        found = [await job.step() for _ in range(3)]
        await job.close()
        assert [count for _, count in found] == [1, 2, 3]  # type: ignore[misc]
        [pid] = {pid for pid, _ in found}  # type: ignore[misc]
        assert pid != os.getpid()
        assert (tmp_path / "file").read_bytes() == b"xxx"
        again = await jobs.start(Counting(path))
        assert await again.step() == (pid, 1)
        await again.close()
        await jobs.rest()
        third = await jobs.start(Counting(path))
        other, _ = await third.step()  # type: ignore[misc]
        assert other != pid

    with_jobs(scene)


def error_of(failing: Job, tmp_path: Path) -> Exception:
    """What the one who waits for the step hears; the helper serves on."""
    found: list[Exception] = []

    async def scene(jobs: ProcessJobs) -> None:
        job = await jobs.start(failing)
        with pytest.raises(TidelogError) as raised:
            await job.step()
        found.append(raised.value)
        await job.close()
        other = await jobs.start(Counting(os.fspath(tmp_path / "file")))
        assert (await other.step())[1] == 1  # type: ignore[index]

    with_jobs(scene)
    return found[0]


def test_what_is_raised_on_purpose_comes_back(tmp_path: Path) -> None:
    found = error_of(Failing(DiskFullError("no room")), tmp_path)
    assert type(found) is DiskFullError
    assert str(found) == "no room"


@pytest.mark.parametrize("error", [ValueError("wrong"), RuntimeError("wrong"), AssertionError("wrong")])
def test_a_bug_comes_back_with_where_it_was(tmp_path: Path, error: Exception) -> None:
    found = error_of(Failing(error), tmp_path)
    assert isinstance(found, JobFailedError)
    assert str(found) == repr(error)
    assert "Traceback" in found.trace
    assert "in step\n" in found.trace


def test_an_error_that_cannot_be_sent_is_a_bug_too(tmp_path: Path) -> None:
    found = error_of(FailingUnportably(), tmp_path)
    assert isinstance(found, JobFailedError)
    assert "number 2" in found.trace


def test_a_helper_that_is_killed_is_told_and_replaced(tmp_path: Path) -> None:
    async def scene(jobs: ProcessJobs) -> None:
        path = os.fspath(tmp_path / "file")
        job = await jobs.start(Counting(path))
        pid, _ = await job.step()  # type: ignore[misc]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(HelperGoneError):
            while True:
                await job.step()
        await job.close()
        again = await jobs.start(Counting(path))
        assert (await again.step())[1] == 1  # type: ignore[index]

    with_jobs(scene)


def test_a_step_that_nobody_waits_for_any_more_ends_with_its_helper(tmp_path: Path) -> None:
    async def scene(jobs: ProcessJobs) -> None:
        job = await jobs.start(Endless())
        step = asyncio.ensure_future(job.step())
        await asyncio.sleep(0)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        await job.close()

    with_jobs(scene)

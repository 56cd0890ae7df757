"""The Jobs port without a process: a step runs where the simulated workers run what they are given. A bug in it is
raised as it is, not as a JobFailedError: it shall end the simulation."""

from __future__ import annotations

from tidelog.kernel.ports import Disk, Job, Workers


class SimJobs:
    def __init__(self, disk: Disk, workers: Workers) -> None:
        self._disk = disk
        self._workers = workers

    async def start(self, job: Job) -> SimJob:
        job.prepare()
        return SimJob(job, self._disk, self._workers)

    async def rest(self) -> None:
        pass


class SimJob:
    def __init__(self, job: Job, disk: Disk, workers: Workers) -> None:
        self._job = job
        self._disk = disk
        self._workers = workers

    async def step(self) -> object:
        return await self._workers.run(lambda: self._job.step(self._disk, lambda: None))

    async def close(self) -> None:
        pass

"""The Jobs port on a helper process: started at first use, kept for the next job until somebody says rest.

The two talk in pickles over the helper's stdin and stdout, each with its length before it; threads of the Workers port
wait for the answers. A helper whose node is gone reads the end of its stdin and ends too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from functools import partial
from struct import Struct
from typing import IO, Any, Final

from tidelog.kernel.errors import HelperGoneError, JobFailedError, TidelogError
from tidelog.kernel.ports import Disk, Job, Workers
from tidelog.runtime.giving_way import GivingWay, give_way

_LENGTH: Final = Struct(">Q")
_NICENESS: Final = 10
_ENDED_S: Final = 10.0


class ProcessJobs:
    def __init__(self, workers: Workers, *, durable: bool = True) -> None:
        self._workers = workers
        self._durable = durable
        self._idle: subprocess.Popen[bytes] | None = None
        self._busy: set[subprocess.Popen[bytes]] = set()

    async def start(self, job: Job) -> ProcessJob:
        process, self._idle = self._idle, None
        if process is None or process.poll() is not None:
            process = await self._workers.run(self._begin)
        self._busy.add(process)
        started = ProcessJob(self, self._workers, process)
        await started.call(job)
        return started

    def _begin(self) -> subprocess.Popen[bytes]:
        arguments = [sys.executable, "-m", "tidelog.runtime.jobs", "durable" if self._durable else "ephemeral"]
        return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def done(self, process: subprocess.Popen[bytes], *, is_sound: bool) -> None:
        self._busy.discard(process)
        if is_sound and self._idle is None:
            self._idle = process
        else:
            _end(process)

    async def rest(self) -> None:
        process, self._idle = self._idle, None
        if process is not None:
            await self._workers.run(lambda: _end(process))

    def close(self) -> None:
        for process in [*self._busy, *([self._idle] if self._idle is not None else [])]:
            _end(process)
        self._busy.clear()
        self._idle = None


class ProcessJob:
    def __init__(self, jobs: ProcessJobs, workers: Workers, process: subprocess.Popen[bytes]) -> None:
        self._jobs = jobs
        self._workers = workers
        self._process: subprocess.Popen[bytes] | None = process
        self._is_waiting = False
        """For an answer, perhaps for one that never comes."""

    async def step(self) -> object:
        return await self.call(None)

    async def call(self, message: object) -> object:
        process = self._process
        assert process is not None, "a job that was closed"
        self._is_waiting = True
        is_error, answer = await self._workers.run(lambda: _ask(process, message))
        self._is_waiting = isinstance(answer, HelperGoneError)
        if is_error:
            assert isinstance(answer, BaseException)
            raise answer
        return answer

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._jobs.done(process, is_sound=not self._is_waiting)


def _ask(process: subprocess.Popen[bytes], message: object) -> tuple[bool, object]:
    assert process.stdin is not None and process.stdout is not None
    try:
        _write(process.stdin, message)
        answer = _read(process.stdout)
    except (OSError, ValueError):
        answer = None
    if answer is None:
        return True, HelperGoneError(f"the helper process {process.pid} is gone")
    is_error, content = answer[0]
    return is_error, content


def _end(process: subprocess.Popen[bytes]) -> None:
    """It has nothing that anybody needs: what it wrote is not in use before a job says so."""
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_ENDED_S)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _write(pipe: IO[bytes], message: object) -> None:
    import pickle

    data = pickle.dumps(message)
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> tuple[Any] | None:
    """None at the end."""
    import pickle  # not at the start of a node

    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    data = pipe.read(_LENGTH.unpack(head)[0])
    return (pickle.loads(data),) if len(data) == _LENGTH.unpack(head)[0] else None


# In the helper


def _make_disk(kind: str) -> Disk:
    if kind == "durable":
        from tidelog.runtime.disk import OsDisk

        return OsDisk(open_files_max=16)
    from tidelog.runtime.ephemeral import EphemeralDisk

    return EphemeralDisk()


def serve(questions: IO[bytes], answers: IO[bytes], disk: Disk) -> None:
    """A job, then None for each of its steps, then perhaps the next job."""
    job: Job | None = None
    giving_way = GivingWay()
    while (message := _read(questions)) is not None:
        try:
            if message[0] is not None:
                job = message[0]
                job.prepare()  # not in idle time: on a busy machine it would take minutes, and nobody would notice
                answer: object = None
            else:
                assert job is not None
                answer = giving_way.do(partial(job.step, disk, give_way))
        except Exception as error:
            _write(answers, (True, _portable(error)))
        else:
            _write(answers, (False, answer))
    giving_way.close()


def _portable(error: Exception) -> TidelogError:
    """What was raised on purpose, if the other side can make it of its pickle; else with where it was raised, because
    the traceback stays here."""
    import pickle

    try:
        if isinstance(error, TidelogError) and str(pickle.loads(pickle.dumps(error))) == str(error):
            return error
    except Exception as unportable:
        unportable.__cause__ = error
        return JobFailedError.of(unportable)
    return JobFailedError.of(error)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who stops the node on a terminal means the node
    with contextlib.suppress(OSError, AttributeError):
        os.nice(_NICENESS)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not talk into the answers
    with contextlib.suppress(BrokenPipeError):
        serve(sys.stdin.buffer, answers, _make_disk(sys.argv[1]))


if __name__ == "__main__":
    main()

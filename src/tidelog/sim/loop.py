"""An asyncio event loop on virtual time: waiting costs nothing, and a stall is an error that names who waits.

Owns virtual time, the order of callbacks and the killing of simulated processes; knows nothing of networks and disks.
Two runs with one seed execute the same callbacks in the same order: timers that are due together run in the order in
which they were made, and tasks hash by number, because asyncio keeps them in sets.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Callable, Coroutine, Generator
from random import Random
from typing import Any, Final, NoReturn, TypeVar

from tidelog.kernel.errors import TidelogError
from tidelog.sim.disk_faults import SimulatedCrash
from tidelog.sim.process import SimProcess, current_process

T = TypeVar("T")

_STEPS_WITHOUT_TIME_MAX: Final = 100_000


class SimulationError(TidelogError):
    """The simulated program did something that a simulation cannot go on from."""


class DeadlockError(SimulationError):
    """Nothing is ready and nothing is scheduled, or time ran to its limit: the tasks named would wait for ever."""


class _Timer(asyncio.TimerHandle):
    """A timer that sorts by (when, number): heapq alone leaves ties to chance."""

    __slots__ = ("number",)

    def __init__(
        self,
        number: int,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.number = number

    def __lt__(self, other: asyncio.TimerHandle) -> bool:
        assert isinstance(other, _Timer)
        return (self._when, self.number) < (other._when, other.number)  # type: ignore[attr-defined]


class _NumberedTask(asyncio.Task[Any]):
    """TaskGroup and gather keep tasks in sets and walk them: the order must not depend on memory addresses."""

    def __init__(self, number: int, coro: Any, **kwargs: Any) -> None:
        self._number = number
        super().__init__(coro, **kwargs)

    def __hash__(self) -> int:
        return self._number


class _NumberedFuture(asyncio.Future[Any]):
    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _JumpingSelector:
    """What BaseEventLoop takes for its selector: to wait for t seconds is to add t to the clock."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop._jump(timeout)
        return []


class SimLoop(asyncio.BaseEventLoop):
    """`time()` starts at 0. `random` is seeded; whoever needs chance in a simulation draws it from there."""

    def __init__(self, seed: int = 0, limit_s: float = 86_400.0) -> None:
        super().__init__()
        self.seed = seed
        self.random = Random(seed)
        self.limit_s = limit_s
        self.errors: list[dict[str, Any]] = []
        self._now_s = 0.0
        self._number = 0
        self._steps_without_time = 0
        # BaseEventLoop runs what is due before now + this; a nanosecond, the default, is lost in a float after months.
        self._clock_resolution = 1e-6
        self._selector = _JumpingSelector(self)
        self._killed: list[SimProcess] = []
        self.set_task_factory(self._make_task)
        self.set_exception_handler(lambda loop, context: self.errors.append(context))

    def time(self) -> float:
        return self._now_s

    def next_number(self) -> int:
        """A number that grows with every call: for ties and names that must be the same in every run."""
        self._number += 1
        return self._number

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        process = current_process(context)
        return super().call_soon(process.wrap(callback) if process else callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        process = current_process(context)
        timer = _Timer(self.next_number(), when, process.wrap(callback) if process else callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return _NumberedFuture(self.next_number(), loop=self)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], **kwargs: Any
    ) -> asyncio.Future[T]:
        process = current_process(kwargs.get("context"))
        number = self.next_number()
        # The C Task makes its name from a counter that all loops of the process share.
        kwargs.setdefault("name", f"sim-task-{number}")
        task: asyncio.Task[T] = _NumberedTask(number, coro, loop=loop, **kwargs)
        if process is not None:
            process.adopt(task)
        return task

    def run_in_executor(self, *_: Any) -> NoReturn:  # type: ignore[override]
        raise SimulationError("a simulation has no threads: hand work to the Workers port, files to the Disk port")

    def bury(self, process: SimProcess) -> None:
        """Keep what was killed until the loop closes: a coroutine that is collected runs its `finally` blocks."""
        self._killed.append(process)

    def close(self) -> None:
        super().close()
        while self._killed:
            self._killed.pop().dispose()

    def pending_tasks(self) -> list[asyncio.Task[Any]]:
        """What still waits, killed processes left out, in the order of creation."""
        alive = [task for task in asyncio.all_tasks(self) if not any(dead.owns(task) for dead in self._killed)]
        return sorted(alive, key=hash)

    def _jump(self, timeout: float | None) -> None:
        if timeout is None:
            raise DeadlockError(f"nothing is ready and nothing is scheduled at {self._now_s:.3f} s; {self._waiting()}")
        if timeout <= 0:
            self._steps_without_time += 1
            if self._steps_without_time > _STEPS_WITHOUT_TIME_MAX:
                raise SimulationError(f"callbacks go round and round at {self._now_s:.3f} s; {self._waiting()}")
            return
        self._steps_without_time = 0
        # Not by adding the timeout, which is rounded and at most a day: the timer would be missed by a hair, for ever.
        self._now_s = self._scheduled[0]._when  # type: ignore[attr-defined]
        if self._now_s > self.limit_s:
            raise DeadlockError(f"the simulation passed its limit of {self.limit_s:g} s; {self._waiting()}")

    def _waiting(self) -> str:
        return "pending: " + (", ".join(_where(task) for task in self.pending_tasks()) or "no task")

    # What BaseEventLoop asks of a loop with real files.

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        pass


def _where(task: asyncio.Task[Any]) -> str:
    """The task's name and the line it waits at."""
    frames = task.get_stack()
    if not frames:
        return task.get_name()
    # get_stack of a suspended task shows its outermost frame; the line that waits is at the end of the await chain.
    coro: Any = task.get_coro()
    frame = frames[-1]
    while coro is not None:
        frame = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None) or frame
        coro = getattr(coro, "cr_await", None) or getattr(coro, "gi_yieldfrom", None)
    path = frame.f_code.co_filename.rsplit("/", 1)[-1]
    return f"{task.get_name()} ({frame.f_code.co_name} at {path}:{frame.f_lineno})"


def sim_loop() -> SimLoop:
    """The running loop, which must be a simulated one."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop


def run(main: Coroutine[Any, Any, T], seed: int = 0, *, limit_s: float = 86_400.0) -> T:
    """Run main to its end on a new SimLoop. A failure carries the seed; a callback that failed unseen is one."""
    loop = SimLoop(seed, limit_s)
    try:
        try:
            result = loop.run_until_complete(main)
        finally:
            _wind_up(loop)
        # "Task exception was never retrieved" and failed callbacks would else pass as success.
        for context in loop.errors:
            if isinstance(context.get("exception"), SimulatedCrash):
                continue  # the end of a killed node, not a failure
            message = f"{context.get('message', 'a callback failed')}: {context.get('exception')!r}"
            raise SimulationError(message) from context.get("exception")
        return result
    except BaseException as error:
        error.add_note(f"simulation seed {seed}, virtual time {loop.time():.6f} s")
        raise


def _wind_up(loop: SimLoop) -> None:
    """Cancel what main left behind, as asyncio.run does; a task that refuses to end is named."""
    try:
        loop.limit_s = float("inf")
        loop._steps_without_time = 0
        if pending := loop.pending_tasks():
            for task in pending:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()

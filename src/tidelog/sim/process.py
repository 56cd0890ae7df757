"""A simulated operating-system process: everything that a node started, so that it can be killed as `kill -9` kills.

A cancelled task still runs its `finally` blocks, and those may write; a killed process runs nothing. Membership
travels in a context variable: whatever a member's callback or task starts is a member too.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tidelog.sim.loop import SimLoop

T = TypeVar("T")

_current: contextvars.ContextVar[SimProcess | None] = contextvars.ContextVar("sim_process", default=None)


def current_process(context: contextvars.Context | None = None) -> SimProcess | None:
    """The process that the context (the running one when None) belongs to, None for the harness itself."""
    return _current.get() if context is None else context.get(_current)


class SimProcess:
    def __init__(self, loop: SimLoop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.is_alive = True
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._context = contextvars.copy_context()
        self._context.run(_current.set, self)

    def __repr__(self) -> str:
        return f"<SimProcess {self.name} {'alive' if self.is_alive else 'killed'}>"

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a plain function as part of the process."""
        return self._context.copy().run(function, *args)

    def start(self, coro: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        return self.loop.create_task(coro, name=name or f"{self.name}-main", context=self._context.copy())

    def kill(self) -> None:
        """Nothing of the process runs from now on: no callback, no timer, no task, no `finally`."""
        if self.is_alive:
            self.is_alive = False
            self.loop.bury(self)

    def wrap(self, callback: Callable[..., object]) -> Callable[..., object]:
        def guarded(*args: Any) -> None:
            if self.is_alive:
                callback(*args)

        return guarded

    def adopt(self, task: asyncio.Task[Any]) -> None:
        number = hash(task)
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._tasks.pop(number, None))

    def owns(self, task: asyncio.Task[Any]) -> bool:
        return hash(task) in self._tasks

    def dispose(self) -> None:
        """Close the coroutines for good, once the simulation is over and what they still do no longer matters."""
        for task in self._tasks.values():
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _close(task.get_coro())
        self._tasks.clear()


def _close(coro: Any) -> None:
    # A `finally` that awaits makes close() fail and leaves the coroutine one step further: go on until it is through.
    for _ in range(1000):
        try:
            coro.close()
            return
        except BaseException:
            continue

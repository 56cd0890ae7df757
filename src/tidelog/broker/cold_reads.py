"""Requests that need bytes which are not in memory: read beside the loop, so many at once, the others in line.

Owns the line and its numbers. What to read and what to make of it is the request's own affair: it is tried again from
the start each time that bytes have come, because the log may have changed meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from tidelog.broker.context import Parked, RequestContext
from tidelog.kernel.ports import Disk
from tidelog.log.reading import Read, bring

T = TypeVar("T")

REQUEST_BYTES_MAX: Final = 512 * 1024
"""The most that one cold request is given, but for a first batch that is larger."""
_REQUESTS_MAX: Final = 16


class ColdReads:
    """At most `requests_max` requests read cold at once, each up to REQUEST_BYTES_MAX."""

    def __init__(self, disk: Disk, *, requests_max: int = _REQUESTS_MAX) -> None:
        self._disk = disk
        self._turns = asyncio.Semaphore(requests_max)
        self.requests = 0
        """Under way or in line."""
        self.reads = 0
        self.read_bytes = 0

    def answer(self, parked: Parked, context: RequestContext, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do the work when its turn has come, which answers the request; drop it when the connection dies."""
        self.requests += 1
        task = asyncio.get_running_loop().create_task(self._in_turn(work))

        def drop() -> None:
            task.cancel()

        parked.when_dropped(drop)

        def ended(task: asyncio.Task[None]) -> None:
            self.requests -= 1
            if not task.cancelled() and (error := task.exception()) is not None:
                context.services.failed(error, context)

        task.add_done_callback(ended)

    async def _in_turn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with self._turns:
            await work()

    async def run(self, action: Callable[[Read], T]) -> T:
        """What the action gives once all that it reads is there."""
        return await bring(self._disk, action, self._note)

    def _note(self, size: int) -> None:
        self.reads += 1
        self.read_bytes += size

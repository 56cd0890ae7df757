"""Metadata deltas carried out in their order and in slices: ten thousand new partitions must not stop the loop.

Knows nothing of what a delta asks for: `follow` gives the steps. A small delta is done at once; behind a large one the
next wait for their turn, so that a deletion or a new config never overtakes what it is about.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Final, TypeAlias

from tidelog.metadata.image import MetadataDelta

_STEPS_AT_ONCE: Final = 64
_STEPS_PER_TURN: Final = 16
"""A step makes or renames the directory of a partition: some tenths of a millisecond."""


Steps: TypeAlias = Generator[None, None, None]


class Following:
    def __init__(
        self,
        follow: Callable[[MetadataDelta], Generator[None, None, None]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._follow = follow
        self._on_failure = on_failure
        self._queue: deque[tuple[Steps, asyncio.Future[None]]] = deque()
        self._is_ended = False

    def on_delta(self, delta: MetadataDelta) -> asyncio.Future[None] | None:
        """None when all is done, else what ends when it is."""
        is_mine = delta.created or delta.deleted or delta.changed or delta.configs
        if self._is_ended or (self._queue and not is_mine):
            return None
        steps = self._follow(delta)
        if not self._queue and _is_done(steps, _STEPS_AT_ONCE):
            return None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._queue.append((steps, future))
        if len(self._queue) == 1:
            loop.call_soon(self._turn)
        return future

    def _turn(self) -> None:
        if not self._queue:
            return
        steps, future = self._queue[0]
        try:
            is_done = _is_done(steps, _STEPS_PER_TURN)
        except Exception as error:
            self._on_failure(error)
            self.end()
            return
        if is_done:
            self._queue.popleft()
            if not future.done():
                future.set_result(None)
        if self._queue:
            asyncio.get_running_loop().call_soon(self._turn)

    def end(self) -> None:
        """The rest is left to the next start, and nobody is told that it was done."""
        self._is_ended = True
        queue, self._queue = self._queue, deque()
        for steps, future in queue:
            steps.close()
            future.cancel()


def _is_done(steps: Steps, limit: int) -> bool:
    """Take so many steps; whether there are no more."""
    for _ in range(limit):
        try:
            next(steps)
        except StopIteration:
            return True
    return False

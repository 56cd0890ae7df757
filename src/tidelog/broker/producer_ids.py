"""Hands out producer ids from the block that this broker holds, and asks the controller for the next one."""

from __future__ import annotations

import asyncio
from collections import deque

from tidelog.controller.controller import Controller
from tidelog.controller.producer_ids import allocate_block


class ProducerIds:
    def __init__(self, controller: Controller, node_id: int) -> None:
        self._controller = controller
        self._node_id = node_id
        self._block = range(0)
        self._waiting: deque[asyncio.Future[int]] = deque()

    def take(self) -> int | asyncio.Future[int]:
        if self._block:
            return self._next()
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if len(self._waiting) == 1:
            self._ask()
        return future

    def _next(self) -> int:
        first, self._block = self._block[0], self._block[1:]
        return first

    def _ask(self) -> None:
        self._controller.submit(lambda image: allocate_block(image, self._node_id)).add_done_callback(self._refill)

    def _refill(self, answer: asyncio.Future[range]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            self._fail(None if answer.cancelled() else answer.exception())
            return
        self._block = answer.result()
        while self._waiting and self._block:
            future = self._waiting.popleft()
            if not future.cancelled():
                future.set_result(self._next())
        if self._waiting:
            self._ask()

    def _fail(self, error: BaseException | None) -> None:
        waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if error is None:
                future.cancel()
            elif not future.cancelled():
                future.set_exception(error)

"""Hands out producer ids from the block that this broker holds, and asks the controller for the next one."""

from __future__ import annotations

import asyncio

from tidelog.controller.controller import Controller
from tidelog.controller.producer_ids import allocate_block


class ProducerIds:
    def __init__(self, controller: Controller, node_id: int) -> None:
        self._controller = controller
        self._node_id = node_id
        self._block = range(0)
        self._waiting: list[asyncio.Future[int]] = []

    def take(self) -> int | asyncio.Future[int]:
        if self._block:
            first, self._block = self._block[0], self._block[1:]
            return first
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if len(self._waiting) == 1:
            self._controller.submit(lambda image: allocate_block(image, self._node_id)).add_done_callback(self._refill)
        return future

    def _refill(self, answer: asyncio.Future[range]) -> None:
        waiting, self._waiting = self._waiting, []
        error = None if answer.cancelled() else answer.exception()
        for future in waiting:
            if future.cancelled():
                continue
            if answer.cancelled():
                future.cancel()
            elif error is not None:
                future.set_exception(error)
            else:
                if not self._block:
                    self._block = answer.result()
                first, self._block = self._block[0], self._block[1:]
                future.set_result(first)

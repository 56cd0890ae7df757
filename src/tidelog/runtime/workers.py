"""The Workers port on a small pool of threads, started at first use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class ThreadWorkers:
    def __init__(self, threads: int = 4) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._is_closed = False

    async def run(self, function: Callable[[], T]) -> T:
        assert not self._is_closed, "work was handed to workers that have been closed"
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="tidelog-worker")
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    def close(self) -> None:
        """Wait for what runs, drop what has not begun."""
        self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

"""The serial heart of the control plane: one decision at a time over the newest image, its records committed and
replayed before the response leaves."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from tidelog.controller.decision import Decide, encode_record
from tidelog.kernel.errors import DiskFullError
from tidelog.metadata.publisher import MetadataPublisher
from tidelog.metadata.snapshot import image_records


class CommittedBatch(Protocol):
    @property
    def base_offset(self) -> int: ...
    @property
    def epoch(self) -> int: ...


class MetadataLog(Protocol):
    """The part of the quorum that a controller needs."""

    async def append(self, values: Sequence[bytes]) -> CommittedBatch:
        """DiskFullError says that nothing was written."""
        ...

    def maybe_snapshot(self, values: Any) -> bool: ...


class Controller:
    def __init__(self, quorum: MetadataLog, publisher: MetadataPublisher) -> None:
        self._quorum = quorum
        self._publisher = publisher
        self._queue: deque[tuple[Decide, asyncio.Future[Any]]] = deque()
        self._wake = asyncio.Event()

    def submit(self, decide: Decide) -> asyncio.Future[Any]:
        """Queue a decision at once, in the order of the calls; its response comes when its records are committed."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append((decide, future))
        self._wake.set()
        return future

    async def run(self) -> None:
        """Runs for the life of the node. A failed append is fatal for the node: metadata that may be half there."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                decide, future = self._queue.popleft()
                await self._carry_out(decide, future)

    async def _carry_out(self, decide: Decide, future: asyncio.Future[Any]) -> None:
        try:
            decision = decide(self._publisher.image)
        except Exception as error:
            if not future.cancelled():
                future.set_exception(error)
            return
        if decision.records:
            try:
                committed = await self._quorum.append([encode_record(record) for record in decision.records])
            except DiskFullError as error:
                # Nothing was written: a full disk refuses a change and is no reason to stop serving what there is.
                if not future.cancelled():
                    future.set_exception(error)
                return
            self._publisher.apply(decision.records, committed.base_offset, committed.epoch)
            self._quorum.maybe_snapshot(self._snapshot_values)
            if self._publisher.unfinished:
                # Whoever is told that a topic is there writes to it at once. The next decision does not wait.
                followed = asyncio.gather(*self._publisher.unfinished)
                followed.add_done_callback(lambda followed: _respond(future, followed, decision.response))
                return
        if not future.cancelled():
            future.set_result(decision.response)

    def _snapshot_values(self) -> list[bytes]:
        return [encode_record(record) for record in image_records(self._publisher.image)]


def _respond(future: asyncio.Future[Any], followed: asyncio.Future[Any], response: Any) -> None:
    if future.cancelled():
        return
    if followed.cancelled():
        future.cancel()
    elif (error := followed.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(response)

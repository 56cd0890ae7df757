"""Sync rounds of one log directory: everything that was appended while a round ran is made durable by the next one.

Owns which partitions wait for a sync. One round at a time, begun when the loop has handled all that one wake-up
brought, so that a thousand appends share one sync and a single one does not wait for a timer. A failed round is never
tried again: the directory is given up by `on_failure`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tidelog.kernel.errors import DiskError
from tidelog.kernel.ports import Disk, File
from tidelog.log.partition_log import PartitionLog
from tidelog.log.unsynced import FlushRound


class Synced(NamedTuple):
    """What a round does for one log: `on_synced(recovery point, new bytes)` tells when it has."""

    log: PartitionLog
    new_bytes: int
    on_synced: Callable[[int, int], None]


class SyncRounds:
    def __init__(self, disk: Disk, on_failure: Callable[[DiskError], None]) -> None:
        self._disk = disk
        self._on_failure = on_failure
        self._wanted: dict[PartitionLog, Synced] = {}
        self._under_way: asyncio.Future[None] | None = None
        self._is_due = False
        self._is_ended = False
        self.rounds = 0

    def want(self, log: PartitionLog, new_bytes: int, on_synced: Callable[[int, int], None]) -> None:
        """The log has grown by so much, and somebody waits until that is durable."""
        known = self._wanted.get(log)
        if known is not None:
            new_bytes += known.new_bytes
        self._wanted[log] = Synced(log, new_bytes, on_synced)
        if self._under_way is None and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._begin)

    def forget(self, log: PartitionLog) -> None:
        """The log is deleted: nobody waits for it any more."""
        self._wanted.pop(log, None)

    async def flush(self, logs: Iterable[PartitionLog]) -> None:
        """Make these durable in one go, beside the rounds: for a checkpoint in page-cache mode. A failure is told to
        `on_failure` as that of a round is."""
        try:
            rounds = [(log, log.flush_begin()) for log in logs]
            await self._sync(rounds)
        except DiskError as error:
            self._fail(error)
            return
        for log, flushing in rounds:
            log.flush_done(flushing)

    async def end(self) -> None:
        """No more rounds; the one under way is waited for, because it uses descriptors that are about to close."""
        self._is_ended = True
        self._wanted.clear()
        if self._under_way is not None:
            await asyncio.wait([self._under_way])

    def _begin(self) -> None:
        self._is_due = False
        wanted, self._wanted = self._wanted, {}
        if self._is_ended or not wanted:
            return
        self.rounds += 1
        try:
            rounds = [(entry, entry.log.flush_begin()) for entry in wanted.values()]
            self._under_way = asyncio.ensure_future(self._sync([(entry.log, flushing) for entry, flushing in rounds]))
        except DiskError as error:
            self._fail(error)
            return
        self._under_way.add_done_callback(lambda future: self._done(future, rounds))

    def _sync(self, rounds: list[tuple[PartitionLog, FlushRound]]) -> asyncio.Future[None]:
        files: list[File] = []
        directories: dict[str, None] = {}
        for _, flushing in rounds:
            files += flushing.files
            directories |= dict.fromkeys(flushing.directories)
        return asyncio.ensure_future(self._disk.sync(files, tuple(directories)))

    def _done(self, future: asyncio.Future[None], rounds: list[tuple[Synced, FlushRound]]) -> None:
        self._under_way = None
        if self._is_ended or future.cancelled():
            return
        error = future.exception()
        if error is not None:
            if not isinstance(error, DiskError):
                raise error
            self._fail(error)
            return
        for entry, flushing in rounds:
            entry.on_synced(entry.log.flush_done(flushing), entry.new_bytes)
        # What came in meanwhile has waited for this one: no turn of the loop in between.
        if self._wanted:
            self._begin()

    def _fail(self, error: DiskError) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._wanted.clear()
            self._on_failure(error)

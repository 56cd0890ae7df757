"""Sync rounds of one log directory: everything that was appended while a round ran is made durable by the next one.

Owns which partitions wait for a sync. One round at a time, begun when the loop has handled all that one wake-up
brought, so that a thousand appends share one sync and a single one does not wait for a timer. Those whom a round has
answered mostly send the next at once: the first of them is not given a round of its own, for which the others would
have to wait, but a moment for the others to come. A failed round is never tried again: the directory is given up by
`on_failure`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from tidelog.kernel.errors import DiskError
from tidelog.kernel.ports import Clock, Disk, File
from tidelog.log.partition_log import PartitionLog
from tidelog.log.unsynced import FlushRound

PATIENCE: Final = 0.5
"""How long a round waits for more, as a part of what the last one took."""
PATIENCE_MAX_S: Final = 0.001
TURNS_MAX: Final = 64
"""The same in turns of the loop, for a clock that stands still, as a simulated one does within an instant."""


class Synced(NamedTuple):
    """What a round does for one log: `on_synced(recovery point, new bytes)` tells when it has."""

    log: PartitionLog
    new_bytes: int
    on_synced: Callable[[int, int], None]


class SyncRounds:
    def __init__(self, disk: Disk, clock: Clock, on_failure: Callable[[DiskError], None]) -> None:
        self._disk = disk
        self._clock = clock
        self._on_failure = on_failure
        self._wanted: dict[PartitionLog, Synced] = {}
        self._under_way: asyncio.Future[None] | None = None
        self._is_due = False
        self._is_ended = False
        self._appends = 0
        self._appends_expected = 1
        self._patience_s = 0.0
        self._turns = 0
        self._due_s = self._begun_s = 0.0
        self.rounds = 0

    def want(self, log: PartitionLog, new_bytes: int, on_synced: Callable[[int, int], None]) -> None:
        """The log has grown by so much, and somebody waits until that is durable."""
        known = self._wanted.get(log)
        if known is not None:
            new_bytes += known.new_bytes
        self._wanted[log] = Synced(log, new_bytes, on_synced)
        self._appends += 1
        if self._under_way is None and not self._is_due:
            self._be_due()

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

    def _be_due(self) -> None:
        self._is_due = True
        self._turns = 0
        self._due_s = self._clock.monotonic_s()
        asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """At the end of a turn: begin, or see what one more brings."""
        if (
            self._appends < self._appends_expected
            and self._turns < TURNS_MAX
            and self._clock.monotonic_s() - self._due_s < self._patience_s
        ):
            self._turns += 1
            asyncio.get_running_loop().call_soon(self._look)
        else:
            self._begin()

    def _begin(self) -> None:
        self._is_due = False
        wanted, self._wanted = self._wanted, {}
        appends, self._appends = self._appends, 0
        if self._is_ended or not wanted:
            return
        self.rounds += 1
        self._begun_s = self._clock.monotonic_s()
        try:
            rounds = [(entry, entry.log.flush_begin()) for entry in wanted.values()]
            self._under_way = asyncio.ensure_future(self._sync([(entry.log, flushing) for entry, flushing in rounds]))
        except DiskError as error:
            self._fail(error)
            return
        self._under_way.add_done_callback(lambda future: self._done(future, rounds, appends))

    def _sync(self, rounds: list[tuple[PartitionLog, FlushRound]]) -> asyncio.Future[None]:
        files: list[File] = []
        directories: dict[str, None] = {}
        for _, flushing in rounds:
            files += flushing.files
            directories |= dict.fromkeys(flushing.directories)
        return asyncio.ensure_future(self._disk.sync(files, tuple(directories)))

    def _done(self, future: asyncio.Future[None], rounds: list[tuple[Synced, FlushRound]], appends: int) -> None:
        self._under_way = None
        if self._is_ended or future.cancelled():
            return
        error = future.exception()
        if error is not None:
            if not isinstance(error, DiskError):
                raise error
            self._fail(error)
            return
        self._patience_s = min((self._clock.monotonic_s() - self._begun_s) * PATIENCE, PATIENCE_MAX_S)
        self._appends_expected = appends + self._appends
        for entry, flushing in rounds:
            entry.on_synced(entry.log.flush_done(flushing), entry.new_bytes)
        if self._wanted and not self._is_due:
            self._be_due()

    def _fail(self, error: DiskError) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._wanted.clear()
            self._on_failure(error)

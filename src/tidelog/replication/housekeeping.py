"""What the logs of a node need by the clock: retention, syncs and checkpoints, removal of deleted files, forgotten
producers. In slices, and without a sync on the loop: ten thousand partitions must not stop it.

A full disk puts a task off until the next time; any other failure takes the directory offline, and the rest goes on.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from tidelog.kernel.errors import DiskError, DiskFullError
from tidelog.kernel.ports import Clock, Disk
from tidelog.log.reading import WouldBlock, at_once, bring
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.home import Home
from tidelog.replication.partition import Partition
from tidelog.replication.partitions import Partitions

_SLICE: Final = 200
_REMOVALS_PER_TURN: Final = 20
_PRODUCERS_PER_TURN: Final = 20_000
_log = logging.getLogger("tidelog.housekeeping")


class Housekeeping:
    def __init__(self, partitions: Partitions, disk: Disk, clock: Clock) -> None:
        self._partitions = partitions
        self._disk = disk
        self._clock = clock

    # syncs and checkpoints

    async def flush(self) -> None:
        """Everything that is written so far becomes durable, one sync for each directory."""
        for home in self._partitions.online():
            logs = [log for log in home.directory.partitions.values() if not log.is_flushed]
            if logs:
                await home.rounds.flush(logs)

    async def checkpoint(self) -> None:
        """High watermarks, recovery points and log starts, for the next start."""
        for home in self._partitions.online():
            await self.checkpoint_home(home)

    async def checkpoint_home(self, home: Home) -> bool:
        """Whether that was possible."""
        begun = home.directory.checkpoint_begin(self._partitions.high_watermarks(home))
        try:
            await self._disk.replace_files(begun.files)
        except DiskFullError as error:
            _log.warning("%s; the checkpoints of %s stay as they are", error, home.directory.path)
            return False
        except DiskError as error:
            home.give_up(error)
            return False
        home.directory.checkpoint_done(begun)
        return True

    # retention

    async def apply_retention(self) -> int:
        """Roll and delete what the policies say; the number of segments that went."""
        everything = list(self._partitions)
        removed = 0
        for start in range(0, len(everything), _SLICE):
            now_ms = self._clock.wall_ms()
            due: dict[Home, dict[Partition, int]] = {}
            for partition in everything[start : start + _SLICE]:
                await self._load_times(partition, now_ms)
                if _is_due(partition, now_ms):
                    # As of now: the log goes on while the checkpoint is written.
                    due.setdefault(partition.home, {})[partition] = partition.log.recovery_point
            for home, recovery_points in due.items():
                # A power cut may bring one of several deleted segments back. The recovery points on disk must then be
                # behind it, or the start would take what follows it for the far side of a lost tail.
                # On a full disk they cannot be written, and retention is what makes room.
                is_safe = await self.checkpoint_home(home)
                for partition, recovery_point in recovery_points.items():
                    removed += _delete_old(partition, now_ms, recovery_point if is_safe else 0)
            await asyncio.sleep(0)
        return removed

    async def _load_times(self, partition: Partition, now_ms: int) -> None:
        """What retention asks may not be in memory: then it is read beside the loop."""
        log = partition.log
        if partition.failure != ErrorCode.NONE or log.config.retention_ms < 0:
            return
        try:
            log.load_times(now_ms, at_once)
        except WouldBlock:
            try:
                await bring(self._disk, partial(log.load_times, now_ms))
            except DiskError as error:
                partition.home.failed(error)
        except DiskError as error:
            partition.home.failed(error)

    async def remove_due_files(self) -> None:
        """Deleted topics and segments whose delay is over, beside the loop, some at a time until all are gone."""
        now_ms = self._clock.wall_ms()
        for home in self._partitions.online():
            try:
                for _ in range(0, home.directory.removals, _REMOVALS_PER_TURN):
                    due = home.directory.take_due(now_ms, limit=_REMOVALS_PER_TURN)
                    if not due:
                        break
                    await self._disk.remove_later(due)
                for number, log in enumerate(list(home.directory.partitions.values())):
                    due = log.take_due_files(now_ms)
                    if due:
                        await self._disk.remove_later(due)
                    if number % _SLICE == _SLICE - 1:
                        await asyncio.sleep(0)
            except DiskError as error:
                home.failed(error)

    async def expire_producers(self) -> None:
        """Forget the sequences of producers that have been silent for producer.id.expiration.ms."""
        looked_at = 0
        for partition in list(self._partitions):
            log = partition.log
            looked_at += 50 + len(log.producers)
            log.producers.expire(self._clock.wall_ms(), log.config.producer_id_expiration_ms)
            if looked_at > _PRODUCERS_PER_TURN:
                looked_at = 0
                await asyncio.sleep(0)


def _is_free(partition: Partition) -> bool:
    """The cleaner has read the segments that it is going to replace: they stay until it has."""
    return partition.failure == ErrorCode.NONE and not partition.log.is_cleaning


def _is_due(partition: Partition, now_ms: int) -> bool:
    return _is_free(partition) and bool(partition.log.expired_segments(now_ms, partition.high_watermark))


def _delete_old(partition: Partition, now_ms: int, recovery_point: int) -> int:
    """The recovery point is the one on disk. What lies behind it goes too, but a sync for each."""
    if not _is_free(partition):
        return 0
    high_watermark = partition.high_watermark
    try:
        gone = len(partition.log.delete_old_segments(now_ms, min(high_watermark, recovery_point)))
        return gone + len(partition.log.delete_old_segments(now_ms, high_watermark, one_by_one=True))
    except DiskError as error:
        _log.error("retention of %s-%d failed: %s", partition.topic, partition.index, error)
        partition.home.failed(error)
        return 0

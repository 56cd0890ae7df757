"""Compaction of a node's logs: the dirtiest partition first, one at a time, beside the loop and no faster than allowed.

How a log is cleaned stands in log/cleaning; here is which, when, and what becomes of one that cannot be. One that is
damaged is marked until the node starts again; one whose cleaning failed by a bug of ours is tried again, each time
later. The others go on.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from random import Random
from typing import Final, NamedTuple

from tidelog.kernel.errors import DiskError, DiskFullError, HelperGoneError, JobFailedError
from tidelog.kernel.ports import Clock, Disk, Jobs
from tidelog.log.cleaning.errors import UncleanableError
from tidelog.log.cleaning.job import CleanJob, GroupCleaned, LogCleaned, Worked
from tidelog.log.cleaning.keys import entry_bytes
from tidelog.log.cleaning.leftovers import drop_cleaned
from tidelog.log.cleaning.ordering import clean_order
from tidelog.log.cleaning.range import CleanRange, clean_range
from tidelog.log.cleaning.swap import SwapGivenUp, swap
from tidelog.log.errors import CorruptFileError
from tidelog.log.partition_log import PartitionLog
from tidelog.log.reading import Read, bring, waiting
from tidelog.metadata.live_config import LiveConfig
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.housekeeping import Housekeeping
from tidelog.replication.partition import Partition
from tidelog.replication.partitions import Partitions
from tidelog.replication.putting_off import PuttingOff
from tidelog.replication.throttle import Throttle

_SLICE: Final = 100
_SEED_BYTES: Final = 16
_HELPERS_LOST_MAX: Final = 3
_REST_AFTER_S: Final = 300.0
"""A helper process takes a second of CPU to start with numba, more than it needs to clean half a gigabyte; while it
waits for the next cleaning it takes memory only."""
_STEP_BYTES: Final = 8 << 20
_log = logging.getLogger("tidelog.cleaner")

Name = tuple[str, int]


class CleanStats(NamedTuple):
    """Of the last cleaning of a partition."""

    ended_ms: int
    duration_s: float
    read_bytes: int
    written_bytes: int
    keys: int


class LogCleaner:
    def __init__(
        self,
        partitions: Partitions,
        housekeeping: Housekeeping,
        disk: Disk,
        clock: Clock,
        random: Random,
        jobs: Jobs,
        config: LiveConfig,
    ) -> None:
        self._partitions = partitions
        self._housekeeping = housekeeping
        self._disk = disk
        self._clock = clock
        self._random = random
        self._jobs = jobs
        self._config = config
        self._throttle = Throttle(clock, lambda: config.number("log.cleaner.io.max.bytes.per.second"))
        self._helpers_lost: dict[PartitionLog, int] = {}
        self._putting_off = PuttingOff(clock, self._pause_s)
        self._worked_s = clock.monotonic_s()
        self.ranges: dict[Partition, CleanRange] = {}
        """What is to be cleaned of each compacted partition, as it was when last looked at."""
        self.cleaned: dict[PartitionLog, CleanStats] = {}
        self.uncleanable: dict[PartitionLog, str] = {}
        self.cleanings = 0
        self.failures = 0
        """Cleanings that ended with a bug of ours."""
        self.looked_s = clock.monotonic_s()

    @property
    def is_enabled(self) -> bool:
        return self._config.boolean("log.cleaner.enable") and self._config.integer("log.cleaner.threads") > 0

    async def run(self) -> None:
        """Until cancelled: as long as there is something to clean, then a pause."""
        while True:
            if not (self.is_enabled and await self.clean_worst()):
                if not self.is_enabled or self._clock.monotonic_s() - self._worked_s > _REST_AFTER_S:
                    await self._jobs.rest()
                await asyncio.sleep(self._pause_s())

    def _pause_s(self) -> float:
        return max(self._config.integer("log.cleaner.backoff.ms"), 10) / 1000

    async def clean_worst(self) -> bool:
        """Clean the dirtiest partition that is due; whether there was one and it went well."""
        await self._look()
        self.looked_s = self._clock.monotonic_s()
        due = [(found.dirty_ratio, partition) for partition, found in self.ranges.items() if self._is_due(partition)]
        if not due:
            return False
        _, partition = max(due, key=lambda entry: entry[0])
        return await self._try_clean(partition)

    def _is_due(self, partition: Partition) -> bool:
        log = partition.log
        if log in self.uncleanable or self._putting_off.holds(log):
            return False
        return self.ranges[partition].is_due(log.config)

    # Looking

    async def _look(self) -> None:
        ranges: dict[Partition, CleanRange] = {}
        for number, partition in enumerate(list(self._partitions)):
            if partition.log.config.is_compacted and partition.failure == ErrorCode.NONE:
                try:
                    ranges[partition] = await self._range_of(partition)
                except DiskError as error:
                    partition.home.failed(error)
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
        self.ranges = ranges
        logs = {partition.log for partition in ranges}
        self.cleaned = {log: stats for log, stats in self.cleaned.items() if log in logs}
        self.uncleanable = {log: why for log, why in self.uncleanable.items() if log in logs}
        self._helpers_lost = {log: count for log, count in self._helpers_lost.items() if log in logs}
        self._putting_off.keep(logs)

    async def _range_of(self, partition: Partition) -> CleanRange:
        config = partition.log.config
        if config.min_compaction_lag_ms > 0 or config.max_compaction_lag_ms < self._clock.wall_ms():
            # Asks for times that may not be in memory.
            return await bring(self._disk, partial(self._measure, partition))
        return self._measure(partition, waiting)

    def _measure(self, partition: Partition, read: Read) -> CleanRange:
        log = partition.log
        if read is not waiting:
            for segment in log.segments:
                if segment.base_offset >= log.cleaned_to:
                    segment.load_max_timestamp(read)
        return clean_range(
            log.segments,
            log.config,
            cleaned_to=log.cleaned_to,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            stable_offset=partition.last_stable_offset,
            now_ms=self._clock.wall_ms(),
        )

    # Cleaning

    async def _try_clean(self, partition: Partition) -> bool:
        log, home = partition.log, partition.home
        found = self._measure(partition, waiting)
        if not found.is_due(log.config):
            return False
        if log.recovery_point < found.first_uncleanable_offset:
            # What is replayed after a crash begins there, and must be whole: a marker that was cleaned away would leave
            # its transaction open for ever. In page-cache mode nobody else may sync for a long time.
            await home.rounds.flush([log])
            found = self._measure(partition, waiting)
            if log.recovery_point < found.first_uncleanable_offset or not found.is_due(log.config):
                return False
        if log.cleaned_to < 0:
            # From now on the log may have gaps: who looks at the directory must know.
            log.cleaned_to = found.first_dirty_offset
        # The recovery point on disk must not be before what is cleaned.
        if not await self._housekeeping.checkpoint_home(home):
            return False
        log.is_cleaning = True
        try:
            return await self._clean(partition, found)
        except SwapGivenUp:
            return False
        except DiskFullError as error:
            _log.warning("no room to clean %s-%d: %s; it is tried again", log.topic, log.partition, error)
        except HelperGoneError as error:
            self._lost_helper(log, error)
        except JobFailedError as error:
            self._failed(log, error)
        except (UncleanableError, CorruptFileError) as error:
            self._give_up(log, str(error))
        except DiskError as error:
            if not log.is_closed:
                home.failed(error)
            return False
        finally:
            log.is_cleaning = False
        self._drop_cleaned(partition)
        return False

    def _drop_cleaned(self, partition: Partition) -> None:
        """What was written takes room, and is worth nothing. (Not after an I/O error: then the next start needs it.)"""
        if not partition.log.is_closed and partition.failure == ErrorCode.NONE:
            try:
                drop_cleaned(self._disk, partition.log.directory)
            except DiskError as error:
                partition.home.failed(error)

    def _lost_helper(self, log: PartitionLog, error: HelperGoneError) -> None:
        lost = self._helpers_lost[log] = self._helpers_lost.get(log, 0) + 1
        if lost >= _HELPERS_LOST_MAX:
            self._give_up(log, f"{error}, {lost} times")
        else:
            _log.warning("cleaning %s-%d: %s; it is tried again", log.topic, log.partition, error)

    def _failed(self, log: PartitionLog, error: JobFailedError) -> None:
        self.failures += 1
        _log.error(
            "cleaning %s-%d failed by a bug of Tidelog's, please report it: %s; it is tried again in %.0f s\n%s",
            log.topic,
            log.partition,
            error,
            self._putting_off.put_off(log),
            error.trace,
        )

    def _give_up(self, log: PartitionLog, why: str) -> None:
        if not log.is_closed:
            self.uncleanable[log] = why
            _log.error("%s-%d is not cleaned any more until the next start: %s", log.topic, log.partition, why)

    async def _clean(self, partition: Partition, found: CleanRange) -> bool:
        log = partition.log
        begun_s = self._clock.monotonic_s()
        memory = self._config.number("log.cleaner.dedupe.buffer.size")
        memory *= self._config.number("log.cleaner.io.buffer.load.factor")
        order = await bring(
            self._disk,
            lambda read: clean_order(
                log,
                found,
                now_ms=self._clock.wall_ms(),
                keys_max=int(memory / entry_bytes()),
                seed=self._random.randbytes(_SEED_BYTES),
                read_bytes=self._config.integer("log.cleaner.io.buffer.size"),
                step_bytes=self._step_bytes(),
                read=read,
            ),
        )
        job = await self._jobs.start(CleanJob(order))
        try:
            while True:
                step = await job.step()
                if isinstance(step, LogCleaned):
                    break
                if log.is_closed or partition.failure != ErrorCode.NONE:
                    return False
                if isinstance(step, GroupCleaned):
                    await swap(self._disk, log, step.base_offsets, self._clock.wall_ms())
                elif isinstance(step, Worked):
                    await self._throttle.pass_by(step.read_bytes + step.written_bytes)
        finally:
            self._worked_s = self._clock.monotonic_s()
            await job.close()
        await self._cleaned(partition, step, begun_s)
        return True

    def _step_bytes(self) -> int:
        """A step costs a question to the helper and an answer; but it should not take a second's allowance at once."""
        return int(min(_STEP_BYTES, self._config.number("log.cleaner.io.max.bytes.per.second") / 8))

    async def _cleaned(self, partition: Partition, done: LogCleaned, begun_s: float) -> None:
        log = partition.log
        log.cleaned_to = min(done.end_offset, log.log_end_offset)
        self.cleanings += 1
        self._putting_off.went_well(log)
        duration_s = self._clock.monotonic_s() - begun_s
        self.cleaned[log] = CleanStats(
            self._clock.wall_ms(), duration_s, done.read_bytes, done.written_bytes, done.keys
        )
        _log.info(
            "cleaned %s-%d up to offset %d: %d keys, %d bytes written, %.1f s",
            log.topic,
            log.partition,
            log.cleaned_to,
            done.keys,
            done.written_bytes,
            duration_s,
        )
        try:
            await self._disk.replace_files([partition.home.directory.cleaner_checkpoint()])
        except DiskFullError as error:
            _log.warning("%s; the next start cleans from where it was before", error)

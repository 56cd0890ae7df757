"""One partition on disk: appends batches, rolls segments, truncates, forgets what is too old, flushes.

No clock and no loop in here: time is an argument, and a sync is a round that the caller waits for. Writes are in order
of offsets, by one owner. What is durable is `recovery_point`: only a finished round moves it. How it
is read stands in readable_log.py, what a cleaner does to it in cleanable_log.py.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from tidelog.kernel.errors import DiskFullError
from tidelog.kernel.ports import Buffer, Disk
from tidelog.log.cleanable_log import CleanableLog
from tidelog.log.config import LogConfig
from tidelog.log.errors import LogError
from tidelog.log.following import check_batches
from tidelog.log.loading import load_log, replay_producers
from tidelog.log.partition_metadata import is_same_topic, read_topic_id, write_topic_id
from tidelog.log.reading import Read
from tidelog.log.retention import Reason, Removal, expired
from tidelog.log.segment import NOT_CALM, Segment
from tidelog.log.transactions import Transactions, read_ending
from tidelog.log.txn_index import Aborted
from tidelog.log.unsynced import FlushRound
from tidelog.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader
from tidelog.protocol.errors import ErrorCode

_pack_offset: Final = Struct(">q").pack_into
_pack_epoch: Final = Struct(">i").pack_into
_new_tuple: Final = tuple.__new__
_RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class AppendResult(NamedTuple):
    base_offset: int
    last_offset: int
    timestamp: int
    """The largest timestamp of the batch; of the first one when this was a retry."""
    duplicate: bool = False


class PartitionLog(CleanableLog):
    __slots__ = ("_clean_end", "is_closed", "recovery_point", "topic_id")

    def __init__(self, disk: Disk, directory: str, topic: str, partition: int, config: LogConfig) -> None:
        super().__init__(disk, directory, topic, partition, config)
        self.topic_id: bytes | None = None
        self.recovery_point = 0
        self._clean_end = -1
        self.is_closed = False

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        now_ms: int,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        topic_id: bytes | None = None,
        one_at_a_time: bool = False,
        cleaned_to: int = -1,
    ) -> PartitionLog:
        """Open the partition in the directory, or make it. `clean` says that it was closed and nothing else since."""
        log = cls(disk, directory, topic, partition, config)
        log.cleaned_to = cleaned_to
        parent = directory.rpartition("/")[0]
        is_new = not disk.is_dir(directory)
        if is_new:
            disk.make_dirs(directory)
        if is_new or not clean:
            # Who was killed may have left names that are in the page cache only.
            log._unsynced.add(directories=(directory, parent))
        log._open_topic_id(topic_id, is_new)
        log._load(now_ms, clean, recovery_point, log_start_offset, one_at_a_time, is_new)
        return log

    def _open_topic_id(self, topic_id: bytes | None, is_new: bool) -> None:
        self.topic_id = None if is_new else read_topic_id(self._disk, self.directory)
        if topic_id is None:
            return
        if not is_same_topic(self.topic_id, topic_id):
            raise LogError(
                ErrorCode.INCONSISTENT_TOPIC_ID, f"{self.directory} belongs to another topic of the same name"
            )
        self.mend_topic_id(topic_id)

    def mend_topic_id(self, topic_id: bytes) -> bool:
        """Write the id down, for the first time or when the file was lost or damaged; whether that was needed."""
        if self.topic_id == topic_id:
            return False
        self._unsynced.add((write_topic_id(self._disk, self.directory, topic_id),), (self.directory,))
        self.topic_id = topic_id
        return True

    def _load(
        self,
        now_ms: int,
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
        one_at_a_time: bool,
        is_new: bool,
    ) -> None:
        loaded = load_log(
            self._disk,
            self.directory,
            self.config,
            now_ms=now_ms,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            one_at_a_time=one_at_a_time,
            is_new=is_new,
            was_cleaned=self.cleaned_to >= 0,
        )
        self._segments = loaded.segments
        self._active = loaded.segments[-1]
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.leader_epochs = loaded.leader_epochs
        self.producers = loaded.producers
        self._find_transactions()
        self._unsynced.add(loaded.unsynced_files)
        if clean and not loaded.unsynced_files:
            self.recovery_point = self.log_end_offset
            newest = self.producers.snapshots[-1] if self.producers.snapshots else 0
            self._clean_end = newest if newest == self.log_end_offset else -1
        else:
            self.recovery_point = min(recovery_point, self.log_end_offset)

    # What there is

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def latest_epoch(self) -> int:
        return self.leader_epochs.latest

    # Appending

    def append(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        *,
        leader_epoch: int,
        now_ms: int,
        from_coordinator: bool = False,
    ) -> AppendResult:
        """The leader's way: one whole, validated batch, whose offset and epoch are set in place before the write. What
        a coordinator writes for a producer has no sequences to check."""
        has_producer = header.producer_id >= 0
        attributes = header.attributes
        is_control = attributes & CONTROL
        if has_producer and not is_control:
            if from_coordinator:
                self.producers.check_coordinator_batch(header)
            elif (earlier := self.producers.check(header)) is not None:
                return AppendResult(earlier.first_offset, earlier.last_offset, earlier.timestamp, True)
        size = len(batch)
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        max_timestamp = header.max_timestamp
        active = self._active
        config = self.config
        if (
            active.size + size > config.segment_bytes
            or max_timestamp > active.calm_until
            or config is not active.calm_config
            or last_offset - active.base_offset > _RELATIVE_OFFSET_MAX
        ) and active.size:
            if self._should_roll(active, size, last_offset, max_timestamp, now_ms):
                active = self.roll(now_ms)
            else:
                self._note_calm(active)
        epochs = self.leader_epochs
        if leader_epoch > epochs.latest:
            epochs.begin(leader_epoch, base_offset)
        if epochs.is_unwritten:
            # Before the first batch: a start takes one whose epoch the file does not know for damaged.
            epochs.settle()
        _pack_offset(batch, 0, base_offset)
        _pack_epoch(batch, 12, leader_epoch)
        position = active.append(batch, size, last_offset, max_timestamp, config.index_interval_bytes)
        self._recent.note(base_offset, position)
        self.log_end_offset = last_offset + 1
        if has_producer:
            if is_control:
                self._note_marker(batch, header, base_offset)
            else:
                self.producers.appended(header, base_offset, last_offset)
                if attributes & TRANSACTIONAL and self.transactions is None:
                    self.transactions = Transactions(self.producers.open_since)
        return _new_tuple(AppendResult, (base_offset, last_offset, max_timestamp, False))

    def append_as_follower(self, batches: Buffer, *, now_ms: int) -> AppendResult | None:
        """Batches as the leader wrote them. All are looked at before the first is written; None when there is none."""
        found = check_batches(batches, self.log_end_offset)
        if not found:
            return None
        view = memoryview(batches)
        run: list[tuple[int, BatchHeader]] = []
        start = 0
        for position, header in found:
            size = position - start + header.size
            pending = self._active.size + position - start
            if pending and self._should_roll(self._active, size, header.last_offset, header.max_timestamp, now_ms):
                self._write_run(view[start:position], run)
                start, run = position, []
                if self._active.size:
                    self.roll(now_ms)
            run.append((position - start, header))
        last_position, last = found[-1]
        self._write_run(view[start : last_position + last.size], run)
        return AppendResult(found[0][1].base_offset, last.last_offset, max(h.max_timestamp for _, h in found))

    def _write_run(self, data: memoryview, run: list[tuple[int, BatchHeader]]) -> None:
        if not run:
            return
        self._active.append_run(data, run, self.config.index_interval_bytes)
        for position, header in run:
            if header.leader_epoch > self.leader_epochs.latest:
                self.leader_epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                if header.is_control:
                    self._note_marker(data[position : position + header.size], header, header.base_offset)
                else:
                    self.producers.appended(header, header.base_offset, header.last_offset)
                    if header.attributes & TRANSACTIONAL and self.transactions is None:
                        self.transactions = Transactions(self.producers.open_since)
        self.log_end_offset = run[-1][1].next_offset

    def _note_marker(self, batch: Buffer, header: BatchHeader, offset: int) -> None:
        ending = read_ending(batch, header)
        if ending is None:
            return
        first_offset = self.producers.marked(header, ending.coordinator_epoch)
        if first_offset < 0:
            return
        assert self.transactions is not None
        self.transactions.ended(first_offset, offset)
        if not ending.committed:
            stable_offset = self.producers.stable_offset(offset + 1)
            self._active.note_aborted(Aborted(header.producer_id, first_offset, offset, stable_offset))
            self.transactions.last_aborted = offset

    def _find_transactions(self) -> None:
        """At start. All of the log counts as committed then, so nothing is kept of those that have ended."""
        open_since = self.producers.open_since
        last_aborted = max((s.aborted.last_offset for s in self._segments if s.aborted is not None), default=-1)
        self.transactions = Transactions(open_since, last_aborted) if open_since or last_aborted >= 0 else None

    # Rolling

    def _should_roll(self, active: Segment, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        config = self.config
        return (
            active.size + size > config.segment_bytes
            or last_offset - active.base_offset > _RELATIVE_OFFSET_MAX
            or active.index_entries >= config.segment_index_bytes // 8
            or active.time_index_entries >= config.segment_index_bytes // 12 - 1
            or self._waited_ms(active, max_timestamp, now_ms) > config.segment_ms - self._jitter_ms(active)
        )

    def _note_calm(self, active: Segment) -> None:
        """Until when, by the timestamps of batches, time and the indexes are no reason to roll."""
        first = active.first_timestamp()
        active.calm_until = first + self.config.segment_ms - self._jitter_ms(active) if first >= 0 else NOT_CALM
        active.calm_config = self.config

    def _waited_ms(self, active: Segment, timestamp: int, now_ms: int) -> int:
        first = active.first_timestamp()
        return timestamp - first if first >= 0 else now_ms - active.created_ms

    def _jitter_ms(self, active: Segment) -> int:
        """Spreads the rolls of many partitions; the same for a segment however often it is asked."""
        jitter = self.config.segment_jitter_ms
        if jitter <= 0:
            return 0
        return crc32(f"{self.topic}-{self.partition}-{active.base_offset}".encode()) % jitter

    def maybe_roll(self, now_ms: int) -> bool:
        """Roll a segment whose time has come although nobody writes."""
        active = self._active
        if active.size == 0 or self._waited_ms(active, now_ms, now_ms) <= self.config.segment_ms - self._jitter_ms(
            active
        ):
            return False
        self.roll(now_ms)
        return True

    def roll(self, now_ms: int) -> Segment:
        """Complete the active segment and start the next one at the end of the log."""
        old = self._active
        assert old.size, "an empty segment is not rolled: the next would have its name"
        files = old.finish()
        snapshot = self.producers.take_snapshot(self.log_end_offset)
        if snapshot is not None:
            files.append(self._disk.open(snapshot))
        self._unsynced.add(files)
        # Without room for it the roll has not happened, and the next one finds the rest done.
        new = Segment.create(self._disk, self.directory, self.log_end_offset, now_ms=now_ms)
        self._segments.append(new)
        self._active = new
        self._unsynced.add(directories=(self.directory,))
        self._clean_end = -1
        self._recent.clear()
        return new

    # Cutting the end

    def truncation_point(self, offset: int) -> int:
        """Where the log would end after truncate_to: lower than the offset when a batch straddles it."""
        if offset >= self.log_end_offset or offset < self._segments[0].base_offset:
            return min(offset, self.log_end_offset)
        found = self._segments[self._segment_number(offset)].find(offset)
        return offset if found is None else min(offset, found[1].base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop everything from the offset on, with the whole of a batch that straddles it."""
        if offset >= self.log_end_offset:
            return
        if offset < self._segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self._forget_positions()
        kept = self._segment_number(offset) + 1
        self._drop_segments(self._segments[kept:])
        self._active = self._segments[-1]
        self.log_end_offset = self._active.truncate_to(offset)
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self._after_truncation()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Begin again, empty, at the offset."""
        self._forget_positions()
        self._drop_segments(self._segments[:])
        self._active = Segment.create(self._disk, self.directory, offset, now_ms=self._active.created_ms)
        self._segments.append(self._active)
        self.producers.remove_snapshots_after(-1)
        # The segment's name is all that tells where the log begins, and no snapshot may come back.
        self._disk.sync_dir(self.directory)
        self.log_start_offset = self.log_end_offset = offset
        self._after_truncation()

    def _forget_positions(self) -> None:
        self._recent.clear()
        self._truncations += 1
        self._clean_end = -1
        if self.is_cleaning:
            self._give_up_swap()

    def _drop_segments(self, segments: list[Segment]) -> None:
        """At once, not later: a segment of the same name may be written next."""
        for segment in segments:
            self._forget_unsynced(segment)
            segment.close()
            for path in segment.files():
                self._disk.remove(path)
        del self._segments[len(self._segments) - len(segments) :]
        if segments:
            # A power cut must not bring a dropped segment back behind batches that were written since.
            self._disk.sync_dir(self.directory)

    def _after_truncation(self) -> None:
        self.recovery_point = min(self.recovery_point, self.log_end_offset)
        self.cleaned_to = min(self.cleaned_to, self.log_end_offset)
        self._unsynced.add(directories=(self.directory,))
        self.leader_epochs.truncate_from_end(self.log_end_offset)
        self.producers.load(self.log_end_offset)
        is_whole = "compact" not in self.config.cleanup_policy
        written, _ = replay_producers(self.producers, self._segments, self.log_end_offset, is_whole=is_whole)
        self._unsynced.add([self._disk.open(path) for path in written])
        if self.transactions is not None:
            self.transactions.truncated(self.log_end_offset)
        elif self.producers.open_since:
            self.transactions = Transactions(self.producers.open_since)

    # Cutting the start

    def maybe_increment_log_start(self, offset: int) -> bool:
        """DeleteRecords: nothing before the offset is readable any more; its segments go with the next retention."""
        if offset > self.log_end_offset:
            raise LogError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is behind the end {self.log_end_offset}")
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        return True

    def load_times(self, now_ms: int, read: Read) -> None:
        """Look into the segments whose time expired_segments asks for: most were never looked into since the start."""
        for segment in self._segments:
            segment.load_max_timestamp(read)
            if now_ms - segment.max_timestamp <= self.config.retention_ms:
                return

    def expired_segments(self, now_ms: int, high_watermark: int) -> list[tuple[Segment, Reason]]:
        """What delete_old_segments would take away, and why."""
        return expired(
            self._segments,
            self.config,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=high_watermark,
        )

    def delete_old_segments(self, now_ms: int, high_watermark: int, *, one_by_one: bool = False) -> list[Removal]:
        """Take away what retention no longer keeps; the files are renamed now and removed when they are due.

        A power cut may undo some of the renames. Either the recovery points on disk are behind all of them, or they
        become durable one by one, so that none comes back before one that stays away."""
        gone = self.expired_segments(now_ms, high_watermark)
        if gone and len(gone) == len(self._segments):
            gone = self._without_active(gone, now_ms)
        if not gone:
            return []
        removals = [Removal(segment.base_offset, segment.size, reason) for segment, reason in gone]
        if self.directory in self._unsynced.directories:
            # The next segment must have a durable name before these lose theirs, or a power cut leaves no segment at
            # all and offsets are given twice.
            self._disk.sync_dir(self.directory)
        paths: list[str] = []
        for segment, _ in gone:
            self._forget_unsynced(segment)
            paths += segment.mark_deleted()
            paths += self.producers.mark_deleted(segment.base_offset)
            if one_by_one:
                self._disk.sync_dir(self.directory)
        del self._segments[: len(gone)]
        # A power cut may undo the renames, and what comes back was perhaps never synced: no flush may vouch for it.
        self._unsynced.add(directories=(self.directory,))
        self._removals.add(now_ms + self.config.file_delete_delay_ms, paths)
        self.maybe_increment_log_start(self._segments[0].base_offset)
        return removals

    def _without_active(self, gone: list[tuple[Segment, Reason]], now_ms: int) -> list[tuple[Segment, Reason]]:
        """Every segment goes, the active one too, if there is room for the one that follows it."""
        try:
            self.roll(now_ms)
        except DiskFullError:
            return gone[:-1]
        return gone

    @property
    def next_removal_ms(self) -> int | None:
        """When remove_due_files has something to do."""
        return self._removals.next_ms

    def take_due_files(self, now_ms: int) -> list[str]:
        """The renamed files whose delay is over: whoever asks removes them, beside the loop."""
        return self._removals.take_due(now_ms)

    def remove_due_files(self, now_ms: int) -> int:
        """The same, blocking: for a log of small files; how many."""
        return self._removals.remove_due(self._disk, now_ms)

    # Flushing

    @property
    def is_flushed(self) -> bool:
        return self.recovery_point >= self.log_end_offset and not (
            self._unsynced or self.leader_epochs.changes != self.leader_epochs.synced_changes
        )

    def flush_begin(self) -> FlushRound:
        """What the caller must sync, `await disk.sync(round.files, round.directories)`, before flush_done(round)."""
        epochs = self.leader_epochs
        has_epochs = epochs.changes != epochs.synced_changes and epochs.is_written()
        marks = (
            self._truncations,
            epochs.changes if has_epochs else epochs.synced_changes,
            self._unsynced.changes,
        )
        if self.is_flushed:
            return FlushRound(self.log_end_offset, (), (), marks)
        files = [*self._unsynced.files, self._active.log]
        directories = dict.fromkeys(self._unsynced.directories)
        if has_epochs:
            files.append(self._disk.open(epochs.path))
            directories[self.directory] = None
        return FlushRound(self.log_end_offset, files, tuple(directories), marks)

    def flush_done(self, round: FlushRound) -> int:
        """The round is durable: the recovery point moves, unless the log was truncated meanwhile. Where it is now."""
        truncations, epoch_changes, unsynced_changes = round.marks
        if truncations != self._truncations:
            return self.recovery_point
        self.recovery_point = max(self.recovery_point, round.offset)
        self.leader_epochs.synced_changes = max(self.leader_epochs.synced_changes, epoch_changes)
        self._unsynced.synced(unsynced_changes)
        return self.recovery_point

    def flush(self) -> int:
        """The blocking variant, for starting, stopping and tools."""
        round = self.flush_begin()
        self._disk.sync_now(round.files, round.directories)
        return self.flush_done(round)

    # Stopping

    def close_begin(self, now_ms: int) -> FlushRound:
        """Complete the indexes and write the producers down, as a clean start expects them; then sync as in a flush."""
        self._end_swap()
        if self._clean_end == self.log_end_offset and self.is_flushed:
            return self.flush_begin()
        files = self._active.finish()
        snapshot = self.producers.take_snapshot(self.log_end_offset)
        if snapshot is not None:
            files.append(self._disk.open(snapshot))
        self._unsynced.add(directories=(self.directory,))
        round = self.flush_begin()
        return round._replace(files=[*round.files, *files])

    def close_done(self, round: FlushRound) -> None:
        self.flush_done(round)
        self.close_files()

    def close(self, now_ms: int) -> None:
        """The whole clean stop of one log, blocking. The marker that says so is the directory's to write."""
        round = self.close_begin(now_ms)
        self._disk.sync_now(round.files, round.directories)
        self.close_done(round)

    def close_files(self) -> None:
        """Let go of the files without any promise about them: for a log that is deleted, or on a broken disk."""
        self.is_closed = True
        for segment in self._segments:
            segment.close()

"""Opening the directory of a partition: after a clean stop by what the files say, otherwise by looking at every batch
behind the recovery point. Doing it twice changes nothing more."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from tidelog.kernel.ports import Disk, File
from tidelog.log.cleaning.leftovers import finish_swap
from tidelog.log.config import LogConfig
from tidelog.log.errors import CorruptFileError, DamagedLogError
from tidelog.log.leader_epochs import EpochStart, LeaderEpochs
from tidelog.log.names import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TEMPORARY,
    TIME_INDEX,
    TXN_INDEX,
    offsets_by_suffix,
    segment_name,
)
from tidelog.log.producers import ProducerStates
from tidelog.log.scan import find_batch, scan_headers
from tidelog.log.segment import Segment
from tidelog.log.transactions import read_ending
from tidelog.log.txn_index import Aborted
from tidelog.protocol.batch import CONTROL, BatchHeader

_OFFSET_MAX: Final = 2**63 - 1
_HINT: Final = "; `tidelog verify` tells more, docs/recovery.md what can be done"

logger = logging.getLogger(__name__)


class LoadedLog(NamedTuple):
    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    leader_epochs: LeaderEpochs
    producers: ProducerStates
    unsynced_files: list[File]


def load_log(
    disk: Disk,
    directory: str,
    config: LogConfig,
    *,
    now_ms: int,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    one_at_a_time: bool = False,
    is_new: bool = False,
    was_cleaned: bool = False,
) -> LoadedLog:
    """`one_at_a_time`: each batch was synced before the next was written (the metadata log), so that only the last can
    be torn. `is_new`: the directory was made just now, nothing is looked for in it. `was_cleaned`: the cleaner has left
    gaps, whatever the policy is now. DamagedLogError for a log that lacks what was synced, where it cannot be opened
    without more loss."""
    loader = _Loader(disk, directory, config, now_ms, clean, recovery_point, one_at_a_time, was_cleaned)
    return loader.load(log_start_offset, is_new)


class _Loader:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        now_ms: int,
        clean: bool,
        recovery_point: int,
        one_at_a_time: bool,
        was_cleaned: bool,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.now_ms = now_ms
        self.clean = clean
        self.recovery_point = recovery_point
        self.one_at_a_time = one_at_a_time
        self.was_cleaned = was_cleaned
        self.epochs = LeaderEpochs(disk, directory)
        self.producers = ProducerStates(disk, directory)
        self.epochs_known = False
        self.segments: list[Segment] = []
        self.unindexed: list[Segment] = []
        """Those whose .txnindex is made again."""
        self.unsynced: list[File] = []
        self.swapped: list[int] = []
        """Cleaned segments whose indexes are made again: a swap was cut short."""

    def load(self, log_start_offset: int, is_new: bool) -> LoadedLog:
        found = self._drop_leftovers([] if is_new else self.disk.list_dir(self.directory))
        self._open_segments(found)
        self.epochs_known = not is_new and self._load_epochs()
        end = self._find_end()
        if self.one_at_a_time:
            self._check_snapshots_reached(found[SNAPSHOT], end)
        if self.segments and end < log_start_offset:
            if self.clean:
                last = self.segments[-1].log.path
                raise DamagedLogError(f"{last} ends before offset {end}, the log starts at {log_start_offset}{_HINT}")
            # The files behind the log's start are lost: offsets must go on from there, never be given twice.
            self._remove_segments(self.segments)
        if not self.segments:
            end = log_start_offset
            self.segments = [Segment.create(self.disk, self.directory, end, now_ms=self.now_ms)]
            if end:
                self.disk.sync_dir(self.directory)
        self._check_aborted(end)
        lost_before = self._load_producers(found[SNAPSHOT], end)
        start = max(log_start_offset, self.segments[0].base_offset, lost_before)
        if not self.epochs_known and end > start:
            self._find_epochs()
        self.epochs.bound(start, end)
        active = self.segments[-1]
        active.with_indexes(active.count_entries)
        return LoadedLog(self.segments, start, end, self.epochs, self.producers, self.unsynced)

    # Files that an interrupted deletion, cleaning or checkpoint left

    def _drop_leftovers(self, names: list[str]) -> dict[str, list[int]]:
        """The offsets in the names of what is left, by the kind of file."""
        if not any(name.endswith((DELETED, CLEANED, TEMPORARY, SWAP)) for name in names):
            return offsets_by_suffix(names)
        if any(name.endswith((CLEANED, SWAP)) for name in names):
            self.swapped = finish_swap(self.disk, self.directory)
        for name in names:
            if name.endswith((DELETED, TEMPORARY)):
                self.disk.remove(f"{self.directory}/{name}")
        return offsets_by_suffix(self.disk.list_dir(self.directory))

    # Segments

    def _open_segments(self, found: dict[str, list[int]]) -> None:
        bases = found[LOG]
        for base in bases:
            self.segments.append(Segment(self.disk, self.directory, base, now_ms=self.now_ms, new=False))
        aborted = set(found[TXN_INDEX])
        for segment in self.segments if aborted else ():
            if segment.base_offset in aborted:
                segment.open_aborted()
        for suffix in (INDEX, TIME_INDEX, TXN_INDEX):
            for orphan in sorted(set(found[suffix]).difference(bases)):
                if self.clean:
                    lost = f"{self.directory}/{segment_name(orphan, LOG)}"
                    raise DamagedLogError(f"{lost} is missing, its {suffix} file is there{_HINT}")
                self.disk.remove(f"{self.directory}/{segment_name(orphan, suffix)}")
        if self.clean:
            for segment in self.segments:
                if segment.base_offset not in found[INDEX] or segment.base_offset not in found[TIME_INDEX]:
                    segment.rebuild_indexes()
        for segment in self.segments:
            if segment.base_offset in self.swapped:
                segment.rebuild_indexes()
                if segment.aborted is not None:
                    segment.aborted.reset()
                self.unindexed.append(segment)

    def _find_end(self) -> int:
        if not self.segments:
            if self.recovery_point and not self.one_at_a_time:
                what = f"{self.directory} holds no .log file, but all up to offset {self.recovery_point} was synced"
                raise DamagedLogError(f"{what}{_HINT}")
            return 0
        if self.clean:
            return self._find_clean_end(self.segments[-1])
        # Also the segment that ends at the recovery point: it may have been truncated or rolled after that was reached.
        first = 0
        for number, segment in enumerate(self.segments):
            if segment.base_offset < self.recovery_point:
                first = number
        return self._recover(first)

    def _find_clean_end(self, last: Segment) -> int:
        try:
            end = last.end_offset()
        except CorruptFileError as error:
            raise DamagedLogError(f"{error}, although the node was stopped cleanly{_HINT}") from None
        self._check_reaches(last, end)
        return end

    def _check_reaches(self, last: Segment, end: int) -> None:
        if end < self.recovery_point and not self.one_at_a_time:
            raise DamagedLogError(
                f"{last.log.path} ends before offset {end}, but all up to {self.recovery_point} was synced{_HINT}"
            )

    def _recover(self, first: int) -> int:
        """Check the segments from this one on; what follows the first damage is dropped."""
        end, epoch, damaged = self.segments[first].base_offset, -1, False
        # Behind the recovery point either the file or the batches may be the newer; the batches are what counts.
        told = self.epochs.entries
        self.epochs.bound(0, end)

        has_markers = False

        def accept(position: int, header: BatchHeader, due: int) -> bool:
            nonlocal epoch, has_markers
            if header.base_offset != due and self._skips(segment, position, header):
                return False
            if self.epochs_known and self._contradicts(told, segment, position, header):
                return False
            epoch = header.leader_epoch
            if epoch > self.epochs.latest:
                self.epochs.note(epoch, header.base_offset)
            if header.attributes & CONTROL:
                has_markers = True
            return True

        for number in range(first, len(self.segments)):
            segment = self.segments[number]
            if number > first and not self._follows(segment, end, damaged):
                if self.one_at_a_time:
                    raise DamagedLogError(f"{segment.log.path} does not follow offset {end}{_HINT}")
                self._check_reaches(self.segments[number - 1], end)
                self._remove_segments(self.segments[number:])
                break
            size, has_markers = segment.size, False
            is_last = number == len(self.segments) - 1
            # What reaches into the next segment was truncated before that one was begun, and came back.
            limit = _OFFSET_MAX if is_last else self.segments[number + 1].base_offset
            skip = partial(self._skip_or_cut, segment, limit, is_last)
            end = segment.recover(self.config.index_interval_bytes, epoch, limit, accept, skip)
            damaged = segment.size != size and end != limit
            self.unsynced.append(segment.log)
            if has_markers or segment.aborted is not None:
                self.unindexed.append(segment)
            if not is_last:
                # Those of the active segment stay in memory, as while it is written.
                self.unsynced += [segment.index.finish(), segment.time_index.finish()]
        self._check_reaches(self.segments[-1], end)
        # A file with these alone would be believed by a start that follows a crash right here.
        if self.epochs.entries != told and self.epochs_known:
            self.epochs.write()
        return end

    def _skips(self, segment: Segment, position: int, header: BatchHeader) -> bool:
        """Whether a batch behind a gap has too large an offset: the cleaner leaves gaps too, but none that the next
        batch is in."""
        after = self._header_behind(segment, position, header)
        if after is None:
            return not (self.config.is_compacted or self.was_cleaned)
        return after.base_offset < header.next_offset

    @staticmethod
    def _header_behind(segment: Segment, position: int, header: BatchHeader) -> BatchHeader | None:
        return next((after for _, after in scan_headers(segment.log, position + header.size, segment.size)), None)

    def _contradicts(self, told: Sequence[EpochStart], segment: Segment, position: int, header: BatchHeader) -> bool:
        """Whether the batch alone says another epoch than the file. (No CRC covers it. When its neighbour agrees, it is
        the file that is behind.)"""
        found = bisect_right(told, header.last_offset, key=lambda entry: entry.start_offset)
        if not found or told[found - 1].epoch == header.leader_epoch:
            return False
        after = self._header_behind(segment, position, header)
        return after is None or after.leader_epoch != header.leader_epoch

    def _skip_or_cut(
        self, segment: Segment, limit: int, is_last: bool, position: int, offset: int
    ) -> tuple[int, int] | None:
        """What to do about something that is no batch of this log: None to cut there, or where to go on, (position,
        offset). What was not synced is cut. A synced batch that is damaged within its bounds stays: the log goes on
        behind it, and who reads it is refused. When not even its bounds are known, nobody can tell what follows."""
        if self.one_at_a_time:
            if not is_last or find_batch(segment.log, position + 1, segment.size, offset, limit) is not None:
                raise DamagedLogError(f"{segment.log.path} is damaged at byte {position} (offset {offset}){_HINT}")
            return None
        if offset >= self.recovery_point:
            logger.warning(
                "%s is cut at byte %d (offset %d), %d bytes behind it were not synced or are damaged",
                segment.log.path,
                position,
                offset,
                segment.size - position,
            )
            return None
        _, header = next(scan_headers(segment.log, position, segment.size), (0, None))
        if header is None or header.base_offset != offset or not self._is_followed(segment, position, header, limit):
            raise DamagedLogError(
                f"{segment.log.path} is damaged at byte {position} (offset {offset}), before the recovery point "
                f"{self.recovery_point}{_HINT}"
            )
        logger.error("%s is damaged at byte %d (offset %d)%s", segment.log.path, position, offset, _HINT)
        return position + header.size, header.next_offset

    def _is_followed(self, segment: Segment, position: int, header: BatchHeader, limit: int) -> bool:
        behind = position + header.size
        if behind == segment.size:
            return header.next_offset in (limit, self.recovery_point)
        after = self._header_behind(segment, position, header)
        return after is not None and after.base_offset == header.next_offset

    def _follows(self, segment: Segment, end: int, damaged: bool) -> bool:
        """Whether the segment belongs to the log although the one before it ends so. Up to the recovery point it does:
        what came before may have expired and come back in part, with a rename that a power cut undid. Behind it the
        tail of the segment before was lost, be it at a batch boundary; only the cleaner makes gaps on purpose."""
        if segment.base_offset <= self.recovery_point:
            return segment.base_offset >= end
        return not damaged and (segment.base_offset == end or self.config.is_compacted)

    def _remove_segments(self, segments: list[Segment]) -> None:
        for segment in segments:
            segment.close()
            for path in segment.files():
                self.disk.remove(path)
        self.segments = self.segments[: len(self.segments) - len(segments)]

    def _check_snapshots_reached(self, snapshots: list[int], end: int) -> None:
        """A snapshot of producers is written when all before it was synced, at a roll or at a clean stop."""
        if snapshots and snapshots[-1] > max(end, self.recovery_point):
            name = segment_name(snapshots[-1], SNAPSHOT)
            raise DamagedLogError(f"{self.directory} ends before offset {end}, but {name} is there{_HINT}")

    # Epochs and producers

    def _load_epochs(self) -> bool:
        """False when there is no file, or it cannot be believed: then the batches tell."""
        try:
            return self.epochs.load()
        except CorruptFileError:
            return False

    def _find_epochs(self) -> None:
        self.epochs.clear()
        for segment in self.segments:
            for _, header in scan_headers(segment.log, 0, segment.size):
                if header.leader_epoch > self.epochs.latest:
                    self.epochs.note(header.leader_epoch, header.base_offset)
        self.epochs.write()

    def _check_aborted(self, end: int) -> None:
        for number, segment in enumerate(self.segments):
            if segment.aborted is None or segment in self.unindexed:
                continue
            is_last = number == len(self.segments) - 1
            try:
                segment.aborted.load(segment.base_offset, end if is_last else self.segments[number + 1].base_offset)
            except CorruptFileError as error:
                logger.warning("%s: it is made again", error)
                segment.aborted.reset()
                self.unindexed.append(segment)

    def _load_producers(self, snapshots: list[int], end: int) -> int:
        """Before which offset nothing may be read, because how transactions there ended was lost."""
        self.producers.note_snapshots(snapshots)
        # Behind the recovery point a snapshot may tell of batches that a power cut took, or that it gave back their
        # place. (A flush makes the removal durable before the recovery point passes it.)
        loaded = self.producers.load(end if self.clean else min(end, self.recovery_point))
        self._index_aborted(snapshots, loaded)
        self.producers.remove_strays({segment.base_offset for segment in self.segments}, loaded)
        is_whole = "compact" not in self.config.cleanup_policy
        written, lost_before = replay_producers(self.producers, self.segments, end, is_whole=is_whole)
        self.unsynced += [self.disk.open(path) for path in written]
        for segment in self.unindexed:
            # After a crash that of the active segment stays in memory, as while it is written.
            if (self.clean or segment is not self.segments[-1]) and segment.aborted is not None:
                file = segment.aborted.finish()
                self.unsynced += [] if file is None else [file]
        return lost_before

    def _index_aborted(self, snapshots: list[int], loaded: int) -> None:
        """What was aborted before the snapshot that was loaded, in a segment whose .txnindex is made again: who was in
        a transaction then is known from an earlier one."""
        base_offset = min((segment.base_offset for segment in self.unindexed), default=loaded)
        if base_offset < loaded:
            producers = ProducerStates(self.disk, self.directory)
            earlier = [offset for offset in snapshots if offset <= base_offset]
            producers.note_snapshots(list(earlier))
            producers.load(base_offset)
            # One that a power cut has emptied was removed by that.
            gone = set(earlier).difference(producers.snapshots)
            self.producers.note_snapshots([offset for offset in self.producers.snapshots if offset not in gone])
            _forget_lost(producers, self.segments)
            for segment in self.segments:
                if segment.base_offset < loaded:
                    _replay_segment(producers, segment, loaded)


def replay_producers(
    producers: ProducerStates, segments: list[Segment], end_offset: int, *, is_whole: bool
) -> tuple[list[str], int]:
    """Bring the producers from their own end offset to that of the log; with a snapshot where each segment starts,
    whose paths are returned. `is_whole`: nobody cleans the log. Then a gap is what expired and came back in part when a
    power cut undid renames, and the markers of what was open before it may have been there. Such transactions are
    forgotten; what is before the second value must not be read."""
    written: list[str] = []
    lost_before = 0
    _forget_lost(producers, segments)
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        segment_end = end_offset if is_last else segments[number + 1].base_offset
        if segment_end <= producers.end_offset:
            continue
        reached = _replay_segment(producers, segment, segment_end)
        if is_whole and producers.open_since and reached < segment_end:
            producers.forget_transactions()
            lost_before = segment_end
        if not is_last and (path := producers.take_snapshot(segment_end)) is not None:
            written.append(path)
    producers.end_offset = end_offset
    return written, lost_before


def _forget_lost(producers: ProducerStates, segments: list[Segment]) -> None:
    """The batches between the snapshot and the log are gone, and perhaps with them the marker of what was open."""
    if producers.end_offset < segments[0].base_offset:
        producers.forget_transactions()


def _replay_segment(producers: ProducerStates, segment: Segment, end_offset: int) -> int:
    """The offset behind the last batch before the end."""
    reached = max(producers.end_offset, segment.base_offset)
    found = segment.find(reached)
    for position, header in scan_headers(segment.log, found[0] if found else segment.size, segment.size):
        if header.base_offset >= end_offset:
            break
        reached = header.next_offset
        if header.producer_id >= 0 and header.base_offset >= producers.end_offset:
            if header.is_control:
                _replay_marker(producers, segment, position, header)
            else:
                producers.replay(header)
    return reached


def _replay_marker(producers: ProducerStates, segment: Segment, position: int, header: BatchHeader) -> None:
    ending = read_ending(segment.read_batch(position, header), header)
    if ending is None:
        return
    first_offset = producers.marked(header, ending.coordinator_epoch)
    if first_offset >= 0 and not ending.committed:
        stable_offset = producers.stable_offset(header.next_offset)
        segment.note_aborted(Aborted(header.producer_id, first_offset, header.base_offset, stable_offset))

"""One partition: its segments in order, what stands beside each, and the small files of its directory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final, NamedTuple

from tidelog.kernel.errors import DiskError, ProtocolError
from tidelog.log.errors import CorruptFileError
from tidelog.log.leader_epochs import EpochStart, decode_epochs
from tidelog.log.names import (
    CLEANED,
    DELETED,
    INDEX,
    LEADER_EPOCHS,
    LOG,
    PARTITION_METADATA,
    SNAPSHOT,
    SWAP,
    TEMPORARY,
    TIME_INDEX,
    TXN_INDEX,
    offsets_by_suffix,
    segment_name,
)
from tidelog.log.partition_metadata import decode_topic_id
from tidelog.log.producer_snapshot import decode_snapshot
from tidelog.log.verify.aborts import Aborts
from tidelog.log.verify.batches import BatchWalk
from tidelog.log.verify.indexes import OffsetIndexCheck, Say, TimeIndexCheck
from tidelog.log.verify.report import Files, ReadableFile, Report, read_small
from tidelog.protocol.batch import TRANSACTIONAL, BatchHeader, Record

_OFFSET_MAX: Final = (1 << 63) - 1
_LEFTOVERS: Final = {
    DELETED: "deleted, and removed at the next start",
    CLEANED: "left by a cleaning that did not finish",
    SWAP: "left by a cleaning that did not finish",
    TEMPORARY: "left by a write that did not finish",
}


class Expectation(NamedTuple):
    """What others say of the partition."""

    clean: bool
    """It was closed, and nothing has happened since."""
    recovery_point: int
    """Everything before it was synced."""
    log_start_offset: int = 0
    cleaned_before: int = 0
    """Below this offset compaction has left gaps."""
    deep: Callable[[Record], object] | None = None
    is_metadata_log: bool = False


class PartitionCheck:
    def __init__(self, files: Files, directory: str, report: Report, expected: Expectation) -> None:
        self._files = files
        self._directory = directory
        self._report = report
        self._expected = expected
        self._epochs: list[EpochStart] | None = None
        self._epochs_missing = False
        self._epoch_number = 0
        self.unsettled: list[tuple[str, str, int, int | None]] = []
        """Of the metadata log, damages behind which no whole batch was seen yet."""
        self.first_offset = 0
        self.start_offset = 0
        self.end_offset = 0
        self.latest_epoch = -1
        self.aborts = Aborts()

    def run(self) -> None:
        names = self._files.list_dir(self._directory)
        found = offsets_by_suffix(names)
        self._check_names(names, found)
        self._check_topic_id(names)
        self._load_epochs(names)
        self._check_segments(found)
        self._check_end(found)
        self._check_snapshots(found)
        self._report.partitions += 1
        self._report.end_of_partition()

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    # Names and small files

    def _check_names(self, names: list[str], found: dict[str, list[int]]) -> None:
        known = {segment_name(offset, suffix) for suffix, offsets in found.items() for offset in offsets}
        for name in names:
            if name in known or name in (PARTITION_METADATA, LEADER_EPOCHS):
                continue
            why = next((why for suffix, why in _LEFTOVERS.items() if name.endswith(suffix)), None)
            if why is not None:
                self._report.note(self._path(name), why)
            elif not self._expected.is_metadata_log:
                self._report.note(self._path(name), "no file of a partition")
        for suffix in (INDEX, TIME_INDEX, TXN_INDEX):
            for orphan in sorted(set(found[suffix]).difference(found[LOG])):
                tell = self._report.damage if self._expected.clean else self._report.note
                tell(self._path(segment_name(orphan, suffix)), "there is no .log file of that offset")

    def _check_topic_id(self, names: list[str]) -> None:
        path = self._path(PARTITION_METADATA)
        if PARTITION_METADATA not in names:
            if not self._expected.is_metadata_log:
                self._report.damage(path, "missing: the partition's topic id is not known")
        elif decode_topic_id(read_small(self._files, path, self._report) or b"") is None:
            self._report.damage(path, "does not hold a topic id")

    def _load_epochs(self, names: list[str]) -> None:
        path = self._path(LEADER_EPOCHS)
        data = read_small(self._files, path, self._report) if LEADER_EPOCHS in names else None
        self._epochs_missing = not data
        try:
            self._epochs = decode_epochs(data, path) if data else None
        except CorruptFileError as error:
            self._lost_epochs(str(error).removeprefix(path).strip())

    def _lost_epochs(self, what: str) -> None:
        """It is written without a sync, so a power cut may have torn it."""
        tell = self._report.damage if self._expected.clean else self._report.note
        tell(self._path(LEADER_EPOCHS), f"{what}; it is built again from the batches")

    def _check_snapshots(self, found: dict[str, list[int]]) -> None:
        for offset in found[SNAPSHOT]:
            path = self._path(segment_name(offset, SNAPSHOT))
            try:
                decode_snapshot(read_small(self._files, path, self._report) or b"")
            except CorruptFileError as error:
                if self._is_behind(offset):
                    self._report.note(path, f"{error}; behind the recovery point, so it is not used")
                else:
                    self._report.damage(path, str(error), offset=offset)
            if offset > self.end_offset:
                self._report.note(path, f"the log ends at {self.end_offset}: it is removed at the next start")
        if self._expected.clean and found[LOG] and self.end_offset and self.end_offset not in found[SNAPSHOT]:
            path = self._path(segment_name(self.end_offset, SNAPSHOT))
            self._report.damage(path, "missing: the producers are found by reading the log", offset=self.end_offset)

    # Segments

    def _check_segments(self, found: dict[str, list[int]]) -> None:
        bases = found[LOG]
        if not bases:
            return
        self.first_offset = self.end_offset = bases[0]
        self.start_offset = max(bases[0], self._expected.log_start_offset)
        # As in loading: also the one that ends at the recovery point.
        first_recovered = max((n for n, base in enumerate(bases) if base < self._expected.recovery_point), default=0)
        for number, base in enumerate(bases):
            recovered = not self._expected.clean and number >= first_recovered
            limit = bases[number + 1] if number + 1 < len(bases) else _OFFSET_MAX
            path = self._path(segment_name(base, LOG))
            if self._expected.cleaned_before <= self.end_offset != base:
                self._trouble(
                    path, f"offsets {self.end_offset} to {base - 1} are missing before it", 0, self.end_offset
                )
            try:
                _SegmentCheck(self, base, limit, recovered).run(found)
            except (DiskError, ProtocolError) as error:
                self._report.damage(path, str(error))
                self.end_offset = max(self.end_offset, base)

    def _is_behind(self, offset: int) -> bool:
        return not self._expected.clean and offset >= self._expected.recovery_point

    def _trouble(self, path: str, what: str, position: int, offset: int | None) -> None:
        if self._expected.is_metadata_log and not self._expected.clean:
            # Its batches are synced one by one: only the last one can be torn.
            self.unsettled.append((path, what, position, offset))
        elif offset is not None and self._is_behind(offset):
            self._report.note(path, f"{what}; behind the recovery point: the next start cuts here", position, offset)
        else:
            self._report.damage(path, what, position, offset)

    def settle(self) -> None:
        """A whole batch follows: what was found before it was synced, and is lost."""
        for unsettled in self.unsettled:
            self._report.damage(*unsettled)
        self.unsettled.clear()

    def check_epoch(self, header: BatchHeader) -> None:
        """To be called for batches in order; only where an epoch begins is there anything to see."""
        epochs = self._epochs
        if header.leader_epoch < 0 or header.last_offset < self.start_offset:
            return
        offset = max(header.base_offset, self.start_offset)
        told = -1
        if epochs:
            while self._epoch_number < len(epochs) and epochs[self._epoch_number].start_offset <= offset:
                self._epoch_number += 1
            told = epochs[self._epoch_number - 1].epoch if self._epoch_number else -1
        if told != header.leader_epoch and epochs is not None:
            path = self._path(LEADER_EPOCHS)
            if self._is_behind(offset):
                return
            self._report.damage(
                path, f"says epoch {told}, the batch was written in {header.leader_epoch}", None, offset
            )

    def _check_end(self, found: dict[str, list[int]]) -> None:
        expected, end = self._expected, self.end_offset
        for torn, what, position, offset in self.unsettled:
            self._report.note(torn, f"{what}; the next start cuts here", position, offset)
        if not found[LOG]:
            if expected.recovery_point or expected.clean:
                lost = f": {expected.recovery_point} offsets were written" if expected.recovery_point else ""
                self._report.damage(self._directory, f"holds no .log file{lost}")
            return
        path = self._path(segment_name(found[LOG][-1], LOG))
        if end < expected.recovery_point and not expected.is_metadata_log:
            self._report.damage(path, f"ends at offset {end}; up to {expected.recovery_point} was synced", None, end)
        if self._epochs_missing and end > self.start_offset and not self._is_behind(self.start_offset):
            self._lost_epochs("missing")
        for epoch, start in self._epochs or ():
            if start > end:
                self._report.note(self._path(LEADER_EPOCHS), f"epoch {epoch} begins behind the end, at {start}")


class _SegmentCheck:
    def __init__(self, partition: PartitionCheck, base: int, limit: int, recovered: bool) -> None:
        self._partition = partition
        self._base = base
        self._limit = limit
        self._recovered = recovered
        self._newest = -1
        self._largest = 0

    def run(self, found: dict[str, list[int]]) -> None:
        partition = self._partition
        files, expected, report = partition._files, partition._expected, partition._report
        with ExitStack() as stack:
            path = partition._path(segment_name(self._base, LOG))
            log = files.open(path)
            stack.callback(log.close)
            walk = BatchWalk(
                log,
                next_offset=self._base,
                epoch=partition.latest_epoch,
                limit=self._limit,
                trouble=lambda what, position, offset=None: partition._trouble(path, what, position, offset),
                advance=report.advance,
                may_skip_before=expected.cleaned_before,
                deep=expected.deep,
            )
            offsets = times = None
            if (index := self._open(INDEX, found, stack)) is not None:
                offsets = OffsetIndexCheck(index, self._base, self._say(INDEX))
            if (index := self._open(TIME_INDEX, found, stack)) is not None:
                times = TimeIndexCheck(index, self._base, self._say(TIME_INDEX))
            self._walk(walk, log, offsets, times)
            partition.end_offset = max(partition.end_offset, walk.next_offset)
            partition.latest_epoch = max(partition.latest_epoch, walk.epoch)
            if offsets is not None:
                note: Say = lambda what, at: report.note(self._path(INDEX), what, at)  # noqa: E731
                offsets.finish(walk.size, self._largest, note, walk.damaged)
            if times is not None and not walk.damaged:
                times.finish(walk.next_offset, self._newest)
            self._check_aborted(walk, found, stack)
            report.segments += 1
            report.batches += walk.count
            report.bytes += walk.size

    def _check_aborted(self, walk: BatchWalk, found: dict[str, list[int]], stack: ExitStack) -> None:
        aborts, damaged = self._partition.aborts, bool(walk.damaged)
        if self._base in found[TXN_INDEX]:
            index = self._open(TXN_INDEX, found, stack)
            assert index is not None
            aborts.check(index, self._base, walk.next_offset, self._say(TXN_INDEX), is_damaged=damaged)
        elif aborts.must_be_indexed and not self._recovered and not damaged:
            self._partition._report.damage(self._path(TXN_INDEX), "missing: transactions were aborted in this segment")
        aborts.next_segment()

    def _walk(
        self, walk: BatchWalk, log: ReadableFile, offsets: OffsetIndexCheck | None, times: TimeIndexCheck | None
    ) -> None:
        check_epoch, aborts = self._partition.check_epoch, self._partition.aborts
        for position, header in walk.batches():
            if header.max_timestamp > self._newest and header.record_count:
                self._newest = header.max_timestamp
            if header.batch_length > self._largest:
                self._largest = header.batch_length
            if offsets is not None:
                if position >= offsets.next_position:
                    offsets.visit(position, header, walk.damaged)
                if offsets.awaited is not None:
                    offsets.pass_by(header)
            if times is not None and header.last_offset >= times.next_offset and not walk.damaged:
                times.visit(header, self._newest)
            check_epoch(header)
            if header.attributes & TRANSACTIONAL:
                aborts.visit(header, partial(log.read, position, header.size))
            if self._partition.unsettled:
                self._partition.settle()

    def _path(self, suffix: str) -> str:
        return self._partition._path(segment_name(self._base, suffix))

    def _open(self, suffix: str, found: dict[str, list[int]], stack: ExitStack) -> ReadableFile | None:
        if self._base not in found[suffix]:
            if not self._recovered:
                self._partition._report.damage(self._path(suffix), "missing: it is built again from the log")
            return None
        file = self._partition._files.open(self._path(suffix))
        stack.callback(file.close)
        return file

    def _say(self, suffix: str) -> Say:
        """An index of a segment that the next start looks through is made again, whatever it holds."""
        path, report = self._path(suffix), self._partition._report
        if self._recovered:
            return lambda what, at: report.note(path, f"{what}; the next start builds it again", at)
        return lambda what, at: report.damage(path, what, at)

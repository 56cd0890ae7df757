"""One segment: a run of batches in a .log file, with the two indexes that find an offset or a time in it.

Knows nothing of producers, epochs or other segments. What the indexes hold is made again from the .log whenever it
cannot be believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias, TypeVar

from tidelog.kernel.errors import DiskFullError
from tidelog.kernel.ports import Buffer, Disk, File
from tidelog.log.config import LogConfig
from tidelog.log.deleting import rename_deleted
from tidelog.log.errors import CorruptFileError
from tidelog.log.index import OffsetIndex, TimeIndex
from tidelog.log.names import INDEX, LOG, TIME_INDEX, TXN_INDEX, segment_name
from tidelog.log.reading import Read, waiting
from tidelog.log.scan import scan_batches, scan_headers
from tidelog.log.txn_index import Aborted, AbortedIndex
from tidelog.protocol.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_header

T = TypeVar("T")
# An index that is built for a reader need not have the topic's own density to be right.
_REBUILD_INTERVAL: Final = 4096
_RELATIVE_OFFSET_MAX: Final = 2**31 - 1
NOT_CALM: Final = -(2**63) - 1
"""Earlier than any timestamp: whether to roll must be asked in full."""
IndexMark: TypeAlias = tuple[int, int, int, int]
"""The last offset of a batch, its position, the largest timestamp up to it, the last offset of that one's batch."""


class Tally(NamedTuple):
    """What a segment counts from batch to batch."""

    max_timestamp: int
    max_timestamp_offset: int
    bytes_since_index: int


class Segment:
    __slots__ = (
        "_bytes_since_index",
        "_directory",
        "_disk",
        "_first_timestamp",
        "_max_timestamp",
        "_max_timestamp_offset",
        "aborted",
        "base_offset",
        "calm_config",
        "calm_until",
        "checked",
        "created_ms",
        "damaged",
        "index",
        "index_entries",
        "log",
        "size",
        "suffix",
        "time_index",
        "time_index_entries",
        "trusted_from",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, now_ms: int, new: bool, suffix: str = ""
    ) -> None:
        self._disk = disk
        self._directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        """What the names of its files end with while the cleaner is at it."""
        self.created_ms = now_ms
        self.log: File = disk.open(self._path(LOG), create=new)
        self.size = self.log.size()
        # What may be read without a check (log/checking.py): from a position on, and one interval before it.
        self.trusted_from = 0 if new else self.size
        self.checked = (0, 0)
        self.damaged: set[int] | None = None
        self.index = OffsetIndex(disk, self._path(INDEX), base_offset, new=new)
        self.time_index = TimeIndex(disk, self._path(TIME_INDEX), base_offset, new=new)
        self.aborted: AbortedIndex | None = None
        """None where no transaction was aborted."""
        self.index_entries = 0
        self.time_index_entries = 0
        # What the log has found out of when to roll, so that it need not at each append.
        self.calm_until = NOT_CALM
        self.calm_config: LogConfig | None = None
        self._bytes_since_index = 0
        # None until asked for: most segments of most logs are opened and never looked into.
        self._max_timestamp: int | None = -1 if new else None
        self._max_timestamp_offset = base_offset
        self._first_timestamp: int | None = None

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int, *, now_ms: int, suffix: str = "") -> Segment:
        segment = cls(disk, directory, base_offset, now_ms=now_ms, new=True, suffix=suffix)
        if segment.size or disk.exists(segment._path(INDEX)):
            # Left behind by a removal that a power cut undid: nothing of it belongs to the log any more.
            segment.log.truncate(0)
            segment.size = 0
            segment.index.reset()
            segment.time_index.reset()
            disk.remove(segment._path(TXN_INDEX))
        return segment

    @classmethod
    def reopen(
        cls, disk: Disk, directory: str, base_offset: int, *, now_ms: int, end_offset: int, suffix: str = ""
    ) -> Segment:
        """One that is whole, with its index of aborted transactions if there is one; no offset reaches the end."""
        segment = cls(disk, directory, base_offset, now_ms=now_ms, new=False, suffix=suffix)
        if disk.exists(segment._path(TXN_INDEX)):
            segment.open_aborted()
            assert segment.aborted is not None
            segment.aborted.load(base_offset, end_offset)
        return segment

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{segment_name(self.base_offset, suffix)}{self.suffix}"

    # Writing

    def append(self, data: Buffer, size: int, last_offset: int, max_timestamp: int, index_interval: int) -> int:
        """Write one batch whose offsets are assigned; its position. Nothing has changed when the disk is full."""
        position = self.size
        known = self._max_timestamp
        if known is None:
            known = self.max_timestamp
        if self.log.append((data,)) != size:
            self.log.truncate(position)
            raise DiskFullError(f"no room for {size} bytes in {self.log.path}")
        self.size = position + size
        if max_timestamp > known:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        since = self._bytes_since_index
        if since > index_interval:
            self._add_index_entry(last_offset, position)
            since = 0
        elif position == 0:
            self._first_timestamp = max_timestamp
        self._bytes_since_index = since + size
        return position

    def append_run(self, data: Buffer, batches: list[tuple[int, BatchHeader]], index_interval: int) -> None:
        """Write several batches at once; positions in the list are relative to the data."""
        if self._max_timestamp is None:
            self._max_timestamp = self.max_timestamp
        start = self._append(data)
        for position, header in batches:
            self._note_batch(start + position, header, index_interval)

    def append_marked(self, data: Buffer, entries: Iterable[IndexMark], tally: Tally) -> None:
        """The same, for who has looked at each batch as _note_batch does, with this segment's tally to begin with: the
        index entries that came of it, and the tally now."""
        self._append(data)
        for last_offset, position, timestamp, timestamp_offset in entries:
            self.index.add(last_offset, position)
            self.time_index.maybe_add(timestamp, timestamp_offset)
        self.count_entries()
        self._max_timestamp, self._max_timestamp_offset, self._bytes_since_index = tally

    @property
    def tally(self) -> Tally:
        return Tally(self.max_timestamp, self._max_timestamp_offset, self._bytes_since_index)

    def _append(self, data: Buffer) -> int:
        """Where it begins. Nothing has changed when the disk is full."""
        start = self.size
        if self.log.append((data,)) != len(data):
            self.log.truncate(start)
            raise DiskFullError(f"no room for {len(data)} bytes in {self.log.path}")
        self.size = start + len(data)
        return start

    def _note_batch(self, position: int, header: BatchHeader, index_interval: int) -> None:
        """What the indexes and maxima learn from one batch, in the order in which Kafka does it."""
        assert self._max_timestamp is not None
        if header.max_timestamp > self._max_timestamp and header.record_count:
            # (The cleaner leaves batches without a record, which say when there was one.)
            self._max_timestamp = header.max_timestamp
            self._max_timestamp_offset = header.last_offset
        if position == 0:
            self._first_timestamp = header.max_timestamp
        if self._bytes_since_index > index_interval:
            self._add_index_entry(header.last_offset, position)
            self._bytes_since_index = 0
        self._bytes_since_index += header.size

    def _add_index_entry(self, last_offset: int, position: int) -> None:
        assert self._max_timestamp is not None
        self.index.add(last_offset, position)
        self.time_index.maybe_add(self._max_timestamp, self._max_timestamp_offset)
        self.count_entries()

    def count_entries(self) -> None:
        self.index_entries, self.time_index_entries = self.index.count, self.time_index.count
        self.calm_until = NOT_CALM

    def finish(self) -> list[File]:
        """Complete the indexes, for a roll or a clean stop; the files that must be synced for it."""
        self.with_indexes(lambda: self.time_index.maybe_add(self.max_timestamp, self.max_timestamp_offset))
        files = [self.log, self.index.finish(), self.time_index.finish()]
        if self.aborted is not None and (file := self.aborted.finish()) is not None:
            files.append(file)
        return files

    # Aborted transactions

    def open_aborted(self) -> None:
        """There is a .txnindex file."""
        self.aborted = AbortedIndex(self._disk, self._path(TXN_INDEX), new=False)

    def note_aborted(self, aborted: Aborted) -> None:
        if self.aborted is None:
            self.aborted = AbortedIndex(self._disk, self._path(TXN_INDEX), new=True)
        self.aborted.add(aborted)

    # Timestamps

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp, -1 when no record has one."""
        if self._max_timestamp is None:
            self.load_max_timestamp()
            assert self._max_timestamp is not None
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the first batch with the largest timestamp."""
        if self._max_timestamp is None:
            self.load_max_timestamp()
        return self._max_timestamp_offset

    def load_max_timestamp(self, read: Read = waiting) -> None:
        """Both of them, unless they are known."""
        if self._max_timestamp is not None:
            return

        def load() -> tuple[int, int]:
            timestamp, offset = self.time_index.last(read)
            found = self.find(offset, read)
            for _, header in scan_headers(self.log, found[0] if found else self.size, self.size, read):
                if header.max_timestamp > timestamp and header.record_count:
                    timestamp, offset = header.max_timestamp, header.last_offset
            return timestamp, offset

        self._max_timestamp, self._max_timestamp_offset = self.with_indexes(load)

    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, from which segment.ms counts; -1 without one."""
        if self._first_timestamp is None:
            if self.size < HEADER_SIZE:
                return -1
            self._first_timestamp = read_header(self.log.read(0, HEADER_SIZE)).max_timestamp
        return self._first_timestamp

    def retention_timestamp(self) -> int:
        """What retention.ms counts from: the newest record, or the file's own time when no record tells one."""
        newest = self.max_timestamp
        return newest if newest >= 0 else self._disk.modified_ms(self.log.path)

    # Finding

    def find(self, offset: int, read: Read = waiting) -> tuple[int, BatchHeader] | None:
        """(position, header) of the first batch that ends at or behind the offset."""
        start = self.with_indexes(lambda: self.index.lookup(offset, read))
        if start and not self._is_batch_before(start, offset, read):
            self.rebuild_indexes()
            start = self.index.lookup(offset, read)
        for position, header in scan_headers(self.log, start, self.size, read):
            if header.last_offset >= offset:
                return position, header
        return None

    def _is_batch_before(self, position: int, offset: int, read: Read) -> bool:
        """A power cut may leave entries of batches that were truncated: order alone does not show them."""
        first = next(scan_headers(self.log, position, self.size, read), None)
        return first is not None and self.base_offset <= first[1].base_offset <= offset

    def end_offset(self) -> int:
        """The offset behind the last batch. CorruptFileError when the file does not end with a whole one."""
        last = self.with_indexes(self.index.last)
        if last is not None and not self._is_batch_with(*last):
            self.rebuild_indexes()
            last = self.index.last()
        position, end = 0 if last is None else last[1], self.base_offset
        for at, header in scan_headers(self.log, position, self.size):
            position, end = at + header.size, header.next_offset
        if position != self.size:
            raise CorruptFileError(f"{self.log.path} ends at byte {position} with a part of a batch")
        return end

    def _is_batch_with(self, last_offset: int, position: int) -> bool:
        first = next(scan_headers(self.log, position, self.size), None)
        return first is not None and first[1].last_offset == last_offset

    def read_batch(self, position: int, header: BatchHeader, read: Read = waiting) -> bytes | memoryview:
        return read(self.log, position, header.batch_length + LOG_OVERHEAD)

    # Repair

    def with_indexes(self, action: Callable[[], T]) -> T:
        """Do something that reads the indexes; when they are broken, build them and do it again."""
        try:
            return action()
        except CorruptFileError:
            self.rebuild_indexes()
            return action()

    def rebuild_indexes(self) -> None:
        self._start_indexes()
        next_offset = self.base_offset
        for position, header in scan_headers(self.log, 0, self.size):
            if header.base_offset < next_offset or header.last_offset - self.base_offset > _RELATIVE_OFFSET_MAX:
                break
            next_offset = header.next_offset
            self._note_batch(position, header, _REBUILD_INTERVAL)
        self._end_indexes()
        self.index.finish()
        self.time_index.finish()

    def recover(
        self,
        index_interval: int,
        epoch: int,
        limit: int,
        accept: Callable[[int, BatchHeader, int], bool],
        skip: Callable[[int, int], tuple[int, int] | None] = lambda position, offset: None,
    ) -> int:
        """Check every batch, cut the file before the first bad one or one that reaches the limit, build the indexes;
        the offset behind the end. The epoch is that of the batch before the segment. `accept` is told of each batch,
        with the offset that is due, and may refuse it; `skip` is asked, with position and offset, before anything is
        cut, and may tell where to go on instead."""
        self._start_indexes()
        if self.aborted is not None:
            self.aborted.reset()
        valid, end, trusted_from = 0, self.base_offset, 0
        while True:
            for position, header in scan_batches(self.log, self.size, end, epoch, valid):
                if header.last_offset >= limit or header.last_offset - self.base_offset > _RELATIVE_OFFSET_MAX:
                    break
                if not accept(position, header, end):
                    break
                self._note_batch(position, header, index_interval)
                valid, end, epoch = position + header.size, header.next_offset, header.leader_epoch
            if valid == self.size:
                break
            kept = skip(valid, end)
            if kept is None:
                self.log.truncate(valid)
                self.size = valid
                break
            valid, end = kept
            trusted_from = valid
        self._end_indexes()
        self.trusted_from = trusted_from
        return end

    def _start_indexes(self) -> None:
        self.index.reset()
        self.time_index.reset()
        self._max_timestamp, self._max_timestamp_offset = -1, self.base_offset
        self._first_timestamp = None
        self._bytes_since_index = 0

    def _end_indexes(self) -> None:
        assert self._max_timestamp is not None
        self.time_index.maybe_add(self._max_timestamp, self._max_timestamp_offset)
        self.count_entries()
        self._bytes_since_index = 0

    def truncate_to(self, offset: int) -> int:
        """Drop every batch that reaches the offset; the new end: the offset, or lower when a batch straddled it."""
        found = self.find(offset)
        if found is None:
            return offset
        position, header = found

        def cut() -> None:
            self.index.truncate_to(header.base_offset)
            self.time_index.truncate_to(header.base_offset)

        self.with_indexes(cut)
        if self.aborted is not None:
            self.aborted.truncate_to(header.base_offset)
        self.count_entries()
        self.log.truncate(position)
        self.size = position
        self.trusted_from = min(self.trusted_from, position)
        self.checked = (0, 0)
        self._bytes_since_index = 0
        self._first_timestamp = None
        self._max_timestamp = None if position else -1
        self._max_timestamp_offset = self.base_offset
        return min(offset, header.base_offset)

    # Leaving

    def files(self) -> list[str]:
        return [self._path(suffix) for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX)]

    def close(self) -> None:
        self.log.close()
        self.index.close()
        self.time_index.close()
        if self.aborted is not None:
            self.aborted.close()

    def mark_deleted(self) -> list[str]:
        """Close and rename the files; they are removed later, for the sake of a reader that is still at it."""
        self.close()
        renamed = []
        for path in self.files():
            if self._disk.exists(path):
                renamed += rename_deleted(self._disk, path)
        return renamed

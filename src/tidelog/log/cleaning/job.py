"""One cleaning of one log: first the keys of the dirty part, as many as fit, then one group of segments after another.

Reads the old segments and writes `.cleaned` files beside them, nothing else. It goes in steps, so that whoever drives
it can slow it down or stop it, and puts each group in place before the next is begun. Until the first step it is made
of plain values: it may be sent to another process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Buffer, Disk
from tidelog.log.cleaning.errors import UncleanableError
from tidelog.log.cleaning.grouping import grouped
from tidelog.log.cleaning.keeping import Keeper
from tidelog.log.cleaning.keys import Keys
from tidelog.log.cleaning.leftovers import drop_cleaned
from tidelog.log.cleaning.order import CleanOrder, Source
from tidelog.log.cleaning.reading import Chunk, read_aborted, read_source
from tidelog.log.cleaning.transactions import AbortedRanges, CleanedTransactions
from tidelog.log.names import CLEANED, TXN_INDEX, segment_name
from tidelog.log.segment import Segment
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.records import TwinName

_FILE_BYTES_MAX: Final = 2**31 - 1


class Worked(NamedTuple):
    """So many bytes were read and written since the last step."""

    read_bytes: int
    written_bytes: int = 0


class GroupCleaned(NamedTuple):
    """The `.cleaned` files are complete and durable. They must be in place before the next step."""

    base_offsets: tuple[int, ...]
    """Of the segments that give way to it; its own is the first."""
    size: int


class LogCleaned(NamedTuple):
    """The end of it."""

    end_offset: int
    """All before it is clean."""
    keys: int
    read_bytes: int
    written_bytes: int


Step: TypeAlias = Worked | GroupCleaned | LogCleaned


class CleanJob:
    def __init__(self, order: CleanOrder, twin: TwinName | None = None) -> None:
        """`twin`: native with numba or pure without, if not whichever there is."""
        self._order = order
        self._twin = twin
        self._steps: Iterator[Step] | None = None

    def step(self, disk: Disk) -> Step:
        """UncleanableError when the log is not what it should be; DiskError when the disk fails."""
        if self._steps is None:
            self._steps = self._run(disk)
        try:
            return next(self._steps)
        except ProtocolError as error:
            raise UncleanableError(f"{self._order.directory}: {error}") from None

    def _run(self, disk: Disk) -> Iterator[Step]:
        order = self._order
        drop_cleaned(disk, order.directory)
        aborted = [entry for source in order.sources for entry in read_aborted(disk, order.directory, source)]
        ranges = AbortedRanges([*aborted, *order.aborted_later])
        keys = Keys(order.seed, order.keys_max, self._twin)
        read_bytes = written_bytes = 0
        for read in self._read_keys(disk, ranges, keys):
            read_bytes += read
            yield Worked(read)
        end_offset = keys.latest_offset + 1
        keeper = Keeper(
            keys,
            CleanedTransactions(ranges),
            order.producers,
            now_ms=order.now_ms,
            delete_retention_ms=order.delete_retention_ms,
        )
        sources = [source for source in order.sources if source.base_offset < end_offset]
        for group in grouped(sources, segment_bytes=order.segment_bytes, segment_index_bytes=order.segment_index_bytes):
            cleaned = _CleanedSegment(disk, order, group[0].base_offset, self._twin)
            for work in cleaned.fill(group, keeper):
                read_bytes += work.read_bytes
                written_bytes += work.written_bytes
                yield work
            cleaned.finish()
            yield GroupCleaned(tuple(source.base_offset for source in group), cleaned.size)
        yield LogCleaned(end_offset, len(keys), read_bytes, written_bytes)

    def _read_keys(self, disk: Disk, aborted: AbortedRanges, keys: Keys) -> Iterator[int]:
        """Fill the map from the first dirty offset on; the bytes that were read, now and then. It ends at the end, or
        with a batch when the map is full: then the rest is for another cleaning."""
        order = self._order
        for source in order.sources:
            if source.end_offset <= order.first_dirty_offset:
                continue
            for chunk in read_source(disk, order.directory, source, self._twin):
                wanted = [
                    header.last_offset >= order.first_dirty_offset and not (header.is_control or aborted.holds(header))
                    for header, _, _ in chunk.batches
                ]
                taken = keys.put(chunk.columns, wanted, order.first_dirty_offset)
                if taken:
                    keys.latest_offset = chunk.batches[taken - 1].header.last_offset
                yield chunk.size
                if taken < len(chunk.batches):
                    return
            keys.latest_offset = source.end_offset - 1


class _CleanedSegment:
    """The segment that is written, and its indexes."""

    def __init__(self, disk: Disk, order: CleanOrder, base_offset: int, twin: TwinName | None) -> None:
        self._disk = disk
        self._order = order
        self._twin: TwinName | None = twin
        self._segment = Segment.create(disk, order.directory, base_offset, now_ms=order.now_ms, suffix=CLEANED)

    @property
    def size(self) -> int:
        return self._segment.size

    def fill(self, group: list[Source], keeper: Keeper) -> Iterator[Worked]:
        for source in group:
            for chunk in read_source(self._disk, self._order.directory, source, self._twin):
                yield Worked(chunk.size, self._write(chunk, keeper, ends_group=source is group[-1]))

    def _write(self, chunk: Chunk, keeper: Keeper, *, ends_group: bool) -> int:
        parts: list[Buffer] = []
        run: list[tuple[int, BatchHeader]] = []
        size = 0
        for batch, header in keeper.keep(chunk, ends_group=ends_group):
            parts.append(batch)
            run.append((size, header))
            size += len(batch)
        if self._segment.size + size > _FILE_BYTES_MAX:
            raise UncleanableError(f"{self._segment.log.path} would be larger than a segment can be")
        if size:
            self._segment.append_run(b"".join(parts), run, self._order.index_interval_bytes)
        for aborted in keeper.aborted:
            self._segment.note_aborted(aborted)
        keeper.aborted.clear()
        return size

    def finish(self) -> None:
        """All files of a segment, durable. There is an index of aborted transactions in any case, maybe an empty one:
        a start in the middle of the swap has to tell an old one from a new one."""
        segment, order = self._segment, self._order
        files = segment.finish()
        path = f"{order.directory}/{segment_name(segment.base_offset, TXN_INDEX)}{CLEANED}"
        if segment.aborted is None:
            files.append(self._disk.open(path, create=True))
        self._disk.sync_now(files, (order.directory,))
        segment.close()

"""One cleaning of one log: first the keys of the dirty part, as many as fit, then one group of segments after another.

Reads the old segments and writes `.cleaned` files beside them, nothing else. It goes in steps, so that whoever drives
it can slow it down or stop it, and puts each group in place before the next is begun. Until the first step it is made
of plain values: it may be sent to another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Disk
from tidelog.log.cleaning.errors import UncleanableError
from tidelog.log.cleaning.grouping import grouped
from tidelog.log.cleaning.keeping import Keeper
from tidelog.log.cleaning.keys import Keys
from tidelog.log.cleaning.leftovers import drop_cleaned
from tidelog.log.cleaning.order import CleanOrder, Source
from tidelog.log.cleaning.reading import Stretch, decoded, read_aborted, read_source
from tidelog.log.cleaning.transactions import AbortedRanges, CleanedTransactions
from tidelog.log.cleaning.twins import Twin
from tidelog.log.names import CLEANED, TXN_INDEX, segment_name
from tidelog.log.segment import Segment
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


def _go_on() -> None:
    """For whoever is alone."""


class CleanJob:
    def __init__(self, order: CleanOrder, twin: TwinName | None = None) -> None:
        """`twin`: native with numba or pure without, if not whichever there is."""
        self._order = order
        self._twin = twin
        self._steps: Iterator[Step] | None = None

    def prepare(self) -> None:
        Keys(b"", 0, Twin(self._twin).name)

    def step(self, disk: Disk, give_way: Callable[[], None] = _go_on) -> Step:
        """UncleanableError when the log is not what it should be; DiskError when the disk fails."""
        if self._steps is None:
            self._steps = _joined(self._run(disk, give_way), self._order.step_bytes)
        try:
            step = next(self._steps)
        except ProtocolError as error:
            raise UncleanableError(f"{self._order.directory}: {error}") from None
        if isinstance(step, LogCleaned):
            # The helper may wait for long, with this in it: let go of the keys.
            self._steps = iter(())
        return step

    def _run(self, disk: Disk, give_way: Callable[[], None]) -> Iterator[Step]:
        order = self._order
        drop_cleaned(disk, order.directory)
        aborted = [entry for source in order.sources for entry in read_aborted(disk, order.directory, source)]
        ranges = AbortedRanges([*aborted, *order.aborted_later])
        twin = Twin(self._twin)
        keys = Keys(order.seed, order.keys_max, twin.name)
        read_bytes = written_bytes = 0
        for read in self._read_keys(disk, twin, ranges, keys, give_way):
            read_bytes += read
            yield Worked(read)
        give_way()
        keys.settle(order.first_dirty_offset)
        end_offset = keys.latest_offset + 1
        keeper = Keeper(
            keys,
            twin,
            CleanedTransactions(ranges),
            order.producers,
            now_ms=order.now_ms,
            delete_retention_ms=order.delete_retention_ms,
        )
        sources = [source for source in order.sources if source.base_offset < end_offset]
        for group in grouped(sources, segment_bytes=order.segment_bytes, segment_index_bytes=order.segment_index_bytes):
            cleaned = _CleanedSegment(disk, order, group[0].base_offset, twin, give_way)
            for work in cleaned.fill(group, keeper):
                read_bytes += work.read_bytes
                written_bytes += work.written_bytes
                yield work
            cleaned.finish()
            yield GroupCleaned(tuple(source.base_offset for source in group), cleaned.size)
        yield LogCleaned(end_offset, len(keys), read_bytes, written_bytes)

    def _read_keys(
        self, disk: Disk, twin: Twin, aborted: AbortedRanges, keys: Keys, give_way: Callable[[], None]
    ) -> Iterator[int]:
        """Fill the map from the first dirty offset on; the bytes that were read, now and then. It ends at the end, or
        with a batch when the map is full: then the rest is for another cleaning."""
        order = self._order
        for source in order.sources:
            if source.end_offset <= order.first_dirty_offset:
                continue
            for stretch in read_source(disk, order.directory, source, twin, order.read_bytes):
                give_way()
                rows = twin.loops.data_from(stretch.batches, order.first_dirty_offset)
                gone = {
                    row for row in twin.loops.in_transactions(stretch.batches) if aborted.holds(stretch.header(row))
                }
                if gone:
                    rows = [row for row in rows if row not in gone]
                taken = self._put(stretch, rows, twin, keys, give_way)
                give_way()
                if taken:
                    keys.latest_offset = stretch.last_offset(taken - 1)
                yield len(stretch.data)
                if taken < stretch.batches.count:
                    return
            keys.latest_offset = source.end_offset - 1

    def _put(self, stretch: Stretch, rows: Sequence[int], twin: Twin, keys: Keys, give_way: Callable[[], None]) -> int:
        """The keys of these batches; how many batches of the stretch that has done with: all but with a full map."""
        if not len(rows):
            return stretch.batches.count
        try:
            columns = decoded(stretch, rows, twin)
        except ProtocolError:
            if len(rows) == 1:
                raise
            middle = len(rows) // 2
            taken = self._put(stretch, rows[:middle], twin, keys, give_way)
            return taken if taken < stretch.batches.count else self._put(stretch, rows[middle:], twin, keys, give_way)
        give_way()
        taken = keys.put(columns, [True] * len(rows), self._order.first_dirty_offset)
        return int(rows[taken]) if taken < len(rows) else stretch.batches.count


def _joined(steps: Iterator[Step], step_bytes: int) -> Iterator[Step]:
    """Work is told when it is so much, or when something else follows."""
    read_bytes = written_bytes = 0
    for step in steps:
        if isinstance(step, Worked):
            read_bytes += step.read_bytes
            written_bytes += step.written_bytes
            if read_bytes + written_bytes < step_bytes:
                continue
            yield Worked(read_bytes, written_bytes)
        else:
            if read_bytes:
                yield Worked(read_bytes, written_bytes)
            yield step
        read_bytes = written_bytes = 0


class _CleanedSegment:
    """The segment that is written, and its indexes."""

    def __init__(
        self, disk: Disk, order: CleanOrder, base_offset: int, twin: Twin, give_way: Callable[[], None]
    ) -> None:
        self._disk = disk
        self._give_way = give_way
        self._order = order
        self._twin = twin
        self._segment = Segment.create(disk, order.directory, base_offset, now_ms=order.now_ms, suffix=CLEANED)

    @property
    def size(self) -> int:
        return self._segment.size

    def fill(self, group: list[Source], keeper: Keeper) -> Iterator[Worked]:
        order = self._order
        for source in group:
            for stretch in read_source(self._disk, order.directory, source, self._twin, order.read_bytes):
                before = self.size
                self._give_way()
                for kept in keeper.keep(stretch, ends_group=source is group[-1]):
                    self._give_way()
                    self._write(kept)
                self._give_way()
                for aborted in keeper.aborted:
                    self._segment.note_aborted(aborted)
                keeper.aborted.clear()
                yield Worked(len(stretch.data), self.size - before)

    def _write(self, kept: Any) -> None:
        if self.size + len(kept.data) > _FILE_BYTES_MAX:
            raise UncleanableError(f"{self._segment.log.path} would be larger than a segment can be")
        if len(kept.data):
            kept.append_to(self._segment, self._order.index_interval_bytes)

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

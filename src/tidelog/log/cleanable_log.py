"""What a cleaner does to an open log: segments give way to a cleaned one, step by step (cleaning/swap.py), and what
becomes of a swap that is under way when the log is truncated or closed. It knows segments and names, never records.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.kernel.errors import DiskError, DiskFullError
from tidelog.kernel.ports import Disk
from tidelog.log.cleaning.leftovers import rename_swapped, undo_swaps
from tidelog.log.config import LogConfig
from tidelog.log.names import SWAP
from tidelog.log.producers import ProducerStates
from tidelog.log.readable_log import ReadableLog
from tidelog.log.removals import Removals
from tidelog.log.segment import Segment
from tidelog.log.unsynced import Unsynced


class CleanableLog(ReadableLog):
    __slots__ = (
        "_disk",
        "_removals",
        "_truncations",
        "_unsynced",
        "cleaned_to",
        "config",
        "directory",
        "is_cleaning",
        "producers",
    )

    def __init__(self, disk: Disk, directory: str, topic: str, partition: int, config: LogConfig) -> None:
        super().__init__(topic, partition)
        self._disk = disk
        self.directory = directory
        self.config = config
        self.producers: ProducerStates
        self._removals = Removals()
        self._truncations = 0
        self._unsynced = Unsynced()
        self.is_cleaning = False
        """A cleaner is at work: retention waits."""
        self.cleaned_to = -1
        """The first dirty offset, -1 when nothing was ever cleaned."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    @property
    def truncations(self) -> int:
        return self._truncations

    def segments_at(self, base_offsets: Sequence[int]) -> list[Segment] | None:
        """Neighbours with these base offsets, none of them active; None when they are not there."""
        first = self._segment_number(base_offsets[0])
        found = self._segments[first : first + len(base_offsets)]
        is_same = [segment.base_offset for segment in found] == list(base_offsets)
        return found if is_same and found[-1] is not self._active else None

    def replace_segments(self, olds: list[Segment], now_ms: int) -> None:
        """The cleaned segment is there, durably, under its .swap name: from now on it is read, and the old ones go."""
        first = self._segments.index(olds[0])
        base_offset, end_offset = olds[0].base_offset, self._segments[first + len(olds)].base_offset
        cleaned = Segment.reopen(
            self._disk, self.directory, base_offset, now_ms=now_ms, end_offset=end_offset, suffix=SWAP
        )
        paths: list[str] = []
        for segment in olds:
            self._forget_unsynced(segment)
            paths += segment.mark_deleted()
            if segment is not olds[0]:
                paths += self.producers.mark_deleted(segment.base_offset)
        self._segments[first : first + len(olds)] = [cleaned]
        self._removals.add(now_ms + self.config.file_delete_delay_ms, paths)

    def settle_swap(self) -> None:
        """What was swapped in gets its own name; those of the old ones are durably gone."""
        for number, segment in enumerate(self._segments):
            if segment.suffix:
                end_offset = self._segments[number + 1].base_offset
                segment.close()
                try:
                    rename_swapped(self._disk, self.directory, segment.base_offset)
                except DiskFullError as error:
                    # Half of the names are new: nobody can read it before the next start has made it whole.
                    raise DiskError(str(error)) from None
                self._segments[number] = Segment.reopen(
                    self._disk, self.directory, segment.base_offset, now_ms=segment.created_ms, end_offset=end_offset
                )
                self._unsynced.add(directories=(self.directory,))

    def _end_swap(self) -> None:
        """Blocking: the log is closed, and what is read under its .swap name must have its own."""
        if any(segment.suffix for segment in self._segments):
            self._disk.sync_dir(self.directory)
            self.settle_swap()

    def _give_up_swap(self) -> None:
        """What the cleaner has read is about to change."""
        self._end_swap()
        undo_swaps(self._disk, self.directory)

    def _forget_unsynced(self, segment: Segment) -> None:
        self._unsynced.forget(segment.files())

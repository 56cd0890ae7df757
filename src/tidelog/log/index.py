"""The two indexes of a segment: 8 bytes (offset, position) and 12 bytes (timestamp, offset) an entry.

Offsets are relative to the segment's base. An offset entry names the last offset of a batch and where the batch starts;
a time entry says that up to this offset no timestamp is larger. Timestamps and offsets only grow from entry to entry.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.kernel.ports import Disk, File
from tidelog.log.entry_file import EntryFile
from tidelog.log.reading import Read, waiting

OFFSET_ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")


class OffsetIndex:
    __slots__ = ("_base_offset", "_entries")

    def __init__(self, disk: Disk, path: str, base_offset: int, *, new: bool) -> None:
        self._base_offset = base_offset
        self._entries = EntryFile(disk, path, OFFSET_ENTRY, new=new)

    @property
    def count(self) -> int:
        return self._entries.count

    def add(self, last_offset: int, position: int) -> None:
        self._entries.add(last_offset - self._base_offset, position)

    def lookup(self, offset: int, read: Read = waiting) -> int:
        """The position of a batch that does not start behind the offset, the nearest one known."""
        found = self._entries.floor(offset - self._base_offset, read)
        return self._entries.get(found, read)[1] if found >= 0 else 0

    def before(self, offset: int, back: int, read: Read = waiting) -> tuple[int, int] | None:
        """(position, last offset) of the entry that lookup uses, or of the one so many before it."""
        found = self._entries.floor(offset - self._base_offset, read) - back
        if found < 0:
            return None
        relative, position = self._entries.get(found, read)
        return position, self._base_offset + relative

    def last(self) -> tuple[int, int] | None:
        """(last offset, position) of the last entry."""
        last = self._entries.last()
        return None if last is None else (self._base_offset + last[0], last[1])

    def last_position(self, read: Read = waiting) -> int:
        last = self._entries.last(read)
        return last[1] if last is not None else 0

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of batches that reach the offset."""
        self._entries.truncate(self._entries.floor(offset - 1 - self._base_offset) + 1)

    def reset(self) -> None:
        self._entries.reset()

    def finish(self) -> File:
        return self._entries.finish()

    def close(self) -> None:
        self._entries.close()


class TimeIndex:
    __slots__ = ("_base_offset", "_entries", "_last_timestamp")

    def __init__(self, disk: Disk, path: str, base_offset: int, *, new: bool) -> None:
        self._base_offset = base_offset
        self._entries = EntryFile(disk, path, TIME_ENTRY, new=new)
        self._last_timestamp: int | None = -1 if new else None

    @property
    def count(self) -> int:
        return self._entries.count

    def maybe_add(self, timestamp: int, offset: int) -> None:
        """Only what is newer than the last entry says something new."""
        last = self._last_timestamp
        if last is None:
            last = self.last()[0]
        if timestamp > last:
            self._entries.add(timestamp, offset - self._base_offset)
            self._last_timestamp = timestamp

    def last(self, read: Read = waiting) -> tuple[int, int]:
        """(timestamp, offset) of the last entry, (-1, base offset) without one."""
        last = self._entries.last(read)
        timestamp, relative = last if last is not None else (-1, 0)
        self._last_timestamp = timestamp
        return timestamp, self._base_offset + relative

    def lookup(self, timestamp: int, read: Read = waiting) -> int:
        """An offset such that no record before it has a timestamp of at least the one given."""
        found = self._entries.floor(timestamp - 1, read)
        return self._base_offset + (self._entries.get(found, read)[1] if found >= 0 else 0)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries that name the offset or a later one; offsets grow with the timestamps."""
        relative = offset - self._base_offset
        low, high = 0, self._entries.count
        while low < high:
            middle = (low + high) // 2
            if self._entries.get(middle)[1] < relative:
                low = middle + 1
            else:
                high = middle
        self._entries.truncate(low)
        self._last_timestamp = None

    def reset(self) -> None:
        self._entries.reset()
        self._last_timestamp = -1

    def finish(self) -> File:
        return self._entries.finish()

    def close(self) -> None:
        self._entries.close()

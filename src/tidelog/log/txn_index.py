"""The `.txnindex` of a segment: its aborted transactions, in the order of their markers.

As with the other indexes, new entries wait in memory until there are many or the segment is rolled or closed; after a
crash they are made again from the markers. Kafka keeps no file where nothing was aborted, and neither does this.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from tidelog.kernel.ports import Disk, File
from tidelog.log.entry_file import EntryFile
from tidelog.log.errors import CorruptFileError
from tidelog.log.reading import Read, waiting

ABORTED_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0
_LAST_OFFSET: Final = 3


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """That of the marker."""
    last_stable_offset: int
    """When the marker was written: a transaction whose marker came later begins there or behind."""


class AbortedIndex:
    __slots__ = ("_disk", "_entries", "_path", "last_offset")

    def __init__(self, disk: Disk, path: str, *, new: bool) -> None:
        self._disk = disk
        self._path = path
        self._entries = EntryFile(disk, path, ABORTED_ENTRY, new=new, key=_LAST_OFFSET)
        self.last_offset = -1
        """That of the last marker in here."""

    def load(self, base_offset: int, end_offset: int) -> None:
        """Look at the ends of a file that was there. CorruptFileError when it cannot be that of these offsets."""
        for entry in (self._entries.get(0), self._entries.last()) if self._entries.count else ():
            assert entry is not None
            version, _, first_offset, last_offset, _ = entry
            if version != _VERSION or first_offset > last_offset or not base_offset <= last_offset < end_offset:
                raise CorruptFileError(f"{self._path} has an entry that is not of its segment")
            self.last_offset = last_offset

    def add(self, aborted: Aborted) -> None:
        """Unless it is known: what is replayed may be in here already."""
        if aborted.last_offset > self.last_offset:
            self._entries.add(_VERSION, *aborted)
            self.last_offset = aborted.last_offset

    def collect(self, offset: int, end_offset: int, found: list[tuple[int, int]], read: Read = waiting) -> bool:
        """Add (producer, first offset) of those that a reader of these offsets must know of. Whether that is all, also
        of the segments behind this one."""
        if self.last_offset < offset:
            return False
        start = self._entries.floor(offset - 1, read) + 1
        for _, producer_id, first_offset, _, last_stable_offset in self._entries.entries_from(start, read):
            if first_offset < end_offset:
                found.append((producer_id, first_offset))
            if last_stable_offset >= end_offset:
                return True
        return False

    def entries(self, read: Read = waiting) -> Iterator[Aborted]:
        for fields in self._entries.entries_from(0, read):
            yield Aborted._make(fields[1:])

    def truncate_to(self, offset: int) -> None:
        """Drop those whose marker is at the offset or behind it."""
        self._entries.truncate(self._entries.floor(offset - 1) + 1)
        last = self._entries.last()
        self.last_offset = -1 if last is None else last[_LAST_OFFSET]

    def reset(self) -> None:
        self._entries.reset()
        self.last_offset = -1

    def finish(self) -> File | None:
        """Write what is pending; the file, if there is one."""
        if self._entries.count:
            return self._entries.finish()
        self._entries.close()
        self._disk.remove(self._path)
        self._entries = EntryFile(self._disk, self._path, ABORTED_ENTRY, new=True, key=_LAST_OFFSET)
        return None

    def close(self) -> None:
        self._entries.close()

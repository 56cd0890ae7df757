"""A file of equal entries, ordered by one of their fields: what the indexes of a segment are.

New entries gather in memory and reach the file some hundred at a time, or when the segment is rolled or closed: an
index is made again from the log after a crash, so nothing is lost, and a produce request costs one write, not three.
Only the size of the file is known until an entry is asked for: most segments are never read. The block that was last
searched is kept: who reads a log from end to end asks for the next entries there.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from tidelog.kernel.errors import DiskFullError
from tidelog.kernel.ports import Buffer, Disk, File
from tidelog.log.errors import CorruptFileError
from tidelog.log.reading import Read, waiting

_PENDING_MAX: Final = 512
_BLOCK: Final = 512


class EntryFile:
    __slots__ = (
        "_block",
        "_block_start",
        "_disk",
        "_file",
        "_is_stale",
        "_key",
        "_path",
        "_pending",
        "_stored",
        "_struct",
    )

    def __init__(self, disk: Disk, path: str, struct: Struct, *, new: bool, key: int = 0) -> None:
        """`key` is the number of the field that orders the entries."""
        self._disk = disk
        self._path = path
        self._struct = struct
        self._key = key
        self._file: File | None = None
        self._pending: bytearray | None = None
        self._stored = 0 if new else -1
        self._is_stale = False
        self._block: bytes | memoryview = b""
        self._block_start = 0

    @property
    def count(self) -> int:
        return self._load() + (len(self._pending) // self._struct.size if self._pending else 0)

    def add(self, *fields: int) -> None:
        pending = self._pending
        if pending is None:
            pending = self._pending = bytearray()
        pending += self._struct.pack(*fields)
        if len(pending) >= _PENDING_MAX * self._struct.size:
            self._write_pending()

    def get(self, index: int, read: Read = waiting) -> tuple[int, ...]:
        stored = self._load(read)
        if index < stored:
            return self._stored_entry(index, read)
        assert self._pending is not None
        return self._struct.unpack_from(self._pending, (index - stored) * self._struct.size)

    def _stored_entry(self, index: int, read: Read) -> tuple[int, ...]:
        size = self._struct.size
        at = (index - self._block_start) * size
        if 0 <= at < len(self._block):
            return self._struct.unpack_from(self._block, at)
        data = read(self._opened(), index * size, size)
        if len(data) < size:
            raise CorruptFileError(f"{self._path} became shorter")
        return self._struct.unpack(data)

    def last(self, read: Read = waiting) -> tuple[int, ...] | None:
        self._load(read)
        count = self.count
        return self.get(count - 1, read) if count else None

    def floor(self, key: int, read: Read = waiting) -> int:
        """The number of the last entry whose key is at most the given one, -1 when there is none."""
        stored = self._load(read)
        pending = self._pending
        if pending and self._struct.unpack_from(pending, 0)[self._key] <= key:
            return stored + self._floor_in(pending, len(pending) // self._struct.size, key)
        if self._is_in_block(key):
            size = self._struct.size
            return self._block_start + self._floor_in(self._block, len(self._block) // size, key)
        low, high = 0, stored
        while high - low > _BLOCK:
            middle = (low + high) // 2
            if self.get(middle, read)[self._key] <= key:
                low = middle
            else:
                high = middle
        if high == low:
            return -1
        size = self._struct.size
        block = read(self._opened(), low * size, (high - low) * size)
        if len(block) != (high - low) * size:
            raise CorruptFileError(f"{self._path} became shorter")
        self._block, self._block_start = block, low
        found = self._floor_in(block, high - low, key)
        return found if found < 0 else low + found

    def entries_from(self, index: int, read: Read = waiting) -> Iterator[tuple[int, ...]]:
        stored = self._load(read)
        size = self._struct.size
        while index < stored:
            count = min(stored - index, _BLOCK)
            block = read(self._opened(), index * size, count * size)
            if len(block) != count * size:
                raise CorruptFileError(f"{self._path} became shorter")
            yield from self._struct.iter_unpack(block)
            index += count
        if self._pending:
            yield from self._struct.iter_unpack(bytes(self._pending[(index - stored) * size :]))

    def _is_in_block(self, key: int) -> bool:
        """Between its first and its last entry: what follows the last is elsewhere."""
        block, unpack, size, field = self._block, self._struct.unpack_from, self._struct.size, self._key
        return bool(block) and unpack(block, 0)[field] <= key < unpack(block, len(block) - size)[field]

    def _floor_in(self, block: Buffer, count: int, key: int) -> int:
        unpack, size, field = self._struct.unpack_from, self._struct.size, self._key
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if unpack(block, middle * size)[field] <= key:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def truncate(self, count: int) -> None:
        stored = self._load()
        if count < stored:
            self._opened().truncate(count * self._struct.size)
            self._stored = count
            self._pending = None
            self._block = b""
        elif self._pending is not None:
            del self._pending[(count - stored) * self._struct.size :]

    def reset(self) -> None:
        """Start again with no entries, whatever the file holds. That is looked at when there is something to write:
        after a crash it mostly is what is found again, and cutting ten thousand files takes seconds."""
        self._pending = None
        self._stored = 0
        self._is_stale = True
        self._block = b""

    def finish(self) -> File:
        """Write what is pending. The file exists afterwards, even with no entry: without it Kafka builds it again."""
        self._load()
        file = self._opened()
        if self._is_stale:
            self._renew(file)
        if self._pending and not self._write_pending():
            raise DiskFullError(f"no room for {self._path}")
        self._pending = None
        return file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write_pending(self) -> bool:
        """False when the disk is full: the entries stay in memory for another try."""
        pending = self._pending
        assert pending is not None
        stored = self._load()
        try:
            file = self._opened()
        except DiskFullError:
            return False
        if self._is_stale:
            self._renew(file)
            stored, pending = self._stored, self._pending
            if not pending:
                return True
        if file.append((bytes(pending),)) != len(pending):
            file.truncate(stored * self._struct.size)
            return False
        self._stored = stored + len(pending) // self._struct.size
        self._pending = None
        return True

    def _renew(self, file: File) -> None:
        """Keep what the file holds as far as it is what it should hold, and cut the rest."""
        pending = bytes(self._pending or b"")
        held = file.read(0, min(file.size(), len(pending)))
        kept = len(held) // self._struct.size * self._struct.size if pending.startswith(held) else 0
        if file.size() > kept:
            file.truncate(kept)
        self._stored = kept // self._struct.size
        self._pending = bytearray(pending[kept:]) or None
        self._is_stale = False

    def _load(self, read: Read = waiting) -> int:
        stored = self._stored
        if stored < 0:
            size = self._opened().size()
            if size % self._struct.size:
                raise CorruptFileError(f"{self._path} has {size} bytes, no multiple of {self._struct.size}")
            stored = size // self._struct.size
            # A file that was not cut before a crash ends in zeros, smaller than its first entry.
            if stored and self._stored_entry(stored - 1, read)[self._key :] < self._stored_entry(0, read)[self._key :]:
                raise CorruptFileError(f"{self._path} ends below its start")
            self._stored = stored
        return stored

    def _opened(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self._path, create=True)
        return file

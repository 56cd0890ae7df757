"""An open file on the operating system. It has a descriptor while it needs one; the disk keeps the pool."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.kernel.ports import Buffer
from tidelog.runtime.disk_error import FULL, disk_error
from tidelog.runtime.sending import CAN_SEND, OsFileSlice

if TYPE_CHECKING:
    from tidelog.runtime.disk import OsDisk

_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0) if hasattr(os, "preadv") else 0
_NO_NOWAIT: Final = (errno.EOPNOTSUPP, errno.ENOSYS)
"""What a file system answers that cannot tell what is in memory: its files are read as without RWF_NOWAIT."""
PROBED_FROM: Final = 64 * 1024
_LENT_STRIDE: Final = 64 * 1024
_probe: Final = bytearray(1)


class OsFile:
    __slots__ = (
        "_ahead",
        "_broken",
        "_changes",
        "_closed",
        "_cold_reads",
        "_disk",
        "_is_random",
        "_nowait",
        "_path",
        "_size",
        "_synced_changes",
        "_syncs",
        "fd",
        "truncations",
        "used",
    )

    def __init__(self, disk: OsDisk, path: str, size: int) -> None:
        self._disk = disk
        self._path = path
        self._size = size
        self.fd = -1
        self.used = False
        self._changes = 0
        self._synced_changes = 0
        self._syncs = 0
        self._cold_reads = 0
        self._nowait = _NOWAIT
        self._is_random = False
        self._ahead = 0
        """Where to the disk was asked to read ahead for one who reads on from bytes that were not in memory."""
        self.truncations = 0
        self._closed = False
        self._broken = False

    @property
    def path(self) -> str:
        return self._path

    @property
    def is_dirty(self) -> bool:
        return self._changes != self._synced_changes

    @property
    def is_pinned(self) -> bool:
        """A thread uses the descriptor, or a connection sends from it."""
        return bool(self._syncs or self._cold_reads)

    def size(self) -> int:
        return self._size

    def append(self, parts: Sequence[Buffer]) -> int:
        fd = self.fd
        if fd < 0:
            fd = self._disk.acquire(self)
        self.used = True
        if self._changes == self._synced_changes:
            self._disk.descriptors.keep(self)
        self._changes += 1
        size = self._size
        try:
            if len(parts) == 1:
                data = parts[0]
                total = len(data)
                written = self._disk.pwrite(fd, data, size)
            else:
                total = sum(map(len, parts))
                written = self._disk.write_parts(fd, parts, size)
            if written != total:
                written = self._append_rest(fd, b"".join(parts), written)
        except OSError as error:
            if error.errno not in FULL:
                raise disk_error("write to", self._path, error) from None
            written = 0
        self._size = size + written
        return written

    def _append_rest(self, fd: int, data: bytes, written: int) -> int:
        """A write may be short without an error: once more, until all is written or the system says that it is full."""
        rest = memoryview(data)
        while written < len(data):
            try:
                count = self._disk.pwrite(fd, rest[written:], self._size + written)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                break
            if count == 0:
                break
            written += count
        return written

    def read(self, position: int, length: int) -> bytes:
        fd = self.fd
        if fd < 0:
            fd = self._disk.acquire(self)
        self.used = True
        try:
            data = self._disk.pread(fd, length, position)
            if len(data) < length and position + len(data) < self._size:
                data = self._read_rest(fd, data, length, position)
        except OSError as error:
            raise disk_error("read", self._path, error) from None
        return data

    def read_now(self, position: int, length: int) -> bytes | memoryview | None:
        if not self._nowait:
            return self.read(position, length)
        fd = self.fd
        if fd < 0:
            fd = self._disk.acquire(self)
        self.used = True
        done = 0
        try:
            if not self._is_random:
                self._disk.read_ahead_elsewhere(self)
            if length > PROBED_FROM:
                os.preadv(fd, (_probe,), position + length - 1, self._nowait)
                if self._ahead:
                    self._disk.read_ahead(self, position, position + length)
            buffer = memoryview(bytearray(length))
            while done < length:
                count = os.preadv(fd, (buffer[done:] if done else buffer,), position + done, self._nowait)
                if count == 0:
                    break
                done += count
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _NO_NOWAIT:
                raise disk_error("read", self._path, error) from None
            self._nowait = 0
            return self.read(position, length)
        return buffer if done == length else buffer[:done]

    def lend(self, position: int, length: int) -> OsFileSlice | None:
        if not (self._nowait and CAN_SEND):
            return None
        fd = self.fd
        if fd < 0:
            fd = self._disk.acquire(self)
        self.used = True
        end = position + length
        try:
            if not self._is_random:
                self._disk.read_ahead_elsewhere(self)
            if (is_cached := self._disk.is_cached) is not None:
                if not is_cached(fd, position, length):
                    return None
                if self._ahead:
                    # Pages for which the disk is still at work count as in memory.
                    os.preadv(fd, (_probe,), end - 1, self._nowait)
            else:
                # The last byte too. Between two that are in memory one may not be: then the loop waits for it.
                for at in (end - 1, *range(position, end, _LENT_STRIDE)):
                    os.preadv(fd, (_probe,), at, self._nowait)
        except OSError:
            return None
        if self._ahead:
            self._disk.read_ahead(self, position, end)
        self._cold_reads += 1
        self._disk.descriptors.keep(self)
        return OsFileSlice(fd, position, length, self._disk.take_back, self)

    def _read_rest(self, fd: int, data: bytes, length: int, position: int) -> bytes:
        while len(data) < length:
            more = self._disk.pread(fd, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def truncate(self, size: int) -> None:
        fd = self.fd
        if fd < 0:
            fd = self._disk.acquire(self)
        self._disk.descriptors.keep(self)
        self._changes += 1
        try:
            os.ftruncate(fd, size)
        except OSError as error:
            raise disk_error("truncate", self._path, error) from None
        self._size = size
        self.truncations += 1

    def sync(self) -> None:
        self._disk.sync_now((self,))

    def close(self) -> None:
        self._closed = True
        if not self.is_pinned:
            self._disk.descriptors.close(self)

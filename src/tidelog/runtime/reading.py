"""The reading half of the disk port on the operating system, for tools that must not change what they look at.

Everything is opened for reading only: a directory on a read-only file system will do, and no mistake can write.
"""

from __future__ import annotations

import os
from typing import Final

from tidelog.runtime.disk_error import disk_error
from tidelog.runtime.names import ReadNames

_READ_ONLY: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class OsReadableFile:
    __slots__ = ("_fd", "_path", "_size")

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._fd = os.open(path, _READ_ONLY)
            self._size = os.fstat(self._fd).st_size
        except OSError as error:
            raise disk_error("open", path, error) from None

    def size(self) -> int:
        return self._size

    def read(self, position: int, length: int) -> bytes:
        """All of it, also where the system gives less at a time; fewer bytes only at the end of the file."""
        try:
            os.lseek(self._fd, position, os.SEEK_SET)
            data = os.read(self._fd, length)
            while len(data) < length and position + len(data) < self._size:
                more = os.read(self._fd, length - len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise disk_error("read", self._path, error) from None
        return data

    def close(self) -> None:
        os.close(self._fd)


class ReadOnlyFiles(ReadNames):
    def open(self, path: str) -> OsReadableFile:
        return OsReadableFile(path)

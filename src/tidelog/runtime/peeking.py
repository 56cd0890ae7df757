"""Files of somebody else, who goes on writing, renaming and truncating them: only read, and never through a mapping
(one that is truncated kills the process). A directory is held open, so a new one in its place is not taken for it."""

from __future__ import annotations

import contextlib
import os

_READ_ONLY = os.O_RDONLY | os.O_CLOEXEC


class PeekedFile:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.inode = os.fstat(fd).st_ino

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, position: int, length: int) -> bytes:
        """Fewer at the end of the file."""
        return os.pread(self._fd, length, position)

    def read_into(self, room: memoryview, position: int) -> int:
        """How many bytes of the room are filled: fewer than it has at the end of the file."""
        return os.preadv(self._fd, [room], position)

    def will_need(self, position: int, length: int) -> None:
        """The system may bring it into memory meanwhile."""
        os.posix_fadvise(self._fd, position, length, os.POSIX_FADV_WILLNEED)


class PeekedDirectory:
    """OSError for what is not there, or not allowed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, _READ_ONLY | os.O_DIRECTORY)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def names(self) -> list[str]:
        return os.listdir(self._fd)

    def open(self, name: str) -> PeekedFile:
        return PeekedFile(os.open(name, _READ_ONLY, dir_fd=self._fd))

    def inode(self, name: str) -> int | None:
        """Of the file that has the name now, if there is one."""
        with contextlib.suppress(OSError):
            return os.stat(name, dir_fd=self._fd).st_ino
        return None

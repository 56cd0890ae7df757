"""An open file of the simulated disk, and its lock. What happens to the content is the disk's business."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.kernel.errors import DiskError
from tidelog.kernel.ports import Buffer, File
from tidelog.sim.inodes import Inode

if TYPE_CHECKING:
    from tidelog.sim.disk import SimDisk


class SimFile:
    __slots__ = ("_broken", "_closed", "_disk", "_inode", "_path")

    def __init__(self, disk: SimDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._closed = False
        self._broken = False

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return self._inode.content.size

    def append(self, parts: Sequence[Buffer]) -> int:
        self._check_open()
        return self._disk.append_to(self._inode, b"".join(parts), self._path)

    def read(self, position: int, length: int) -> bytes:
        self._check_open()
        self._disk.check_readable(self._path)
        return self._inode.content.read(position, length)

    def read_now(self, position: int, length: int) -> bytes | None:
        return None if self._disk.is_cold() else self.read(position, length)

    def lend(self, position: int, length: int) -> None:
        """There is no socket here that could send it."""

    @property
    def truncations(self) -> int:
        return self._inode.truncations

    def truncate(self, size: int) -> None:
        self._check_open()
        self._disk.step("truncate", self._path)
        self._inode.content.truncate(size)
        self._inode.truncations += 1
        self._disk.touch(self._inode)

    def sync(self) -> None:
        self._disk.sync_now((self,))

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise DiskError(f"cannot use {self._path}: it is closed")


class SimLock:
    def __init__(self, held: set[str], path: str) -> None:
        self._held: set[str] | None = held
        self._path = path

    def release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.discard(self._path)


def trusted(files: Sequence[File]) -> list[SimFile]:
    ours: list[SimFile] = []
    for file in files:
        assert isinstance(file, SimFile)
        if file._broken:
            raise DiskError(f"cannot sync {file.path}: an earlier sync of it failed")
        ours.append(file)
    return ours


def distrust(files: Sequence[SimFile]) -> None:
    """A real kernel marks the pages clean after a failed sync: who tries again would be told that all is well."""
    for file in files:
        file._broken = True

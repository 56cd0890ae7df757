"""The disk port on the operating system.

Owns descriptors: a File is a name, its descriptor comes from a bounded pool and may be closed and opened again. Knows
nothing of logs. Nothing here needs Linux: preadv-like calls, flock and syncfs are looked up when a disk is made or a
lock is taken, and each has a portable twin.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from tidelog.kernel.errors import DiskError
from tidelog.kernel.ports import Buffer, File
from tidelog.runtime.cachestat import find_cachestat
from tidelog.runtime.descriptors import Descriptors, descriptors_max, files_share
from tidelog.runtime.dirlock import DirectoryLock, lock_file
from tidelog.runtime.disk_error import disk_error
from tidelog.runtime.file import PROBED_FROM, OsFile
from tidelog.runtime.names import OsNames
from tidelog.runtime.replacing import Replacing
from tidelog.runtime.syncfs import find_syncfs

T = TypeVar("T")
_READ_WRITE: Final = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_WRITE_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_IOV_MAX: Final = 512
_OPEN_FILES: Final = 2048
_SYNCFS_FROM_FILES: Final = 16
_COLD_READS_AT_ONCE: Final = 4
_READ_AHEAD: Final = 2 << 20
_LEAD: Final = 4 << 20
"""So far ahead of the reader the disk is kept, in steps of _READ_AHEAD."""


def _seek_and_write(fd: int, data: Buffer, position: int) -> int:
    os.lseek(fd, position, os.SEEK_SET)
    return os.write(fd, data)


def _seek_and_read(fd: int, length: int, position: int) -> bytes:
    os.lseek(fd, position, os.SEEK_SET)
    return os.read(fd, length)


class OsDisk(OsNames):
    """`open_files_max` bounds the descriptors of clean files; those with unsynced data keep theirs. When there are
    nearly `dirty_files_max` of them, all are synced: beside the loop if there is one and it leaves time for that.
    Unless given, both follow from what the process may open."""

    def __init__(self, *, open_files_max: int | None = None, dirty_files_max: int | None = None) -> None:
        share = _most_descriptors(_OPEN_FILES)
        self.descriptors = Descriptors(open_files_max or max(share // 2, 1))
        self._dirty_files_max = dirty_files_max if dirty_files_max is not None else max(share, open_files_max or 1)
        self._relief: asyncio.Future[None] | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._replacing = Replacing(self._replace_file)
        self._file_systems: dict[int, int] = {}
        self._syncfs = find_syncfs()
        self.is_cached = find_cachestat()
        self._data_sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
        self.pwrite: Callable[[int, Buffer, int], int] = getattr(os, "pwrite", _seek_and_write)
        self.pread: Callable[[int, int, int], bytes] = getattr(os, "pread", _seek_and_read)
        self._advise: Callable[[int, int, int, int], None] | None = getattr(os, "posix_fadvise", None)
        self._pwritev: Callable[[int, Sequence[Buffer], int], int] | None = getattr(os, "pwritev", None)

    # Files

    def open(self, path: str, *, create: bool = False) -> OsFile:
        try:
            return OsFile(self, path, os.stat(path).st_size)
        except FileNotFoundError as error:
            if not create:
                raise disk_error("open", path, error) from None
        except OSError as error:
            raise disk_error("open", path, error) from None
        file = OsFile(self, path, 0)
        self.acquire(file, os.O_CREAT)
        return file

    def replace_file(self, path: str, data: bytes, *, durable: bool = True) -> None:
        if self._replacing.knows(path):
            self._replacing.write(self._replacing.number([(path, data)]))
        else:
            self._replace_file(path, data, durable)

    def replace_files(self, files: Sequence[tuple[str, bytes]]) -> asyncio.Future[None]:
        numbered = self._replacing.number(files)
        return asyncio.get_running_loop().run_in_executor(self._threads(), self._replacing.write, numbered)

    def _replace_file(self, path: str, data: bytes, durable: bool = True) -> None:
        part = path + ".tmp"
        try:
            _write_whole(part, data, durable=durable)
            os.replace(part, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise disk_error("replace", path, error) from None
        if durable:
            self.sync_dir(os.path.dirname(path))

    def remove_later(self, paths: Sequence[str]) -> asyncio.Future[None]:
        return asyncio.get_running_loop().run_in_executor(self._threads(), self._remove_all, tuple(paths))

    def _remove_all(self, paths: Sequence[str]) -> None:
        """Runs in a thread while the loop goes on."""
        for path in paths:
            if self.is_dir(path):
                self.remove_tree(path)
            else:
                self.remove(path)

    def write_parts(self, fd: int, parts: Sequence[Buffer], position: int) -> int:
        if self._pwritev is None or len(parts) > _IOV_MAX:
            return self.pwrite(fd, b"".join(parts), position)
        return self._pwritev(fd, parts, position)

    def lock(self, path: str) -> DirectoryLock:
        lock = lock_file(path)
        self._watch_file_system(os.path.dirname(path))
        return lock

    # Reads that wait for the disk

    def read_later(self, file: File, position: int, length: int) -> asyncio.Future[bytes]:
        assert isinstance(file, OsFile)
        loop = asyncio.get_running_loop()
        if file._closed:
            gone: asyncio.Future[bytes] = loop.create_future()
            gone.set_result(b"")
            return gone
        if length > PROBED_FROM:
            file._ahead = position + length + _READ_AHEAD
        return asyncio.wrap_future(self._submit(file, self._read_pinned, file.path, position, length), loop=loop)

    def _submit(self, file: OsFile, action: Callable[..., T], *arguments: Any) -> Future[T]:
        """In a thread, with the descriptor, which stays open for it."""
        loop = asyncio.get_running_loop()
        fd = file.fd if file.fd >= 0 else self.acquire(file)
        file._cold_reads += 1
        self.descriptors.keep(file)
        if self._readers is None:
            self._readers = ThreadPoolExecutor(_COLD_READS_AT_ONCE, thread_name_prefix="tidelog-read")
        done = self._readers.submit(action, fd, *arguments)

        def ended(_: Future[T]) -> None:
            # In the loop's thread, and also after a reader that was cancelled: the thread had the descriptor.
            try:
                loop.call_soon_threadsafe(self.take_back, file)
            except RuntimeError:  # the loop is closed: the process is going down
                self.take_back(file)

        done.add_done_callback(ended)
        return done

    def read_ahead(self, file: OsFile, position: int, end: int) -> None:
        """For one who has come to `end` on the way that the disk was asked to read ahead: let it stay ahead."""
        ahead = file._ahead
        if position <= ahead < end + _LEAD:
            file._ahead = ahead + _READ_AHEAD if ahead < file.size() else 0
            if file._ahead:
                self._submit(file, self._will_need, ahead)

    def _will_need(self, fd: int, position: int) -> None:
        if self._advise is not None:
            with contextlib.suppress(OSError):  # only a hint
                self._advise(fd, position, _READ_AHEAD, os.POSIX_FADV_WILLNEED)

    def read_ahead_elsewhere(self, file: OsFile) -> None:
        """The system reads ahead in the thread that reads, megabytes of pages at a time on some machines: not in the
        loop's. The thread that reads what is cold asks for what comes next."""
        file._is_random = True
        if self._advise is not None:
            self._advise(file.fd, 0, 0, os.POSIX_FADV_RANDOM)

    def take_back(self, file: OsFile) -> None:
        file._cold_reads -= 1
        self._let_go(file)

    def _read_pinned(self, fd: int, path: str, position: int, length: int) -> bytes:
        """Runs in a thread: nothing of the file but its descriptor is touched."""
        try:
            data = self.pread(fd, length, position)
            while 0 < len(data) < length and (more := self.pread(fd, length - len(data), position + len(data))):
                data += more
        except OSError as error:
            raise disk_error("read", path, error) from None
        if length > PROBED_FROM:
            self._will_need(fd, position + length)
        return data

    # Durability

    def sync_dir(self, path: str) -> None:
        try:
            self._sync_dir(path)
        except OSError as error:
            raise disk_error("sync", path, error) from None

    def _sync_dir(self, path: str) -> None:
        if os.name == "nt":  # directories cannot be opened there, and names are durable with the files
            return
        fd = os.open(path or ".", os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        ours = self._pin(files)
        done = self._threads().submit(self._sync_pinned, ours, tuple(directories))

        def finished(future: Future[None]) -> None:
            # A waiter that was cancelled must not free descriptors that the thread still syncs.
            # One that left before the thread began changed nothing: neither synced nor failed.
            failed = not future.cancelled() and future.exception() is not None
            ended = [(file, 0) for file, _ in ours] if future.cancelled() else ours
            try:
                loop.call_soon_threadsafe(self._unpin, ended, failed)
            except RuntimeError:  # the loop is closed: the process is going down
                self._unpin(ended, failed)

        done.add_done_callback(finished)
        return asyncio.wrap_future(done, loop=loop)

    def _threads(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=4, thread_name_prefix="tidelog-sync")
        return self._executor

    def sync_now(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        ours = self._pin(files)
        failed = True
        try:
            self._sync_pinned(ours, directories)
            failed = False
        finally:
            self._unpin(ours, failed)

    def _pin(self, files: Sequence[File]) -> list[tuple[OsFile, int]]:
        ours: list[tuple[OsFile, int]] = []
        for file in files:
            assert isinstance(file, OsFile)
            if file._broken:
                raise DiskError(f"cannot sync {file.path}: an earlier sync of it failed")
            ours.append((file, file._changes))
        for file, _ in ours:
            file._syncs += 1
            self.descriptors.keep(file)
        return ours

    def _unpin(self, pinned: list[tuple[OsFile, int]], failed: bool) -> None:
        for file, changes in pinned:
            file._syncs -= 1
            if failed:
                # The kernel marks the pages clean after a failed sync: a second call would lie.
                file._broken = True
            else:
                file._synced_changes = max(file._synced_changes, changes)
            self._let_go(file)

    def _let_go(self, file: OsFile) -> None:
        if file.is_pinned:
            return
        if file._closed:
            self.descriptors.close(file)
        elif not file.is_dirty:
            self.descriptors.let_go(file)

    def _sync_pinned(self, pinned: list[tuple[OsFile, int]], directories: Sequence[str]) -> None:
        """Runs in a thread while the loop goes on."""
        if len(pinned) > _SYNCFS_FROM_FILES and self._sync_file_systems(pinned, directories):
            return
        for file, _ in pinned:
            try:
                self._sync_one(file)
            except OSError as error:
                raise disk_error("sync", file.path, error) from None
        for directory in dict.fromkeys(directories):
            # A topic may be deleted, and its directory renamed, under a round: nobody waits for its names any more.
            try:
                self._sync_dir(directory)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise disk_error("sync", directory, error) from None

    def _sync_one(self, file: OsFile) -> None:
        if file.fd >= 0:
            self._data_sync(file.fd)
            return
        # Not from the pool: that one belongs to the loop's thread.
        try:
            fd = os.open(file.path, _READ_WRITE)
        except FileNotFoundError:  # retention took the file since the round began: nothing is left to keep
            return
        try:
            self._data_sync(fd)
        finally:
            os.close(fd)

    def _watch_file_system(self, directory: str) -> None:
        """syncfs reports the errors since its descriptor was opened: so one must be open before the first write."""
        if self._syncfs is None:
            return
        fd = os.open(directory or ".", os.O_RDONLY)
        if self._file_systems.setdefault(os.fstat(fd).st_dev, fd) != fd:
            os.close(fd)

    def _sync_file_systems(self, pinned: list[tuple[OsFile, int]], directories: Sequence[str]) -> bool:
        """One call for many files; False when one of all lies on a file system that is not watched."""
        if self._syncfs is None:
            return False
        holders = {os.path.dirname(file.path) for file, _ in pinned} | set(directories)
        devices = {_device(directory) for directory in holders}
        if not devices <= self._file_systems.keys():
            return False
        for device in sorted(devices):
            try:
                self._syncfs(self._file_systems[device])
            except OSError as error:
                raise disk_error("sync the file system of", pinned[0][0].path, error) from None
        return True

    # The pool of descriptors

    def acquire(self, file: OsFile, flags: int = 0) -> int:
        """Open the file's descriptor, closing one that was not used lately when there are too many."""
        if file._closed:
            raise DiskError(f"cannot use {file.path}: it is closed")
        if not self.descriptors.make_room():
            if len(self.descriptors) >= self._dirty_files_max:
                self._sync_kept()
            elif len(self.descriptors) > self._dirty_files_max * 3 // 4 and self._relief is None:
                self._relieve()
        try:
            file.fd = os.open(file.path, _READ_WRITE | flags, 0o644)
        except OSError as error:
            raise disk_error("open", file.path, error) from None
        file._is_random = False
        self.descriptors.add(file)
        if file.is_pinned:
            self.descriptors.keep(file)
        return file.fd

    def _sync_kept(self) -> None:
        """So many are written and not synced that none could be opened any more: all at once, which is one call."""
        self.sync_now(self._unsynced())
        self.descriptors.make_room()

    def _relieve(self) -> None:
        """The same before it is too late, while the loop goes on. A failure marks the files: their next sync tells."""
        try:
            self._relief = asyncio.ensure_future(self.sync(self._unsynced()))
        except RuntimeError:  # no loop runs: a start, a stop or a tool, which may wait
            return
        self._relief.add_done_callback(self._relieved)

    def _relieved(self, relief: asyncio.Future[None]) -> None:
        self._relief = None
        if not relief.cancelled():
            relief.exception()

    def _unsynced(self) -> list[OsFile]:
        kept = [file for file in self.descriptors.kept if isinstance(file, OsFile)]
        return [file for file in kept if not file._syncs and not file._broken]

    def close(self) -> None:
        """Close every descriptor; syncs and reads under way finish first."""
        for executor in (self._executor, self._readers):
            if executor is not None:
                executor.shutdown(wait=True)
        self._executor = self._readers = None
        self.descriptors.close_all()
        for fd in self._file_systems.values():
            os.close(fd)
        self._file_systems.clear()


def _write_whole(path: str, data: bytes, *, durable: bool) -> None:
    fd = os.open(path, _WRITE_NEW, 0o644)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def _device(directory: str) -> int:
    """The file system of a directory, -1 when it is gone (or away with a rename)."""
    try:
        return os.stat(directory or ".").st_dev
    except OSError:
        return -1


def _most_descriptors(at_least: int) -> int:
    limit = descriptors_max()
    return at_least if limit is None else files_share(limit)

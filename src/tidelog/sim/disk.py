"""The disk port in memory: knows what was synced, and forgets the rest when the power goes.

A file is an inode with chunks (never a bytearray: a view of one forbids growth) and the content that is durable; a
directory has its names, and those that are durable with the changes since. `crash` gives the disk that a machine finds
when it comes back. Faults are named in DiskFaults; every change is numbered, and a crash can be asked for at any.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from tidelog.kernel.errors import DirectoryLockedError, DiskError, DiskFullError
from tidelog.kernel.ports import File
from tidelog.sim.disk_faults import NEED_NO_ROOM, DiskFaults, Outcome, SimulatedCrash
from tidelog.sim.file import SimFile, SimLock, distrust, trusted
from tidelog.sim.inodes import Directory, Inode, check_replaceable, inodes_below
from tidelog.sim.survivors import Survivors


class SimDisk:
    def __init__(
        self, random: Random, faults: DiskFaults | None = None, *, wall_ms: Callable[[], int] = lambda: 0
    ) -> None:
        self._random = random
        self._wall_ms = wall_ms
        self.faults = faults or DiskFaults()
        self._root = Directory()
        self._replacements: dict[str, tuple[int, int]] = {}
        self._locks: set[str] = set()
        self._crashed = False
        self.operations = 0
        """How many changes there were, before a crash too: the points at which a crash can be asked for."""
        self.trace: list[str] | None = None
        """Set to a list to have every change named in it."""
        self.sync_count = 0
        self.on_crash: Callable[[], None] | None = None
        """Called when a crash point is hit, before anything else can run: the harness kills the node's process."""

    # Faults

    @property
    def is_crashed(self) -> bool:
        return self._crashed

    def check_alive(self) -> None:
        if self._crashed:
            raise SimulatedCrash

    def check_readable(self, path: str) -> None:
        self.check_alive()
        faults = self.faults
        if faults.is_broken(path) or (faults.read_error and self._random.random() < faults.read_error):
            raise DiskError(f"cannot read {path}: Input/output error")

    def step(self, action: str, path: str) -> Outcome:
        """Every change passes here."""
        self.check_alive()
        self.operations += 1
        faults, what = self.faults, f"{action} {path}"
        if self.trace is not None:
            self.trace.append(what)
        if self.operations == faults.fail_at or faults.is_broken(path):
            raise DiskError(f"cannot {what}: Input/output error")
        is_append = action.startswith("append")
        if self.operations in faults.full_at and not action.startswith(NEED_NO_ROOM):
            if is_append:
                return Outcome.SHORT
            raise DiskFullError(f"cannot {what}: No space left on device")
        if self.operations != faults.crash_at:
            return Outcome.WHOLE
        self._crashed = True
        if self.on_crash is not None:
            self.on_crash()
        if is_append:
            return Outcome.TORN
        raise SimulatedCrash

    def is_cold(self) -> bool:
        # Without the fault nothing is drawn: seeds mean what they meant.
        return self.faults.cold_reads > 0 and self._random.random() < self.faults.cold_reads

    def touch(self, inode: Inode) -> None:
        inode.changes += 1
        inode.modified_ms = self._wall_ms()

    def append_to(self, inode: Inode, data: bytes, path: str) -> int:
        outcome = self.step(f"append {len(data)} bytes to", path)
        fits = len(data)
        if self.faults.capacity_bytes is not None:
            fits = max(0, min(fits, self.faults.capacity_bytes - self._measure()))
        if outcome is Outcome.SHORT:
            fits = self._random.randint(0, max(0, min(fits, len(data) - 1)))
        elif outcome is Outcome.TORN:
            fits = self._random.randint(0, fits)
        inode.content.append(data[:fits])
        self.touch(inode)
        if outcome is Outcome.TORN:
            raise SimulatedCrash
        return fits

    def _measure(self) -> int:
        return sum(inode.content.size for inode in inodes_below(self._root, set()))

    def crash(self, *, keep_page_cache: bool) -> SimDisk:
        """The disk after a kill -9 (all that was written is there), or after a power cut (what was not synced is there,
        torn, or gone, as chance has it). This one is dead then; locks are free."""
        self._crashed = True
        faults = replace(self.faults, crash_at=None, fail_at=None, fail_syncs=False, full_at=range(0))
        disk = SimDisk(self._random, faults, wall_ms=self._wall_ms)
        disk.operations = self.operations
        disk._root = Survivors(self._random, keep_page_cache).directory(self._root)
        return disk

    # Names

    def _parent(self, path: str) -> tuple[Directory, str]:
        *parents, name = _parts(path)
        directory = self._root
        for part in parents:
            node = directory.entries.get(part)
            if not isinstance(node, Directory):
                raise DiskError(f"cannot find {path}: no such directory")
            directory = node
        return directory, name

    def _find(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory | None = self._root
        for part in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(part)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise DiskError(f"cannot find {path}: no such directory")
        return node

    def exists(self, path: str) -> bool:
        self.check_alive()
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        self.check_alive()
        return isinstance(self._find(path), Directory)

    def list_dir(self, path: str) -> list[str]:
        self.check_readable(path)
        return sorted(self._directory(path).entries)

    def names_of(self, path: str) -> list[str]:
        """The names in a directory, for the harness: also of a machine that has stopped, none where there is none."""
        node = self._find(path)
        return sorted(node.entries) if isinstance(node, Directory) else []

    def make_dirs(self, path: str) -> None:
        self.check_alive()
        directory = self._root
        for part in _parts(path):
            node = directory.entries.get(part)
            if node is None:
                self.step(f"make the directory {part} of", path)
                node = Directory()
                directory.change(None, part, node)
            if not isinstance(node, Directory):
                raise DiskError(f"cannot create the directory {path}: a file is in its way")
            directory = node

    def rename(self, old: str, new: str) -> None:
        self.check_alive()
        directory, name = self._parent(old)
        target, new_name = self._parent(new)
        node = directory.entries.get(name)
        if node is None:
            raise DiskError(f"cannot rename {old}: no such file")
        check_replaceable(node, target.entries.get(new_name), f"cannot rename {old} to {new}")
        self.step(f"rename {old} to", new)
        if target is directory:
            directory.change(name, new_name, node)
        else:
            directory.change(name, None, node)
            target.change(None, new_name, node)

    def remove(self, path: str) -> None:
        self.check_alive()
        node = self._find(path)
        if isinstance(node, Directory):
            raise DiskError(f"cannot remove {path}: it is a directory")
        if node is not None:
            self._unlink(path, node)

    def remove_tree(self, path: str) -> None:
        self.check_alive()
        node = self._find(path)
        if isinstance(node, Inode):
            raise DiskError(f"cannot remove {path}: it is not a directory")
        if node is not None:
            self._unlink_tree(path, node)

    def _unlink_tree(self, path: str, node: Inode | Directory) -> None:
        if isinstance(node, Directory):
            for name, child in sorted(node.entries.items()):
                self._unlink_tree(f"{path}/{name}", child)
        self._unlink(path, node)

    def _unlink(self, path: str, node: Inode | Directory) -> None:
        self.step("remove", path)
        directory, name = self._parent(path)
        directory.change(name, None, node)

    def modified_ms(self, path: str) -> int:
        self.check_alive()
        node = self._find(path)
        if not isinstance(node, Inode):
            raise DiskError(f"cannot look at {path}: no such file")
        return node.modified_ms

    def lock(self, path: str) -> SimLock:
        self.check_alive()
        if path in self._locks:
            directory = path.rpartition("/")[0]
            raise DirectoryLockedError(f"the data directory {directory} is in use by another node")
        self.open(path, create=True)
        self._locks.add(path)
        return SimLock(self._locks, path)

    def space(self, path: str) -> tuple[int, int]:
        self.check_alive()
        if self.faults.capacity_bytes is None:
            return 1 << 40, 1 << 40
        return self.faults.capacity_bytes, max(0, self.faults.capacity_bytes - self._measure())

    # Files

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.check_alive()
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if node is None:
            if not create:
                raise DiskError(f"cannot open {path}: no such file")
            self.step("create", path)
            node = Inode()
            directory.change(None, name, node)
        if not isinstance(node, Inode):
            raise DiskError(f"cannot open {path}: it is a directory")
        return SimFile(self, path, node)

    def read_file(self, path: str) -> bytes | None:
        self.check_readable(path)
        node = self._find(path)
        return node.content.read(0, node.content.size) if isinstance(node, Inode) else None

    def replace_file(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._replace_file(path, data, self._number_replacement(path), durable)

    def _number_replacement(self, path: str) -> int:
        given, written = self._replacements.get(path, (0, 0))
        self._replacements[path] = (given + 1, written)
        return given + 1

    def _replace_file(self, path: str, data: bytes, number: int, durable: bool) -> None:
        given, written = self._replacements[path]
        if number < written:
            return
        self._replacements[path] = (given, number)
        part = path + ".tmp"
        self.remove(part)
        try:
            file = self.open(part, create=True)
            if file.append((data,)) != len(data):
                raise DiskFullError(f"cannot replace {path}: no room")
            if durable:
                file.sync()
            self.rename(part, path)
        except DiskError:
            with contextlib.suppress(DiskError):
                self.remove(part)
            raise
        if durable:
            self.sync_dir(path.rpartition("/")[0])

    def read_later(self, file: File, position: int, length: int) -> asyncio.Future[bytes]:
        """As a thread would: at some moment before the future is done, from the inode, whatever became of the file."""
        self.check_alive()
        assert isinstance(file, SimFile)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        inode = file._inode

        def done() -> None:
            if self._crashed or future.done():
                return
            try:
                self.check_readable(file.path)
            except DiskError as error:
                future.set_exception(error)
            else:
                future.set_result(inode.content.read(position, length))

        loop.call_later(self._random.uniform(0, self.faults.cold_read_delay_s), done)
        return future

    def replace_files(self, files: Sequence[tuple[str, bytes]]) -> asyncio.Future[None]:
        """All at once when the time of a sync is over, but never over what was asked for later."""
        self.check_alive()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        numbers = [self._number_replacement(path) for path, _ in files]

        def done() -> None:
            if self._crashed or future.done():
                return
            try:
                for (path, data), number in zip(files, numbers, strict=True):
                    self._replace_file(path, data, number, durable=True)
            except SimulatedCrash:
                return  # nobody is left to hear of it
            except DiskError as error:
                future.set_exception(error)
                return
            future.set_result(None)

        loop.call_later(self.faults.sync_delay_s, done)
        return future

    def remove_later(self, paths: Sequence[str]) -> asyncio.Future[None]:
        """When the time of a sync is over."""
        self.check_alive()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def done() -> None:
            if self._crashed or future.done():
                return
            try:
                for path in paths:
                    if self.is_dir(path):
                        self.remove_tree(path)
                    else:
                        self.remove(path)
            except SimulatedCrash:
                return  # nobody is left to hear of it
            except DiskError as error:
                future.set_exception(error)
                return
            future.set_result(None)

        loop.call_later(self.faults.sync_delay_s, done)
        return future

    # Durability

    def sync_dir(self, path: str) -> None:
        self._sync_step(path)
        directory = self._directory(path)
        directory.make_durable(*directory.snapshot())

    def sync_now(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        ours = trusted(files)
        try:
            for file in ours:
                self._sync_step(file.path)
                file._inode.make_durable(file._inode.content.copy(), file._inode.changes)
            for directory in directories:
                self.sync_dir(directory)
        except DiskError:
            distrust(ours)
            raise

    def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> asyncio.Future[None]:
        """Durable when the future is done, not before; what was appended after the call is not part of it."""
        self.check_alive()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        ours = trusted(files)
        contents = [(file._inode, file._inode.content.copy(), file._inode.changes) for file in ours]
        found = [self._directory(path) for path in directories]
        names = [(directory, *directory.snapshot()) for directory in found]

        def done() -> None:
            if self._crashed or future.done():
                return
            try:
                self._sync_step(*(file.path for file in files), *directories)
            except SimulatedCrash:
                return  # nobody is left to hear of it
            except DiskError as error:
                distrust(ours)
                future.set_exception(error)
                return
            for inode, content, changes in contents:
                inode.make_durable(content, changes)
            for directory, entries, changes in names:
                directory.make_durable(entries, changes)
            future.set_result(None)

        loop.call_later(self.faults.sync_delay_s, done)
        return future

    def _sync_step(self, *paths: str) -> None:
        if any(self.faults.is_broken(path) for path in paths):
            raise DiskError(f"cannot sync {', '.join(paths)}: Input/output error")
        self.step("sync", ", ".join(paths))
        self.sync_count += 1
        if self.faults.fail_syncs:
            raise DiskError(f"cannot sync {', '.join(paths)}: Input/output error")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part and part != "."]

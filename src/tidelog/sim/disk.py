"""The disk port in memory: knows what was synced, and forgets the rest when the power goes.

A file is an inode with chunks (never a bytearray: a view of one forbids growth) and the content that is durable; a
directory has its names, and those that are durable with the changes since. `crash` gives the disk that a machine finds
when it comes back. Faults are named in DiskFaults; every change is numbered, and a crash can be asked for at any.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import Final

from tidelog.kernel.errors import DirectoryLockedError, DiskError, DiskFullError
from tidelog.kernel.ports import Buffer, File

SECTOR: Final = 512
_CHUNKS_MAX: Final = 64


# What gives room back, and what fails for good when it fails.
_NEED_NO_ROOM: Final = ("truncate", "remove", "sync")


class Outcome(Enum):
    """How much of a change happens."""

    WHOLE = "whole"
    SHORT = "short"
    TORN = "torn"


class SimulatedCrash(BaseException):
    """The machine stopped in the middle of an operation; no error that the code under test may catch. Nothing touches
    the disk any more: crash() gives a new one."""


@dataclass(slots=True, kw_only=True)
class DiskFaults:
    """What goes wrong, and when. Numbers count the operations that change the disk, from 1."""

    crash_at: int | None = None
    """Stop the machine at this operation; of a write, a part may have happened."""
    fail_at: int | None = None
    """This operation fails with an I/O error."""
    fail_syncs: bool = False
    full_at: range = range(0)
    """These operations find no room: an append is short, a new name is refused."""
    capacity_bytes: int | None = None
    """Writes beyond it are short, as on a full disk."""
    broken_below: tuple[str, ...] = ()
    """Below these directories every change, sync and read fails with an I/O error."""
    read_error: float = 0.0
    """How probable it is that a read fails with an I/O error."""
    sync_delay_s: float = 0.002
    cold_reads: float = 0.0
    """How likely it is that bytes are not in memory: read_now says so then."""
    cold_read_delay_s: float = 0.005

    def is_broken(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{directory}/") for directory in self.broken_below)


class _Content:
    """Immutable chunks and where each starts; copying one shares the chunks."""

    __slots__ = ("chunks", "size", "starts")

    def __init__(self, chunks: list[bytes] | None = None) -> None:
        self.chunks: list[bytes] = []
        self.starts: list[int] = []
        self.size = 0
        for chunk in chunks or ():
            self.append(chunk)

    def copy(self) -> _Content:
        other = _Content()
        other.chunks, other.starts, other.size = self.chunks[:], self.starts[:], self.size
        return other

    def append(self, data: bytes) -> None:
        if not data:
            return
        if len(self.chunks) >= _CHUNKS_MAX:
            self.chunks, self.starts = [b"".join(self.chunks)], [0]
        self.chunks.append(data)
        self.starts.append(self.size)
        self.size += len(data)

    def read(self, position: int, length: int) -> bytes:
        end = min(position + length, self.size)
        if position >= end:
            return b""
        first = bisect_right(self.starts, position) - 1
        parts = []
        for chunk, start in zip(self.chunks[first:], self.starts[first:], strict=True):
            if start >= end:
                break
            parts.append(chunk[max(0, position - start) : end - start])
        return b"".join(parts)

    def truncate(self, size: int) -> None:
        kept = self.read(0, size)
        self.chunks, self.starts, self.size = [], [], 0
        self.append(kept + bytes(size - len(kept)))


class _Inode:
    __slots__ = ("changes", "content", "durable", "durable_changes", "modified_ms", "truncations")

    def __init__(self) -> None:
        self.content = _Content()
        self.durable = _Content()
        self.changes = 0
        self.durable_changes = 0
        self.modified_ms = 0
        self.truncations = 0

    def make_durable(self, content: _Content, changes: int) -> None:
        """An older sync that completes late must not undo a newer one."""
        if changes >= self.durable_changes:
            self.durable, self.durable_changes = content, changes


class _Directory:
    """`changes` are those since the last sync, in order: (old name or None, new name or None, node)."""

    __slots__ = ("changes", "durable", "durable_changes", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, _Inode | _Directory] = {}
        self.durable: dict[str, _Inode | _Directory] = {}
        self.changes: list[tuple[str | None, str | None, _Inode | _Directory]] = []
        self.durable_changes = 0

    def change(self, old: str | None, new: str | None, node: _Inode | _Directory) -> None:
        self.changes.append((old, new, node))
        _apply(self.entries, old, new, node)

    def snapshot(self) -> tuple[dict[str, _Inode | _Directory], int]:
        """The names, and how many changes made them: what a sync that begins now makes durable."""
        return dict(self.entries), self.durable_changes + len(self.changes)

    def make_durable(self, entries: dict[str, _Inode | _Directory], changes: int) -> None:
        """An older sync that completes late must not undo a newer one."""
        if changes >= self.durable_changes:
            del self.changes[: changes - self.durable_changes]
            self.durable, self.durable_changes = entries, changes


def _apply(
    entries: dict[str, _Inode | _Directory], old: str | None, new: str | None, node: _Inode | _Directory
) -> None:
    if old is not None and entries.get(old) is node:
        del entries[old]
    if new is not None:
        entries[new] = node


class SimFile:
    __slots__ = ("_broken", "_closed", "_disk", "_inode", "_path")

    def __init__(self, disk: SimDisk, path: str, inode: _Inode) -> None:
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


class SimDisk:
    def __init__(
        self, random: Random, faults: DiskFaults | None = None, *, wall_ms: Callable[[], int] = lambda: 0
    ) -> None:
        self._random = random
        self._wall_ms = wall_ms
        self.faults = faults or DiskFaults()
        self._root = _Directory()
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
        if self.operations in faults.full_at and not action.startswith(_NEED_NO_ROOM):
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

    def touch(self, inode: _Inode) -> None:
        inode.changes += 1
        inode.modified_ms = self._wall_ms()

    def append_to(self, inode: _Inode, data: bytes, path: str) -> int:
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
        return sum(inode.content.size for inode in _inodes(self._root, set()))

    def crash(self, *, keep_page_cache: bool) -> SimDisk:
        """The disk after a kill -9 (all that was written is there), or after a power cut (what was not synced is there,
        torn, or gone, as chance has it). This one is dead then; locks are free."""
        self._crashed = True
        faults = replace(self.faults, crash_at=None, fail_at=None, fail_syncs=False, full_at=range(0))
        disk = SimDisk(self._random, faults, wall_ms=self._wall_ms)
        disk.operations = self.operations
        disk._root = _Survivors(self._random, keep_page_cache).directory(self._root)
        return disk

    # Names

    def _parent(self, path: str) -> tuple[_Directory, str]:
        *parents, name = _parts(path)
        directory = self._root
        for part in parents:
            node = directory.entries.get(part)
            if not isinstance(node, _Directory):
                raise DiskError(f"cannot find {path}: no such directory")
            directory = node
        return directory, name

    def _find(self, path: str) -> _Inode | _Directory | None:
        node: _Inode | _Directory | None = self._root
        for part in _parts(path):
            if not isinstance(node, _Directory):
                return None
            node = node.entries.get(part)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise DiskError(f"cannot find {path}: no such directory")
        return node

    def exists(self, path: str) -> bool:
        self.check_alive()
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        self.check_alive()
        return isinstance(self._find(path), _Directory)

    def list_dir(self, path: str) -> list[str]:
        self.check_readable(path)
        return sorted(self._directory(path).entries)

    def names_of(self, path: str) -> list[str]:
        """The names in a directory, for the harness: also of a machine that has stopped, none where there is none."""
        node = self._find(path)
        return sorted(node.entries) if isinstance(node, _Directory) else []

    def make_dirs(self, path: str) -> None:
        self.check_alive()
        directory = self._root
        for part in _parts(path):
            node = directory.entries.get(part)
            if node is None:
                self.step(f"make the directory {part} of", path)
                node = _Directory()
                directory.change(None, part, node)
            if not isinstance(node, _Directory):
                raise DiskError(f"cannot create the directory {path}: a file is in its way")
            directory = node

    def rename(self, old: str, new: str) -> None:
        self.check_alive()
        directory, name = self._parent(old)
        target, new_name = self._parent(new)
        node = directory.entries.get(name)
        if node is None:
            raise DiskError(f"cannot rename {old}: no such file")
        _check_replaceable(node, target.entries.get(new_name), f"cannot rename {old} to {new}")
        self.step(f"rename {old} to", new)
        if target is directory:
            directory.change(name, new_name, node)
        else:
            directory.change(name, None, node)
            target.change(None, new_name, node)

    def remove(self, path: str) -> None:
        self.check_alive()
        node = self._find(path)
        if isinstance(node, _Directory):
            raise DiskError(f"cannot remove {path}: it is a directory")
        if node is not None:
            self._unlink(path, node)

    def remove_tree(self, path: str) -> None:
        self.check_alive()
        node = self._find(path)
        if isinstance(node, _Inode):
            raise DiskError(f"cannot remove {path}: it is not a directory")
        if node is not None:
            self._unlink_tree(path, node)

    def _unlink_tree(self, path: str, node: _Inode | _Directory) -> None:
        if isinstance(node, _Directory):
            for name, child in sorted(node.entries.items()):
                self._unlink_tree(f"{path}/{name}", child)
        self._unlink(path, node)

    def _unlink(self, path: str, node: _Inode | _Directory) -> None:
        self.step("remove", path)
        directory, name = self._parent(path)
        directory.change(name, None, node)

    def modified_ms(self, path: str) -> int:
        self.check_alive()
        node = self._find(path)
        if not isinstance(node, _Inode):
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
            node = _Inode()
            directory.change(None, name, node)
        if not isinstance(node, _Inode):
            raise DiskError(f"cannot open {path}: it is a directory")
        return SimFile(self, path, node)

    def read_file(self, path: str) -> bytes | None:
        self.check_readable(path)
        node = self._find(path)
        return node.content.read(0, node.content.size) if isinstance(node, _Inode) else None

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

    # Durability

    def sync_dir(self, path: str) -> None:
        self._sync_step(path)
        directory = self._directory(path)
        directory.make_durable(*directory.snapshot())

    def sync_now(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        ours = _trusted(files)
        try:
            for file in ours:
                self._sync_step(file.path)
                file._inode.make_durable(file._inode.content.copy(), file._inode.changes)
            for directory in directories:
                self.sync_dir(directory)
        except DiskError:
            _distrust(ours)
            raise

    def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> asyncio.Future[None]:
        """Durable when the future is done, not before; what was appended after the call is not part of it."""
        self.check_alive()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        ours = _trusted(files)
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
                _distrust(ours)
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


def _trusted(files: Sequence[File]) -> list[SimFile]:
    ours: list[SimFile] = []
    for file in files:
        assert isinstance(file, SimFile)
        if file._broken:
            raise DiskError(f"cannot sync {file.path}: an earlier sync of it failed")
        ours.append(file)
    return ours


def _distrust(files: Sequence[SimFile]) -> None:
    """A real kernel marks the pages clean after a failed sync: who tries again would be told that all is well."""
    for file in files:
        file._broken = True


class _Survivors:
    """What is left of the nodes after a crash; a node that has two names keeps them."""

    def __init__(self, random: Random, keep_page_cache: bool) -> None:
        self._random = random
        self._keep = keep_page_cache
        self._made: dict[int, _Inode | _Directory] = {}

    def directory(self, old: _Directory) -> _Directory:
        new = _Directory()
        self._made[id(old)] = new
        if self._keep:
            new.durable = {name: self._node(node) for name, node in old.durable.items()}
            new.changes = [(a, b, self._node(node)) for a, b, node in old.changes]
            new.entries = {name: self._node(node) for name, node in old.entries.items()}
            return new
        entries = dict(old.durable)
        chance = self._random.choice((0.0, 0.5, 1.0))
        for change in old.changes:
            if self._random.random() < chance:
                _apply(entries, *change)
        new.entries = {name: self._node(node) for name, node in entries.items()}
        new.durable = dict(new.entries)
        return new

    def _node(self, old: _Inode | _Directory) -> _Inode | _Directory:
        known = self._made.get(id(old))
        if known is None:
            known = self._made[id(old)] = self.directory(old) if isinstance(old, _Directory) else self._inode(old)
        return known

    def _inode(self, old: _Inode) -> _Inode:
        new = _Inode()
        new.modified_ms = old.modified_ms
        if self._keep:
            new.content, new.durable = old.content.copy(), old.durable.copy()
            new.changes, new.durable_changes = old.changes, old.durable_changes
            return new
        content = old.content if old.changes == old.durable_changes else self._torn(old)
        new.content, new.durable = content.copy(), content.copy()
        return new

    def _torn(self, inode: _Inode) -> _Content:
        """Each sector that was not synced is the new one or what was there before, zeros beyond the old end; the length
        is one that the file had or grew through."""
        before = inode.durable.read(0, inode.durable.size)
        after = inode.content.read(0, inode.content.size)
        low, high = sorted((len(before), len(after)))
        size = self._random.choice((low, high, self._random.randint(low, high)))
        chance = self._random.choice((0.0, 0.5, 1.0))
        sectors = []
        for start in range(0, size, SECTOR):
            end = min(start + SECTOR, size)
            is_new = self._random.random() < chance and start < len(after)
            source = after if is_new else before
            sectors.append(source[start:end].ljust(end - start, b"\0"))
        return _Content([b"".join(sectors)])


def _inodes(directory: _Directory, seen: set[int]) -> list[_Inode]:
    found: list[_Inode] = []
    for node in directory.entries.values():
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, _Directory):
            found += _inodes(node, seen)
        else:
            found.append(node)
    return found


def _check_replaceable(node: _Inode | _Directory, target: _Inode | _Directory | None, what: str) -> None:
    """A rename replaces a file by a file and an empty directory by a directory, nothing else."""
    if target is None or target is node:
        return
    if isinstance(node, _Directory) != isinstance(target, _Directory):
        raise DiskError(f"{what}: one is a directory, the other a file")
    if isinstance(target, _Directory) and target.entries:
        raise DiskError(f"{what}: the directory is not empty")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part and part != "."]

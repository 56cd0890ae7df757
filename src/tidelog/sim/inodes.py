"""Files and directories of the simulated disk in memory, each with what of it is durable."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from tidelog.kernel.errors import DiskError

_CHUNKS_MAX: Final = 64


class Content:
    """Immutable chunks and where each starts; copying one shares the chunks."""

    __slots__ = ("chunks", "size", "starts")

    def __init__(self, chunks: list[bytes] | None = None) -> None:
        self.chunks: list[bytes] = []
        self.starts: list[int] = []
        self.size = 0
        for chunk in chunks or ():
            self.append(chunk)

    def copy(self) -> Content:
        other = Content()
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


class Inode:
    __slots__ = ("changes", "content", "durable", "durable_changes", "modified_ms", "truncations")

    def __init__(self) -> None:
        self.content = Content()
        self.durable = Content()
        self.changes = 0
        self.durable_changes = 0
        self.modified_ms = 0
        self.truncations = 0

    def make_durable(self, content: Content, changes: int) -> None:
        """An older sync that completes late must not undo a newer one."""
        if changes >= self.durable_changes:
            self.durable, self.durable_changes = content, changes


class Directory:
    """`changes` are those since the last sync, in order: (old name or None, new name or None, node)."""

    __slots__ = ("changes", "durable", "durable_changes", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}
        self.changes: list[tuple[str | None, str | None, Inode | Directory]] = []
        self.durable_changes = 0

    def change(self, old: str | None, new: str | None, node: Inode | Directory) -> None:
        self.changes.append((old, new, node))
        apply_change(self.entries, old, new, node)

    def snapshot(self) -> tuple[dict[str, Inode | Directory], int]:
        """The names, and how many changes made them: what a sync that begins now makes durable."""
        return dict(self.entries), self.durable_changes + len(self.changes)

    def make_durable(self, entries: dict[str, Inode | Directory], changes: int) -> None:
        """An older sync that completes late must not undo a newer one."""
        if changes >= self.durable_changes:
            del self.changes[: changes - self.durable_changes]
            self.durable, self.durable_changes = entries, changes


def apply_change(
    entries: dict[str, Inode | Directory], old: str | None, new: str | None, node: Inode | Directory
) -> None:
    if old is not None and entries.get(old) is node:
        del entries[old]
    if new is not None:
        entries[new] = node


def inodes_below(directory: Directory, seen: set[int]) -> list[Inode]:
    found: list[Inode] = []
    for node in directory.entries.values():
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Directory):
            found += inodes_below(node, seen)
        else:
            found.append(node)
    return found


def check_replaceable(node: Inode | Directory, target: Inode | Directory | None, what: str) -> None:
    """A rename replaces a file by a file and an empty directory by a directory, nothing else."""
    if target is None or target is node:
        return
    if isinstance(node, Directory) != isinstance(target, Directory):
        raise DiskError(f"{what}: one is a directory, the other a file")
    if isinstance(target, Directory) and target.entries:
        raise DiskError(f"{what}: the directory is not empty")

"""What of a log is written but not yet durable, and rounds that make it so.

Rounds may overlap, and the log goes on while one is under way: a round takes away only what had been there when it
began. The data of the active segment is not kept here; every round has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from tidelog.kernel.ports import File

T = TypeVar("T")


class FlushRound(NamedTuple):
    """What must be synced so that everything before the offset is durable."""

    offset: int
    files: Sequence[File]
    directories: Sequence[str]
    marks: tuple[int, int, int]
    """What had happened to the log when the round began: truncations, epochs written, files and names to be synced."""


class Unsynced:
    """Files and directories, each with the number of the change that made it so."""

    __slots__ = ("changes", "directories", "files")

    def __init__(self) -> None:
        self.files: dict[File, int] = {}
        self.directories: dict[str, int] = {}
        self.changes = 0

    def __bool__(self) -> bool:
        return bool(self.files or self.directories)

    def add(self, files: Iterable[File] = (), directories: Iterable[str] = ()) -> None:
        """The next round has to sync these, also when one that is under way has them too."""
        self.changes += 1
        self.files |= dict.fromkeys(files, self.changes)
        self.directories |= dict.fromkeys(directories, self.changes)

    def forget(self, paths: Iterable[str]) -> None:
        """The files are gone."""
        gone = set(paths)
        self.files = {file: change for file, change in self.files.items() if file.path not in gone}

    def synced(self, change: int) -> None:
        """All up to this change is durable."""
        if self.files or self.directories:
            self.files = _later_than(change, self.files)
            self.directories = _later_than(change, self.directories)


def _later_than(change: int, unsynced: dict[T, int]) -> dict[T, int]:
    return {what: number for what, number in unsynced.items() if number > change}

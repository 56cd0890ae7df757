"""What a check of a data directory finds: damages and notes, each a line, and how much was looked at.

A damage is something that was written and is no longer there, or no longer right. A note is worth knowing and no harm:
what a crash leaves and the next start puts in order, files on their way out. Nothing is kept: each finding goes to a
callback at once, so that a directory full of them costs no memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Literal, NamedTuple, Protocol

from tidelog.kernel.errors import DiskError

_FILE_FINDINGS_MAX: Final = 20


class Finding(NamedTuple):
    severity: Literal["damage", "note"]
    file: str
    what: str
    position: int | None = None
    """Where in the file, in bytes."""
    offset: int | None = None
    """Of the record or batch that is concerned."""

    def line(self) -> str:
        position = "" if self.position is None else f" at byte {self.position}"
        offset = "" if self.offset is None else f" (offset {self.offset})"
        return f"{self.severity}: {self.file}{position}{offset}: {self.what}"


class ReadableFile(Protocol):
    def size(self) -> int: ...

    def read(self, position: int, length: int) -> bytes: ...

    def close(self) -> None: ...


class Files(Protocol):
    """The reading half of the Disk port: who is given only this cannot repair anything by mistake."""

    def open(self, path: str) -> ReadableFile: ...

    def read_file(self, path: str) -> bytes | None: ...

    def is_dir(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> list[str]: ...


class Report:
    def __init__(
        self, on_finding: Callable[[Finding], object], on_bytes: Callable[[int], object] = lambda count: None
    ) -> None:
        self._on_finding = on_finding
        self._per_file: Counter[str] = Counter()
        self.advance = on_bytes
        """Told of every stretch of a .log or .checkpoint file that was read."""
        self.damages = 0
        self.notes = 0
        self.partitions = 0
        self.segments = 0
        self.batches = 0
        self.bytes = 0

    def damage(self, file: str, what: str, position: int | None = None, offset: int | None = None) -> None:
        self.damages += 1
        self._tell(Finding("damage", file, what, position, offset))

    def note(self, file: str, what: str, position: int | None = None, offset: int | None = None) -> None:
        self.notes += 1
        self._tell(Finding("note", file, what, position, offset))

    def _tell(self, finding: Finding) -> None:
        self._per_file[finding.file] += 1
        if self._per_file[finding.file] <= _FILE_FINDINGS_MAX:
            self._on_finding(finding)

    def end_of_partition(self) -> None:
        """Say how much was left unsaid: a file of garbage has a finding every few bytes."""
        for file, count in self._per_file.items():
            if count > _FILE_FINDINGS_MAX:
                self._on_finding(Finding("note", file, f"{count - _FILE_FINDINGS_MAX} more findings are not shown"))
        self._per_file.clear()


def read_small(files: Files, path: str, report: Report) -> bytes | None:
    """A small file; None when there is none, or it cannot be read, which is reported."""
    try:
        return files.read_file(path)
    except DiskError as error:
        report.damage(path, str(error))
        return b""

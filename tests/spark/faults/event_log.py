"""What Spark's event logs have got since the last look. A driver's log grows to hundreds of MB, and is looked at twice
a second while a round waits, so no line is read twice.

A log is one file, or a folder of files that follow each other. The file of a driver that lives ends in `.inprogress`,
which its name loses with the driver's orderly end; it is the same file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LIVES: Final = ".inprogress"


class EventLogs:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def fresh(self) -> Iterator[bytes]:
        """The lines that came since, of all drivers. What is not whole yet is left for the next look, all of it."""
        for file in sorted(self._folder.rglob("[!.]*")):
            if file.is_file():
                yield from self._rest_of(file)

    def _rest_of(self, file: Path) -> Iterator[bytes]:
        log = file.with_name(file.name.removesuffix(_LIVES))
        try:
            lines = file.open("rb")
        except FileNotFoundError:
            return  # renamed since it was listed: the next look finds it
        with lines:
            lines.seek(self._read.get(log, 0))
            for line in lines:
                if not line.endswith(b"\n"):
                    return
                self._read[log] = self._read.get(log, 0) + len(line)
                yield line

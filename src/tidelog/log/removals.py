"""Files that have lost their names and are removed later: whoever still reads them goes on until then."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.kernel.ports import Disk


class Removals:
    """In the order in which they were given up, which is that of their times."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: list[tuple[int, Sequence[str]]] = []

    @property
    def next_ms(self) -> int | None:
        return self._due[0][0] if self._due else None

    def add(self, due_ms: int, paths: Sequence[str]) -> None:
        self._due.append((due_ms, paths))

    def take_due(self, now_ms: int) -> list[str]:
        """Those whose time has come: whoever asks removes them."""
        taken: list[str] = []
        while self._due and self._due[0][0] <= now_ms:
            taken += self._due.pop(0)[1]
        return taken

    def remove_due(self, disk: Disk, now_ms: int) -> int:
        """The same, blocking; how many files."""
        taken = self.take_due(now_ms)
        for path in taken:
            disk.remove(path)
        return len(taken)

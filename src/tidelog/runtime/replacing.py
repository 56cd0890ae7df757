"""Small files replaced from two threads: of two contents for one path the later one stays, whichever is written first.

Numbers are given in the loop's thread, contents are written wherever; only paths that were ever replaced beside the
loop are remembered, which are few.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

Numbered = tuple[str, bytes, int]


class Replacing:
    def __init__(self, replace: Callable[[str, bytes], None]) -> None:
        self._replace = replace
        self._given: dict[str, int] = {}
        self._written: dict[str, int] = {}
        self._lock = threading.Lock()

    def knows(self, path: str) -> bool:
        return path in self._given

    def number(self, files: Sequence[tuple[str, bytes]]) -> list[Numbered]:
        """In the order of the calls, before anything is handed to a thread."""
        numbered = []
        for path, data in files:
            self._given[path] = self._given.get(path, 0) + 1
            numbered.append((path, data, self._given[path]))
        return numbered

    def write(self, files: Sequence[Numbered]) -> None:
        with self._lock:
            for path, data, number in files:
                if number > self._written.get(path, 0):
                    self._replace(path, data)
                    self._written[path] = number
